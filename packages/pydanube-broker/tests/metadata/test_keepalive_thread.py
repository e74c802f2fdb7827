"""Sessions that a thread keeps alive, whatever the event loop of their holder does."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from pydanube.model.errors import MetadataUnavailable
from pydanube.wire.pb import etcd_pb2 as pb
from pydanube_broker.metadata.etcd.client import LEASE_GRANT, LEASE_REVOKE
from pydanube_broker.metadata.etcd.leases import open_lease
from pydanube_broker.metadata.keepalive_thread import session_in_thread
from pydanube_broker.metadata.sessions import STALLED_TTLS, Session

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

WAIT_S = 60


class Client:
    """A client of etcd whose leases last one second."""

    def __init__(self, keepalives: int) -> None:
        self.has_renewed = threading.Event()
        """Set after so many keepalives."""
        self.threads: set[str] = set()
        self.now = 100.0
        self._left = keepalives

    async def ask(self, method: Any, _: Any, __: Any = None) -> Any:
        self.threads.add(threading.current_thread().name)
        if method is LEASE_REVOKE:
            return pb.LeaseRevokeResponse()
        assert method is LEASE_GRANT
        return pb.LeaseGrantResponse(ID=0xAB, TTL=1)

    async def keep_alive(self, _: int, __: float) -> int:
        self.threads.add(threading.current_thread().name)
        self._left -= 1
        if self._left == 0:
            self.has_renewed.set()
        return 1

    def clock(self) -> float:
        return self.now


def opening(client: Any) -> Any:
    return lambda: open_lease(client, 1.0, client.clock)


async def test_keepalives_do_not_wait_for_the_event_loop_of_the_holder() -> None:
    client = Client(keepalives=3)
    async with session_in_thread(opening(client)) as session:
        # Nothing else runs in this loop until three keepalives were sent.
        assert client.has_renewed.wait(WAIT_S)
        assert not session.is_lost
    assert client.threads == {"danube-keepalive"}
    assert session.is_lost


async def test_a_session_whose_event_loop_stands_still_for_too_long_is_given_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = Client(keepalives=1)
    async with session_in_thread(opening(client)) as session:
        assert client.has_renewed.wait(WAIT_S)
        # Still renewed, but the holder has not been seen since then.
        session.extend(client.now + 2 * STALLED_TTLS)
        client.now += STALLED_TTLS
        # The thread notices it while this loop stands still.
        while not session.is_lost:
            client.has_renewed.clear()
            client.has_renewed.wait(0.01)
        await session.lost.wait()
    assert "has stood still for 3 s" in caplog.text


async def test_the_end_of_a_session_in_the_thread_wakes_its_holder() -> None:
    release = threading.Event()

    @asynccontextmanager
    async def ending() -> AsyncIterator[Session]:
        session = Session("s", ttl_s=1.0)
        ends = asyncio.get_running_loop().run_in_executor(None, release.wait, WAIT_S)
        ends.add_done_callback(lambda _: session.end())
        yield session
        await ends

    async with session_in_thread(ending) as session:
        assert not session.lost.is_set()
        release.set()
        await session.lost.wait()


async def test_a_session_that_cannot_be_opened_says_why() -> None:
    @asynccontextmanager
    async def failing() -> AsyncIterator[Session]:
        raise MetadataUnavailable("nobody answers")
        yield Session("s")

    with pytest.raises(MetadataUnavailable, match="nobody answers"):
        async with session_in_thread(failing):
            pass


async def test_opening_that_is_cancelled_ends_the_thread() -> None:
    has_ended = threading.Event()
    has_begun = threading.Event()

    @asynccontextmanager
    async def hanging() -> AsyncIterator[Session]:
        has_begun.set()
        try:
            await asyncio.Future()
            yield Session("s")
        finally:
            has_ended.set()

    async def open_it() -> None:
        async with session_in_thread(hanging):
            pass

    async with asyncio.TaskGroup() as group:
        task = group.create_task(open_it())
        await asyncio.to_thread(has_begun.wait, WAIT_S)
        task.cancel()
    assert has_ended.is_set()
