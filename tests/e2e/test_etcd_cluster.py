"""Sessions, controllers and takeovers of a cluster whose metadata is in etcd."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from random import Random
from typing import TYPE_CHECKING

import pytest

from pydanube.aio.tasks import task_scope
from pydanube.cluster.controller import create_shards
from pydanube.cluster.session import open_cluster_session
from pydanube.metadata import keys
from pydanube.metadata.cluster_records import SessionRecord, ShardState
from pydanube.metadata.etcd.store import open_etcd
from support.clusters import Ledger, Member
from support.etcd import EtcdMember, config_of, etcd_cluster
from support.tcp_proxy import Fault, tcp_proxy

if TYPE_CHECKING:
    from pathlib import Path

    from pydanube.metadata.store import MetadataStore

pytestmark = pytest.mark.e2e

RECORD = SessionRecord(broker_id="one", addresses={}, started_at=0)
SHARDS = 40
LEASE_S = 8.0
"""Longer than etcd on a busy machine takes to answer."""


async def test_a_session_that_is_cut_off_is_over_before_its_key_is_gone(
    etcd: EtcdMember,
) -> None:
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(tcp_proxy(etcd.port))
        direct = config_of(etcd)
        cut = config_of(
            f"http://127.0.0.1:{proxy.port}", cluster_name=direct.cluster_name
        )
        store = await stack.enter_async_context(open_etcd(cut))
        session = await stack.enter_async_context(
            open_cluster_session(store, RECORD, ttl_s=2.0)
        )
        other = await stack.enter_async_context(open_etcd(direct))
        proxy.fault = Fault.REFUSE
        proxy.cut()
        async with other.watch(keys.SESSIONS) as watch:
            assert session.key.path in (await anext(watch)).values
            changes = await anext(watch)
            assert changes.values == {session.key.path: None}
            assert session.is_over
        proxy.fault = Fault.NONE


async def test_a_session_whose_lease_was_revoked_is_over(etcd: EtcdMember) -> None:
    async with (
        open_etcd(config_of(etcd)) as store,
        open_cluster_session(store, RECORD, ttl_s=30.0) as session,
    ):
        lease = int(session.lease.session_id, 16)
        await asyncio.to_thread(etcd.ask, "lease/revoke", ID=lease)
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
    tmp_path: Path,
) -> None:
    """The controller is cut off in the moment in which the leader of etcd is killed."""
    rng, ledger = Random(1), Ledger()
    with etcd_cluster(tmp_path) as members:
        leader, *followers = sorted(members, key=lambda each: not each.is_leader())
        async with tcp_proxy(followers[0].port) as proxy, AsyncExitStack() as stack:
            direct = config_of(*followers, leader)
            name = direct.cluster_name
            proxied = config_of(f"http://127.0.0.1:{proxy.port}", cluster_name=name)
            stores = [
                await stack.enter_async_context(open_etcd(config))
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
