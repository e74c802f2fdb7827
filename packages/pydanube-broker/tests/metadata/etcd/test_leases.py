"""Sessions that are leases, with a client that answers what a test says."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pydanube.model.errors import MetadataUnavailable
from pydanube.wire.pb import etcd_pb2 as pb
from pydanube_broker.metadata.etcd.client import LEASE_GRANT, LEASE_REVOKE
from pydanube_broker.metadata.etcd.failures import NoAnswer
from pydanube_broker.metadata.etcd.leases import open_lease


class Client:
    """A client whose lease has a TTL of one second."""

    def __init__(self, *keepalives: int | Exception) -> None:
        self.revoked: list[int] = []
        self.is_gone = False
        self.now = 0.0
        self.done = asyncio.Event()
        """Set when all keepalives were asked for."""
        self._keepalives = list(keepalives)

    async def ask(self, method: Any, request: Any, _: Any = None) -> Any:
        if self.is_gone:
            raise MetadataUnavailable("gone")
        if method is LEASE_REVOKE:
            self.revoked.append(request.ID)
            return pb.LeaseRevokeResponse()
        assert method is LEASE_GRANT
        # Granting takes a while.
        self.now += 0.25
        return pb.LeaseGrantResponse(ID=0xAB, TTL=1)

    async def keep_alive(self, lease_id: int, timeout_s: float) -> int:
        assert (lease_id, timeout_s <= 1 / 3) == (0xAB, True)
        if not self._keepalives:
            self.done.set()
            await asyncio.Future()
        answer = self._keepalives.pop(0)
        # The answer takes a while.
        self.now += 0.125
        if isinstance(answer, Exception):
            raise answer
        return answer

    def clock(self) -> float:
        return self.now


async def test_the_time_counts_from_the_moment_at_which_a_keepalive_is_sent() -> None:
    client: Any = Client(1)
    async with open_lease(client, 0.5, client.clock) as session:
        assert session.session_id == "ab"
        assert session.remaining_s == pytest.approx(0.75)
        await client.done.wait()
        # Sent at 0.25.
        assert client.now == pytest.approx(0.375)
        assert session.remaining_s == pytest.approx(0.875)
        client.now = 1.26
        assert session.is_lost
    assert client.revoked == [0xAB]


@pytest.mark.slow
async def test_a_session_survives_keepalives_without_an_answer() -> None:
    client: Any = Client(NoAnswer("lost"), MetadataUnavailable("lost"), 1)
    async with open_lease(client, 1.0, client.clock) as session:
        await client.done.wait()
        assert not session.is_lost


async def test_a_session_is_lost_when_there_is_no_lease_any_more() -> None:
    client: Any = Client(0)
    async with open_lease(client, 1.0, client.clock) as session:
        await session.lost.wait()
        assert session.remaining_s == 0


async def test_a_session_that_cannot_be_revoked_is_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client: Any = Client()
    async with open_lease(client, 1.0, client.clock) as session:
        client.is_gone = True
    assert session.is_lost
    assert "stay until its TTL has passed" in caplog.text
