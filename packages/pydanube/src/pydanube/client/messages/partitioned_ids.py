"""The ids of messages that were published together to several partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from pydanube.client.messages.messages import MessageId, MessageIds

if TYPE_CHECKING:
    import pyarrow as pa


class PartitionSlice(NamedTuple):
    """Messages of one batch that went to one partition."""

    number: int
    """The number of the partition."""
    indexes: Sequence[int] | pa.Array
    """The indexes of the messages in the batch, in order."""
    offsets: Sequence[int]


class PartitionedIds(MessageIds):
    """
    The ids of messages that were published together to several partitions.

    They are sorted when one is first read, since many never are.
    """

    def __init__(
        self, topic: str, names: Sequence[str], runs: Sequence[PartitionSlice]
    ) -> None:
        super().__init__(topic, ())
        self._names = names
        self._runs = runs
        self._count = sum(len(run.indexes) for run in runs)

    @property
    def offsets(self) -> Sequence[int]:
        """The offset of each message in its partition."""
        return [offset for _, offset in self._sorted]

    def _part(self, index: slice) -> MessageIds:
        runs = [
            PartitionSlice(number, (at,), (offset,))
            for at, (number, offset) in enumerate(self._sorted[index])
        ]
        return PartitionedIds(self.topic, self._names, runs)

    def _id(self, index: int) -> MessageId:
        number, offset = self._sorted[index]
        return MessageId(self._names[number], offset)

    def counts(self) -> dict[str, int]:
        """Return the number of messages that went to each of the partitions."""
        counts: Counter[int] = Counter()
        for run in self._runs:
            counts[run.number] += len(run.indexes)
        return {self._names[number]: counts[number] for number in sorted(counts)}

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"PartitionedIds({self.topic!r}, {len(self)} messages)"

    @cached_property
    def _sorted(self) -> list[tuple[int, int]]:
        """The number of the partition and the offset of each message."""
        found = [(0, 0)] * self._count
        for number, indexes, offsets in self._runs:
            order = indexes if isinstance(indexes, Sequence) else indexes.to_pylist()
            for at, offset in zip(order, offsets, strict=True):
                found[at] = number, offset
        return found
