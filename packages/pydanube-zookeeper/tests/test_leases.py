"""Sessions in ZooKeeper, with a client that answers what a test says."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from pydanube.aio.tasks import task_scope
from pydanube.model.errors import InvalidConfig, MetadataUnavailable
from pydanube_broker.metadata.store import Revision, Stored
from pydanube_zookeeper.client import NoAnswer
from pydanube_zookeeper.leases import SessionReaper, open_lease
from pydanube_zookeeper.pure.nodes import Nodes
from pydanube_zookeeper.replica import Position, Replica

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

NODES = Nodes("c")
TTL_S = 0.12
STEP_S = 0.03
"""The time between keepalives on the clock of the tests, less than a third of it."""

NODE = object()
"""The answer that the node of the session exists."""


class Client:
    """A client that gives *answers* to keepalives, and then none."""

    acl = None
    session_s = TTL_S

    def __init__(self, *answers: object) -> None:
        self.now = 100.0
        self.done = asyncio.Event()
        """Set when all answers were given."""
        self._answers = list(answers)

    async def ask(self, *_: Any) -> list[Any]:
        # Connecting and creating the node take a while.
        self.now += 0.005
        return [None]

    async def ask_once(self, *_: Any, deadline: float) -> list[Any]:
        if not self._answers:
            self.done.set()
            await asyncio.Future()
        answer = self._answers.pop(0)
        self.now += STEP_S
        if isinstance(answer, Exception):
            raise answer
        return [None, answer]

    def new_deadline(self, _: float) -> float:
        return 0.0

    def calling(self, callback: Callable[[], None]) -> Callable[[], None]:
        return callback

    def clock(self) -> float:
        return self.now


class Log:
    """A log that notes which sessions were ended."""

    def __init__(self) -> None:
        start = Position(number=1, first=1, version=1, revision=Revision(1))
        values = {"/a": Stored(b"", Revision(1)), "/b": Stored(b"", Revision(1))}
        self.replica = Replica(start, values, {"/a": "one", "/b": "two"})
        self.deleted: list[str] = []
        self.failures = 0
        self.is_changed = asyncio.Event()

    async def commit(self, plan: Any, *, deadline: object = None) -> Any:
        if self.failures:
            self.failures -= 1
            raise MetadataUnavailable("gone")
        changes = plan(self.replica)
        self.deleted += changes
        self.is_changed.set()
        self.replica.apply(changes, self.replica.position.next(Revision(2), 1))
        return Revision(2), list(changes)


@asynccontextmanager
async def connecting(client: Client) -> AsyncIterator[Client]:
    yield client


def lease_of(client: Client, ttl_s: float = TTL_S) -> Any:
    opened: Any = connecting(client)
    return open_lease(opened, NODES, ttl_s, client.clock)


async def test_the_first_keepalive_does_not_extend_the_session() -> None:
    client = Client()
    async with lease_of(client) as session:
        # It counts from the moment at which connecting began.
        assert session.remaining_s == pytest.approx(TTL_S - 0.005)
        await client.done.wait()
        assert session.remaining_s == pytest.approx(TTL_S - 0.005)


async def test_the_time_counts_from_a_keepalive_that_the_leader_knows_about() -> None:
    client = Client(NODE, NODE, NODE)
    async with lease_of(client) as session:
        sent_first = client.now
        await client.done.wait()
        # The third one was sent more than a third of the TTL later.
        assert client.now == sent_first + 3 * STEP_S
        assert session.remaining_s == pytest.approx(TTL_S - 3 * STEP_S)


async def test_a_keepalive_without_an_answer_does_not_count() -> None:
    client = Client(NoAnswer("cut"), MetadataUnavailable("none"), NODE)
    async with lease_of(client) as session:
        await client.done.wait()
        assert session.remaining_s == pytest.approx(TTL_S - 0.005 - 3 * STEP_S)


async def test_a_session_without_answers_is_lost() -> None:
    async with lease_of(Client(*(NoAnswer("cut") for _ in range(5)))) as session:
        await session.lost.wait()
        assert session.is_lost


async def test_a_session_whose_node_is_gone_is_lost() -> None:
    async with lease_of(Client(None)) as session:
        await session.lost.wait()
        assert session.is_lost


async def test_a_time_that_zookeeper_does_not_allow_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"ends sessions after 0\.12 s, got 2 s"):
        async with lease_of(Client(), 2.0):
            pass


class Listing:
    """A client that lists the sessions that are there."""

    def __init__(self, *lists: list[str]) -> None:
        self._lists = list(lists)

    async def ask(self, *_: Any) -> list[Any]:
        return [self._lists.pop(0)]

    def calling(self, callback: Callable[[], None]) -> Callable[[], None]:
        self.on_event = callback
        return callback


async def test_keys_of_ended_sessions_are_deleted() -> None:
    client: Any = Listing(["one"], ["one"], [])
    log: Any = Log()
    log.failures = 1
    reaper = SessionReaper(client, NODES, log)
    async with task_scope() as tasks:
        tasks.run(reaper.run())
        # The first attempt fails, and the list is read again.
        await log.is_changed.wait()
        assert log.deleted == ["/b"]
        log.is_changed.clear()
        client.on_event()
        await log.is_changed.wait()
        assert log.deleted == ["/b", "/a"]
