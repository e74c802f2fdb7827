"""Producers of the gRPC server: detaching, forgetting and sending."""

from __future__ import annotations

import asyncio

import pytest

from pydanube.model.errors import InvalidRequest, QuotaExceeded, Unavailable
from pydanube.model.names import NamespaceName, TopicName
from pydanube.model.policy import NamespacePolicy, ProducerAccess, TopicPolicy
from pydanube.wire.pb import danube_api_pb2 as pb
from pydanube_broker.servers.grpc.producers import (
    FORGOTTEN_AFTER_S,
    GONE_AFTER_S,
    Producers,
)
from pydanube_broker.servers.grpc.services import StatusError
from support.fakes.grpc_contexts import Clock

TOPIC = "/default/orders"
NAME = TopicName.parse(TOPIC)


class World:
    """The service over a broker, with its own clock."""

    def __init__(self, broker) -> None:
        self.broker = broker
        self.clock = Clock()
        self.producers = Producers(broker, self.clock, lambda: 1_000_000)

    async def create(self, name="p", **fields) -> int:
        request = pb.ProducerRequest(
            producer_name=name,
            topic_name=TOPIC,
            dispatch_strategy=pb.Reliable,
            **fields,
        )
        return (await self.producers.create_producer(request)).producer_id

    async def send(self, number, payload=b"x") -> None:
        message = pb.StreamMessage(
            msg_id=pb.MsgID(producer_id=number, topic_name=TOPIC), payload=payload
        )
        await self.producers.send_message(message)

    def wait(self, seconds) -> None:
        self.clock.now += seconds
        self.producers.sweep()

    @property
    def names(self) -> list[str]:
        return list(self.broker.topics.opened[NAME].registrations)


@pytest.fixture
async def world(broker):
    return World(broker.broker)


async def test_silent_producer_is_detached(world):
    await world.create("one")
    two = await world.create("two")
    world.wait(GONE_AFTER_S - 1)
    assert world.producers.is_healthy(two)
    world.wait(1)
    assert world.names == ["two"]
    await world.send(two)
    world.wait(GONE_AFTER_S - 1)
    assert world.names == ["two"]


async def test_detached_producer_may_send_again(world):
    number = await world.create()
    world.wait(GONE_AFTER_S)
    assert world.names == []
    assert world.producers.is_healthy(number)
    await world.send(number)
    assert world.names == ["p"]
    assert world.broker.topics.opened[NAME].end_offset == 1


async def test_detached_producer_may_have_been_replaced(world):
    limit = NamespacePolicy(max_producers_per_topic=1)
    await world.broker.namespaces.configure(NamespaceName("default"), policy=limit)
    one = await world.create("one")
    with pytest.raises(QuotaExceeded):
        await world.create("two")
    world.wait(GONE_AFTER_S)
    await world.create("two")
    with pytest.raises(StatusError, match="limit") as caught:
        await world.send(one)
    assert caught.value.status.name == "RESOURCE_EXHAUSTED"


async def test_forgotten_producer_has_to_be_created_again(world):
    number = await world.create()
    world.wait(FORGOTTEN_AFTER_S)
    assert not world.producers.is_healthy(number)
    with pytest.raises(Unavailable, match="does not exist"):
        await world.send(number)
    assert await world.create() == number
    await world.send(number)


async def test_fenced_producer_gets_a_status_without_retry(world):
    number = await world.create()
    await world.broker.producers.open(
        NAME,
        "native",
        policy=TopicPolicy(),
        access=ProducerAccess.EXCLUSIVE_FENCE,
    )
    assert not world.producers.is_healthy(number)
    with pytest.raises(StatusError, match="has exclusive access") as caught:
        await world.send(number)
    assert caught.value.status.name == "INVALID_ARGUMENT"
    with pytest.raises(StatusError, match="exclusive") as caught:
        await world.create()
    assert caught.value.status.name == "PERMISSION_DENIED"


async def test_cancelled_send_does_not_fail_other_messages(world):
    number = await world.create()
    async with asyncio.TaskGroup() as tasks:
        impatient = tasks.create_task(world.send(number))
        await asyncio.sleep(0)
        impatient.cancel()
    await world.send(number)
    # The message of a cancelled call may be stored.
    assert world.broker.topics.opened[NAME].end_offset == 2


async def test_messages_of_one_turn_are_stored_together(world):
    one, two = await world.create("one"), await world.create("two")
    commits = world.broker.storage.journal.commit_count
    async with asyncio.TaskGroup() as tasks:
        for number in range(50):
            tasks.create_task(world.send(one if number % 2 else two))
    assert world.broker.topics.opened[NAME].end_offset == 50
    assert world.broker.storage.journal.commit_count == commits + 1


async def test_producer_cannot_send_to_another_topic(world):
    number = await world.create()
    message = pb.StreamMessage(
        msg_id=pb.MsgID(producer_id=number, topic_name="/default/others")
    )
    with pytest.raises(InvalidRequest, match="belongs to /default/orders"):
        await world.producers.send_message(message)


async def test_close_detaches_all_producers(world):
    await world.create("one")
    await world.create("two")
    world.producers.close()
    assert world.names == []
