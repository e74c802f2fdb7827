"""A controller's changes are refused as soon as another one is elected."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

from pydanube.aio.tasks import task_scope
from pydanube.model.errors import MetadataUnavailable
from pydanube_broker.cluster.controller import CHANGES_MAX, Controller, create_shards
from pydanube_broker.cluster.pure.directions import Director
from pydanube_broker.cluster.session import open_cluster_session
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.cluster_records import SessionRecord
from support.fakes.memory_store import MemoryStore
from support.fakes.storages import until


class ForgetfulStore(MemoryStore):
    """A store that executes the first election, and does not answer it."""

    has_forgotten = False

    async def _change(self, comparisons, operations):
        changed = await super()._change(comparisons, operations)
        if changed[1] == [keys.CONTROLLER.path] and not self.has_forgotten:
            self.has_forgotten = True
            raise MetadataUnavailable("on purpose")
        return changed


class LateElections(MemoryStore):
    """A store whose watches do not see who is elected until they are let."""

    def __init__(self) -> None:
        super().__init__()
        self.is_seen = asyncio.Event()
        self.is_seen.set()

    @asynccontextmanager
    async def _watch(self, prefix):
        async with super()._watch(prefix) as raw:
            yield self._late(raw) if prefix == keys.CONTROLLERS.path else raw

    async def _late(self, raw):
        async for changes in raw:
            await self.is_seen.wait()
            yield changes


def controller_of(session, store) -> Controller:
    loop = asyncio.get_running_loop()
    return Controller(
        session, store, Director(), clock=loop.time, wall_clock_us=lambda: 0
    )


def record_of(broker: str) -> SessionRecord:
    return SessionRecord(broker_id=broker, addresses={}, started_at=0)


async def test_shards_are_created_once_in_several_transactions() -> None:
    store = MemoryStore()
    await create_shards(store, CHANGES_MAX + 5)
    revision = await store.revision()
    await create_shards(store, CHANGES_MAX + 5)
    assert await store.revision() == revision == 2
    assert len(await store.scan(keys.SHARDS)) == CHANGES_MAX + 5


async def test_the_controller_assigns_shards_and_counts_them() -> None:
    store = MemoryStore()
    await create_shards(store, CHANGES_MAX + 5)
    async with (
        open_cluster_session(store, record_of("a"), ttl_s=2.0) as session,
        task_scope() as tasks,
    ):
        controller = controller_of(session, store)
        tasks.run(controller.run())
        await until(lambda: controller.counts.assignments == CHANGES_MAX + 5)
        assert controller.is_controller
        assert controller.counts.elections == 1
        targets = {each.value.target for _, each in await store.scan(keys.SHARDS)}
        assert targets == {session.session_id}


async def test_a_controller_that_was_replaced_changes_nothing() -> None:
    store = LateElections()
    async with (
        open_cluster_session(store, record_of("a"), ttl_s=2.0) as session,
        task_scope() as tasks,
    ):
        controller = controller_of(session, store)
        tasks.run(controller.run())
        await until(lambda: controller.is_controller)
        # It does not know of the other one yet when the shards appear.
        store.is_seen.clear()
        await store.put(keys.CONTROLLER, "another session")
        await create_shards(store, 3)
        await until(lambda: controller.counts.refusals)
        assert controller.is_controller
        stored = await store.scan(keys.SHARDS)
        assert [each.value.target for _, each in stored] == [None] * 3
        store.is_seen.set()
        await until(lambda: not controller.is_controller)
        assert controller.counts.assignments == 0


async def test_the_next_controller_takes_over_at_the_end_of_a_session() -> None:
    store = MemoryStore()
    async with (
        open_cluster_session(store, record_of("b"), ttl_s=2.0) as second,
        task_scope() as tasks,
    ):
        async with open_cluster_session(store, record_of("a"), ttl_s=2.0) as first:
            one, two = controller_of(first, store), controller_of(second, store)
            running = tasks.run(one.run())
            await until(lambda: one.is_controller)
            tasks.run(two.run())
        await running
        await until(lambda: two.is_controller)
        assert not one.is_controller


async def test_an_election_without_an_answer_counts() -> None:
    store = ForgetfulStore()
    await create_shards(store, 1)
    async with (
        open_cluster_session(store, record_of("a"), ttl_s=2.0) as session,
        task_scope() as tasks,
    ):
        controller = controller_of(session, store)
        tasks.run(controller.run())
        await until(lambda: controller.counts.assignments)
        assert store.has_forgotten
