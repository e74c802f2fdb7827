"""
Which partitions a name has: what its record says, and how the record changes.

A partitioned topic is a name with a record, ``PartitionedTopicRecord``; each of its
partitions is a topic like any other.  The record and the names of the partitions
change in the same transactions, so the record alone answers which there are.
Partitions that are made by name, as Danube's clients do, may come in any order;
what is not there yet below the highest one is *missing*.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pydanube.metadata.records import PartitionedTopicRecord
from pydanube.model.errors import InvalidRequest
from pydanube.model.names import TopicName
from pydanube.model.ranges import RangeSet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydanube.model.policy import TopicPolicy

PARTITIONS_MAX = 4096
"""So many may be made at once; they are one transaction of the metadata store."""


def check_count(base: TopicName, partitions: int) -> None:
    """
    Let a number of partitions pass that *base* can have.

    Raises:
        InvalidRequest: It is not between 1 and ``PARTITIONS_MAX``.
        InvalidName: The names of the partitions are too long.
    """
    if not 1 <= partitions <= PARTITIONS_MAX:
        raise InvalidRequest(
            f"{base} can have 1 to {PARTITIONS_MAX} partitions, not {partitions}"
        )
    base.partition(partitions - 1).check_new()


def new_record(
    partitions: int, policy: TopicPolicy, now: int
) -> PartitionedTopicRecord:
    """The record of a name with partitions 0 … *partitions*."""
    return PartitionedTopicRecord(partitions=partitions, policy=policy, created_at=now)


def with_partition(
    record: PartitionedTopicRecord | None, number: int, policy: TopicPolicy, now: int
) -> PartitionedTopicRecord:
    """The record when partition *number* has been made as well."""
    if record is None:
        record = new_record(0, policy, now)
    missing = RangeSet(record.missing)
    if number < record.partitions:
        missing.remove(number, number + 1)
    else:
        missing.add(record.partitions, number)
    return msgspec.structs.replace(
        record,
        partitions=max(record.partitions, number + 1),
        missing=tuple(missing),
    )


def grown(
    base: TopicName, record: PartitionedTopicRecord, partitions: int
) -> PartitionedTopicRecord:
    """
    The record of a name that has *partitions* altogether, and misses none.

    Raises:
        InvalidRequest: That is not more than before, or too many.
    """
    check_count(base, partitions)
    if partitions <= record.partitions:
        raise InvalidRequest(
            f"{base} has {record.partitions} partitions; there can only be more of "
            f"them, and not {partitions}"
        )
    return msgspec.structs.replace(record, partitions=partitions, missing=())


def has_partition(record: PartitionedTopicRecord, number: int) -> bool:
    """Whether partition *number* is there."""
    return number < record.partitions and not any(
        begin <= number < end for begin, end in record.missing
    )


def numbers_of(record: PartitionedTopicRecord) -> Iterator[int]:
    """The partitions that are there, in order."""
    begin = 0
    for missing, end in (*record.missing, (record.partitions, record.partitions)):
        yield from range(begin, missing)
        begin = end


def names_of(base: TopicName, record: PartitionedTopicRecord) -> list[TopicName]:
    """The topics that are the partitions of *base*, by number."""
    return [base.partition(number) for number in numbers_of(record)]
