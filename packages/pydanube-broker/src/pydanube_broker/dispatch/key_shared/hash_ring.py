"""
Consistent hashing: the owners of keys, while owners come and go.

Every owner has many points on a ring of hashes; a key belongs to the owner of the
first point at or after the key's own hash.  An owner that is added takes some keys from
every other owner, and one that is removed leaves some to every other; no other key
changes its owner.

The ring is divided into equal arcs, whose number grows and shrinks with the number of
points.  Hashes are spread evenly, so an arc always has few points, and adding or
removing an owner takes the same time however many others there are.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Container, Iterator
from itertools import chain
from zlib import crc32

POINTS_PER_OWNER = 256
"""With this many, two owners almost always share within 60:40; see the tests."""
ARC_POINTS_MAX = 512
"""The most points of an arc, on average; with more, the number of arcs doubles."""
_HASH_BITS = 32
_OWNER_BITS = 32


class HashRing:
    """A hash ring; all processes compute the same owners."""

    __slots__ = ("_arcs", "_names", "_shift")

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._shift = _HASH_BITS + _OWNER_BITS
        # The points of each arc, in order.
        self._arcs = [array("Q")]

    def add(self, owner: int, name: str) -> None:
        """Add *owner*, a number of 32 bits; *name* determines its points."""
        assert owner not in self._names
        self._names[owner] = name
        self._resize()
        for point in _points_of(owner, name):
            insort(self._arcs[point >> self._shift], point)

    def remove(self, owner: int) -> None:
        """Remove *owner*; others own its keys."""
        for point in _points_of(owner, self._names.pop(owner)):
            arc = self._arcs[point >> self._shift]
            del arc[bisect_left(arc, point)]
        self._resize()

    def owner_of(self, key: bytes, among: Container[int] | None = None) -> int | None:
        """
        Return the owner of *key*, or None if there are no owners.

        With *among*, only owners in it are considered; an owner in it keeps the keys
        that it owns among all.
        """
        if not self._names:
            return None
        for point in self._points_from(hash_of(key) << _OWNER_BITS):
            owner = point & (1 << _OWNER_BITS) - 1
            if among is None or owner in among:
                return owner
        return None

    def _points_from(self, begin: int) -> Iterator[int]:
        """Yield all points of the ring, starting at *begin*."""
        arcs, first = self._arcs, begin >> self._shift
        at = bisect_left(arcs[first], begin)
        yield from arcs[first][at:]
        yield from chain.from_iterable(chain(arcs[first + 1 :], arcs[:first]))
        yield from arcs[first][:at]

    def _resize(self) -> None:
        """Adapt the number of arcs to the number of owners."""
        count, points = len(self._arcs), POINTS_PER_OWNER * len(self._names)
        if points > count * ARC_POINTS_MAX:
            count *= 2
        elif count > 1 and points * 8 < count * ARC_POINTS_MAX:
            count //= 2
        else:
            return
        arcs = [array("Q") for _ in range(count)]
        shift = _HASH_BITS + _OWNER_BITS - (count.bit_length() - 1)
        for point in chain.from_iterable(self._arcs):
            arcs[point >> shift].append(point)
        self._arcs, self._shift = arcs, shift


def _points_of(owner: int, name: str) -> Iterator[int]:
    """Yield the points of *owner*: the hash of each, and then the owner."""
    for number in range(POINTS_PER_OWNER):
        yield hash_of(f"{name}-{number}".encode()) << _OWNER_BITS | owner


def hash_of(text: bytes) -> int:
    """Return a hash of 32 bits that is spread evenly, even for similar texts."""
    # CRC-32 is fast, but similar texts have similar checksums; MurmurHash3's finalizer
    # spreads every bit over all others.
    mixed = crc32(text)
    mixed = (mixed ^ mixed >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    mixed = (mixed ^ mixed >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return mixed ^ mixed >> 16
