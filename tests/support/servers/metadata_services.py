"""The services that metadata stores can be in: etcd and ZooKeeper."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.client import KazooClient

from pydanube_broker.metadata.etcd.store import open_etcd
from pydanube_broker.metadata.key import prefix_of
from pydanube_zookeeper.change_log import LOG_ENTRIES_MAX
from pydanube_zookeeper.pure.nodes import Nodes
from pydanube_zookeeper.store import open_zookeeper
from support.servers import etcd, zookeeper

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

ELSEWHERE = prefix_of("/elsewhere/", int)


@dataclass(frozen=True, kw_only=True)
class MetadataService:
    """One of the services, and what tests do with it."""

    kind: str
    """The value of metadata.kind, and the fixture with one member."""
    name: str
    """The name in messages."""
    open: Callable[[Any], Any]
    config_of: Callable[..., Any]
    cluster: Callable[..., Any]
    """Runs three members."""
    session_ttl_s: int
    """A short time for sessions of brokers that start on a busy machine."""
    scheme: str
    """The beginning of an endpoint, before the host."""
    forget: Callable[[Any, Any], Awaitable[None]]
    """Makes a member forget the changes so far, given another store of the cluster."""
    end_sessions: Callable[[Any, str], None]
    """Ends all sessions, given a member and the name of the cluster."""

    def endpoint(self, port: int) -> str:
        """Return the endpoint of *port* on this machine."""
        return f"{self.scheme}127.0.0.1:{port}"

    def __str__(self) -> str:
        return self.kind


async def _compact(member, _) -> None:
    await asyncio.to_thread(member.compact)


async def _fill_log(_, other) -> None:
    for number in range(LOG_ENTRIES_MAX):
        await other.put(ELSEWHERE.key(str(number % 10)), number)


def _revoke_leases(member, _) -> None:
    # Also leases that nobody misses.
    for lease in member.ask("lease/leases")["leases"]:
        member.ask("lease/revoke", ID=lease["ID"])


def _delete_sessions(member, cluster_name: str) -> None:
    nodes = Nodes(cluster_name)
    client = KazooClient(member.endpoint)
    client.start()
    for session_id in client.get_children(nodes.sessions):
        client.delete(nodes.session(session_id))
    client.stop()
    client.close()


ETCD = MetadataService(
    kind="etcd",
    name="etcd",
    open=open_etcd,
    config_of=etcd.config_of,
    cluster=etcd.etcd_cluster,
    session_ttl_s=1,
    scheme="http://",
    forget=_compact,
    end_sessions=_revoke_leases,
)
ZOOKEEPER = MetadataService(
    kind="zookeeper",
    name="ZooKeeper",
    open=open_zookeeper,
    config_of=zookeeper.config_of,
    cluster=zookeeper.zookeeper_cluster,
    session_ttl_s=4,
    scheme="",
    forget=_fill_log,
    end_sessions=_delete_sessions,
)

SERVICES = [
    pytest.param(ETCD, id="etcd"),
    pytest.param(ZOOKEEPER, id="zookeeper", marks=pytest.mark.soak),
]
"""Parameters of tests that each service must pass."""
