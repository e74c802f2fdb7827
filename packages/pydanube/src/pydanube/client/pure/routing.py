"""
Routing messages to partitions.  Pure.

A message with a key goes to partition ``FNV-1a 64 of the key's bytes mod partitions``,
as with the clients of the original Danube.  Messages without a key go to the partitions
round robin: those that gather in one batch stay together, so that batches stay large.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from pydanube.model.arrow import pa, pc

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

    def split(
        self, batch: pa.RecordBatch, ids: Sequence[str] | None = None
    ) -> Iterator[tuple[int, pa.Array, pa.RecordBatch]]:
        """
        Yield the messages of *batch* by partition, with their indexes in *batch*.

        Messages without a key are routed by their ids, if these are given.

        Ordering: Messages of one partition keep their order.
        """
        if ids is not None:
            keys = pa.array(ids).cast(pa.binary())
            if "key" in batch.schema.names:
                keys = pc.coalesce(batch.column("key"), keys)
        elif "key" in batch.schema.names:
            keys = batch.column("key")
        else:
            for base in range(0, batch.num_rows, KEYLESS_RUN_MESSAGES):
                piece = batch.slice(base, KEYLESS_RUN_MESSAGES)
                indexes = pa.array(range(base, base + piece.num_rows), pa.uint64())
                yield self.current, indexes, piece
                self.advance()
            return
        numbers = self._numbers(keys)
        for number in pc.unique(numbers).to_pylist():
            indexes = pc.indices_nonzero(pc.equal(numbers, number))
            yield number, indexes, batch.take(indexes)

    def _numbers(self, keys: pa.Array) -> pa.Array:
        """Return each message's partition; those without a key share one."""
        encoded = keys.dictionary_encode()
        of_code = [self.partition_for(key) for key in encoded.dictionary.to_pylist()]
        numbers = pc.take(pa.array(of_code, pa.int32()), encoded.indices)
        if numbers.null_count:
            numbers = pc.fill_null(numbers, self.current)
            self.advance()
        return numbers
