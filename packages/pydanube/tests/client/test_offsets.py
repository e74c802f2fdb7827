"""The offsets of messages, batches and ids that users acknowledge."""

import pyarrow as pa
import pytest

import pydanube
from pydanube.client.messages.messages import (
    MessageBatch,
    MessageId,
    MessageIds,
    ReceivedBatch,
)
from pydanube.client.messages.partitioned_ids import PartitionedIds, PartitionSlice
from pydanube.client.pure.offsets import parts_of
from pydanube.model.ids import Epoch, Offset
from support.fakes.batches import frame_of

A, B = "/default/t-part-0", "/default/t-part-1"


def batch(topic=A, base=5, count=3):
    frame = frame_of([b"x"] * count)
    frame.stamp(Offset(base), Epoch(1))
    return MessageBatch(topic, [(ReceivedBatch(frame, topic, 1), 0, count)])


def ranges_by_topic(messages):
    return {topic: ranges for topic, _, ranges in parts_of(messages)}


def ranges_of(messages):
    return ranges_by_topic(messages)[A]


def spread_ids():
    """The first of three messages went to the first partition."""
    runs = [
        PartitionSlice(0, [0], [4]),
        PartitionSlice(1, pa.array([1, 2]), range(2)),
    ]
    return PartitionedIds("/default/t", [A, B], runs)


def test_adjacent_offsets_become_one_range():
    ids = [MessageId(A, n) for n in (3, 1, 2, 7)]
    assert ranges_of(ids) == [(1, 4), (7, 8)]
    assert ranges_of(MessageIds(A, [8, 9])) == [(8, 10)]
    assert ranges_of(batch()) == [(5, 8)]
    assert ranges_of(batch()[1]) == [(6, 7)]


def test_ranges_are_grouped_by_partition():
    mixed = [MessageId(A, 1), MessageId(B, 1), MessageId(A, 2)]
    assert ranges_by_topic(mixed) == {A: [(1, 3)], B: [(1, 2)]}
    ids = spread_ids()
    assert ranges_by_topic(ids) == {A: [(4, 5)], B: [(0, 2)]}
    assert ranges_by_topic(batch(B)) == {B: [(5, 8)]}


def test_ids_of_several_partitions_are_a_sequence_of_ids():
    ids = spread_ids()
    assert list(ids) == [MessageId(A, 4), MessageId(B, 0), MessageId(B, 1)]
    assert ids[1:] == [MessageId(B, 0), MessageId(B, 1)]
    assert ids[-1] == MessageId(B, 1)
    assert (len(ids), ids.offsets) == (3, [4, 0, 1])
    assert len(spread_ids()[:0]) == 0
    assert ids.counts() == {A: 1, B: 2}
    assert MessageIds(A, [5, 6]).counts() == {A: 2}


@pytest.mark.parametrize("value", [7, "text", b"bytes", [7], None])
def test_values_that_are_no_messages_are_refused(value):
    with pytest.raises(pydanube.InvalidRequest):
        parts_of(value)
