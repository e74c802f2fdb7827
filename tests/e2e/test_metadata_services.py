"""Metadata stores in etcd and ZooKeeper whose members hang, die and forget."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from pydanube.model.errors import InvalidConfig, MetadataUnavailable, SessionLost
from pydanube_broker.metadata.key import prefix_of
from pydanube_broker.metadata.store import ABSENT, Delete, Put
from support.servers.metadata_services import SERVICES, MetadataService
from support.servers.ports import free_port
from support.servers.tcp_proxy import Fault, tcp_proxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from pydanube_broker.metadata.store import MetadataStore

pytestmark = pytest.mark.e2e

THINGS = prefix_of("/things/", int)
ONE = THINGS.key("one")
TWO = THINGS.key("two")


@pytest.fixture(params=SERVICES)
def service(request: pytest.FixtureRequest) -> MetadataService:
    """Return one of the services."""
    return request.param


@pytest.fixture
def member(request: pytest.FixtureRequest, service: MetadataService) -> Any:
    """Run one member, which is alone."""
    return request.getfixturevalue(service.kind)


@pytest.fixture
def cluster(tmp_path: Path, service: MetadataService) -> Iterator[list[Any]]:
    """Run three members; the leader is the first one."""
    with service.cluster(tmp_path) as members:
        yield sorted(members, key=lambda member: not member.is_leader())


async def value_of(store: MetadataStore) -> int | None:
    stored = await store.get(ONE)
    return None if stored is None else stored.value


# Members that fail.


@pytest.mark.parametrize("paused", [0, 1], ids=["leader", "follower"])
async def test_calls_and_watches_leave_a_paused_member(
    service: MetadataService, cluster: list[Any], paused: int
) -> None:
    used = cluster[paused]
    others = [member for member in cluster if member is not used]
    config = service.config_of(used, *others, session_ttl_s=30)
    async with (
        service.open(config) as store,
        store.open_session(30) as session,
        store.watch(THINGS) as watch,
    ):
        await anext(watch)
        await store.transaction([], [Put(ONE, 1, session)])
        await anext(watch)
        used.pause()
        try:
            revision = await store.put(TWO, 2, expected=ABSENT)
            changes = await anext(watch)
            assert (changes.revision, list(changes.values)) == (revision, [TWO.path])
            assert [each.value for _, each in await store.scan(THINGS)] == [1, 2]
            assert not session.is_lost
        finally:
            used.resume()
        await store.put(TWO, 3)
        assert (await anext(watch)).values[TWO.path].value == 3


@pytest.mark.soak
async def test_a_watch_alone_leaves_a_paused_member(
    service: MetadataService, cluster: list[Any]
) -> None:
    leader, paused, other = cluster
    config = service.config_of(paused, other)
    async with (
        service.open(config) as store,
        service.open(
            service.config_of(leader, cluster_name=config.cluster_name)
        ) as writer,
        store.watch(THINGS) as watch,
    ):
        await anext(watch)
        await writer.put(ONE, 1)
        await anext(watch)
        paused.pause()
        try:
            # The one that watches makes no call that could fail.
            await writer.put(ONE, 2)
            assert (await anext(watch)).values[ONE.path].value == 2
        finally:
            paused.resume()


async def test_the_death_of_the_leader_delays_changes(
    service: MetadataService,
    cluster: list[Any],
) -> None:
    async with (
        service.open(service.config_of(*cluster)) as store,
        store.open_session(30) as session,
        store.watch(THINGS) as watch,
    ):
        await anext(watch)
        await store.transaction([], [Put(ONE, 1, session)])
        await anext(watch)
        cluster[0].kill()
        revision = await store.put(TWO, 2, expected=ABSENT)
        changes = await anext(watch)
        assert (changes.revision, list(changes.values)) == (revision, [TWO.path])
        assert await value_of(store) == 1
        assert not session.is_lost


@pytest.mark.soak
async def test_without_a_majority_the_store_is_unavailable(
    service: MetadataService,
    cluster: list[Any],
) -> None:
    async with service.open(service.config_of(*cluster, timeout_s=2.0)) as store:
        await store.put(ONE, 1)
        cluster[0].kill()
        cluster[1].kill()
        with pytest.raises(
            MetadataUnavailable, match=f"{service.name} does not answer"
        ):
            await store.put(ONE, 2)
        with pytest.raises(
            MetadataUnavailable, match=f"{service.name} does not answer"
        ):
            await store.get(ONE)
        for member in cluster[:2]:
            member.start()
        for member in cluster[:2]:
            member.wait()
        # The failed change is made or not, but not later than this one.
        async with service.open(service.config_of(*cluster)) as other:
            await other.revision()
        revision = await store.put(ONE, 3)
        stored = await store.get(ONE)
        assert (stored.value, stored.revision) == (3, revision)


async def test_an_endpoint_that_does_not_answer_is_skipped(
    service: MetadataService, member: Any
) -> None:
    nobody = service.endpoint(free_port())
    async with service.open(service.config_of(nobody, member)) as store:
        await store.put(ONE, 1)
        assert await value_of(store) == 1


async def test_without_any_endpoint_that_answers_the_store_does_not_open(
    service: MetadataService,
) -> None:
    port = free_port()
    config = service.config_of(service.endpoint(port), timeout_s=1.0)
    with pytest.raises(
        MetadataUnavailable,
        match=f"metadata.{service.kind}.endpoints.*127.0.0.1:{port}: .*onnect",
    ):
        async with service.open(config):
            pass


async def test_without_endpoints_the_store_does_not_open(
    service: MetadataService,
) -> None:
    with pytest.raises(InvalidConfig, match=f"expected the members of {service.name}"):
        async with service.open(service.config_of()):
            pass


# Connections that fail.


@asynccontextmanager
async def proxied_store(
    service: MetadataService, member: Any, **settings: object
) -> AsyncIterator[tuple[object, MetadataStore, MetadataStore]]:
    """Open a store behind a proxy, and the same one without it."""
    async with tcp_proxy(member.port) as proxy:
        config = service.config_of(service.endpoint(proxy.port), **settings)
        direct = service.config_of(member, cluster_name=config.cluster_name)
        async with service.open(config) as store, service.open(direct) as other:
            yield proxy, store, other


@pytest.mark.parametrize("fault", [Fault.LOSE_ANSWER, Fault.REFUSE])
async def test_a_change_is_made_once_although_connections_break(
    service: MetadataService, member: Any, fault: Fault
) -> None:
    async with proxied_store(service, member) as (proxy, store, other):
        await store.put(TWO, 0)
        proxy.faults_max = proxy.fault_count + 1
        proxy.fault = fault
        if fault is Fault.REFUSE:
            proxy.cut()
        revision = await store.put(ONE, 1, expected=ABSENT)
        stored = await other.get(ONE)
        assert (stored.value, stored.revision) == (1, revision)
        assert proxy.fault is Fault.NONE


async def test_a_watch_that_missed_compacted_changes_reports_what_differs(
    service: MetadataService,
    member: Any,
) -> None:
    async with proxied_store(service, member) as (proxy, store, other):
        for name in ("kept", "deleted", "changed"):
            await other.put(THINGS.key(name), 1)
        async with store.watch(THINGS) as watch:
            await anext(watch)
            # The watch has begun when it has reported a change.
            await other.put(THINGS.key("kept"), 2)
            await anext(watch)
            proxy.fault = Fault.REFUSE
            proxy.cut()
            await other.delete(THINGS.key("deleted"))
            await other.put(THINGS.key("changed"), 2)
            await other.put(THINGS.key("new"), 3)
            await other.transaction([], [Put(TWO, 1), Put(ONE, 1)])
            revision = await other.transaction([], [Delete(TWO), Delete(ONE)])
            await service.forget(member, other)
            proxy.fault = Fault.NONE
            changes = await anext(watch)
            assert changes.revision >= revision
            assert {
                THINGS.name_of(path): stored and stored.value
                for path, stored in changes.values.items()
            } == {"deleted": None, "changed": 2, "new": 3}
            await other.put(ONE, 4)
            assert list((await anext(watch)).values) == [ONE.path]


async def test_a_watch_that_was_cut_off_reports_each_change(
    service: MetadataService, member: Any
) -> None:
    async with (
        proxied_store(service, member) as (proxy, store, other),
        store.watch(THINGS) as w,
    ):
        await anext(w)
        seen = {}
        for value in range(5):
            proxy.cut()
            await other.put(ONE, value)
            await other.put(THINGS.key(str(value)), value)
        while len(seen) < 6:
            seen |= (await anext(w)).values
        assert seen[ONE.path].value == 4


# Sessions.


async def test_a_session_that_cannot_be_kept_alive_is_lost(
    service: MetadataService, member: Any
) -> None:
    async with proxied_store(service, member, timeout_s=1.0) as (proxy, store, other):
        async with other.watch(THINGS) as watch, store.open_session(2) as session:
            await anext(watch)
            await store.transaction([], [Put(ONE, 1, session)])
            await anext(watch)
            proxy.fault = Fault.REFUSE
            proxy.cut()
            await session.lost.wait()
            assert session.is_lost
            with pytest.raises(SessionLost):
                await store.transaction([], [Put(TWO, 1, session)])
            # The holder knew it before the store deleted the key.
            while (await anext(watch)).values.get(ONE.path) is not None:
                pass
        assert await value_of(other) is None


async def test_a_session_that_the_service_ends_is_lost(
    service: MetadataService, member: Any
) -> None:
    config = service.config_of(member)
    async with (
        service.open(config) as store,
        store.open_session(3) as session,
    ):
        await store.transaction([], [Put(ONE, 1, session)])
        await asyncio.to_thread(service.end_sessions, member, config.cluster_name)
        await session.lost.wait()
        # With ZooKeeper, a store deletes the keys, perhaps after the holder knows.
        while await value_of(store) is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
