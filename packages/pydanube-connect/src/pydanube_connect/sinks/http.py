"""A sink that sends messages to a web server, with low latency."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Self

from msgspec import Meta

from pydanube.client.messages.messages import Message
from pydanube.declarations.pure.sections import Section, parse_duration
from pydanube_connect.connector import Sink
from pydanube_connect.option_problems import duration_problems, http_problems
from pydanube_connect.pure.failures import ConnectorFailed, Rejected, Transient
from pydanube_connect.pure.retry_after import wait_asked_s

if TYPE_CHECKING:
    import httpx  # An extra.

RETRYABLE = frozenset({408, 425, 429})
"""Statuses below 500 after which the same request may succeed."""
MISCONFIGURED = frozenset({401, 403, 404, 405, 407, 410})
"""Statuses that do not depend on the message."""
SHOWN_CHARACTERS_MAX = 200
TRACE = "traceparent"
"""The attribute and the header with the context of a trace, as W3C defines it."""
_TRACE = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


class Method(Enum):
    """The method of the requests."""

    POST = "POST"
    PUT = "PUT"
    PATCH = "PATCH"


class HttpOptions(Section, frozen=True, kw_only=True):
    """The options of ``HttpSink``."""

    url: Annotated[str, Meta(description="The URL of the requests.")]
    method: Annotated[Method, Meta(description="The method of the requests.")] = (
        Method.POST
    )
    headers: Annotated[
        dict[str, str],
        Meta(description="Headers of the requests, such as `Authorization`."),
    ] = {}
    content_type: Annotated[str, Meta(description="The header `Content-Type`.")] = (
        "application/json"
    )
    concurrency: Annotated[
        int,
        Meta(
            description="How many requests run at a time; with more than 1, the server "
            "may see messages in another order."
        ),
    ] = 1
    timeout: Annotated[str, Meta(description="The timeout of a request.")] = "30s"


class HttpSink(Sink):
    """
    Sends each message as the body of a request.

    Delivery: at least once; a repeated message has the same `Idempotency-Key`.
    """

    Options = HttpOptions
    extra = "connect"

    def __init__(self, options: HttpOptions) -> None:
        super().__init__(options)
        self.http: httpx.AsyncClient
        """The client, while the sink is open."""
        self._resources = AsyncExitStack()
        # Those of a batch that was not written as a whole.
        self._written: set[tuple[str, int]] = set()

    @classmethod
    def problems(cls, options: HttpOptions) -> dict[str, str]:
        """Return the options that are malformed."""
        found = http_problems(options.url)
        if not 1 <= options.concurrency <= 100:
            found["concurrency"] = "must be 1 to 100"
        return found | duration_problems(options, "timeout")

    async def __aenter__(self) -> Self:
        import httpx  # noqa: PLC0415

        options: HttpOptions = self.options
        client = httpx.AsyncClient(
            timeout=parse_duration(options.timeout),
            headers={"content-type": options.content_type, **options.headers},
        )
        self.http = await self._resources.enter_async_context(client)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._resources.aclose()

    async def check(self) -> None:
        """Send a request that HTTP servers answer without a change."""
        import httpx  # noqa: PLC0415

        try:
            response = await self.http.options(self.options.url)
        except httpx.TransportError as error:
            raise Transient(f"no answer: {type(error).__name__}: {error}") from error
        if response.status_code in {401, 403, 404}:
            raise ConnectorFailed(_summary(response))

    async def write(self, messages: Sequence[Message]) -> None:
        """Send a request for each message; see ``Sink.write``."""
        rejected: dict[int, str] = {}
        failures: list[Exception] = []
        numbered = iter(enumerate(messages))

        async def send_some() -> None:
            for number, message in numbered:
                if failures:
                    return
                if message.id in self._written:
                    continue
                try:
                    reason = await self._send(message)
                except (Transient, ConnectorFailed) as error:
                    failures.append(error)
                    return
                if reason is not None:
                    rejected[number] = reason
                else:
                    self._written.add(message.id)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(min(self.options.concurrency, len(messages))):
                tasks.create_task(send_some())
        if failures:
            raise failures[0]
        self._written.clear()
        if rejected:
            raise Rejected(rejected)

    def body_of(self, message: Message) -> bytes:
        """Return the body of the request for *message*."""
        return message.payload

    async def _send(self, message: Message) -> str | None:
        """Send *message*; return why the server rejects it, or None."""
        import httpx  # noqa: PLC0415

        options: HttpOptions = self.options
        topic, offset = message.id
        headers = {"idempotency-key": f"{topic}:{offset}"}
        trace = message.attributes.get(TRACE, "")
        if _TRACE.fullmatch(trace):
            headers[TRACE] = trace
        try:
            response = await self.http.request(
                options.method.value,
                options.url,
                content=self.body_of(message),
                headers=headers,
            )
        except httpx.TransportError as error:
            raise Transient(f"no answer: {type(error).__name__}: {error}") from error
        if response.is_success:
            return None
        reason = _summary(response)
        if response.status_code >= 500 or response.status_code in RETRYABLE:
            raise Transient(
                reason,
                retry_after_s=wait_asked_s(response.headers, time.time_ns() / 1e9),
            )
        if response.status_code in MISCONFIGURED or response.status_code < 400:
            raise ConnectorFailed(reason)
        return reason


def _summary(response: Any) -> str:
    text = " ".join(response.text.split())[:SHOWN_CHARACTERS_MAX]
    return f"the server answers {response.status_code}: {text or 'no body'}"
