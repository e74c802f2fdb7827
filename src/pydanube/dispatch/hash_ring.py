"""
Consistent hashing: who owns a key, while owners come and go.

Every owner has many points on a ring of hashes; a key belongs to the owner of the
first point from the key's own hash on.  Who comes takes about one share of the keys,
a little from everybody, and who goes leaves a little to everybody; no other key moves.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from itertools import compress
from typing import TYPE_CHECKING
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Container

POINTS_PER_OWNER = 128
"""So many that shares differ by about a tenth."""


class HashRing:
    """Owners by the hashes of what they own; the same in every process."""

    __slots__ = ("_hashes", "_owners")

    def __init__(self) -> None:
        # Of all points, in order; of equal hashes, the lower owner comes first.
        self._hashes = array("I")
        self._owners = array("q")

    def add(self, owner: int, name: str) -> None:
        """Let *owner* have its share; where its points are follows from *name*."""
        hashes, owners = self._hashes, self._owners
        for number in range(POINTS_PER_OWNER):
            point = hash_of(f"{name}-{number}".encode())
            at = bisect_left(hashes, point)
            while at < len(hashes) and hashes[at] == point and owners[at] < owner:
                at += 1
            hashes.insert(at, point)
            owners.insert(at, owner)

    def remove(self, owner: int) -> None:
        """Leave the share of *owner* to the others."""
        kept = [each != owner for each in self._owners]
        self._hashes = array("I", compress(self._hashes, kept))
        self._owners = array("q", compress(self._owners, kept))

    def owner_of(self, key: bytes, among: Container[int] | None = None) -> int | None:
        """
        Who owns *key*; None if there is nobody.

        With *among*, only these count; a key that one of them owns among all, it owns
        among these.
        """
        owners = self._owners
        at = bisect_left(self._hashes, hash_of(key))
        for number in range(at, at + len(owners)):
            owner = owners[number % len(owners)]
            if among is None or owner in among:
                return owner
        return None


def hash_of(text: bytes) -> int:
    """32 bits, in which no pattern of *text* shows."""
    # A checksum is fast, but texts that are alike have checksums that are alike;
    # what follows is the usual way to spread every bit over all others.
    mixed = crc32(text)
    mixed = (mixed ^ mixed >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    mixed = (mixed ^ mixed >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return mixed ^ mixed >> 16
