"""A metadata store in ZooKeeper: its limits, and who may use it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from pydanube.model.errors import (
    InvalidConfig,
    MetadataUnavailable,
    SessionLost,
    TransactionTooLarge,
)
from pydanube_broker.metadata.key import prefix_of
from pydanube_broker.metadata.store import Put
from pydanube_zookeeper.change_log import LOG_ENTRIES_MAX
from pydanube_zookeeper.store import open_zookeeper
from support.servers.certificates import write_certificates
from support.servers.metadata_services import ZOOKEEPER
from support.servers.ports import free_port
from support.servers.zookeeper import config_of, zookeeper_member

if TYPE_CHECKING:
    from pathlib import Path

    from support.servers.zookeeper import ZookeeperMember

pytestmark = [pytest.mark.e2e, pytest.mark.soak]

THINGS = prefix_of("/things/", int)
TEXTS = prefix_of("/texts/", str)
ONE = THINGS.key("one")
NETTY = "org.apache.zookeeper.server.NettyServerCnxnFactory"


# Limits.


async def test_changes_beyond_the_limit_of_zookeeper_are_refused(
    zookeeper: ZookeeperMember,
) -> None:
    async with open_zookeeper(config_of(zookeeper)) as store:
        with pytest.raises(TransactionTooLarge, match=r"jute\.maxbuffer"):
            await store.put(TEXTS.key("long"), "x" * 1_100_000)
        assert await store.scan(TEXTS) == []
        await store.put(TEXTS.key("long"), "x" * 990_000)
        # A change may have any number of operations.
        await store.transaction([], [Put(THINGS.key(str(at)), at) for at in range(999)])
        assert len(await store.scan(THINGS)) == 999


async def test_large_values_reach_other_stores_although_the_log_lacks_them(
    zookeeper: ZookeeperMember,
) -> None:
    config = config_of(zookeeper)
    async with (
        open_zookeeper(config) as store,
        open_zookeeper(config) as other,
        other.watch(TEXTS) as watch,
    ):
        await anext(watch)
        for text in ("a", "b"):
            revision = await store.put(TEXTS.key("long"), text * 500_000)
        newest = None
        while newest is None or newest.revision < revision:
            newest = await anext(watch)
        (found,) = newest.values.values()
        assert found.value == "b" * 500_000
        assert await other.get(TEXTS.key("long")) == found


async def test_a_store_opens_with_the_values_of_others(
    zookeeper: ZookeeperMember,
) -> None:
    config = config_of(zookeeper)
    async with open_zookeeper(config) as store, store.open_session(10) as session:
        for at in range(LOG_ENTRIES_MAX + 50):
            last = await store.put(THINGS.key(f"{at:03}"), at)
        await store.transaction([], [Put(TEXTS.key("mine"), "x", session)])
        async with open_zookeeper(config) as other:
            found = await other.scan(THINGS)
            assert [each.value for _, each in found] == list(
                range(LOG_ENTRIES_MAX + 50)
            )
            assert found[-1][1].revision == last
            assert await other.revision() == await store.revision()
            # The session of the key is known to all stores.
            await other.put(TEXTS.key("mine"), "y")
    async with open_zookeeper(config) as store:
        assert (await store.get(TEXTS.key("mine"))).value == "y"


async def test_stores_that_write_at_the_same_time_lose_nothing(
    zookeeper: ZookeeperMember,
) -> None:
    config = config_of(zookeeper)
    async with open_zookeeper(config) as store, open_zookeeper(config) as other:
        from pydanube.aio.tasks import gather

        async def write(writer, name: str) -> None:
            for at in range(50):
                await writer.put(THINGS.key(f"{name}-{at}"), at)

        await gather([write(store, "a"), write(other, "b"), write(other, "c")])
        found = await store.scan(THINGS)
        assert len(found) == 150
        assert len({each.revision for _, each in found}) == 150
        assert found == await other.scan(THINGS)


async def test_a_session_longer_than_zookeeper_allows_is_refused(
    zookeeper: ZookeeperMember,
) -> None:
    async with open_zookeeper(config_of(zookeeper)) as store:
        with pytest.raises(InvalidConfig, match="maxSessionTimeout"):
            async with store.open_session(500):
                pass


async def test_a_put_for_a_session_that_zookeeper_has_ended_fails(
    zookeeper: ZookeeperMember,
) -> None:
    config = config_of(zookeeper)
    async with open_zookeeper(config) as store, store.open_session(10) as session:
        ZOOKEEPER.end_sessions(zookeeper, config.cluster_name)
        with pytest.raises(SessionLost):
            await store.transaction([], [Put(ONE, 1, session)])
        assert await store.get(ONE) is None


async def test_metadata_that_was_deleted_is_reported(
    zookeeper: ZookeeperMember,
) -> None:
    from kazoo.client import KazooClient

    config = config_of(zookeeper)
    async with open_zookeeper(config) as store:
        await store.put(ONE, 1)
        client = KazooClient(zookeeper.endpoint)
        client.start()
        client.delete(f"/danube/{config.cluster_name}", recursive=True)
        client.stop()
        client.close()
        with pytest.raises(MetadataUnavailable, match="head is missing in ZooKeeper"):
            await store.get(ONE)


# Security.


async def test_tls_with_client_certificates(tmp_path: Path) -> None:
    files = write_certificates(tmp_path)
    bundle = tmp_path / "bundle.pem"
    bundle.write_bytes(b"".join(path.read_bytes() for path in files["server"]))
    port = free_port()
    settings = {
        "secureClientPort": port,
        "secureClientPortAddress": "127.0.0.1",
        "serverCnxnFactory": NETTY,
        "ssl.keyStore.location": bundle,
        "ssl.keyStore.type": "PEM",
        "ssl.trustStore.location": files["ca"][0],
        "ssl.trustStore.type": "PEM",
        "ssl.clientAuth": "need",
    }
    secure = {
        "tls": True,
        "ca_file": str(files["ca"][0]),
        "certificate_file": str(files["client"][0]),
        "key_file": str(files["client"][1]),
    }
    with zookeeper_member(tmp_path, settings):
        endpoint = f"127.0.0.1:{port}"
        async with open_zookeeper(config_of(endpoint, **secure)) as store:
            await store.put(ONE, 1)
            async with store.watch(THINGS) as watch:
                await anext(watch)
                for at in range(50):
                    await store.put(THINGS.key(str(at)), at)
                assert (await anext(watch)).values
            assert len(await store.scan(THINGS)) == 51
        for given in ({"tls": True}, {"tls": True, "ca_file": secure["ca_file"]}, {}):
            with pytest.raises(MetadataUnavailable, match="does not answer"):
                async with open_zookeeper(config_of(endpoint, timeout_s=1.0, **given)):
                    pass


async def test_the_nodes_of_a_user_are_closed_to_others(
    zookeeper: ZookeeperMember, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    config = config_of(zookeeper, user="danube", password="open sesame")
    async with open_zookeeper(config) as store, store.open_session(10) as session:
        await store.transaction([], [Put(ONE, 1, session)])
        assert (await store.get(ONE)).value == 1
    for given in ({}, {"user": "danube", "password": "something else"}):
        other = config_of(zookeeper, cluster_name=config.cluster_name, **given)
        with pytest.raises(InvalidConfig, match="refuses the user"):
            async with open_zookeeper(other):
                pass
    async with open_zookeeper(config) as store:
        await store.put(ONE, 2)
    assert "open sesame" not in caplog.text
