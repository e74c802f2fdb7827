"""The administration service of Danube: errors, and the brokers of a cluster."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pydanube.model.clusters import (
    BrokerMode,
    ClusterBroker,
    ClusterDescription,
    ShardMove,
    ShardMoves,
)
from pydanube.model.errors import (
    AlreadyExists,
    BrokerError,
    Draining,
    InvalidRequest,
    JournalFailed,
    NamespaceNotFound,
)
from pydanube.model.names import TopicName
from pydanube.model.policy import TopicPolicy
from pydanube.wire.pb import danube_admin_pb2 as pb
from pydanube_broker.metadata import keys
from pydanube_broker.servers.grpc.admin import (
    ANSWER_BYTES_MAX,
    ENCODED_AT_ONCE,
    BrokerAdmin,
    ClusterAdmin,
    TopicAdmin,
    encode_list,
    number_of,
)
from pydanube_broker.servers.grpc.services import StatusError
from pydanube_broker.wire.grpc.status import StatusCode
from support.fakes.broker_clusters import SHARDS, BrokerCluster
from support.fakes.storages import until


class Refusing:
    """A broker whose topics cannot be created, for one reason."""

    def __init__(self, reason: BrokerError) -> None:
        self._reason = reason
        self.topics = self

    async def add(self, *_: object) -> None:
        raise self._reason


def create(reason: BrokerError) -> None:
    broker: Any = Refusing(reason)
    request = pb.NewTopicRequest(name="/default/orders")
    asyncio.run(TopicAdmin(broker, "7").create_topic(request))


@pytest.mark.parametrize("reason", [AlreadyExists("is there"), NamespaceNotFound("x")])
def test_final_errors_are_not_found_with_the_reason(reason):
    with pytest.raises(StatusError) as caught:
        create(reason)
    assert caught.value.status is StatusCode.NOT_FOUND
    assert str(caught.value) == (
        f"Unable to create the topic /default/orders due to {reason}"
    )


@pytest.mark.parametrize("reason", [Draining("stopping"), JournalFailed("disk")])
def test_temporary_errors_are_not_not_found(reason):
    with pytest.raises(type(reason)):
        create(reason)


# Brokers of a cluster.


class Clustered:
    """A broker of a cluster of two, whose modes are recorded."""

    def __init__(self, *, has_controller: bool = True) -> None:
        self.modes: list[tuple[str, BrokerMode, str]] = []
        self._has_controller = has_controller
        self.bounds: list[int | None] = []

    async def rebalance(
        self, *, dry_run: bool, moves_max: int | None = None
    ) -> ShardMoves:
        self.bounds.append(moves_max)
        topics = ("/default/t1", "/default/t2")
        full = ShardMove(shard=1, source="a", target="b", topics=topics, topic_count=2)
        empty = ShardMove(shard=2, source="a", target="b")
        return ShardMoves(moves=(full, empty)[:moves_max])

    async def describe_cluster(self) -> ClusterDescription:
        brokers = (
            ClusterBroker(
                broker_id="a",
                url="danube://a:6651",
                grpc_url="http://a:6650",
                session_id="t",
            ),
            ClusterBroker(
                broker_id="b",
                url="danube://b:6651",
                grpc_url="http://b:6650",
                admin_url="http://b:50051",
                http_url="http://b:8080",
                mode=BrokerMode.DRAINING,
                is_controller=self._has_controller,
                session_id="s",
            ),
            ClusterBroker(broker_id="gone", mode=BrokerMode.DRAINED),
        )
        return ClusterDescription(brokers=brokers, shard_count=4)

    async def count_topics(self, session_id: str) -> int:
        return {"s": 3, "t": 1}[session_id]

    async def set_broker_mode(
        self, broker_id: str, mode: BrokerMode, reason: str
    ) -> None:
        if broker_id == "a":
            raise InvalidRequest("a is the only active broker")
        self.modes.append((broker_id, mode, reason))


def admin_of(broker: Any) -> BrokerAdmin:
    info = pb.BrokerInfo(
        broker_id=number_of("a"), broker_addr="http://own:6650", admin_addr="http://own"
    )
    return BrokerAdmin(broker, info)


def test_running_brokers_of_a_cluster_are_listed() -> None:
    answer = asyncio.run(admin_of(Clustered()).list_brokers(pb.Empty()))
    assert list(answer.brokers) == [
        pb.BrokerInfo(
            broker_id=number_of("a"),
            broker_addr="http://a:6650",
            admin_addr="http://own",
            broker_role="Cluster_Follower",
            broker_status="active",
        ),
        pb.BrokerInfo(
            broker_id=number_of("b"),
            broker_addr="http://b:6650",
            admin_addr="http://b:50051",
            metrics_addr="b:8080",
            broker_role="Cluster_Leader",
            broker_status="draining",
        ),
    ]


def test_the_leader_is_the_controller() -> None:
    answer = asyncio.run(admin_of(Clustered()).get_leader_broker(pb.Empty()))
    assert answer.leader == number_of("b")
    admin = admin_of(Clustered(has_controller=False))
    with pytest.raises(StatusError) as caught:
        asyncio.run(admin.get_leader_broker(pb.Empty()))
    assert caught.value.status is StatusCode.UNAVAILABLE


def test_a_broker_of_a_cluster_is_unloaded_and_activated() -> None:
    broker = Clustered()
    admin, number = admin_of(broker), number_of("b")
    dry = pb.UnloadBrokerRequest(broker_id=number, dry_run=True)
    assert asyncio.run(admin.unload_broker(dry)) == pb.UnloadBrokerResponse(
        total=3, pending=3
    )
    assert broker.modes == []
    request = pb.UnloadBrokerRequest(broker_id=number)
    assert asyncio.run(admin.unload_broker(request)).started
    activate = pb.ActivateBrokerRequest(broker_id=number, reason="back")
    asyncio.run(admin.activate_broker(activate))
    assert broker.modes == [
        ("b", BrokerMode.DRAINING, ""),
        ("b", BrokerMode.ACTIVE, "back"),
    ]


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (
            pb.UnloadBrokerRequest(broker_id=number_of("a")),
            StatusCode.FAILED_PRECONDITION,
        ),
        (pb.UnloadBrokerRequest(broker_id="1"), StatusCode.NOT_FOUND),
        (pb.UnloadBrokerRequest(), StatusCode.INVALID_ARGUMENT),
        (
            pb.UnloadBrokerRequest(
                broker_id=number_of("b"), namespaces_include=["default"]
            ),
            StatusCode.INVALID_ARGUMENT,
        ),
    ],
)
def test_unloading_is_refused(
    request_: pb.UnloadBrokerRequest, status: StatusCode
) -> None:
    broker = Clustered()
    with pytest.raises(StatusError) as caught:
        asyncio.run(admin_of(broker).unload_broker(request_))
    assert caught.value.status is status
    assert broker.modes == []


# Clusters.

NAMES = tuple(TopicName("default", f"t{number}") for number in range(8))
A, B = number_of("a"), number_of("b")


def broker_admin(member: Any) -> BrokerAdmin:
    return BrokerAdmin(member.broker, pb.BrokerInfo(broker_id=A))


async def create_topics(member: Any) -> None:
    for name in NAMES:
        await member.broker.topics.add(name, TopicPolicy())


def infos(answer: bytes) -> pb.TopicInfoListResponse:
    return pb.TopicInfoListResponse.FromString(answer)


async def test_topics_are_listed_with_the_brokers_that_serve_them() -> None:
    cluster = BrokerCluster()
    async with cluster.broker("a") as a, cluster.broker("b"):
        await create_topics(a)
        await cluster.settled("a", "b")
        admin = TopicAdmin(a.broker, A)
        request = pb.NamespaceRequest(name="default")
        listed = infos(await admin.list_namespace_topics(request))
        owners = {each.name: each.broker_id for each in listed.topics}
        records = await a.broker.catalog.records()
        assert owners == {
            str(name): A if record.shard in cluster.served("a") else B
            for name, record in records
        }
        of_b = infos(await admin.list_broker_topics(pb.BrokerRequest(broker_id=B)))
        assert {each.name for each in of_b.topics} == {
            name for name, owner in owners.items() if owner == B
        }
        assert not await admin.list_broker_topics(pb.BrokerRequest(broker_id="7"))


def made_records(count: int) -> list[Any]:
    return [(TopicName.parse(f"/default/t-{n}"), None) for n in range(count)]


async def test_a_list_that_is_encoded_in_parts_is_whole() -> None:
    for count in (0, ENCODED_AT_ONCE, 2 * ENCODED_AT_ONCE + 1):
        records = made_records(count)
        names = [str(name) for name, _ in records]
        answer = await encode_list(
            pb.TopicListResponse, records, lambda name, _: str(name)
        )
        assert not records
        assert list(pb.TopicListResponse.FromString(answer).topics) == names


async def test_a_list_that_is_too_long_is_refused_before_all_is_encoded() -> None:
    described = []

    def describe(name: TopicName, _: Any) -> str:
        described.append(name)
        return "x" * (ANSWER_BYTES_MAX // ENCODED_AT_ONCE)

    records = made_records(10 * ENCODED_AT_ONCE)
    with pytest.raises(StatusError, match="200 topics do not fit into one answer"):
        await encode_list(pb.TopicListResponse, records, describe)
    assert len(described) == ENCODED_AT_ONCE
    # Otherwise all of them would be freed in one turn of the loop.
    assert not records


async def test_unloaded_topic_moves_to_another_broker() -> None:
    cluster = BrokerCluster()
    async with cluster.broker("a") as a:
        await create_topics(a)
        await cluster.settled("a")
        admin, request = TopicAdmin(a.broker, A), pb.TopicRequest(name=str(NAMES[0]))
        with pytest.raises(StatusError) as caught:
            await admin.unload_topic(request)
        assert caught.value.status is StatusCode.FAILED_PRECONDITION
        async with cluster.broker("b"):
            await cluster.settled("a", "b")
            shard = (await a.broker.catalog.get_topic(NAMES[0])).value.shard
            is_at_a = shard in cluster.served("a")
            await admin.unload_topic(request)
            target = "b" if is_at_a else "a"
            await until(lambda: shard in cluster.served(target))


async def test_balance_and_rebalance_of_a_cluster() -> None:
    cluster = BrokerCluster()
    async with cluster.broker("a") as a, cluster.broker("b"):
        await create_topics(a)
        await cluster.settled("a", "b")
        admin = broker_admin(a)
        balance = await admin.get_cluster_balance(pb.ClusterBalanceRequest())
        assert balance.broker_count == 2
        assert balance.mean_load == 50.0
        assert balance.coefficient_of_variation == 0.0
        assert {each.broker_id for each in balance.brokers} == {int(A), int(B)}
        assert sum(each.topic_count for each in balance.brokers) == len(NAMES)
        assert not any(each.is_overloaded for each in balance.brokers)
        done = await admin.trigger_rebalance(pb.RebalanceRequest())
        assert done == pb.RebalanceResponse(
            success=True, error_message="Cluster is balanced"
        )


async def test_proposed_moves_are_not_made_in_a_dry_run() -> None:
    cluster = BrokerCluster()
    async with cluster.broker("a") as a, cluster.broker("b"):
        await create_topics(a)
        await cluster.set_mode("b", BrokerMode.DRAINING)
        await cluster.settled("a")
        await cluster.set_mode("b", BrokerMode.ACTIVE)
        dry = pb.RebalanceRequest(dry_run=True, max_moves=1)
        answer = await broker_admin(a).trigger_rebalance(dry)
        assert answer.moves_executed == 0
        assert await cluster.store.get(keys.REBALANCE) is None
        for move in answer.proposed_moves:
            assert (move.from_broker, move.to_broker) == (int(A), int(B))
        await cluster.settled("a", "b")


async def test_a_rebalance_is_bounded_and_answers_topics() -> None:
    broker = Clustered()
    request = pb.RebalanceRequest(max_moves=1)
    answer = await admin_of(broker).trigger_rebalance(request)
    assert broker.bounds == [1]
    assert answer.moves_executed == 1
    assert [
        (each.topic_name, each.from_broker, each.to_broker)
        for each in answer.proposed_moves
    ] == [(topic, int(A), int(B)) for topic in ("/default/t1", "/default/t2")]
    await admin_of(broker).trigger_rebalance(pb.RebalanceRequest(dry_run=True))
    assert broker.bounds == [1, None]


async def test_status_names_the_controller_and_the_brokers() -> None:
    cluster = BrokerCluster()
    async with cluster.broker("a") as a, cluster.broker("b"):
        await cluster.settled("a", "b")
        status = await ClusterAdmin(a.broker, A).cluster_status(pb.Empty())
        assert status.self_node_id == int(A)
        assert set(status.voters) == {int(A), int(B)}
        assert status.leader_id in status.voters
        assert len(cluster.served("a")) + len(cluster.served("b")) == SHARDS
