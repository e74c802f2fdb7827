"""A session reports the load of its shards, until it is over."""

from __future__ import annotations

import asyncio

from pydanube.aio.tasks import task_scope
from pydanube_broker.cluster.load_reports import LoadReports
from pydanube_broker.cluster.pure.load import TopicTraffic
from pydanube_broker.cluster.session import open_cluster_session
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.cluster_records import (
    LoadRecord,
    SessionRecord,
    ShardLoad,
)
from support.fakes.memory_store import MemoryStore
from support.fakes.storages import until

RECORD = SessionRecord(broker_id="b", addresses={}, started_at=0)


async def test_loads_are_reported_until_the_session_is_over() -> None:
    store, times = MemoryStore(), iter(range(0, 10**6, 10))
    async with open_cluster_session(store, RECORD, ttl_s=2.0) as session:
        reports = LoadReports(
            session,
            store,
            find_traffic=lambda: {1: TopicTraffic(shard=3, connections=2)},
            find_served=lambda: {3},
            clock=lambda: float(next(times)),
            wall_clock_us=lambda: 7,
            interval_s=0.0,
        )
        key = keys.LOADS.key(session.session_id)
        expected = LoadRecord(measured_at=7, shards={3: ShardLoad(connections=2)})
        async with task_scope() as tasks:
            running = tasks.run(reports.run())
            seen = []
            async with asyncio.timeout(30):
                while expected not in seen:
                    stored = await store.get(key)
                    seen.append(None if stored is None else stored.value)
                    await asyncio.sleep(0)
            store.lose(session.lease)
            await until(running.done)
        assert await store.get(key) is None
