"""
A fetch session: the partitions of a consumer, so that it need not name all each time.

A consumer begins a session with a request that names all partitions.  The requests that
follow name those of which something has changed, and the answers have only partitions
with news.  Requests of a session are numbered, so that none is lost unnoticed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from typing import NamedTuple, TypeAlias

from pydanube.model.lazy_dataclasses import dataclass

PARTITIONS_MAX = 10_000
"""The most partitions of a session; consumers with more name them each time."""
NO_SESSION = 0
FIRST_EPOCH = 0
"""The number of a request that begins a session."""
FINAL_EPOCH = -1
"""The number of a request without a session, which ends the one that it names."""
_EPOCH_MAX = 2**31 - 1

Partition: TypeAlias = "tuple[str, int]"
"""A topic and the number of the partition."""


class Wanted(NamedTuple):
    """The offset and size that a consumer wants of a partition."""

    offset: int
    bytes_max: int


class Told(NamedTuple):
    """The offsets of a partition in the last answer."""

    start: int
    end: int


@dataclass(slots=True)
class FetchSession:
    """The session of a consumer."""

    session_id: int
    wanted: dict[Partition, Wanted]
    """Those without records lately are first."""
    epoch: int = 1
    """The number of the next request."""
    _told: dict[Partition, Told] = field(default_factory=dict)

    def update(
        self, wanted: Iterable[tuple[Partition, Wanted]], forgotten: Iterable[Partition]
    ) -> bool:
        """Take a request that continues; return False if there are too many."""
        for partition in forgotten:
            self.wanted.pop(partition, None)
            self._told.pop(partition, None)
        for partition, each in wanted:
            self.wanted[partition] = each
            # Its consumer expects an answer, whatever was said before.
            self._told.pop(partition, None)
        self.epoch = 1 if self.epoch == _EPOCH_MAX else self.epoch + 1
        return len(self.wanted) <= PARTITIONS_MAX

    def is_news(self, partition: Partition, told: Told, *, has_more: bool) -> bool:
        """
        Return whether to answer with a partition, and note what is answered.

        *has_more*: There are records, or an error.
        """
        if has_more and partition in self.wanted:
            # The others have their turn before it the next time.
            self.wanted[partition] = self.wanted.pop(partition)
        is_known = self._told.get(partition) == told
        self._told[partition] = told
        return has_more or not is_known
