"""Frames of HTTP/2 for a client: encoding and decoding."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from pydanube_broker.wire.grpc.hpack import HeaderDecoder, encode_headers
from pydanube_broker.wire.grpc.http2 import Http2Connection
from pydanube_broker.wire.grpc.http2_frames import PREFACE, ErrorCode, FrameType

END_STREAM, END_HEADERS, ACK, PADDED = 0x1, 0x4, 0x1, 0x8
REQUEST = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/danube.Discovery/TopicLookup"),
    (b":authority", b"127.0.0.1:6650"),
    (b"te", b"trailers"),
    (b"content-type", b"application/grpc"),
)


def frame(kind: int, flags: int = 0, stream: int = 0, body: bytes = b"") -> bytes:
    length = struct.pack(">I", len(body))[1:]
    return length + struct.pack(">BBI", kind, flags, stream) + body


def settings(**values: int) -> bytes:
    numbers = {"window": 4, "push": 2, "frame": 5}
    body = b"".join(
        struct.pack(">HI", numbers[name], value) for name, value in values.items()
    )
    return frame(FrameType.SETTINGS, 0, 0, body)


def handshake(**values: int) -> bytes:
    return PREFACE + settings(**values)


def request(stream: int, *, ends: bool = False, headers=REQUEST) -> bytes:
    flags = END_HEADERS | (END_STREAM if ends else 0)
    return frame(FrameType.HEADERS, flags, stream, encode_headers(headers))


def data(stream: int, body: bytes, *, ends: bool = False) -> bytes:
    return frame(FrameType.DATA, END_STREAM if ends else 0, stream, body)


def window(stream: int, increment: int) -> bytes:
    return frame(FrameType.WINDOW_UPDATE, 0, stream, struct.pack(">I", increment))


def reset(stream: int) -> bytes:
    return frame(FrameType.RST_STREAM, 0, stream, struct.pack(">I", ErrorCode.CANCEL))


@dataclass
class Seen:
    """A frame that the server sent."""

    kind: FrameType
    flags: int
    stream: int
    body: bytes

    @property
    def number(self) -> int:
        """The only number in the body of some frames."""
        return struct.unpack(">I", self.body[:4])[0]


def seen(output) -> list[Seen]:
    """Return the frames in *output* of the server."""
    text = b"".join(output)
    frames = []
    while text:
        length = int.from_bytes(text[:3], "big")
        kind, flags, stream = struct.unpack_from(">BBI", text, 3)
        frames.append(Seen(FrameType(kind), flags, stream, text[9 : 9 + length]))
        text = text[9 + length :]
    return frames


def sent(connection: Http2Connection) -> list[Seen]:
    """Return the frames to send, without settings and connection window updates."""
    return [
        each
        for each in seen(connection.take_output())
        if each.kind is not FrameType.SETTINGS
        and not (each.kind is FrameType.WINDOW_UPDATE and not each.stream)
    ]


def headers_of(frames) -> dict[str, str]:
    """All headers and trailers in *frames*, by name."""
    decoder = HeaderDecoder()
    return {
        name.decode(): value.decode()
        for each in frames
        if each.kind is FrameType.HEADERS
        for name, value in decoder.decode(each.body)
    }


def connected(**values: int) -> Http2Connection:
    """Return a connection after the exchange of settings."""
    connection = Http2Connection()
    assert connection.receive(handshake(**values)) == []
    connection.take_output()
    return connection
