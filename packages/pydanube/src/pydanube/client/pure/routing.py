"""
Routing messages to partitions.  Pure.

A message with a key goes to partition ``FNV-1a 64 of the key's bytes mod partitions``,
as with the clients of the original Danube.  Messages without a key go to the partitions
round robin: those that gather in one batch stay together, so that batches stay large.
"""

from __future__ import annotations

from functools import lru_cache

FNV_OFFSET = 0xCBF29CE484222325
FNV_PRIME = 0x100000001B3
_MASK = 0xFFFF_FFFF_FFFF_FFFF

KEYS_REMEMBERED_MAX = 65_536
"""The size of the hash cache; hashing takes a step for each byte of the key."""
KEYLESS_RUN_MESSAGES = 8192
"""The most messages without keys of one batch that go to the same partition."""


@lru_cache(KEYS_REMEMBERED_MAX)
def fnv1a_64(data: bytes) -> int:
    value = FNV_OFFSET
    for byte in data:
        value = (value ^ byte) * FNV_PRIME & _MASK
    return value


class Router:
    """Chooses partitions for one producer."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        """The number of partitions; it may grow."""
        self.current = 0
        """The partition for messages without a key."""

    def advance(self) -> int:
        """Move to the next partition for messages without a key, and return it."""
        self.current = (self.current + 1) % self.partitions
        return self.current

    def partition_for(self, key: bytes) -> int:
        return fnv1a_64(key) % self.partitions
