"""
The partitions of a topic: what its record says, and how the record changes.

A partitioned topic is a name with a ``PartitionedTopicRecord``; each partition is a
topic like any other.  One transaction changes the record and the names of partitions,
so the record alone says which partitions exist.  Partitions that are created by name,
as the original Danube's clients do, may come in any order; those below the highest
that do not exist yet are *missing*.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pydanube.model.errors import InvalidRequest
from pydanube.model.names import TopicName
from pydanube.model.ranges import RangeSet
from pydanube_broker.metadata.records import PartitionedTopicRecord

PARTITIONS_MAX = 4096
"""The most partitions of a topic; one transaction creates them."""


def check_count(base: TopicName, partitions: int) -> None:
    """
    Raise if *base* cannot have this number of partitions.

    Raises:
        InvalidRequest: It is not between 1 and ``PARTITIONS_MAX``.
        InvalidName: The names of the partitions are too long.
    """
    if not 1 <= partitions <= PARTITIONS_MAX:
        raise InvalidRequest(
            f"{base} can have 1 to {PARTITIONS_MAX} partitions, not {partitions}"
        )
    TopicName.parse(str(base.partition(partitions - 1)))


def with_partition(
    record: PartitionedTopicRecord, number: int
) -> PartitionedTopicRecord:
    """Return the record with partition *number* added."""
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


def with_partition_count(
    base: TopicName, record: PartitionedTopicRecord, partitions: int
) -> PartitionedTopicRecord:
    """
    Return the record with *partitions* partitions, none of them missing.

    Raises:
        InvalidRequest: That is not more than before, or too many.
    """
    check_count(base, partitions)
    if partitions <= record.partitions:
        raise InvalidRequest(
            f"{base} has {record.partitions} partitions; their number can only be "
            f"raised, not set to {partitions}"
        )
    return msgspec.structs.replace(record, partitions=partitions, missing=())


def has_partition(record: PartitionedTopicRecord, number: int) -> bool:
    """Return whether partition *number* exists."""
    return number < record.partitions and not any(
        begin <= number < end for begin, end in record.missing
    )


def numbers_of(record: PartitionedTopicRecord) -> Iterator[int]:
    """Iterate over the numbers of the existing partitions."""
    begin = 0
    for missing, end in (*record.missing, (record.partitions, record.partitions)):
        yield from range(begin, missing)
        begin = end


def names_of(base: TopicName, record: PartitionedTopicRecord) -> list[TopicName]:
    """Return the existing partitions of *base*, sorted by number."""
    return [base.partition(number) for number in numbers_of(record)]
