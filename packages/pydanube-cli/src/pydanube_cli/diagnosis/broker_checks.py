"""The checks of `danube doctor` on a running broker, through its public interfaces."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.request import urlopen

from pydanube.client.client import connect
from pydanube.model.errors import BrokerError
from pydanube_cli.diagnosis import findings
from pydanube_cli.diagnosis.findings import Finding

DEFAULT_HTTP_URL = "http://127.0.0.1:8080"
"""Where the HTTP port is if the broker does not say."""
HTTP_TIMEOUT_S = 5.0
ANSWER_BYTES_MAX = 1024 * 1024


async def check_broker(url: str) -> tuple[list[Finding], str]:
    """
    Check the broker at *url*, and its cluster if it is in one.

    Returns: The findings, and the address of its HTTP port, empty if it is unknown.
    """
    found: list[Finding] = []
    http_url = ""
    try:
        async with connect(url) as client:
            broker = await client.cluster.describe_broker()
            http_url = broker.http_url
            begun_at = time.perf_counter()
            described = await client.cluster.describe()
            round_trip_s = time.perf_counter() - begun_at
            found.append(findings.broker_version(broker.version, round_trip_s))
            if described.shard_count:
                found.append(findings.cluster(described))
            for broker_id, storage in (await client.storage.describe_all()).items():
                found.append(findings.storage(broker_id, storage))
            if (stored := await client.connectors.list()).connectors:
                found.append(findings.connectors(stored))
            topic_count = len(await client.topics.list())
            found.append(
                findings.subscriptions(
                    await client.cluster.list_findings(), topic_count
                )
            )
    except BrokerError as error:
        found.append(
            findings.unreachable(
                "broker",
                str(error),
                "give the broker's address with --url",
            )
        )
    return found, http_url


def check_http(url: str, ca_file: str | None = None) -> Iterator[Finding]:
    """
    Check the readiness and the clock of the broker with the HTTP port *url*.

    *ca_file* has the authorities to trust; by default they are the system's.
    """
    try:
        status, date, body = _get(f"{url.rstrip('/')}/readyz", ca_file)
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


def _get(url: str, ca_file: str | None) -> tuple[int, str, bytes]:
    """Return the status, the date and the body of the answer."""
    context = None
    if url.startswith("https:"):
        context = ssl.create_default_context(cafile=ca_file)
    try:
        # The user, or the broker, has given the address.
        answer = urlopen(url, timeout=HTTP_TIMEOUT_S, context=context)  # noqa: S310
    except HTTPError as error:
        answer = error
    with answer:
        return answer.status, answer.headers["Date"], answer.read(ANSWER_BYTES_MAX)
