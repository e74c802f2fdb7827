"""Accepted messages can be delivered, dead-lettered, sealed and read again."""

from hypothesis import given, settings
from hypothesis import strategies as st

import pydanube
from pydanube.model.errors import MessageTooLarge
from pydanube.model.names import TopicName
from pydanube.model.policy import PoisonPolicy
from pydanube.wire.native.frames import batch_bytes_max
from pydanube_broker.servers.settings.config import ListenConfig
from support.drivers.running import received
from support.fakes.storages import seal
from support.worlds.current import memory_broker

FRAME_BYTES_MAX = 64 * 1024
LIMIT = batch_bytes_max(FRAME_BYTES_MAX)
TOPIC, LETTERS = "/default/orders", "/default/letters"

messages = st.fixed_dictionaries(
    {
        "size": st.integers(LIMIT - 3000, LIMIT),
        "key": st.sampled_from([None, "k", "k" * 1000]),
        "attributes": st.sampled_from([None, {}, {"": ""}, {"a": "é" * 500}]),
        "name": st.sampled_from([None, "é" * 127]),
        "compression": st.sampled_from([None, "lz4", "zstd"]),
        "reason": st.sampled_from(["", "\N{PILE OF POO}" * 1000]),
    }
)


@settings(max_examples=15, deadline=None)
@given(messages)
async def test_accepted_message_fits_into_frames_in_all_later_forms(message):
    await _publish_and_follow(**message)


async def _publish_and_follow(*, size, key, attributes, name, compression, reason):
    listen = ListenConfig(frame_bytes_max=FRAME_BYTES_MAX)
    async with (
        memory_broker(listen=listen) as broker,
        broker.connect() as client,
    ):
        payload = bytes(size)
        options = {"name": name, "compression": compression}
        async with client.producer(TOPIC, **options) as producer:
            try:
                await producer.send(payload, key=key, attributes=attributes)
            except MessageTooLarge:
                return
        policy = pydanube.FailurePolicy(
            redeliveries_max=0,
            poison=PoisonPolicy.DEAD_LETTER,
            dead_letter_topic=LETTERS,
        )
        for kind in ("shared", "key_shared"):
            await client.subscriptions.create(TOPIC, kind, type=kind, start="earliest")
            await client.subscriptions.configure(TOPIC, kind, failure_policy=policy)
            async with client.consumer(TOPIC, subscription=kind, type=kind) as consumer:
                given_back = await consumer.receive(timeout_s=60)
                assert given_back.payload == payload
                await consumer.nack(given_back, reason=reason)
                # Closing waits for the broker's answer.
                async with client.consumer(
                    LETTERS, subscription=kind, start="earliest"
                ) as letters:
                    [letter] = await received(letters, 1)
                    assert letter == payload
        for topic in (TOPIC, LETTERS):
            found = await broker.broker.topics.get(TopicName.parse(topic))
            await seal(broker.broker.storage, found.topic_id)
            payloads = [
                payload
                async for batch in client.read(topic)
                for payload in batch.payloads
            ]
            assert payloads == [payload] * len(payloads)
            assert payloads
