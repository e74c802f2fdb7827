"""Clusters that enforce their policy, with clients of an administrator and of Alice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from pydanube import connect
from pydanube.client.client import Client
from pydanube.model.names import TopicName
from pydanube.security.permissions import Permission
from pydanube.security.policy import Binding, Role
from pydanube.security.principals import Principal
from pydanube.security.quotas import Quota
from pydanube_broker.cluster.pure.shard_topics import shard_of
from pydanube_broker.servers.connections.authentication import (
    Authenticator,
    ClientIdentity,
)
from pydanube_broker.servers.settings.security_config import SecurityConfig
from pydanube_broker.storage.config import NamedStoreConfig
from support.fakes.broker_clusters import SHARDS
from support.fakes.served_clusters import ServedCluster

ROOT = Principal("root", "token")


class Tokens(Authenticator):
    """Takes a token for the name of its principal."""

    def __init__(self) -> None:
        super().__init__(SecurityConfig(enabled=True))

    def authenticate(self, credential: str = "", *_: Any, **__: Any) -> ClientIdentity:
        return ClientIdentity(Principal(credential or "anonymous", "token"))


@dataclass
class GuardedCluster:
    """Two brokers that enforce their policy, and clients of both."""

    served: ServedCluster
    root: Client
    alice: Client

    @property
    def brokers(self) -> list[Any]:
        return [each.broker for each in self.served.cluster.members.values()]

    async def let(self, name: str, pattern: str, *permissions: Permission) -> None:
        """Give Alice these permissions, instead of those that had the same *name*."""
        access = self.brokers[0].access
        await access.set_role(ROOT, Role(name, frozenset(permissions)))
        binding = Binding("user:alice", (name,), (pattern,), name)
        await access.add_binding(ROOT, binding)
        await eventually(
            lambda: all(each.access.policy == access.policy for each in self.brokers)
        )

    def owner_of(self, topic: str) -> str:
        return self.served.owner_of(shard_of(TopicName.parse(topic), SHARDS))

    def name_at(self, prefix: str, *, beside: str, is_same: bool) -> str:
        """A name of a topic at the same broker as another one, or not."""
        names = (f"{prefix}{number}" for number in range(1000))
        return next(
            each
            for each in names
            if (self.owner_of(each) == self.owner_of(beside)) is is_same
        )

    @asynccontextmanager
    async def used_up(self, topic: str) -> AsyncIterator[None]:
        """Let the namespace of *topic* store nothing more during the body."""
        namespace = await self.use_up(topic)
        yield
        await self.root.security.remove_quota(namespace)

    async def use_up(self, topic: str) -> str:
        """Let the namespace of *topic* store nothing more; return its name."""
        namespace = "/" + TopicName.parse(topic).namespace
        await self.root.security.set_quota(namespace, Quota(storage_bytes=1000))
        owner = self.served.cluster.members[self.owner_of(topic)].broker
        await eventually(
            lambda: namespace in {str(each) for each in owner.quotas.quotas}
        )
        opened = await owner.topics.get(TopicName.parse(topic))
        opened.pacing.add("storage_bytes", 1000)
        return namespace

    async def read(self, topic: str) -> list[bytes]:
        return [m.payload async for found in self.root.read(topic) for m in found]


async def eventually(is_true: Callable[[], bool | Awaitable[bool]]) -> None:
    """Return when the condition holds; the test has a time limit."""
    while True:
        found = is_true()
        if found is True or (not isinstance(found, bool) and await found):
            return
        await asyncio.sleep(0)


@asynccontextmanager
async def running(
    stores: Mapping[str, NamedStoreConfig],
) -> AsyncIterator[GuardedCluster]:
    """
    Run the brokers ``a`` and ``b``; the administrator asks the first, Alice the other.

    The settings of the first name all *stores*, those of the other only the first one.
    """
    served = ServedCluster(Tokens(), is_superuser=lambda who: who == ROOT)
    first = dict(list(stores.items())[:1])
    served.cluster.own_options = {"a": {"stores": stores}, "b": {"stores": first}}
    plain = {"allow_plaintext_credentials": True}
    async with (
        served.running("a", "b"),
        connect("danube://a", token="root", **plain) as root,
        connect("danube://b", token="alice", **plain) as alice,
    ):
        yield GuardedCluster(served, root, alice)
