"""
The messages of a benchmark, created before the clock starts.

A message begins with 16 bytes: its stream, its sequence number in the stream, and its
due time.  The rest is incompressible.  A stream has the messages of one producer to one
topic.

Long runs repeat a *ring* of messages, so that memory is bounded and every run does the
same work per message.  Sequence numbers are modulo the length of the ring.
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
"""The maximum memory for the messages of a producing process."""
RING_MESSAGES_MAX = 1 << 20
RING_MESSAGES_MIN = 16
OBJECT_BYTES = 48
"""The overhead of a bytes object and of its list entry."""

_HEADER = np.dtype([("place", "<u8"), ("time", "<i8")])


def ring_length(messages: int, message_bytes: int, streams: int = 1) -> int:
    """Return the number of different messages in each of *streams*."""
    share = RING_BYTES // ((message_bytes + OBJECT_BYTES) * streams)
    bound = max(RING_MESSAGES_MIN, min(RING_MESSAGES_MAX, share))
    return max(1, min(messages, bound))


def make_ring(
    length: int, message_bytes: int, *, stream: int = 0, rate: float | None = None
) -> list[bytes]:
    """
    Return the messages of one stream.

    With a *rate*, each has its due time in nanoseconds from the start.
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
    """A cache of rings; a shorter one is the beginning of a longer one."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, float | None], list[bytes]] = {}

    def ring(
        self, length: int, message_bytes: int, *, rate: float | None = None
    ) -> list[bytes]:
        """Return the ring that ``make_ring`` returns for stream 0."""
        key = (message_bytes, rate)
        kept = self._kept.get(key, [])
        if len(kept) < length:
            self._kept.clear()
            kept = make_ring(length, message_bytes, rate=rate)
            self._kept[key] = kept
        return kept if len(kept) == length else kept[:length]


def due_ns(numbers: Any, rate: float) -> Any:
    """Return the due times of *numbers* at *rate* messages per second."""
    return (numbers * (1e9 / rate)).astype(np.int64)


def headers_of(payloads: Sequence[bytes]) -> Any:
    """Return the headers of *payloads*, with the fields ``place`` and ``time``."""
    first = len(payloads[0])
    if first <= 256 and len(payloads) > 1:  # The reason is below.
        # If messages are short, joining them is faster than slicing each of them; it
        # also detects different lengths.
        data = b"".join(payloads)
    else:
        data = b"".join([payload[:HEADER_BYTES] for payload in payloads])
        first = HEADER_BYTES
    if len(data) != first * len(payloads):
        raise ValueError("the messages are not of one length")
    rows = np.frombuffer(data, np.uint8).reshape(len(payloads), first)
    return np.ascontiguousarray(rows[:, :HEADER_BYTES]).view(_HEADER).reshape(-1)


def pieces(ring: Sequence[bytes], first: int, count: int) -> list[bytes]:
    """Return *count* messages from *first* on of the stream with this ring."""
    length = len(ring)
    at = first % length
    taken = list(ring[at : at + count])
    while len(taken) < count:
        taken += ring[: count - len(taken)]
    return taken
