"""Changes whose outcome etcd does not tell: lost, late and cancelled transactions."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from pydanube.model.errors import MetadataUnavailable, RevisionConflict, SessionLost
from pydanube_broker.metadata.etcd.client import TXN, open_client
from pydanube_broker.metadata.etcd.failures import NoAnswer
from pydanube_broker.metadata.etcd.reading import open_reader
from pydanube_broker.metadata.etcd.store import EtcdStore
from pydanube_broker.metadata.key import prefix_of
from pydanube_broker.metadata.sessions import Session
from pydanube_broker.metadata.store import ABSENT, Delete, HasValue, Put
from support.servers.etcd import EtcdMember, config_of, encoded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from pydanube_broker.metadata.etcd.client import EtcdClient

pytestmark = pytest.mark.e2e

THINGS = prefix_of("/things/", int)
ONE = THINGS.key("one")
TWO = THINGS.key("two")


class FaultyClient:
    """A client that loses requests, or answers, of transactions that write."""

    def __init__(self, client: EtcdClient) -> None:
        self.faults: list[str] = []
        """What happens to the next transactions: see ``ask_once``."""
        self.late: list[Any] = []
        """Requests that etcd has not received yet."""
        self.after_loss: Callable[[], None] = lambda: None
        """Called when an answer is lost."""
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def ask_once(self, method: Any, request: Any, attempts: Any) -> Any:
        fault = self.faults.pop(0) if method is TXN and self.faults else "none"
        if fault == "none":
            return await self._client.ask_once(method, request, attempts)
        if fault == "answer lost":
            await self._client.ask_once(method, request, attempts)
            await asyncio.to_thread(self.after_loss)
            raise NoAnswer(fault)
        self.late.append(request)
        if fault == "cancelled":
            raise asyncio.CancelledError
        assert fault == "request late"
        raise NoAnswer(fault)

    async def deliver(self) -> list[bool]:
        """Let etcd receive the late requests; return whether each was executed."""
        late, self.late = self.late, []
        return [(await self._client.ask(TXN, request)).succeeded for request in late]


@asynccontextmanager
async def faulty_store(
    etcd: EtcdMember,
) -> AsyncIterator[tuple[FaultyClient, EtcdStore]]:
    config = config_of(etcd)
    async with open_client(config) as opened:
        client: Any = FaultyClient(opened)
        async with open_reader(client) as reader:
            store = EtcdStore(config, client, reader)
            yield client, store
            await store.close()


@pytest.mark.parametrize("fault", ["answer lost", "request late"])
async def test_a_transaction_without_an_answer_is_made_once(
    etcd: EtcdMember, fault: str
) -> None:
    async with faulty_store(etcd) as (client, store):
        for at in range(3):
            client.faults = ["none"] * at + [fault, fault, "none"]
            key = THINGS.key(str(at))
            await store.put(THINGS.key("other"), at)
            revision = await store.put(key, at, expected=ABSENT)
            stored = await store.get(key)
            assert stored is not None
            assert (stored.value, stored.revision) == (at, revision)
            assert not any(await client.deliver())
            assert await store.get(key) == stored
            client.faults = []


@pytest.mark.parametrize("fault", ["answer lost", "request late"])
async def test_a_conflict_is_reported_although_an_answer_was_lost(
    etcd: EtcdMember, fault: str
) -> None:
    async with faulty_store(etcd) as (client, store):
        await store.put(ONE, 1)
        client.faults = [fault]
        with pytest.raises(RevisionConflict, match="has 1; expected 2"):
            await store.transaction([HasValue(ONE, 2)], [Put(ONE, 3)])
        stored = await store.get(ONE)
        assert stored is not None
        assert stored.value == 1


async def test_the_changed_paths_are_known_although_the_answer_was_lost(
    etcd: EtcdMember,
) -> None:
    calls = []
    async with faulty_store(etcd) as (client, store):
        await store.put(ONE, 1)
        with store.reporting(lambda *change: calls.append(change)):
            client.faults = ["answer lost"]
            three = THINGS.key("three")
            revision = await store.transaction(
                [], [Delete(ONE), Delete(TWO), Put(three, 3)]
            )
            client.faults = ["answer lost"]
            assert await store.delete(three)
            client.faults = ["answer lost"]
            assert not await store.delete(three)
    assert calls[0] == (revision, [ONE.path, three.path])
    assert [paths for _, paths in calls[1:]] == [[three.path]]


async def test_a_cancelled_change_is_not_made_after_the_next_one(
    etcd: EtcdMember,
) -> None:
    async with faulty_store(etcd) as (client, store):
        await store.put(TWO, 0)
        client.faults = ["cancelled"]
        with pytest.raises(asyncio.CancelledError):
            await store.put(ONE, 1)
        await store.put(ONE, 2)
        assert await client.deliver() == [False]
        stored = await store.get(ONE)
        assert stored is not None
        assert stored.value == 2


async def test_concurrent_changes_survive_the_loss_of_one_answer(
    etcd: EtcdMember,
) -> None:
    async with faulty_store(etcd) as (client, store):
        client.faults = ["none", "none", "answer lost", "none", "request late"]
        async with asyncio.TaskGroup() as group:
            for at in range(10):
                group.create_task(store.put(THINGS.key(str(at)), at, expected=ABSENT))
        assert [each.value for _, each in await store.scan(THINGS)] == list(range(10))


async def test_an_outcome_that_etcd_has_forgotten_is_reported(
    etcd: EtcdMember,
) -> None:
    def forget() -> None:
        for _ in range(2):
            etcd.ask("kv/put", key=encoded("/elsewhere"), value=encoded("x"))
        etcd.compact()

    async with faulty_store(etcd) as (client, store):
        await store.put(TWO, 0)
        client.faults = ["answer lost"]
        client.after_loss = forget
        with pytest.raises(MetadataUnavailable, match="made is unknown"):
            await store.put(ONE, 1)
        await store.put(ONE, 2)
        stored = await store.get(ONE)
        assert stored is not None
        assert stored.value == 2


async def test_a_writer_continues_when_its_lease_has_expired(etcd: EtcdMember) -> None:
    async with faulty_store(etcd) as (_, store):
        await store.put(ONE, 1)
        for lease in etcd.ask("lease/leases")["leases"]:
            etcd.ask("lease/revoke", ID=lease["ID"])
        async with store.open_session(10.0) as session:
            await store.transaction([], [Put(ONE, 2, session)])
            stored = await store.get(ONE)
            assert stored is not None
            assert stored.value == 2


async def test_a_session_that_etcd_has_ended_holds_no_keys(etcd: EtcdMember) -> None:
    async with faulty_store(etcd) as (_, store), store.open_session(60.0) as session:
        await store.transaction([], [Put(ONE, 1, session)])
        etcd.ask("lease/revoke", ID=int(session.session_id, 16))
        with pytest.raises(SessionLost, match="etcd has ended session"):
            await store.transaction([], [Put(TWO, 2, session)])
        assert await store.scan(THINGS) == []


async def test_a_store_leaves_no_keys_of_its_own(etcd: EtcdMember) -> None:
    config = config_of(etcd)
    async with open_client(config) as client, open_reader(client) as reader:
        store = EtcdStore(config, client, reader)
        await store.put(ONE, 1)
        await store.close()
        assert await store.scan(prefix_of("/writers/", int)) == []
        assert len(await store.scan(THINGS)) == 1


async def test_a_guarded_store_changes_nothing_after_its_key_has_changed(
    etcd: EtcdMember,
) -> None:
    guard = THINGS.key("guard")
    async with faulty_store(etcd) as (client, store):
        store.guard(Session("s"), guard, await store.put(guard, 1))
        client.faults = ["none", "answer lost"]
        await store.put(ONE, 1, expected=ABSENT)
        with pytest.raises(RevisionConflict, match="expected no value"):
            await store.put(ONE, 2, expected=ABSENT)
        await store.put(ONE, 2)
        await store.put(guard, 2)
        for _ in range(2):
            with pytest.raises(SessionLost, match="must not change metadata"):
                await store.put(ONE, 3)
        stored = await store.get(ONE)
        assert stored is not None
        assert stored.value == 2


async def test_a_guarded_store_asks_nobody_after_its_session_is_lost(
    etcd: EtcdMember,
) -> None:
    guard = THINGS.key("guard")
    async with faulty_store(etcd) as (client, store):
        session = Session("s")
        store.guard(session, guard, await store.put(guard, 1))
        session.end()
        client.faults = ["request late"]
        with pytest.raises(SessionLost, match="session s of the metadata store"):
            await store.put(ONE, 1)
        assert client.faults == ["request late"]
