"""
The division of changed rows into parts by a hash of their keys.  Pure.

A number of parts is a power of two, so each part of a coarse division has whole parts
of every finer one.  All rows with one key are in one part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as types  # noqa: PLR0402  # pa has no attribute of the name.

PARTS_MAX = 1 << 16
CONTENT_BYTES = 1 << 20
"""How many bytes of texts are hashed at a time, which takes 32 times the memory."""

_FACTOR = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class KeyPart:
    """One of *count* parts, which is a power of two."""

    number: int
    count: int

    def may_share(self, other: KeyPart) -> bool:
        """Return whether a key can be in both parts."""
        mask = min(self.count, other.count) - 1
        return self.number & mask == other.number & mask

    def contains(self, other: KeyPart) -> bool:
        """Return whether all keys of *other* are in this part."""
        return self.count <= other.count and self.may_share(other)

    def mask(self, hashes: Any) -> Any:
        """Return which of *hashes* are in this part."""
        return (hashes & np.uint64(self.count - 1)) == np.uint64(self.number)


WHOLE = KeyPart(0, 1)


def part_count(byte_count: int, part_bytes: int) -> int:
    """Return into how many parts *byte_count* are divided, of about *part_bytes*."""
    wanted = -(-byte_count // part_bytes)
    return min(PARTS_MAX, 1 << max(0, wanted - 1).bit_length())


def key_hashes(columns: Sequence[Any]) -> Any:
    """Return a hash of each row of *columns*, which are arrays without nulls."""
    found = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        found = (found ^ _numbers(column)) * _FACTOR
        # Only the higher bits of a product depend on all bits.
        found ^= found >> np.uint64(32)
    return found


def _numbers(column: Any) -> Any:
    kind = column.type
    if types.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif types.is_temporal(kind):
        column = column.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    elif not types.is_integer(kind):
        return _text_numbers(column)
    return column.to_numpy(zero_copy_only=False).astype(np.int64).view(np.uint64)


def _text_numbers(column: Any) -> Any:
    """Return a polynomial of the bytes of each value."""
    if types.is_decimal(column.type):
        column = column.cast(pa.large_string())
    column = column.cast(pa.large_binary())
    count = len(column)
    _, ends, data = column.buffers()
    offsets = np.frombuffer(ends, np.int64)[column.offset : column.offset + count + 1]
    lengths = np.diff(offsets)
    found = lengths.astype(np.uint64)
    if not lengths.any():
        return found
    content = np.frombuffer(data, np.uint8)
    powers = np.cumprod(np.full(int(lengths.max()), _FACTOR))
    start = 0
    while start < count:
        last = np.searchsorted(offsets, offsets[start] + CONTENT_BYTES, "right") - 1
        end = max(start + 1, int(last))
        found[start:end] += _polynomials(content, offsets[start : end + 1], powers)
        start = end
    return found


def _polynomials(content: Any, offsets: Any, powers: Any) -> Any:
    """Return the sum of the bytes of each value, each times the power of its place."""
    lengths, starts = np.diff(offsets), offsets[:-1] - offsets[0]
    found = np.zeros(len(lengths), np.uint64)
    has_bytes = lengths > 0
    if has_bytes.any():
        part = content[offsets[0] : offsets[-1]].astype(np.uint64)
        places = np.arange(len(part)) - np.repeat(starts, lengths)
        sums = np.add.reduceat(part * powers[places], starts[has_bytes])
        found[has_bytes] = sums
    return found
