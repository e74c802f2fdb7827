"""Decisions on clients: when channels open, and again when the policy changes."""

from __future__ import annotations

import pytest

from pydanube.model.errors import PermissionDenied, Unauthenticated
from pydanube.model.names import TopicName
from pydanube.security.permissions import Permission
from pydanube.security.policy import Binding, Role
from pydanube.security.principals import ANONYMOUS, Principal
from pydanube.wire.native.kinds import Kind
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.operations.authorization import (
    AllowedTopics,
    Caller,
    details_of,
)
from pydanube_broker.servers.connections.authentication import ClientIdentity
from pydanube_broker.testing import memory_broker
from support.fakes.principals import ROOT, client_of, guarded_broker
from support.fakes.stream_peer import connected

ALICE = Principal("alice", "token")
EVE = Principal("eve", "token")
TOPIC = "/shop/orders"


@pytest.fixture
async def guarded():
    async with guarded_broker() as broker, client_of(broker, ROOT) as client:
        await client.namespaces.create("shop")
        await client.topics.create(TOPIC)
        await bind(broker, "alice", "producer", "consumer")
        yield broker


async def bind(broker, user, *roles, on="/shop/*", name=""):
    binding = Binding(f"user:{user}", roles, (on,), name or user)
    await broker.broker.access.add_binding(ROOT, binding)


async def send_for_ever(producer):
    while True:
        await producer.send(b"more")


async def unbind(broker, name):
    await broker.broker.access.remove_binding(ROOT, name)


async def test_consumer_is_closed_when_its_binding_is_removed(guarded):
    async with (
        client_of(guarded, ALICE) as client,
        client.consumer(TOPIC, subscription="s") as consumer,
    ):
        await unbind(guarded, "alice")
        with pytest.raises(PermissionDenied, match="no binding grants consume"):
            await consumer.receive()


async def test_producer_is_closed_when_its_role_changes(guarded):
    access = guarded.broker.access
    await access.set_role(ROOT, Role("r", frozenset({Permission.PRODUCE})))
    await bind(guarded, "eve", "r")
    async with client_of(guarded, EVE) as client, client.producer(TOPIC) as producer:
        await producer.send(b"1")
        await access.set_role(ROOT, Role("r", frozenset({Permission.CONSUME})))
        with pytest.raises(PermissionDenied, match="produce"):
            await send_for_ever(producer)


async def test_stage_is_closed_when_its_binding_is_removed(guarded):
    peer = await connected(guarded)
    list(guarded.server.connections)[-1].identity = ClientIdentity(ALICE)
    stage = pb.OpenStage(query="q", version=1, part="p", part_id="i", topic=TOPIC)
    assert (await peer.ask(Kind.OPEN_STAGE, stage, 1)).kind is Kind.STAGE_OPENED
    await unbind(guarded, "alice")
    closed = await peer.received.get()
    assert (closed.kind, closed.channel) == (Kind.ERROR, 1)
    assert closed.message.code == "permission_denied"


async def test_channels_of_others_stay_open(guarded):
    await bind(guarded, "eve", "consumer")
    async with (
        client_of(guarded, ALICE) as client,
        client.consumer(TOPIC, subscription="s") as consumer,
        client.producer(TOPIC) as producer,
    ):
        await unbind(guarded, "eve")
        await producer.send(b"hello")
        assert (await consumer.receive()).payload == b"hello"


async def test_name_of_a_subscription_or_producer_is_no_credential(guarded):
    async with (
        client_of(guarded, ALICE) as client,
        client.consumer(TOPIC, subscription="s"),
        client.producer(TOPIC, name="p"),
        client_of(guarded, EVE) as other,
    ):
        with pytest.raises(PermissionDenied):
            async with other.consumer(TOPIC, subscription="s"):
                pass
        with pytest.raises(PermissionDenied):
            async with other.producer(TOPIC, name="p"):
                pass


async def test_staged_parts_of_others_cannot_be_committed(guarded):
    peer = await connected(guarded)
    list(guarded.server.connections)[-1].identity = ClientIdentity(ALICE)
    stage = pb.OpenStage(query="q", version=1, part="p", part_id="i", topic=TOPIC)
    await peer.ask(Kind.OPEN_STAGE, stage, 1)
    await bind(guarded, "eve", "producer", on="/shop/other")
    other = await connected(guarded)
    list(guarded.server.connections)[-1].identity = ClientIdentity(EVE)
    for request in (
        pb.CommitStaged(query="q", version=1),
        pb.DropStaged(query="q", version=1),
        pb.BeginTransaction(query="q"),
        pb.DropPart(query="q", version=1, part="p", part_id="i"),
    ):
        kind = Kind[
            {
                pb.CommitStaged: "COMMIT_STAGED",
                pb.DropStaged: "DROP_STAGED",
                pb.BeginTransaction: "BEGIN_TRANSACTION",
                pb.DropPart: "DROP_PART",
            }[type(request)]
        ]
        assert (await other.ask(kind, request)).message.code == "permission_denied"
    mine = pb.BeginTransaction(query="of eve")
    assert (await other.ask(Kind.BEGIN_TRANSACTION, mine)).kind is not Kind.ERROR


