import pytest

from pydanube.model.errors import CorruptJournal
from pydanube.wire.files.journal_format import (
    RUNS_MAX,
    Batch,
    CursorSaved,
    CursorState,
    ProducerDeleted,
    ProducerOpened,
    ShardForgotten,
    ShardLeft,
    SubscriptionDeleted,
    TopicAdopted,
    TopicDeleted,
    TopicOpened,
    TopicSealed,
)
from pydanube_broker.storage.journal.state import JournalState
from support.fakes.batches import frame_of


def opened(end=0):
    state = JournalState()
    state.apply(
        TopicOpened(topic_id=1, name="t", epoch=1, end_offset=end, sealed_offset=end)
    )
    return state


def batch(state, count=2, **fields):
    frame = frame_of([b"x"] * count, **fields)
    frame.stamp(state.topics[1].end_offset, 1)
    return Batch(1, frame)


def test_a_batch_moves_the_end():
    state = opened(5)
    state.apply(batch(state))
    assert state.topics[1].end_offset == 7


def test_a_batch_that_does_not_continue_its_topic_is_damage():
    state = opened(5)
    entry = batch(state)
    state.apply(entry)
    with pytest.raises(CorruptJournal, match="at offset 7, it has 5"):
        state.apply(entry)


def test_a_producers_messages_are_remembered_as_few_runs():
    state = opened()
    for at in range(3):
        state.apply(batch(state, producer="p", producer_id=1, base_sequence=2 * at))
    state.apply(batch(state, count=1))
    state.apply(batch(state, producer="p", producer_id=1, base_sequence=6))
    producer = state.topics[1].producers["p"]
    assert producer.next_sequence == 8
    assert list(producer.runs) == [(0, 0, 6), (6, 7, 2)]


def test_the_oldest_runs_are_forgotten():
    state = opened()
    for at in range(RUNS_MAX + 10):
        state.apply(batch(state, 1, producer="p", producer_id=1, base_sequence=at))
        state.apply(batch(state, 1))
    runs = state.topics[1].producers["p"].runs
    assert len(runs) == RUNS_MAX
    assert runs[0][0] == 10


def test_a_producer_without_id_is_not_remembered():
    state = opened()
    state.apply(batch(state, producer="p"))
    assert not state.topics[1].producers


def test_reopened_producer_keeps_its_runs():
    state = opened()
    state.apply(ProducerOpened(topic_id=1, name="p", producer_id=1, epoch=1))
    state.apply(batch(state, producer="p", producer_id=1, producer_epoch=1))
    state.apply(ProducerOpened(topic_id=1, name="p", producer_id=1, epoch=2))
    producer = state.topics[1].producers["p"]
    assert (producer.epoch, producer.next_sequence) == (2, 2)
    state.apply(ProducerOpened(topic_id=1, name="p", producer_id=9, epoch=1))
    assert state.topics[1].producers["p"].next_sequence == 0


def test_cursors_and_producers_can_be_deleted():
    state = opened()
    state.apply(CursorSaved(1, "s", CursorState(3)))
    state.apply(ProducerOpened(topic_id=1, name="p", producer_id=1, epoch=1))
    state.apply(SubscriptionDeleted(1, "s"))
    state.apply(ProducerDeleted(1, "p"))
    assert not state.topics[1].cursors
    assert not state.topics[1].producers


def test_entries_of_a_deleted_topic_are_ignored():
    state = opened()
    late = [
        batch(state),
        CursorSaved(1, "s", CursorState(3)),
        TopicSealed(1, 1),
        ProducerOpened(topic_id=1, name="p", producer_id=1, epoch=1),
    ]
    state.apply(TopicDeleted(1))
    for entry in late:
        state.apply(entry)
    assert not state.topics


def test_sealing_never_goes_back():
    state = opened(5)
    state.apply(TopicSealed(1, 3))
    assert state.topics[1].sealed_offset == 5


# Shards.


def adopted(epoch, topic_id=1, shard=7, end=0):
    return TopicAdopted(
        topic_id=topic_id,
        shard=shard,
        name="t",
        epoch=epoch,
        end_offset=end,
        sealed_offset=0,
    )


def in_shard(epoch=1):
    state = JournalState()
    state.apply(adopted(epoch))
    return state


def test_adoption_replaces_cursors_producers_and_the_end():
    state = in_shard(epoch=1)
    state.apply(batch(state, producer="p", producer_id=1))
    state.apply(CursorSaved(1, "s", CursorState(3)))
    state.apply(adopted(3, end=9))
    topic = state.topics[1]
    assert (topic.epoch, topic.end_offset) == (3, 9)
    assert not topic.cursors
    assert not topic.producers


def test_a_topic_that_is_opened_again_stays_in_its_shard():
    state = in_shard()
    state.apply(
        TopicOpened(topic_id=1, name="t", epoch=1, end_offset=0, sealed_offset=0)
    )
    assert state.topics[1].shard == 7


def test_entries_after_the_shard_has_left_are_ignored():
    state = in_shard()
    late = [
        batch(state),
        CursorSaved(1, "s", CursorState(3)),
        TopicOpened(topic_id=1, name="t", epoch=1, end_offset=5, sealed_offset=5),
        TopicDeleted(1),
    ]
    state.apply(ShardLeft(7, 1))
    before = list(state.snapshot())
    assert not any(state.apply(entry) for entry in late)
    assert list(state.snapshot()) == before


def test_a_shard_that_has_left_can_return():
    state = in_shard(epoch=1)
    state.apply(ShardLeft(7, 1))
    state.apply(adopted(3))
    assert state.apply(batch(state))
    assert state.topics[1].end_offset == 2


def test_an_epoch_that_has_left_does_not_begin_again():
    state = JournalState()
    state.apply(ShardLeft(7, 2))
    assert not state.apply(adopted(2))
    assert not state.topics


def test_leaving_does_not_end_topics_of_later_epochs_or_of_other_shards():
    state = in_shard(epoch=3)
    state.apply(adopted(1, topic_id=2, shard=8))
    state.apply(ShardLeft(7, 1))
    assert not any(topic.has_left for topic in state.topics.values())


def test_a_forgotten_shard_leaves_nothing_behind():
    state = in_shard()
    state.apply(adopted(1, topic_id=2, shard=8))
    state.apply(ShardLeft(7, 1))
    state.apply(ShardForgotten(7, 1))
    assert state.topics.keys() == {2}
    assert not state.left_shards


def test_forgetting_keeps_a_later_epoch():
    state = in_shard(epoch=3)
    state.apply(ShardForgotten(7, 2))
    assert state.topics.keys() == {1}
