from dataclasses import replace

import pytest

from pydanube.model.errors import InvalidRequest, ProducerFenced, Unavailable
from pydanube.model.policy import Deduplication, TopicPolicy
from pydanube_broker.broker.pure.deduplication import (
    DeduplicationWindow,
    ids_of,
    select,
)
from support.fakes.batches import A_TIME, frame_of
from support.fakes.brokers import A_NOW_US, A_TOPIC, BrokerWorld, Outcome
from support.fakes.identified import (
    AGE_S,
    DEDUPLICATING,
    MESSAGES_MAX,
    WINDOW,
    identified_frame,
    offsets,
    opened,
    publish,
    stored_ids,
)

AGE_US = int(AGE_S * 1_000_000)


def window_of(ids, *, time=A_TIME, base=0):
    window = DeduplicationWindow(WINDOW)
    window.add(ids, [time] * len(ids), range(base, base + len(ids)), time)
    return window


def test_known_ids_keep_their_offsets():
    window = window_of(["a", "b"])
    assert window.place(["b", "c", "a", "c"], 2, A_TIME) == ([1, 2, 0, 2], [1])


def test_messages_without_an_id_are_always_new():
    window = window_of([None, "a"])
    assert window.place([None, None], 2, A_TIME) == ([2, 3], [0, 1])


def test_ids_expire_after_the_age():
    window = window_of(["a"])
    assert window.place(["a"], 1, A_TIME + AGE_US) == ([0], [])
    assert window.place(["a"], 1, A_TIME + AGE_US + 1) == ([1], [0])


def test_only_the_last_messages_count():
    window = window_of(["a"])
    assert window.place(["a"], MESSAGES_MAX, A_TIME) == ([0], [])
    assert window.place(["a"], MESSAGES_MAX + 1, A_TIME) == ([MESSAGES_MAX + 1], [0])


def test_window_forgets_what_it_does_not_need():
    window = window_of([str(n) for n in range(100)])
    assert len(window) == MESSAGES_MAX
    window.add(["x"], [A_TIME + 2 * AGE_US], [100], A_TIME + 2 * AGE_US)
    assert len(window) == 1


def test_ids_of_messages_that_were_not_stored_are_removed():
    window = window_of(["a", "b", "c"])
    window.remove_from(1)
    assert window.place(["a", "b", "c"], 1, A_TIME) == ([0, 1, 2], [1, 2])


def test_batch_without_the_attribute_has_no_ids():
    assert ids_of(frame_of([b"x"])) is None
    assert ids_of(frame_of([b"x"], attributes=[{"a": "1"}])) is None


def test_selected_messages_end_at_the_same_sequence():
    frame = frame_of([b"0", b"1", b"2"], publish_times=[A_TIME, A_TIME + 1, A_TIME + 2])
    part = select(frame, [0, 2])
    assert part.arrow()["payload"].to_pylist() == [b"0", b"2"]
    header = part.header
    assert (header.base_sequence, header.count) == (1, 2)
    assert header.first_publish_time, header.last_publish_time == (A_TIME, A_TIME + 2)


async def test_producers_of_one_topic_share_the_window(broker):
    topic, p = await opened(broker, "p")
    _, q = await opened(broker, "q")
    first = publish(topic, p, ["a", "b"], A_NOW_US)
    # The first batch is not on disk yet.
    second = publish(topic, q, ["b", "c"], A_NOW_US)
    third = publish(topic, q, ["a"], A_NOW_US)
    assert await offsets(first, 2) == [0, 1]
    assert await offsets(second, 2) == [1, 2]
    assert await offsets(third, 1) == [0]
    assert await stored_ids(topic) == ["a", "b", "c"]


async def test_receipt_of_a_duplicate_waits_for_earlier_batches(broker):
    topic, session = await opened(broker)
    await publish(topic, session, ["a"], A_NOW_US).offset()
    new = publish(topic, session, ["b"], A_NOW_US)
    duplicate = publish(topic, session, ["a"], A_NOW_US)
    assert not duplicate.is_known
    await new.offset()
    assert await offsets(duplicate, 1) == [0]


async def test_repeated_batch_with_duplicates_gets_the_same_answer(broker):
    topic, session = await opened(broker)
    await publish(topic, session, ["a"], A_NOW_US).offset()
    for _ in range(2):
        again = publish(topic, session, ["a", "b"], A_NOW_US, base_sequence=1)
        assert await offsets(again, 2) == [0, 1]
    assert session.next_sequence == 3
    assert await offsets(publish(topic, session, ["c"], A_NOW_US), 1) == [2]


async def test_batch_after_a_gap_is_refused(broker):
    topic, session = await opened(broker)
    with pytest.raises(InvalidRequest, match="sent sequence 5; 0 was expected"):
        publish(topic, session, ["a"], A_NOW_US, base_sequence=5)


