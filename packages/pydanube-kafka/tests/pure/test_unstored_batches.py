"""The first batch of a producer is known, also over the end of sequences."""

from __future__ import annotations

from pydanube.model.names import TopicName
from pydanube_kafka.pure.transactions import SEQUENCE_END
from pydanube_kafka.pure.unstored_batches import UnstoredBatches

KEY = (TopicName.parse("/default/orders"), 0, 7, 0)


def test_the_first_batch_is_the_earliest_that_is_not_stored():
    batches = UnstoredBatches()
    for sequence in (SEQUENCE_END - 5, 5, SEQUENCE_END - 10):
        batches.add(KEY, sequence)
        batches.add(KEY, sequence)
    found = [batches.is_first(KEY, each) for each in (SEQUENCE_END - 10, 5)]
    assert found == [True, False]
    batches.remove(KEY, SEQUENCE_END - 5)
    assert batches.is_first(KEY, 5)
    assert not batches.is_first((*KEY[:3], 1), 5)
    batches.remove(KEY, 5)
    assert not batches.is_first(KEY, 5)


def test_batches_beyond_the_bound_are_not_first():
    batches = UnstoredBatches(2)
    for sequence in (10, 20, 5):
        batches.add(KEY, sequence)
    assert not batches.is_first(KEY, 5)
    assert batches.is_first(KEY, 10)
    batches.remove(KEY, 20)
    batches.add(KEY, 5)
    assert batches.is_first(KEY, 5)
