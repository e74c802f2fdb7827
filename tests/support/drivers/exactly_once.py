"""Producers that publish while a test kills servers, and what must be stored then."""

import asyncio
import json
import random
from collections import defaultdict

import pydanube

TOPICS = ("/default/kill-a", "/default/kill-b")
PRODUCERS = 4


async def publish_during(url, disturb):
    """
    Publish until *disturb* returns.

    It is called with the acknowledged offsets and payloads by topic, which grow.
    Return them, and the stored messages by topic.
    """
    acknowledged = defaultdict(list)
    stop = asyncio.Event()
    async with pydanube.connect(url) as client:
        async with asyncio.TaskGroup() as tasks:
            for number in range(PRODUCERS):
                tasks.create_task(_publish(client, number, stop, acknowledged))
            await disturb(acknowledged)
            stop.set()
        found = {topic: await stored_messages(client, topic) for topic in TOPICS}
    return acknowledged, found


async def until_published(acknowledged, count):
    """Wait for messages in each topic: only the publishers know when."""
    while any(len(acknowledged[topic]) <= count for topic in TOPICS):  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def _publish(client, number, stop, acknowledged):
    """Publish batches of all sizes until stopped; record every offset."""
    topic = TOPICS[number % len(TOPICS)]
    rng = random.Random(number)
    sequence = 0
    async with client.producer(topic, name=f"producer-{number}") as producer:
        while not stop.is_set():
            count = rng.choice([1, 1, 7, 300])
            payloads = [
                json.dumps([number, sequence + n]).encode() + bytes(50)
                for n in range(count)
            ]
            if count == 1:
                offsets = [(await producer.send(payloads[0])).offset]
            elif count == 7:
                pending = [producer.send_nowait(each) for each in payloads]
                offsets = [(await each).offset for each in pending]
            else:
                offsets = list((await producer.send_batch(payloads)).offsets)
            for payload, offset in zip(payloads, offsets, strict=True):
                acknowledged[topic].append((offset, payload))
            sequence += count


async def stored_messages(client, topic):
    """Return the offset, producer and payload of each message."""
    return [
        (message.offset, message.producer, message.payload)
        async for batch in client.read(topic)
        for message in batch
    ]


def check_exactly_once(acknowledged, found, *, more_than):
    """Compare what was acknowledged with what is stored."""
    for topic in TOPICS:
        by_offset = {offset: payload for offset, _, payload in found[topic]}
        assert [offset for offset, _, _ in found[topic]] == list(range(len(by_offset)))
        for offset, payload in acknowledged[topic]:
            assert by_offset[offset] == payload
        sequences = defaultdict(list)
        for _, producer, payload in found[topic]:
            number, sequence = json.loads(payload[:-50])
            assert producer == f"producer-{number}"
            sequences[number].append(sequence)
        for each in sequences.values():
            assert each == list(range(len(each)))
        assert len(acknowledged[topic]) == len(by_offset) > more_than
