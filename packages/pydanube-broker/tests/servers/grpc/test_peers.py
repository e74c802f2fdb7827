"""What a broker asks another one over gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from pydanube.model.errors import (
    ConnectionLost,
    InvalidRequest,
    SubscriptionNotFound,
    TopicNotFound,
    Unauthenticated,
)
from pydanube.model.names import TopicName
from pydanube.wire.native.kinds import Kind
from pydanube.wire.pb import peers_pb2 as pb
from pydanube.wire.pb import stream_pb2 as stream_pb
from pydanube_broker.broker.delivery.internal_batches import InternalBatch, Source
from pydanube_broker.cluster.overview import PEER_GRPC
from pydanube_broker.metadata.cluster_records import SessionRecord
from pydanube_broker.servers.connections.authentication import (
    Authenticator,
    open_authenticator,
)
from pydanube_broker.servers.grpc.peer_channels import open_peer_channels
from pydanube_broker.servers.grpc.peers import PeerCalls, peer_service
from pydanube_broker.servers.grpc.server import open_listener
from pydanube_broker.servers.settings.security_config import SecurityConfig
from support.fakes.batches import frame_of
from support.fakes.brokers import A_TOPIC, RELIABLE, BrokerWorld
from support.fakes.grpc_calls import connected
from support.fakes.readers import stored

KEY = "00ff" * 16
SOURCE = Source(producer="broker/test", generation=1, epoch=1)


def batch(*payloads: bytes, base: int = 0) -> InternalBatch:
    positions = range(base, base + len(payloads))
    return InternalBatch(positions, frame_of(payloads, producer="broker/test"))


@asynccontextmanager
async def listening(broker, authenticator: Authenticator) -> AsyncIterator[int]:
    """Serve other brokers; yields the port."""
    async with (
        open_listener("127.0.0.1", 0, name="peers", flag="-") as listener,
        listener.serving(
            [peer_service(broker, KEY)], broker, authenticator=authenticator
        ),
    ):
        yield listener.port


def peer(port: int, key: str = KEY) -> SessionRecord:
    return SessionRecord(
        broker_id="b",
        addresses={PEER_GRPC: f"http://127.0.0.1:{port}"},
        started_at=1,
        peer_key=key,
    )


@pytest.fixture(params=[False, True], ids=["open", "secured"])
async def authenticator(request):
    async with open_authenticator(SecurityConfig(enabled=request.param)) as opened:
        yield opened


@pytest.fixture
async def owner():
    """The broker that is called."""
    async with BrokerWorld().broker() as broker:
        yield broker


@pytest.fixture
async def calls():
    async with open_peer_channels() as channels:
        yield PeerCalls(channels)


async def test_the_owner_stores_what_another_broker_publishes(
    owner, authenticator, calls
):
    topic = await owner.topics.create(A_TOPIC, RELIABLE)
    async with listening(owner, authenticator) as port:
        for _ in range(2):
            await calls.append(peer(port), A_TOPIC, SOURCE, [batch(b"a", b"b")])
    assert [each[0] for each in await stored(topic)] == [b"a", b"b"]


async def test_large_batches_are_stored_with_several_requests(
    owner, authenticator, calls
):
    topic = await owner.topics.create(A_TOPIC, RELIABLE)
    batches = [batch(bytes(5_000_000), base=base) for base in range(3)]
    async with listening(owner, authenticator) as port:
        await calls.append(peer(port), A_TOPIC, SOURCE, batches)
    assert topic.end_offset == 3


@pytest.mark.parametrize("key", ["", "ff00" * 16, KEY[:-1]])
async def test_callers_without_the_key_of_the_session_are_refused(
    owner, authenticator, calls, key
):
    topic = await owner.topics.create(A_TOPIC, RELIABLE)
    async with listening(owner, authenticator) as port:
        with pytest.raises(ConnectionLost):
            await calls.append(peer(port, key), A_TOPIC, SOURCE, [batch(b"a")])
        async with connected(port) as call:
            status, text = await call.refusal(
                "pydanube.peers.Peers/Append", pb.AppendRequest(topic=str(A_TOPIC))
            )
    assert status == "UNAUTHENTICATED"
    assert "only brokers of this cluster" in text
    assert topic.end_offset == 0


async def test_keys_that_are_not_ascii_are_refused(owner):
    service = peer_service(owner, KEY)
    with pytest.raises(Unauthenticated):
        service.check_caller("\xe9" * len(KEY))


async def test_errors_of_the_owner_reach_the_caller(owner, authenticator, calls):
    async with listening(owner, authenticator) as port:
        with pytest.raises(TopicNotFound):
            await calls.append(peer(port), A_TOPIC, SOURCE, [batch(b"a")])
        await owner.topics.create(A_TOPIC, RELIABLE)
        client = Source(producer="p", generation=1, epoch=1)
        with pytest.raises(InvalidRequest, match="does not begin with broker/"):
            await calls.append(peer(port), A_TOPIC, client, [batch(b"a")])
        wrong = InternalBatch([1, 2], batch(b"a").frame)
        with pytest.raises(InvalidRequest, match="2 positions"):
            await calls.append(peer(port), A_TOPIC, SOURCE, [wrong])


async def test_a_broker_that_does_not_answer_is_named(calls):
    with pytest.raises(ConnectionLost, match="the broker b, which serves /default/x"):
        await calls.append(
            *(peer(1), TopicName.parse("/default/x"), SOURCE), [batch(b"a")]
        )
    nowhere = SessionRecord(broker_id="b", addresses={}, started_at=1)
    with pytest.raises(ConnectionLost, match=r"listen\.grpc_port"):
        await calls.append(nowhere, A_TOPIC, SOURCE, [batch(b"a")])


async def test_the_owner_carries_out_an_operation_and_answers(
    owner, authenticator, calls
):
    await owner.topics.create(A_TOPIC, RELIABLE)
    wanted = stream_pb.ReportProgress(
        topic=str(A_TOPIC), subscription="s", offset=0, is_exact=True
    )
    look = stream_pb.DescribeSubscription(topic=str(A_TOPIC), subscription="s")
    async with listening(owner, authenticator) as port:
        with pytest.raises(SubscriptionNotFound):
            await calls.operate(peer(port), Kind.DESCRIBE_SUBSCRIPTION, look)
        await calls.operate(peer(port), Kind.REPORT_PROGRESS, wanted)
        found = await calls.operate(peer(port), Kind.DESCRIBE_SUBSCRIPTION, look)
    assert found.cursor == 0


async def test_only_few_operations_are_carried_out_for_other_brokers(
    owner, authenticator, calls
):
    await owner.topics.create(A_TOPIC, RELIABLE)
    delete = stream_pb.DeleteTopic(topic=str(A_TOPIC))
    async with listening(owner, authenticator) as port:
        with pytest.raises(InvalidRequest, match="do not ask each other"):
            await calls.operate(peer(port), Kind.DELETE_TOPIC, delete)
        with pytest.raises(ConnectionLost, match="the credential is not the key"):
            await calls.operate(peer(port, "no"), Kind.DESCRIBE_SUBSCRIPTION, delete)
