"""Answers for others are sent between the messages of the history."""

import pytest

from pydanube.model.names import TopicName
from pydanube.wire.native.kinds import Kind
from pydanube.wire.pb import stream_pb2 as pb
from support.drivers.running import TOPIC
from support.fakes.storages import seal
from support.fakes.stream_peer import connected

BATCHES = 7
MIB = 1024 * 1024


async def published(broker):
    """Publish a batch of nearly 1 MiB several times."""
    async with broker.connect() as client, client.producer(TOPIC) as producer:
        for _ in range(BATCHES):
            await producer.send_batch([bytes(250_000)] * 4)


async def sealed(broker):
    topic = broker.broker.topics.opened[TopicName.parse(TOPIC)]
    await seal(broker.broker.storage, topic.topic_id)


async def with_ping_after_the_first(peer, kind, frame):
    """Send a PING after *frame*, the first of *kind*; return the kinds that come."""
    assert frame.kind is kind
    peer.transport.write(peer.machine.request(Kind.PING, pb.Ping())[1])
    kinds = [kind]
    while kinds.count(kind) < BATCHES or Kind.PONG not in kinds:
        kinds.append((await peer.received.get()).kind)
    return kinds


@pytest.mark.parametrize("is_sealed", [False, True])
async def test_fetched_messages_let_answers_pass(broker, is_sealed):
    await published(broker)
    if is_sealed:
        await sealed(broker)
    peer = await connected(broker)
    request = pb.Fetch(topic=TOPIC, bytes_max=16 * MIB)
    first = await peer.ask(Kind.FETCH, request)
    kinds = await with_ping_after_the_first(peer, Kind.FETCHED, first)
    assert kinds.index(Kind.PONG) < 4


async def test_deliveries_of_sealed_messages_let_answers_pass(broker):
    await published(broker)
    await sealed(broker)
    peer = await connected(broker)
    opening = pb.OpenConsumer(
        topic=TOPIC, subscription="s", name="c", position=pb.Position(start=pb.EARLIEST)
    )
    await peer.ask(Kind.OPEN_CONSUMER, opening, 1)
    credit = pb.Credit(messages=1000, bytes=16 * MIB)
    peer.transport.write(peer.machine.send(Kind.CREDIT, credit, 1))
    first = await peer.received.get()
    kinds = await with_ping_after_the_first(peer, Kind.DELIVERY, first)
    assert kinds.index(Kind.PONG) < 4
