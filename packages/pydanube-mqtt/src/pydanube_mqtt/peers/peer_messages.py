"""
The messages between the processes of a broker about topics of MQTT clients.

Each is its length in four bytes, and MessagePack.  A request has a number, and so
have its answers.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeAlias

import msgspec

from pydanube.aio.write_buffer import WriteBuffer
from pydanube.model.ranges import Range
from pydanube_broker.broker.publishing.message_batcher import SingleMessage

SOCKET = "mqtt-topics"
LENGTH_BYTES = 4
MESSAGE_BYTES_MAX = 256 * 1024 * 1024
"""A batch fits into it, and what is published in one turn of an event loop."""

Published: TypeAlias = (
    "tuple[int, str, bytes, int, bytes | None, dict[str, str] | None, int | None, "
    "int, int]"
)
"""The number of a message, and what ``SingleMessage`` has of it."""


class Publish(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Messages for a topic."""

    topic: str
    messages: list[
        tuple[
            int,
            str,
            bytes,
            int,
            bytes | None,
            dict[str, str] | None,
            int | None,
            int,
            int,
        ]
    ]


class Stored(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The answer for messages that are stored."""

    numbers: list[int]


class Failed(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """The answer for a request that has failed, or the end of a consumer."""

    number: int
    code: str
    message: str
    kept: int = 0
    """The first readable offset, if the one that was asked for is dropped."""


class Read(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """A request for messages from an offset on."""

    number: int
    topic: str
    offset: int
    """-1 asks for the end only."""
    bytes_max: int
    waits: bool
    """Whether to wait a while for messages if there are none."""


class Frames(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """The answer of ``Read``."""

    number: int
    end: int
    """The offset of the next message of the topic."""
    frames: list[bytes]


class Consume(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """A request to be a consumer of a subscription, which is created if need be."""

    number: int
    topic: str
    subscription: str
    kind: str
    """The type of the subscription."""
    name: str


class Ready(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """The answer of a request without a result."""

    number: int


class Delivered(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """Messages for a consumer."""

    number: int
    frame: bytes


class Settled(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """Messages that a consumer is done with, and its new credit."""

    number: int
    ranges: list[Range]
    messages: int
    byte_count: int


class Leave(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """The end of a consumer."""

    number: int


class Delete(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """A request to delete a subscription that has no consumers."""

    number: int
    topic: str
    subscription: str


Request: TypeAlias = Publish | Read | Consume | Settled | Leave | Delete
Answer: TypeAlias = Stored | Failed | Frames | Ready | Delivered

_ENCODER = msgspec.msgpack.Encoder()


def published(number: int, message: SingleMessage) -> Published:
    """Return *message* as ``Publish`` has it."""
    attributes = message.attributes
    return (
        number,
        message.producer,
        message.payload,
        message.publish_time_us,
        message.key,
        None if attributes is None else dict(attributes),
        message.expires_at_us,
        message.schema_id,
        message.schema_version,
    )


def message_of(given: Published) -> SingleMessage:
    """Return a message that ``published`` has taken apart."""
    _, producer, payload, time_us, key, attributes, expires_us, schema, version = given
    return SingleMessage(
        producer,
        payload,
        time_us,
        key,
        attributes,
        schema,
        version,
        expires_at_us=expires_us,
    )


class PeerProtocol(asyncio.Protocol):
    """
    A connection between two processes, as messages.

    Bounds: One incomplete message of ``MESSAGE_BYTES_MAX``.
    """

    def __init__(self, decoder: msgspec.msgpack.Decoder[Any]) -> None:
        self.is_lost = False
        self._decoder = decoder
        self._received = bytearray()
        self._transport: Any = None
        self._buffer: WriteBuffer

    def on_message(self, message: Any) -> None:
        """Handle a received message."""
        raise NotImplementedError

    def send(self, message: Request | Answer) -> None:
        """Send a message, unless the connection is lost."""
        if not self.is_lost:
            body = _ENCODER.encode(message)
            self._buffer.write(len(body).to_bytes(LENGTH_BYTES, "big") + body)

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.BaseProtocol."""
        self._transport = transport
        self._buffer = WriteBuffer(self._transport, asyncio.get_running_loop())

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.BaseProtocol."""
        self.is_lost = True

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        received = self._received
        received += data
        at, end = 0, len(received)
        while at + LENGTH_BYTES <= end:
            length = int.from_bytes(received[at : at + LENGTH_BYTES], "big")
            if length > MESSAGE_BYTES_MAX:
                self.close()
                return
            begin = at + LENGTH_BYTES
            if begin + length > end:
                break
            at = begin + length
            self.on_message(self._decoder.decode(received[begin:at]))
        del received[:at]
