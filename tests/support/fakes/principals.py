"""Clients of brokers in memory, with identities that a test chooses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from pydanube.client.client import Client
from pydanube.client.connections.credentials import Credentials
from pydanube.client.connections.requester import Requester
from pydanube.security.principals import ANONYMOUS, Principal
from pydanube_broker.servers.connections.authentication import (
    Authenticator,
    ClientIdentity,
)
from pydanube_broker.servers.settings.security_config import SecurityConfig
from pydanube_broker.testing import MemoryBroker
from support.worlds.current import memory_broker

ROOT = Principal("root", "certificate")

_principals: dict[str, Principal] = {}
"""By the tokens of the clients that connect as them."""


class ChosenIdentity(Authenticator):
    """Gives other clients than ``client_of`` the identity that a test chooses."""

    def __init__(self) -> None:
        super().__init__(SecurityConfig(enabled=True))
        self.principal = ANONYMOUS

    def authenticate(
        self, credential: str = "", *_: Any, **_options: Any
    ) -> ClientIdentity:
        return ClientIdentity(_principals.get(credential, self.principal))


class KnownTokens(Authenticator):
    """Knows the principals of ``client_of``; others need no credentials."""

    def __init__(self) -> None:
        super().__init__(SecurityConfig())

    def authenticate(
        self, credential: str = "", *_: Any, **_options: Any
    ) -> ClientIdentity:
        return ClientIdentity(_principals.get(credential, ANONYMOUS))


def guarded_broker(**options):
    """Return a broker that enforces its policy, with ``ROOT`` as superuser."""
    return memory_broker(
        is_superuser=lambda who: who == ROOT, authenticator=KnownTokens(), **options
    )


def token_of(principal: Principal) -> str:
    """Return the token by which a ``guarded_broker`` knows *principal*."""
    token = repr(principal).replace(" ", "")
    _principals[token] = principal
    return token


@asynccontextmanager
async def client_of(
    broker: MemoryBroker, principal: Principal
) -> AsyncIterator[Client]:
    """Connect as *principal*, to a ``guarded_broker``."""
    token = token_of(principal)
    requester = Requester(
        broker._dial,
        url=broker.url,
        credentials=Credentials(token, may_be_plain=True),
        wall_clock_ns=broker.clock.wall_ns,
    )
    async with Client(requester).opened() as client:
        await client.requester.connection()
        yield client