async def test_transaction_needs_to_consume_what_it_acknowledges(guarded):
    await bind(guarded, "eve", "producer")
    peer = await connected(guarded)
    list(guarded.server.connections)[-1].identity = ClientIdentity(EVE)
    begun = await peer.ask(Kind.BEGIN_TRANSACTION, pb.BeginTransaction(query="q"))
    request = pb.CommitStaged(
        query="q",
        version=begun.message.version,
        is_transaction=True,
        acks=[pb.TransactionAcks(topic=TOPIC, subscription="s")],
    )
    answer = await peer.ask(Kind.COMMIT_STAGED, request)
    assert answer.message.code == "permission_denied"
    assert "consume" in answer.message.message


async def test_publishing_creates_a_topic_only_with_the_permission_to_create(guarded):
    async with client_of(guarded, ALICE) as client:
        with pytest.raises(PermissionDenied, match="create"):
            async with client.producer("/shop/new"):
                pass
        await bind(guarded, "alice", "developer", on="/shop/new", name="more")
        async with client.producer("/shop/new") as producer:
            await producer.send(b"1")


async def test_consuming_creates_a_topic_only_with_the_permission_to_create(guarded):
    await bind(guarded, "eve", "consumer", on="/shop/new")
    async with client_of(guarded, EVE) as client:
        with pytest.raises(PermissionDenied, match="create"):
            async with client.consumer("/shop/new", subscription="s"):
                pass
        await bind(guarded, "eve", "developer", on="/shop/new", name="more")
        async with client.consumer("/shop/new", subscription="s"):
            pass


async def test_binding_of_a_topic_includes_its_partitions(guarded):
    async with client_of(guarded, ROOT) as client:
        await client.topics.create("/shop/parts", partitions=2)
    await bind(guarded, "eve", "producer", on="/shop/parts")
    async with client_of(guarded, EVE) as client:
        async with client.producer("/shop/parts") as producer:
            await producer.send(b"1")
        assert await client.topics.list() == [
            "/shop/parts-part-0",
            "/shop/parts-part-1",
        ]


async def test_pages_of_a_list_are_full_though_most_topics_are_invisible(guarded):
    async with client_of(guarded, ROOT) as client:
        for number in range(10):
            await client.topics.create(f"/shop/a{number}")
            await client.topics.create(f"/shop/b{number}")
    await bind(guarded, "eve", "viewer", on="/shop/b*")
    peer = await connected(guarded)
    list(guarded.server.connections)[-1].identity = ClientIdentity(EVE)
    page = (await peer.ask(Kind.LIST_TOPICS, pb.ListTopics(limit=3))).message
    assert list(page.topics) == ["/shop/b0", "/shop/b1", "/shop/b2"]
    assert page.has_more
    rest = pb.ListTopics(limit=100, after="/shop/b2")
    page = (await peer.ask(Kind.LIST_TOPICS, rest)).message
    assert list(page.topics) == [f"/shop/b{number}" for number in range(3, 10)]


async def test_client_without_identity_is_told_to_connect_with_credentials(guarded):
    async with client_of(guarded, ANONYMOUS) as client:
        with pytest.raises(Unauthenticated, match="credentials"):
            await client.topics.describe(TOPIC)


async def test_broker_without_security_permits_everything_to_everybody():
    async with memory_broker() as broker, broker.connect() as client:
        async with client.producer("/default/new") as producer:
            await producer.send(b"1")
        assert await client.topics.list() == ["/default/new"]
        request = pb.ListTopics(limit=10)
        assert list((await client.requester.send_request(request)).topics) == [
            "/default/new"
        ]


async def test_decisions_on_messages_follow_the_policy(guarded):
    allowed = AllowedTopics()
    caller = Caller(guarded.broker, ALICE, "here", "grpc")
    allowed.check(caller, Kind.OPEN_PRODUCER, TOPIC)
    allowed.check(caller, Kind.OPEN_PRODUCER, TOPIC)
    with pytest.raises(PermissionDenied):
        allowed.check(
            Caller(guarded.broker, EVE, "here", "grpc"), Kind.OPEN_PRODUCER, TOPIC
        )
    await unbind(guarded, "alice")
    with pytest.raises(PermissionDenied):
        allowed.check(caller, Kind.OPEN_PRODUCER, TOPIC)
    assert TopicName.parse(TOPIC) in await guarded.broker.catalog.names()


def test_definition_that_is_refused_is_not_recorded():
    """The reason may be that it has a secret in plain text."""
    request = pb.SetConnector(name="n", topic="/shop/n", definition="{}")
    stored = '{"name":"n","topic":"/shop/n","definition":"{}"}'
    assert details_of(request) == stored
    refused = '{"name":"n","topic":"/shop/n"}'
    assert details_of(request, has_failed=True) == refused
