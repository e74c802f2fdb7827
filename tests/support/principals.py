"""Clients of brokers in memory, with identities that a test chooses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from pydanube.client.client import Client
from pydanube.security.principals import ANONYMOUS, Principal
from pydanube.servers.authentication import Authenticator, Identity
from pydanube.servers.security_config import SecurityConfig
from pydanube.testing import MemoryBroker
from support.worlds.current import memory_broker

ROOT = Principal("root", "certificate")


class ChosenIdentity(Authenticator):
    """Gives all clients the identity that a test chooses."""

    def __init__(self) -> None:
        super().__init__(SecurityConfig(enabled=True))
        self.principal = ANONYMOUS

    def authenticate(self, *_: Any, **_options: Any) -> Identity:
        return Identity(self.principal)


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
            connection.identity = Identity(principal)
        yield client
