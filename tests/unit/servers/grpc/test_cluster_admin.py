"""The administration service of Danube over the brokers of a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from pydanube.metadata import keys
from pydanube.model.clusters import BrokerMode
from pydanube.model.names import TopicName
from pydanube.model.policy import TopicPolicy
from pydanube.servers.grpc.admin import (
    BrokerAdmin,
    ClusterAdmin,
    TopicAdmin,
    number_of,
)
from pydanube.servers.grpc.services import StatusError
from pydanube.wire.grpc.status import StatusCode
from pydanube.wire.pb import danube_admin_pb2 as pb
from support.broker_clusters import SHARDS, BrokerCluster
from support.storages import until

NAMES = tuple(TopicName("default", f"t{number}") for number in range(8))
A, B = number_of("a"), number_of("b")


def broker_admin(member: Any) -> BrokerAdmin:
    return BrokerAdmin(member.broker, pb.BrokerInfo(broker_id=A))


async def create(member: Any) -> None:
    for name in NAMES:
        await member.broker.topics.add(name, TopicPolicy())


async def test_topics_are_listed_with_the_brokers_that_serve_them() -> None:
    cluster = BrokerCluster()
    async with cluster.broker("a") as a, cluster.broker("b"):
        await create(a)
        await cluster.settled("a", "b")
        admin = TopicAdmin(a.broker, A)
        listed = await admin.list_namespace_topics(pb.NamespaceRequest(name="default"))
        owners = {each.name: each.broker_id for each in listed.topics}
        records = await a.broker.catalog.records()
        assert owners == {
            str(name): A if record.shard in cluster.served("a") else B
            for name, record in records
        }
        of_b = await admin.list_broker_topics(pb.BrokerRequest(broker_id=B))
        assert {each.name for each in of_b.topics} == {
            name for name, owner in owners.items() if owner == B
        }
        nobody = await admin.list_broker_topics(pb.BrokerRequest(broker_id="7"))
        assert not nobody.topics


async def test_unloaded_topic_moves_to_another_broker() -> None:
    cluster = BrokerCluster()
    async with cluster.broker("a") as a:
        await create(a)
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
        await create(a)
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
        with pytest.raises(StatusError) as caught:
            await admin.trigger_rebalance(pb.RebalanceRequest(max_moves=1))
        assert caught.value.status is StatusCode.INVALID_ARGUMENT


async def test_proposed_moves_are_not_made_in_a_dry_run() -> None:
    cluster = BrokerCluster()
    async with cluster.broker("a") as a, cluster.broker("b"):
        await create(a)
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


async def test_status_names_the_controller_and_the_brokers() -> None:
    cluster = BrokerCluster()
    async with cluster.broker("a") as a, cluster.broker("b"):
        await cluster.settled("a", "b")
        status = await ClusterAdmin(a.broker, A).cluster_status(pb.Empty())
        assert status.self_node_id == int(A)
        assert set(status.voters) == {int(A), int(B)}
        assert status.leader_id in status.voters
        assert len(cluster.served("a")) + len(cluster.served("b")) == SHARDS
