"""
The messages of a benchmark: made before the clock starts, checkable afterwards.

A message begins with 16 bytes: which stream it belongs to and its place there, and
when it was meant to be sent.  What follows does not compress.  A stream is what one
producer sends to one topic.

Long runs send the same messages again and again: a *ring* of them, so that memory
stays bounded and no run does less work per message than another.  Places count
modulo the length of the ring.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

HEADER_BYTES = 16
STREAM_SHIFT = 40
PLACE_MASK = (1 << STREAM_SHIFT) - 1

RING_BYTES = 128 * 1024 * 1024
"""What the messages of a producing process take at most."""
RING_MESSAGES_MAX = 1 << 20
RING_MESSAGES_MIN = 16
OBJECT_BYTES = 48
"""What a bytes object takes beside its bytes, and its place in a list."""

_HEADER = np.dtype([("place", "<u8"), ("time", "<i8")])


def ring_length(messages: int, message_bytes: int, streams: int = 1) -> int:
    """How many different messages each of *streams* has, of *messages* it sends."""
    share = RING_BYTES // ((message_bytes + OBJECT_BYTES) * streams)
    bound = max(RING_MESSAGES_MIN, min(RING_MESSAGES_MAX, share))
    return max(1, min(messages, bound))


def make_ring(
    length: int, message_bytes: int, *, stream: int = 0, rate: float | None = None
) -> list[bytes]:
    """
    So many messages of one stream.

    With a *rate*, each carries when it is due: nanoseconds from the start.
    """
    if message_bytes < HEADER_BYTES:
        raise ValueError(f"a message has at least {HEADER_BYTES} bytes")
    chance = np.random.default_rng((4711, stream))
    filler = chance.integers(0, 256, (length, message_bytes), dtype=np.uint8)
    header = np.zeros(length, _HEADER)
    header["place"] = np.arange(length, dtype=np.uint64) | (stream << STREAM_SHIFT)
    if rate is not None:
        header["time"] = due_ns(np.arange(length), rate)
    filler[:, :HEADER_BYTES] = header.view(np.uint8).reshape(length, HEADER_BYTES)
    data = filler.tobytes()
    return [data[at : at + message_bytes] for at in range(0, len(data), message_bytes)]


class Rings:
    """Rings that were made before; a shorter one is the beginning of a longer one."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, float | None], list[bytes]] = {}

    def ring(
        self, length: int, message_bytes: int, *, rate: float | None = None
    ) -> list[bytes]:
        """What ``make_ring`` makes of stream 0."""
        key = (message_bytes, rate)
        kept = self._kept.get(key, [])
        if len(kept) < length:
            self._kept.clear()
            kept = make_ring(length, message_bytes, rate=rate)
            self._kept[key] = kept
        return kept if len(kept) == length else kept[:length]


def due_ns(numbers: Any, rate: float) -> Any:
    """When each of *numbers* is due at *rate* messages a second, from the start."""
    return (numbers * (1e9 / rate)).astype(np.int64)


def headers_of(payloads: Sequence[bytes]) -> Any:
    """The headers of *payloads* as an array with the fields ``place`` and ``time``."""
    first = len(payloads[0])
    if first <= 256 and len(payloads) > 1:  # The reason is below.
        # Joining whole messages is quicker than cutting each of them, if they are
        # short; it shows when they are not of one length.
        data = b"".join(payloads)
    else:
        data = b"".join([payload[:HEADER_BYTES] for payload in payloads])
        first = HEADER_BYTES
    if len(data) != first * len(payloads):
        raise ValueError("the messages are not of one length")
    rows = np.frombuffer(data, np.uint8).reshape(len(payloads), first)
    return np.ascontiguousarray(rows[:, :HEADER_BYTES]).view(_HEADER).reshape(-1)


def pieces(ring: Sequence[bytes], first: int, count: int) -> list[bytes]:
    """The messages *first* to *first* + *count* of a stream whose ring this is."""
    length = len(ring)
    at = first % length
    taken = list(ring[at : at + count])
    while len(taken) < count:
        taken += ring[: count - len(taken)]
    return taken
