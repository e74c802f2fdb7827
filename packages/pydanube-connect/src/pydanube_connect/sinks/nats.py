"""A sink that publishes messages to streams of NATS JetStream."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from pydanube.client.messages.messages import Message
from pydanube_connect.connector import Sink
from pydanube_connect.nats_connection import NatsConnection, nats_client, translated
from pydanube_connect.pure.failures import Rejected, Transient
from pydanube_connect.server_access import access_problems
from pydanube_connect.sinks.templates import render

if TYPE_CHECKING:
    from nats.aio.client import Client as NatsClient  # An extra.

ACK_S = 10.0
SHOWN_MAX = 100
SUBJECT_BYTES_MAX = 2048
"""A server closes the connection if a line of the protocol has more than 4,096."""
HEADER_BYTES_MAX = 65_535
"""JetStream does not answer if a message has more."""
RESERVED_HEADERS = "nats-"
"""Headers with this prefix are commands to the stream."""

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_NOT_IN_TOKENS = set(" \t\r\n*>\0")


class NatsSinkOptions(NatsConnection, frozen=True, kw_only=True):
    """The options of ``NatsSink``."""

    subject: Annotated[
        str,
        Meta(
            description="The subject, which a stream has; `{topic}` stands for the "
            "name of the message's topic without its namespace, `{key}` for its key."
        ),
    ]


class NatsSink(Sink):
    """
    Publishes messages to NATS JetStream, with their attributes as headers.

    Attributes that NATS cannot have as headers are left out.

    Delivery: at least once, in the order of the topic. A repeated message has the same
    `Nats-Msg-Id`, which the stream recognises within its duplicate window.
    """

    Options = NatsSinkOptions
    extra = "nats"

    def __init__(self, options: NatsSinkOptions) -> None:
        super().__init__(options)
        self._connection = AsyncExitStack()
        self._client: NatsClient | None = None

    @classmethod
    def problems(cls, options: NatsSinkOptions) -> dict[str, str]:
        """Return the options that are malformed."""
        found = access_problems(options)
        problem = _subject_problem(options.subject)
        if problem:
            found["subject"] = problem
        if not options.servers.strip():
            found["servers"] = "has no server, such as 'nats://127.0.0.1:4222'"
        return found

    async def check(self) -> None:
        """Connect, and look for the stream if the subject is fixed."""
        async with nats_client(self.options) as client:
            if "{" not in self.options.subject:
                await client.jetstream().find_stream_name_by_subject(
                    self.options.subject
                )

    async def __aexit__(self, *_: object) -> None:
        await self._disconnect()

    async def _disconnect(self) -> None:
        self._client = None
        connection, self._connection = self._connection, AsyncExitStack()
        await connection.aclose()

    async def write(self, messages: Sequence[Message]) -> None:
        """Publish *messages*; on return streams have acknowledged them."""
        if self._client is None or not self._client.is_connected:
            await self._disconnect()
            self._client = await self._connection.enter_async_context(
                nats_client(self.options)
            )
        try:
            async with translated(self.options):
                rejected = await self._publish(self._client, messages)
        except BaseException:
            await self._disconnect()
            raise
        if rejected:
            raise Rejected(rejected)

    async def _publish(
        self, client: NatsClient, messages: Sequence[Message]
    ) -> dict[int, str]:
        """Publish *messages* in their order; return why some cannot be published."""
        from nats.js.errors import APIError, NoStreamResponseError  # noqa: PLC0415

        jetstream = client.jetstream(timeout=ACK_S)
        waiting: dict[int, asyncio.Future[Any]] = {}
        rejected = {}
        for number, message in enumerate(messages):
            subject = render(self.options.subject, message)
            problem = _subject_problem(subject)
            if problem:
                rejected[number] = f"the subject {subject[:SHOWN_MAX]!r} {problem}"
                continue
            headers = _headers_of(message)
            header_bytes = _byte_count_of(headers)
            if header_bytes > HEADER_BYTES_MAX:
                rejected[number] = (
                    f"its attributes have {header_bytes:,} bytes as headers, and a "
                    f"stream takes {HEADER_BYTES_MAX:,}"
                )
                continue
            if header_bytes + len(message.payload) > client.max_payload:
                rejected[number] = (
                    f"with its headers it has more than {client.max_payload:,} bytes, "
                    "the limit of the server (max_payload)"
                )
                continue
            waiting[number] = await jetstream.publish_async(
                subject, message.payload, headers=headers
            )
        async with asyncio.timeout(ACK_S):
            for number, each in waiting.items():
                try:
                    await each
                except NoStreamResponseError:
                    rejected[number] = "no stream has its subject"
                except APIError as error:
                    if (error.code or 500) >= 500:
                        raise Transient(f"NATS: {error.description}") from error
                    rejected[number] = f"NATS: {error.description}"
        return rejected


def _headers_of(message: Message) -> dict[str, str]:
    """Return the headers; those that NATS cannot have would end the connection."""
    topic, offset = message.id
    headers = {
        name: value
        for name, value in message.attributes.items()
        if _HEADER_NAME.fullmatch(name)
        and value.isprintable()
        and not name.lower().startswith(RESERVED_HEADERS)
    }
    headers["Nats-Msg-Id"] = f"{topic}:{offset}"
    return headers


def _byte_count_of(headers: Mapping[str, str]) -> int:
    """Return the size of the headers as the server counts it."""
    lines = sum(len(f"{name}: {value}\r\n".encode()) for name, value in headers.items())
    return len("NATS/1.0\r\n") + lines + len("\r\n")


def _subject_problem(subject: str) -> str | None:
    if not subject or "" in subject.split("."):
        return "must not be empty, nor have empty parts between dots"
    if set(subject) & _NOT_IN_TOKENS or not subject.isprintable():
        return "must not have spaces, control characters, '*' or '>'"
    if subject.startswith("$"):
        return "must not begin with '$', which is for the server itself"
    if len(subject.encode()) > SUBJECT_BYTES_MAX:
        return f"is longer than {SUBJECT_BYTES_MAX:,} bytes"
    return None
