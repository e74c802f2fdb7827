"""
Requests for the messages of a consumer of JetStream, one after the other.

The library's ``fetch`` starts a task and a timer for each message, which takes half of
a reader's processor time, and limits their number, but not their size.  Here the client
calls a function for each message, and the next request is sent before the messages of
the last one are published.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from pydanube_connect.pure.failures import Transient

if TYPE_CHECKING:
    from nats.aio.client import Client  # An extra.
    from nats.aio.msg import Msg

REQUEST_MESSAGES = 1000
REQUEST_BYTES = 4 * 1024 * 1024
"""A larger message is requested alone."""
REQUEST_S = 5.0
"""How long the server holds a request for new messages."""
ANSWER_S = 10.0
"""How long an answer may take after that."""

_ACK_PREFIX = "$JS.ACK."
_ENDED = ("404", "408")
_FULL = ("exceeds maxbytes", "batch completed")


class MessageNumbers(NamedTuple):
    """The numbers of a message, as its reply subject has them."""

    sequence: int
    """Its number in the stream."""
    delivery: int
    """Its number among those that the consumer has delivered."""
    pending: int
    """How many messages follow."""


class PullRequests:
    """
    The messages that a consumer of JetStream delivers.

    Bounds: One request is open.  Its messages wait until they are taken: 1,000 of
        together 4 MiB, or a larger one.
    """

    def __init__(self) -> None:
        self._client: Client | None = None
        self._subject = self._inbox = ""
        self._messages: list[Msg] = []
        self._open_count = 0
        """How many messages the open request may still bring; 0: none is open."""
        self._next_is_large = False
        self._failure: Transient | None = None
        self._changed = asyncio.Event()

    async def open(self, client: Client, stream: str, consumer: str) -> None:
        """Request messages of *consumer* from now on."""
        self._client = client
        self._subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._inbox = client.new_inbox()
        await client.subscribe(self._inbox, cb=self.on_message)

    async def next(self) -> list[Msg]:
        """
        Return the next messages, at least one, and request those that follow.

        Raises:
            Transient: The connection, the consumer or the server is gone.
        """
        while True:
            if self._failure is not None:
                raise self._failure
            found, self._messages = self._messages, []
            if not self._open_count:
                await self._request()
            if found:
                return found
            self._changed.clear()
            try:
                async with asyncio.timeout(REQUEST_S + ANSWER_S):
                    await self._changed.wait()
            except TimeoutError:
                raise Transient("NATS does not answer a request") from None

    async def on_message(self, message: Msg) -> None:
        """Take a message, or the end of a request."""
        if message.reply.startswith(_ACK_PREFIX):
            self._messages.append(message)
            self._open_count -= 1
        else:
            self._on_status(message.headers or {})
        self._changed.set()

    async def on_closed(self) -> None:
        """Note that the connection is closed."""
        self._fail("NATS has closed the connection")

    async def _request(self) -> None:
        assert self._client is not None
        request: dict[str, Any] = {"batch": 1, "expires": int(REQUEST_S * 1e9)}
        if not self._next_is_large:
            request |= {"batch": REQUEST_MESSAGES, "max_bytes": REQUEST_BYTES}
        self._next_is_large = False
        self._open_count = request["batch"]
        payload = msgspec.json.encode(request)
        await self._client.publish(self._subject, payload, reply=self._inbox)

    def _on_status(self, headers: dict[str, str]) -> None:
        status = headers.get("Status", "")
        text = headers.get("Description", "")
        if status == "503":
            self._fail("NATS has forgotten the reader of the stream")
        elif status in _ENDED:
            self._open_count = 0
        elif status == "409" and text.lower().endswith(_FULL):
            self._next_is_large = self._open_count == REQUEST_MESSAGES
            self._open_count = 0
        elif status != "100":
            self._fail(f"NATS has refused a request: {status} {text}")

    def _fail(self, reason: str) -> None:
        self._failure = Transient(reason)
        self._changed.set()


def numbers_of(reply: str) -> MessageNumbers:
    """
    Return the numbers in *reply*, the subject for acknowledgements of a message.

    There are two forms of it, the longer one with a domain and an account.
    """
    tokens = reply.split(".")
    at = sequence_index(tokens)
    sequence, delivery, _, pending = map(int, tokens[at : at + 4])
    return MessageNumbers(sequence, delivery, pending)


def sequence_index(tokens: list[str]) -> int:
    """Return which of the *tokens* of a reply subject is the number in the stream."""
    return 5 if len(tokens) == 9 else 7  # The shorter form.
