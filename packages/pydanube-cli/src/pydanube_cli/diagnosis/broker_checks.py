"""The checks of `danube doctor` on a running broker, through its public interfaces."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Iterator
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.request import urlopen

from pydanube.client.client import connect
from pydanube.model.errors import BrokerError
from pydanube_cli.diagnosis import findings
from pydanube_cli.diagnosis.findings import Finding

HTTP_TIMEOUT_S = 5.0
ANSWER_BYTES_MAX = 1024 * 1024


async def check_broker(url: str) -> AsyncIterator[Finding]:
    """Check the broker at *url*, and its cluster if it is in one."""
    try:
        async with connect(url) as client:
            begun_at = time.perf_counter()
            described = await client.cluster.describe()
            round_trip_s = time.perf_counter() - begun_at
            name = (await client.requester.connection()).welcome.broker
            yield findings.broker_version(name, round_trip_s)
            if described.shard_count:
                yield findings.cluster(described)
            for broker_id, storage in (await client.storage.describe_all()).items():
                yield findings.storage(broker_id, storage)
            topic_count = len(await client.topics.list())
            yield findings.subscriptions(
                await client.cluster.list_findings(), topic_count
            )
    except BrokerError as error:
        yield findings.unreachable(
            "broker",
            str(error),
            "give the broker's address with --url",
        )


def check_http(url: str) -> Iterator[Finding]:
    """Check the readiness and the clock of the broker with the HTTP port *url*."""
    try:
        status, date, body = _get(f"{url.rstrip('/')}/readyz")
        answer = json.loads(body)
        reasons = [str(each) for each in answer.get("problems", [])]
        if "message" in answer:
            reasons.insert(0, str(answer["message"]))
        skew_s = parsedate_to_datetime(date).timestamp() - time.time_ns() / 1e9
    except (OSError, HTTPException, ValueError, AttributeError, TypeError) as error:
        yield findings.unreachable(
            "HTTP port",
            f"{url} does not answer as a broker: {getattr(error, 'reason', error)}",
            "give the broker's HTTP port with --http-url",
        )
        return
    yield findings.readiness(is_ready=status == 200, reasons=reasons)
    yield findings.clock(skew_s)


def _get(url: str) -> tuple[int, str, bytes]:
    """Return the status, the date and the body of the answer."""
    try:
        answer = urlopen(url, timeout=HTTP_TIMEOUT_S)  # noqa: S310  # As the user says.
    except HTTPError as error:
        answer = error
    with answer:
        return answer.status, answer.headers["Date"], answer.read(ANSWER_BYTES_MAX)
