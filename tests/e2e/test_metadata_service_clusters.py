"""Sessions, controllers and takeovers of clusters over etcd and ZooKeeper."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from pydanube.aio.tasks import task_scope
from pydanube_broker.cluster.controller import create_shards
from pydanube_broker.cluster.session import open_cluster_session
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.cluster_records import SessionRecord, ShardState
from support.fakes.clusters import Ledger, Member
from support.servers.metadata_services import SERVICES, MetadataService
from support.servers.tcp_proxy import Fault, tcp_proxy

if TYPE_CHECKING:
    from pathlib import Path

    from pydanube_broker.metadata.store import MetadataStore

pytestmark = pytest.mark.e2e

RECORD = SessionRecord(broker_id="one", addresses={}, started_at=0)
SHARDS = 40
LEASE_S = 8.0
"""Longer than the service on a busy machine takes to answer."""


@pytest.fixture(params=SERVICES)
def service(request: pytest.FixtureRequest) -> MetadataService:
    """Return one of the services."""
    return request.param


@pytest.fixture
def member(request: pytest.FixtureRequest, service: MetadataService) -> Any:
    """Run one member, which is alone."""
    return request.getfixturevalue(service.kind)


async def test_a_session_that_is_cut_off_is_over_before_its_key_is_gone(
    service: MetadataService, member: Any
) -> None:
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(tcp_proxy(member.port))
        direct = service.config_of(member)
        cut = service.config_of(
            service.endpoint(proxy.port), cluster_name=direct.cluster_name
        )
        store = await stack.enter_async_context(service.open(cut))
        session = await stack.enter_async_context(
            open_cluster_session(store, RECORD, ttl_s=2.0)
        )
        other = await stack.enter_async_context(service.open(direct))
        proxy.fault = Fault.REFUSE
        proxy.cut()
        async with other.watch(keys.SESSIONS) as watch:
            assert session.key.path in (await anext(watch)).values
            changes = await anext(watch)
            assert changes.values == {session.key.path: None}
            assert session.is_over
        proxy.fault = Fault.NONE


async def test_a_session_that_the_service_ends_is_over(
    service: MetadataService, member: Any
) -> None:
    config = service.config_of(member)
    async with (
        service.open(config) as store,
        open_cluster_session(store, RECORD, ttl_s=30.0) as session,
    ):
        await asyncio.to_thread(service.end_sessions, member, config.cluster_name)
        await session.lease.lost.wait()
        assert await store.get(session.key) is None


async def until_served_by(store: MetadataStore, session_ids: set[str]) -> None:
    """Wait until all shards are open at sessions that are exactly these."""
    owners: dict[str, str | None] = {}
    async with store.watch(keys.SHARDS) as watch:
        async for changes in watch:
            for path, stored in changes.values.items():
                is_open = stored.value.state is ShardState.OPEN
                owners[path] = stored.value.owner if is_open else None
            if len(owners) == SHARDS and set(owners.values()) == session_ids:
                return


async def test_shards_are_taken_over_when_controller_and_leader_are_lost(
    tmp_path: Path, service: MetadataService
) -> None:
    """The controller is cut off in the moment in which the service's leader dies."""
    rng, ledger = Random(1), Ledger()
    with service.cluster(tmp_path) as members:
        leader, *followers = sorted(members, key=lambda each: not each.is_leader())
        async with tcp_proxy(followers[0].port) as proxy, AsyncExitStack() as stack:
            direct = service.config_of(*followers, leader)
            name = direct.cluster_name
            proxied = service.config_of(service.endpoint(proxy.port), cluster_name=name)
            stores = [
                await stack.enter_async_context(service.open(config))
                for config in (proxied, direct)
            ]
            first, second = (
                Member(store, broker, f"{broker}-1", ledger, rng, LEASE_S)
                for store, broker in zip(stores, "ab", strict=True)
            )
            await create_shards(stores[1], SHARDS)
            tasks = await stack.enter_async_context(task_scope())
            running = tasks.run(first.run())
            await until_served_by(stores[1], {"a-1"})
            assert first.controller.is_controller
            tasks.run(second.run())
            await until_served_by(stores[1], {"a-1", "b-1"})
            proxy.fault = Fault.REFUSE
            proxy.cut()
            leader.kill()
            # The ledger fails if a shard is served before the first session stops.
            await until_served_by(stores[1], {"b-1"})
            await running
            assert second.controller.is_controller
            assert set(ledger.serving.values()) == {"b-1"}
            proxy.fault = Fault.NONE
