"""Clients of brokers in memory, with identities that a test chooses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pydanube.client.client import Client
from pydanube.security.principals import Principal
from pydanube.testing import MemoryBroker, memory_broker

ROOT = Principal("root", "certificate")


def guarded_broker(**options):
    """Return a broker that enforces its policy, with ``ROOT`` as superuser."""
    return memory_broker(is_superuser=lambda who: who == ROOT, **options)


@asynccontextmanager
async def client_of(
    broker: MemoryBroker, principal: Principal
) -> AsyncIterator[Client]:
    """Connect as *principal*."""
    known = set(broker.server.connections)
    async with broker.connect() as client:
        await client.connection()
        for connection in broker.server.connections.keys() - known:
            connection.principal = principal
        yield client
