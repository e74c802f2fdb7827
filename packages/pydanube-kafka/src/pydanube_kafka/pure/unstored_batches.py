"""The batches of idempotent producers that are not stored, in order of sequence."""

from __future__ import annotations

from typing import TypeAlias

from pydanube.model.names import TopicName
from pydanube_kafka.pure.transactions import SEQUENCE_END

BATCHES_MAX = 10_000
"""The number of batches of one connection that are remembered."""
ProducerKey: TypeAlias = "tuple[TopicName, int, int, int]"
"""A topic, the number of its partition, and the id and epoch of a producer."""


class UnstoredBatches:
    """
    The batches of a connection that were sent or refused, and are not stored.

    A producer that a partition does not know may begin with any sequence.  If its first
    batch is refused, those after it are in flight already; they must not be stored
    before the client has sent the first one again.

    Bounds: *batches_max* batches.  Others are not remembered, so they are not first.
    """

    def __init__(self, batches_max: int = BATCHES_MAX) -> None:
        self._sequences: dict[ProducerKey, set[int]] = {}
        self._batches_max = batches_max
        self._count = 0

    def add(self, key: ProducerKey, sequence: int) -> None:
        """Add a batch that a client has sent."""
        if sequence in self._sequences.get(key, ()) or self._count >= self._batches_max:
            return
        self._sequences.setdefault(key, set()).add(sequence)
        self._count += 1

    def is_first(self, key: ProducerKey, sequence: int) -> bool:
        """Return whether a batch was added, and is the first of its producer."""
        sequences = self._sequences.get(key, set())
        return sequence in sequences and not any(
            _is_before(each, sequence) for each in sequences
        )

    def remove(self, key: ProducerKey, sequence: int) -> None:
        """Remove a batch that is stored, and those before it."""
        before = self._sequences.pop(key, set())
        left = {each for each in before if _is_before(sequence, each)}
        self._count -= len(before) - len(left)
        if left:
            self._sequences[key] = left


def _is_before(one: int, other: int) -> bool:
    return 0 < (other - one) % SEQUENCE_END < SEQUENCE_END // 2
