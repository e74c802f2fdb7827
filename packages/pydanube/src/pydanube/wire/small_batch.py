"""
Batches of a few messages with payloads only, encoded and decoded in little time.

Arrow is made for large batches.  To build, check or read a batch takes it about 20 µs,
however few messages there are, and each message needs all three.  ``wire.column_body``
reads and writes any columns.  The body of a batch of payloads, with or without publish
times, consists of

- the encapsulated metadata, which we treat as 64-bit numbers: except for lengths and
  counts, they are the same in every batch;
- the publish times, if there are any, 8 bytes each;
- the positions at which the payloads begin and the last one ends, 4 bytes each, padded
  with zeros to a multiple of 8;
- the payloads, one after the other, padded in the same way.

A body that differs from this layout may still be valid; then it is not decoded here.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from itertools import accumulate, pairwise
from operator import le
from typing import NamedTuple

from pydanube.model.message_columns import MessageColumns
from pydanube.wire.buffer import Buffer, padded_size, split
from pydanube.wire.column_body import encode_body

SMALL_MESSAGES_MAX = 128
"""From about twice as many messages on, Arrow is faster."""
SMALL_BYTES_MAX = 1024 * 1024
"""For longer bodies, the time that Arrow takes does not matter."""

_PADDINGS = tuple(bytes(count) for count in range(8))

_HEAD = struct.Struct("<20q")
_TIMED_HEAD = struct.Struct("<26q")


class SmallBatch(NamedTuple):
    """The messages of a small batch; all is checked but the range of the times."""

    data: memoryview
    """The payloads, one after the other."""
    offsets: Sequence[int]
    """The positions in *data* at which each payload begins and the last one ends."""
    times: Sequence[int]
    """The publish time of each message; empty if the batch has no such column."""

    def payloads(self) -> list[bytes]:
        """Return the payload of each message."""
        return split(self.data.tobytes(), self.offsets)

    @property
    def longest(self) -> int:
        """The length of the longest payload."""
        return max(end - begin for begin, end in pairwise(self.offsets))


def encode_small_batch(payloads: Sequence[bytes], times: Sequence[int] = ()) -> bytes:
    """
    Return the body of a batch of *payloads*, at most ``SMALL_MESSAGES_MAX``.

    *times* are the publish times in microseconds since 1970, or empty.
    """
    count = len(payloads)
    offsets = list(accumulate(map(len, payloads), initial=0))
    data_bytes = offsets[-1]
    return b"".join(
        (
            _TIMED_HEAD.pack(*_timed_numbers(count, data_bytes))
            + _struct_of(count, "q").pack(*times)
            if times
            else _HEAD.pack(*_numbers(count, data_bytes)),
            _struct_of(count + 1, "i").pack(*offsets),
            _PADDINGS[4 * (count + 1) & 4],
            *payloads,
            _PADDINGS[-data_bytes % 8],
        )
    )


def decode_small_batch(
    buffer: Buffer, at: int, count: int, *, has_times: bool
) -> SmallBatch | None:
    """
    Return the messages in the body that begins at *at*, if it is a small batch.

    All metadata is compared with what ``encode_small_batch`` would write.
    """
    end = len(buffer)
    head = _TIMED_HEAD if has_times else _HEAD
    if (
        not 0 < count <= SMALL_MESSAGES_MAX
        or not head.size <= end - at <= SMALL_BYTES_MAX
    ):
        return None
    found = head.unpack_from(buffer, at)
    data_bytes = found[_TIMED_DATA if has_times else _DATA]
    if not 0 <= data_bytes < end - at:
        return None
    numbers = _timed_numbers if has_times else _numbers
    if found != numbers(count, data_bytes):
        return None
    begin = at + head.size
    if begin + found[_BODY] != end:
        return None
    times: tuple[int, ...] = ()
    if has_times:
        times = _struct_of(count, "q").unpack_from(buffer, begin)
        begin += 8 * count
    offsets = _struct_of(count + 1, "i").unpack_from(buffer, begin)
    if (
        offsets[0]
        or offsets[-1] != data_bytes
        or not all(map(le, offsets, offsets[1:]))
    ):
        return None
    begin += padded_size(4 * (count + 1))
    return SmallBatch(memoryview(buffer)[begin : begin + data_bytes], offsets, times)


@cache
def _numbers_of_one() -> tuple[int, ...]:
    """Return the metadata of a batch with one empty message."""
    return _HEAD.unpack_from(encode_body(MessageColumns(payloads=[b""])))


@cache
def _timed_numbers_of_one() -> tuple[int, ...]:
    """Return the metadata of a batch with one empty message and its publish time."""
    body = encode_body(MessageColumns(payloads=[b""], publish_times=[0]))
    return _TIMED_HEAD.unpack_from(body)


# Indexes in the metadata.
_BODY = 5
_DATA = 16
_TIMED_DATA = 20


def _numbers(count: int, data_bytes: int) -> tuple[int, ...]:
    """Return the metadata of *count* messages with *data_bytes* of payloads."""
    numbers = list(_numbers_of_one())
    offsets_bytes = 4 * (count + 1)
    data_at = padded_size(offsets_bytes)
    numbers[_BODY] = data_at + padded_size(data_bytes)
    numbers[9] = numbers[18] = count
    numbers[14] = offsets_bytes
    numbers[15] = data_at
    numbers[_DATA] = data_bytes
    return tuple(numbers)


def _timed_numbers(count: int, data_bytes: int) -> tuple[int, ...]:
    """Return the metadata of messages with publish times."""
    numbers = list(_timed_numbers_of_one())
    times_bytes = 8 * count
    offsets_bytes = 4 * (count + 1)
    data_at = times_bytes + padded_size(offsets_bytes)
    numbers[_BODY] = data_at + padded_size(data_bytes)
    numbers[9] = numbers[22] = numbers[24] = count
    numbers[14] = numbers[15] = numbers[17] = times_bytes
    numbers[18] = offsets_bytes
    numbers[19] = data_at
    numbers[_TIMED_DATA] = data_bytes
    return tuple(numbers)


@cache
def _struct_of(count: int, kind: str) -> struct.Struct:
    return struct.Struct(f"<{count}{kind}")
