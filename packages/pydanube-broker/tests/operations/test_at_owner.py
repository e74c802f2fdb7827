"""Operations are carried out by the broker that serves their topic."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pydanube.model.errors import (
    BrokerError,
    ConnectionLost,
    InvalidRequest,
    StagedPartNotFound,
)
from pydanube.model.names import TopicName
from pydanube.model.policy import TopicPolicy
from pydanube.security.principals import ANONYMOUS
from pydanube.wire.native.kinds import Kind
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.operations.at_owner import (
    operate_at_broker,
    operate_at_owner,
    operate_for_peer,
)
from pydanube_broker.operations.handlers import Call
from pydanube_broker.testing import memory_broker
from support.fakes.broker_clusters import BrokerCluster
from support.fakes.staging import PartMaker

TOPIC = TopicName.parse("/default/orders")
LOOK = pb.DescribeSubscription(topic=str(TOPIC), subscription="s")


def progress(offset, *, is_exact=True):
    return pb.ReportProgress(
        topic=str(TOPIC), subscription="s", offset=offset, is_exact=is_exact
    )


async def test_each_broker_reaches_the_owner_of_a_topic():
    cluster = BrokerCluster()
    async with cluster.broker("a") as first, cluster.broker("b") as second:
        await cluster.settled("a", "b")
        await first.broker.topics.add(TOPIC, TopicPolicy())
        for member in (first, second):
            call = Call(member.broker, ANONYMOUS, None)
            await operate_at_owner(call, Kind.REPORT_PROGRESS, progress(0))
            found = await operate_at_owner(call, Kind.DESCRIBE_SUBSCRIPTION, LOOK)
            assert found.cursor == 0
        with cluster.cutting("a", "b"), cluster.cutting("b", "a"):
            shard = (await first.broker.catalog.get_topic(TOPIC)).value.shard
            other = first if shard in cluster.served("b") else second
            call = Call(other.broker, ANONYMOUS, None)
            with pytest.raises(ConnectionLost):
                await operate_at_owner(call, Kind.DESCRIBE_SUBSCRIPTION, LOOK)


async def test_an_exact_report_moves_the_cursor_back():
    async with memory_broker() as memory, memory.connect() as client:
        await check_reports(memory.broker, client)


async def check_reports(broker, client):
    call = Call(broker, ANONYMOUS, None)
    await broker.topics.create(TOPIC, TopicPolicy())
    async with client.producer(str(TOPIC)) as sender:
        await sender.send_batch([b"1", b"2", b"3"])
    for wanted, is_exact, cursor in (
        (3, True, 3),
        (1, False, 3),
        (1, True, 1),
        (2, False, 2),
    ):
        message = progress(wanted, is_exact=is_exact)
        await operate_at_owner(call, Kind.REPORT_PROGRESS, message)
        found = await operate_at_owner(call, Kind.DESCRIBE_SUBSCRIPTION, LOOK)
        assert found.cursor == cursor
    with pytest.raises(InvalidRequest):
        await operate_at_owner(call, Kind.REPORT_PROGRESS, progress(4))


async def test_a_damaged_message_of_a_peer_is_refused():
    async with memory_broker() as memory:
        with pytest.raises(InvalidRequest, match="damaged"):
            await operate_for_peer(memory.broker, Kind.DESCRIBE_SUBSCRIPTION, b"\xff")


FOR_PEERS = {
    Kind.DELETE_SUBSCRIPTION: "topic",
    Kind.DESCRIBE_SUBSCRIPTION: "topic",
    Kind.DESCRIBE_TOPIC: "topic",
    Kind.DROP_PART: "part",
    Kind.FINISH_PART: "part",
    Kind.REPORT_PROGRESS: "topic",
}
"""The operations that brokers ask each other for, and what they are about."""


async def test_brokers_ask_each_other_for_no_other_operations():
    async with memory_broker() as memory:
        for kind in Kind:
            if kind in FOR_PEERS:
                assert FOR_PEERS[kind] in kind.body.DESCRIPTOR.fields_by_name
                continue
            with pytest.raises(InvalidRequest, match="do not ask each other"):
                await operate_for_peer(memory.broker, kind, b"")


@given(
    sent=st.lists(
        st.tuples(st.sampled_from(sorted(FOR_PEERS)), st.binary(max_size=60)),
        max_size=50,
    )
)
@settings(max_examples=10, deadline=None)
async def test_messages_of_peers_are_carried_out_or_refused(sent):
    async with memory_broker() as memory:
        for kind, data in sent:
            with suppress(BrokerError):
                await operate_for_peer(memory.broker, kind, data)


async def test_each_broker_completes_and_drops_its_own_parts():
    cluster = BrokerCluster()
    async with cluster.broker("a") as first, cluster.broker("b") as second:
        await cluster.settled("a", "b")
        await first.broker.topics.add(TOPIC, TopicPolicy())
        shard = (await first.broker.catalog.get_topic(TOPIC)).value.shard
        owner, other = first, second
        if shard in cluster.served("b"):
            owner, other = second, first
        owner_id = owner.broker.broker_id
        for kind, left in ((Kind.DROP_PART, 0), (Kind.FINISH_PART, 1)):
            part = PartMaker(owner.broker, 1, kind.name, query="q", part_id="i")
            await part.write(str(TOPIC), [b"1", b"2"])
            message = kind.body(query="q", version=1, part=kind.name, part_id="i")
            await operate_at_broker(other.broker, owner_id, kind, message)
            found = await other.broker.staging.describe("q")
            assert found.part_count == left
        for gone in (owner_id, "none"):
            with pytest.raises(StagedPartNotFound):
                await operate_at_broker(other.broker, gone, Kind.FINISH_PART, message)
