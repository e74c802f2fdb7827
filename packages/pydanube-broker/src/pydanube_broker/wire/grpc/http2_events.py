"""The events that a connection of HTTP/2 returns for received bytes."""

from __future__ import annotations

from pydanube.model.lazy_dataclasses import dataclass
from pydanube_broker.wire.grpc.hpack import Headers


@dataclass(slots=True)
class RequestReceived:
    """The headers of a request were received, and perhaps its body with them."""

    stream: int
    headers: Headers
    is_last: bool
    """Whether the request is complete."""
    body: bytes = b""
    """The body, if it was complete and received together with the headers."""


@dataclass(slots=True)
class DataReceived:
    """A part of a request's body was received, and not with its headers."""

    stream: int
    data: bytes
    is_last: bool


@dataclass(slots=True)
class StreamReset:
    """The peer cancelled the request; the stream is closed."""

    stream: int


@dataclass(slots=True)
class SendCompleted:
    """All data of a stream that waited for the peer's windows was sent."""

    stream: int


Event = RequestReceived | DataReceived | StreamReset | SendCompleted