async def test_batch_of_an_earlier_session_is_refused(broker):
    topic, before = await opened(broker)
    _, session = await opened(broker)
    frame = identified_frame(before, ["a"], A_NOW_US)
    with pytest.raises(ProducerFenced):
        topic.publish(session, frame, Outcome())


async def test_producer_must_give_all_messages_of_a_batch_an_id(broker):
    topic, session = await opened(broker)
    with pytest.raises(InvalidRequest, match="or none: publish those without it"):
        publish(topic, session, ["a", None], A_NOW_US)
    with pytest.raises(InvalidRequest, match="has 257 characters"):
        publish(topic, session, ["a" * 257], A_NOW_US)


async def test_ids_are_known_after_a_restart_from_segments_and_journal():
    world = BrokerWorld()
    async with world.broker() as broker:
        topic, session = await opened(broker)
        await publish(topic, session, ["a"], A_NOW_US).offset()
        await broker.storage.sealer.seal_now()
        await publish(topic, session, ["b"], A_NOW_US).offset()
        assert topic.segments
    async with world.broker() as broker:
        topic, session = await opened(broker)
        outcome = publish(topic, session, ["a", "b", "c"], A_NOW_US)
        assert await offsets(outcome, 3) == [0, 1, 2]


async def test_corrupt_segment_only_makes_its_ids_unknown(caplog):
    world = BrokerWorld()
    async with world.broker() as broker:
        topic, session = await opened(broker)
        await publish(topic, session, ["a"], A_NOW_US).offset()
        await broker.storage.sealer.seal_now()
        await publish(topic, session, ["b"], A_NOW_US).offset()
        [segment] = topic.segments
    await world.objects.delete(segment.object_name)
    async with world.broker() as broker:
        topic, session = await opened(broker)
        outcome = publish(topic, session, ["a", "b"], A_NOW_US)
        assert await offsets(outcome, 2) == [2, 1]
    assert "the ids of the messages 0 to 0 cannot be read" in caplog.text


async def test_producers_open_again_when_deduplication_begins_or_ends(broker):
    told = []
    topic, _ = await broker.producers.open(
        A_TOPIC, "p", policy=TopicPolicy(), on_fenced=told.append
    )
    await broker.topics.configure(A_TOPIC, deduplication=WINDOW)
    assert [type(each) for each in told] == [Unavailable]
    _, session = await broker.producers.open(
        A_TOPIC, "p", policy=TopicPolicy(), on_fenced=told.append
    )
    wider = replace(WINDOW, messages_max=100)
    await broker.topics.configure(A_TOPIC, deduplication=wider)
    assert len(told) == 1
    await publish(topic, session, ["a"], A_NOW_US).offset()
    assert await offsets(publish(topic, session, ["a"], A_NOW_US), 1) == [0]
    await broker.topics.configure(A_TOPIC, deduplication=None)
    assert len(told) == 2


async def test_topic_without_the_policy_stores_ids_as_attributes(broker):
    topic, session = await broker.producers.open(A_TOPIC, "p", policy=TopicPolicy())
    for expected in (0, 1):
        assert await publish(topic, session, ["a"], A_NOW_US).offset() == expected


async def test_ids_that_producers_use_need_no_policy_also_after_a_restart():
    world = BrokerWorld()
    async with world.broker() as broker:
        topic, session = await broker.producers.open(A_TOPIC, "p", policy=TopicPolicy())
        await publish(topic, session, ["a"], A_NOW_US).offset()
    for _ in range(2):
        async with world.broker() as broker:
            opening = broker.producers.open
            topic, session = await opening(A_TOPIC, "p", policy=TopicPolicy())
            with pytest.raises(Unavailable, match="has begun to deduplicate"):
                publish(topic, session, ["a"], A_NOW_US, uses_ids=True)
            _, session = await opening(A_TOPIC, "p", policy=TopicPolicy())
            outcome = publish(topic, session, ["a", "b"], A_NOW_US, uses_ids=True)
            assert await offsets(outcome, 2) == [0, 1]


@pytest.mark.parametrize(
    "window",
    [
        Deduplication(age_s=0),
        Deduplication(age_s=float("nan")),
        Deduplication(age_s=8 * 86_400),
        Deduplication(messages_max=0),
        Deduplication(messages_max=1_000_001),
    ],
)
async def test_window_has_bounds(broker, window):
    await opened(broker)
    with pytest.raises(InvalidRequest, match="must be"):
        await broker.topics.configure(A_TOPIC, deduplication=window)
    assert (await broker.topics.get(A_TOPIC)).policy.deduplication == WINDOW
    assert DEDUPLICATING.deduplication is WINDOW
