"""The checks of `danube doctor` on a running broker, through its public interfaces."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Coroutine
from contextlib import AsyncExitStack, suppress
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

from pydanube.aio.tasks import gather
from pydanube.client.client import Client, connect
from pydanube.client.connections.urls import options_of
from pydanube.model.descriptions import StorageDescription
from pydanube.model.errors import BrokerError, ConnectionLost, InvalidRequest
from pydanube.model.findings import FINDINGS_MAX, Findings, merged
from pydanube.wire.native.messages import from_wire
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_cli.diagnosis import findings
from pydanube_cli.diagnosis.findings import Finding

DEFAULT_HTTP_URL = "http://127.0.0.1:8080"
"""Where the HTTP port is if the broker does not say."""
SILENT_S = 3.0
"""How long a broker may be silent before a request or a connection is tried again."""
RETRY_S = 1.0
CHECK_S = 10.0
"""The longest that one check through the native protocol takes."""
CONNECTIONS_MAX = 3
"""How often a connection without an answer is opened again: processes of a broker share
its ports, and one of them may stand still."""
ANSWER_BYTES_MAX = 1024 * 1024


async def check_broker(url: str, http_url: str | None = None) -> list[Finding]:
    """
    Check the broker at *url*, its cluster if it is in one, and its HTTP port.

    The HTTP port is *http_url*, or where the broker says.  The checks run at the same
    time, and each has a limit.  A broker of a cluster, or a process of several, that
    does not answer is a finding of its own.
    """
    async with AsyncExitStack() as stack:
        told_url = ""
        try:
            client = await _connected(stack, url)
            broker = await client.cluster.describe_broker()
        except BrokerError as error:
            checks = [_unreachable(str(error))]
        else:
            told_url = broker.http_url
            checks = [
                _limited("broker", _check_brokers(client, broker.version)),
                _limited("connectors", _check_connectors(client)),
            ]
        checks.append(_check_http(http_url or told_url or DEFAULT_HTTP_URL, url))
        return [each for found in await gather(checks) for each in found]


async def _connected(stack: AsyncExitStack, url: str) -> Client:
    """Return a client that stays connected until *stack* is closed."""
    for left in reversed(range(CONNECTIONS_MAX)):
        begun_at = time.monotonic()
        try:
            return await stack.enter_async_context(
                connect(url, connect_timeout_s=SILENT_S, retry_s=RETRY_S)
            )
        except ConnectionLost:
            if not left or time.monotonic() - begun_at < SILENT_S:
                raise
    raise AssertionError("the last attempt raises")


async def _limited(
    check: str, work: Coroutine[object, object, list[Finding]]
) -> list[Finding]:
    """Return the findings of *work*, or that it failed or took too long."""
    try:
        async with asyncio.timeout(CHECK_S):
            return await work
    except BrokerError as error:
        reason = str(error)
    except TimeoutError:
        reason = f"no answer within {CHECK_S:g} s"
    return [findings.unreachable(check, reason, "see the broker's log")]


async def _unreachable(reason: str) -> list[Finding]:
    advice = "give the broker's address with --url"
    return [findings.unreachable("broker", reason, advice)]


async def _check_brokers(client: Client, version: str) -> list[Finding]:
    begun_at = time.perf_counter()
    described = await client.cluster.describe()
    round_trip_s = time.perf_counter() - begun_at
    found = [findings.broker_version(version, round_trip_s)]
    if described.shard_count:
        found.append(findings.cluster(described))
    topic_count = len(await client.topics.list())
    # Outside of a cluster, the only broker has no name.
    urls = {each.broker_id: each.url for each in described.brokers if each.url}
    answers = await gather(
        _ask_broker(client, url) for url in (urls or {"": ""}).values()
    )
    examined = list[Findings]()
    for name, answer in zip(urls or [""], answers, strict=True):
        if isinstance(answer, BrokerError):
            found.append(findings.silent_broker(name, str(answer)))
        else:
            storage, problems = answer
            found.append(findings.storage(name, storage))
            examined.append(problems)
    if examined:
        problems = merged(examined)
        is_complete = len(examined) == len(answers)
        found.append(
            findings.subscriptions(problems, topic_count, is_complete=is_complete)
        )
    return found


async def _ask_broker(
    client: Client, url: str
) -> tuple[StorageDescription, Findings] | BrokerError:
    """Return what the broker at *url* says of itself; empty: the only one."""
    requester = client.requester
    try:
        storage, problems = [
            await (
                requester.request_of(url, request)
                if url
                else requester.send_request(request)
            )
            for request in (pb.DescribeStorage(), pb.ListFindings(limit=FINDINGS_MAX))
        ]
    except BrokerError as error:
        return error
    return from_wire(StorageDescription, storage), from_wire(Findings, problems)


async def _check_connectors(client: Client) -> list[Finding]:
    stored = await client.connectors.list()
    return [findings.connectors(stored)] if stored.connectors else []


async def _check_http(address: str, url: str) -> list[Finding]:
    """Check the HTTP port of the broker at *url*, with the authorities of that."""
    ca_file = None
    with suppress(InvalidRequest):
        # Otherwise the broker was not found.
        ca_file = options_of(url).ca_file
    return await asyncio.to_thread(check_http, address, ca_file)


def check_http(url: str, ca_file: str | None = None) -> list[Finding]:
    """
    Check the readiness and the clock of the broker with the HTTP port *url*.

    *ca_file* has the authorities to trust; by default they are the system's.
    """
    try:
        begun_at_s = time.time_ns() / 1e9
        status, date, body = _get(f"{url.rstrip('/')}/readyz", ca_file)
        ended_at_s = time.time_ns() / 1e9
        answer = json.loads(body)
        reasons = [str(each) for each in answer.get("problems", [])]
        if "message" in answer:
            reasons.insert(0, str(answer["message"]))
        answered_at_s = parsedate_to_datetime(date).timestamp()
    except (OSError, HTTPException, ValueError, AttributeError, TypeError) as error:
        return [
            findings.unreachable(
                "HTTP port",
                f"{url} does not answer as a broker: {getattr(error, 'reason', error)}",
                "give the broker's HTTP port with --http-url",
            )
        ]
    return [
        findings.readiness(is_ready=status == 200, reasons=reasons),
        findings.clock(skew_of(answered_at_s, begun_at_s, ended_at_s)),
    ]


def skew_of(answered_at_s: float, begun_at_s: float, ended_at_s: float) -> float:
    """
    Return by how much another clock is ahead, at least.

    It showed *answered_at_s* at some moment between two times of this machine's.
    """
    if answered_at_s > ended_at_s:
        return answered_at_s - ended_at_s
    return min(0.0, answered_at_s - begun_at_s)


def _get(url: str, ca_file: str | None) -> tuple[int, str, bytes]:
    """Return the status, the date and the body of the answer."""
    context = None
    if url.startswith("https:"):
        context = ssl.create_default_context(cafile=ca_file)
    with _answer_of(url, context) as answer:
        return answer.status, answer.headers["Date"], answer.read(ANSWER_BYTES_MAX)


def _answer_of(url: str, context: ssl.SSLContext | None) -> Any:
    for left in reversed(range(CONNECTIONS_MAX)):
        try:
            # The user, or the broker, has given the address.
            return urlopen(url, timeout=SILENT_S, context=context)  # noqa: S310
        except HTTPError as error:
            return error
        except TimeoutError:
            if not left:
                raise
    raise AssertionError("the last attempt raises")
