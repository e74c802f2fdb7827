"""Single messages are delivered unchanged, for any producers and timing."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pydanube.model.batch import attributes_of
from pydanube_broker.broker.publishing.message_batcher import SingleMessage
from support.fakes.batches import A_TIME
from support.fakes.brokers import A_TOPIC, RELIABLE, BrokerWorld, Outcome
from support.fakes.storages import seal

TEXTS = st.text(st.characters(codec="utf-8"), max_size=5)
TIMES = st.integers(A_TIME, A_TIME + 3)

MESSAGES = st.builds(
    SingleMessage,
    producer=st.sampled_from(["p", "q", "r"]),
    payload=st.binary(max_size=20),
    publish_time_us=TIMES,
    key=st.none() | st.binary(max_size=3),
    attributes=st.none() | st.dictionaries(TEXTS, TEXTS, max_size=2),
    schema_id=st.sampled_from([0, 7]),
    schema_version=st.just(0),
    deliver_at_us=st.none() | TIMES,
    expires_at_us=st.none() | TIMES,
)


def as_seen(message):
    return (
        message.producer,
        message.payload,
        message.publish_time_us,
        message.key,
        message.attributes or {},
        message.schema_id,
        message.deliver_at_us,
        message.expires_at_us,
    )


def seen_in(frame):
    header, count = frame.header, frame.count
    batch = frame.check()

    def column(name, otherwise):
        if name not in batch.schema.names:
            return [otherwise] * count
        values = batch.column(name)
        is_time = name in ("publish_time", "deliver_at", "expires_at")
        return (values.cast("int64") if is_time else values).to_pylist()

    return zip(
        column("producer", header.producer),
        column("payload", None),
        column("publish_time", header.first_publish_time),
        column("key", None),
        map(attributes_of, column("attributes", None)),
        [header.schema_id] * count,
        column("deliver_at", None),
        column("expires_at", None),
        strict=True,
    )


@pytest.mark.slow
@given(
    turns=st.lists(st.lists(MESSAGES, max_size=8), max_size=4), is_sealed=st.booleans()
)
@settings(max_examples=50, deadline=None)
async def test_messages_come_out_as_they_went_in(turns, is_sealed):
    world = BrokerWorld()
    sent = []
    async with world.broker() as broker:
        topic = await broker.topics.create(A_TOPIC, RELIABLE)
        for messages in turns:
            for message in messages:
                outcome = Outcome()
                broker.batcher.publish(topic, message, outcome)
                sent.append((message, outcome))
            await asyncio.sleep(0)
        offsets = [await outcome.offset() for _, outcome in sent]
        assert sorted(offsets) == list(range(len(sent)))
        if is_sealed:
            await seal(broker.storage, topic.topic_id)
    async with world.broker() as broker:
        log = (await broker.topics.get(A_TOPIC)).log
        stored = []
        while len(stored) < log.end_offset:
            for frame in await log.read(len(stored), bytes_max=1 << 20):
                stored += seen_in(frame)
    expected = sorted(zip(offsets, (as_seen(each) for each, _ in sent), strict=True))
    assert list(enumerate(stored)) == expected
