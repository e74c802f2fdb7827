"""A cluster with security: credentials and permissions hold on all of its brokers."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, ExitStack

import pytest

import pydanube
from support.drivers.running import received
from support.fakes.listeners import OK, Asker
from support.servers.certificates import write_certificates
from support.servers.cluster_processes import cluster_broker, cluster_settings
from support.servers.etcd import etcd_member

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.usefixtures("no_credentials"),
]

TOPICS = [f"/default/t{number}" for number in range(6)]
SECRET = "/default/secret"
ENDED_S = 60.0
"""Within this time, a revocation takes effect on all brokers."""


@pytest.fixture
def brokers(tmp_path):
    """Three brokers with TLS, and one bootstrap key."""
    files = write_certificates(tmp_path)
    certificate_file, key_file = map(str, files["server"])
    with etcd_member(tmp_path / "etcd") as etcd, ExitStack() as running:
        settings = cluster_settings(etcd.url, tmp_path) | {
            "tls": {"certificate_file": certificate_file, "key_file": key_file},
            "security": {
                "enabled": True,
                "bootstrap_key_file": str(tmp_path / "bootstrap.key"),
            },
        }
        yield [
            running.enter_context(cluster_broker(tmp_path, settings, name))
            for name in ("a", "b", "c")
        ]


def url_of(broker):
    return f"danubes://127.0.0.1:{broker.stream_port}"


def askers_of(brokers, directory, key):
    return [
        Asker(
            urls={
                "stream": url_of(each),
                "grpc": f"https://127.0.0.1:{each.grpc_port}",
                "admin": f"https://127.0.0.1:{each.admin_port}",
                "http": each.http_url,
            },
            ca_file=directory / "ca.pem",
            credential=key,
        )
        for each in brokers
    ]


async def answers(askers):
    return {
        await each.look(listener)
        for each in askers
        for listener in ("stream", "grpc", "admin", "http")
    }


async def until(expected, askers):
    while await answers(askers) != {expected}:
        pass


async def test_credentials_and_permissions_hold_on_all_brokers(tmp_path, brokers):
    ca_file = tmp_path / "ca.pem"
    bootstrap = (tmp_path / "bootstrap.key").read_text().strip()
    everywhere = ",".join(
        url_of(each) if not number else f"127.0.0.1:{each.stream_port}"
        for number, each in enumerate(brokers)
    )
    async with pydanube.connect(
        everywhere, ca_file=ca_file, api_key=bootstrap
    ) as admin:
        for topic in [*TOPICS, SECRET]:
            await admin.topics.create(topic)
        key = (await admin.security.create_api_key("billing")).key
        other = (await admin.security.create_api_key("other")).key
        await admin.security.add_binding(
            "user:billing", ["producer", "consumer"], TOPICS, binding_id="own"
        )
        clients = askers_of(brokers, tmp_path, key)
        async with asyncio.timeout(ENDED_S):
            await until(OK, clients)
        async with pydanube.connect(everywhere, ca_file=ca_file, api_key=key) as client:
            await publish_to_all(client, b"first")
            # Topics move, and a broker fails.
            for topic in TOPICS[:2]:
                await admin.cluster.move_topic(topic)
            await admin.cluster.drain_broker("b")
            await publish_to_all(client, b"moved")
            await admin.cluster.activate_broker("b")
            brokers[0].kill()
            await publish_to_all(client, b"taken over")
            for topic in TOPICS:
                async with client.consumer(
                    topic, subscription="s", start="earliest"
                ) as consumer:
                    expected = [b"first", b"moved", b"taken over"]
                    assert await received(consumer, 3) == expected
            with pytest.raises(pydanube.PermissionDenied):
                async with client.producer(SECRET):
                    pass
        left = brokers[1:]
        await lose_permissions_everywhere(admin, left, ca_file, key)
        await lose_key_everywhere(admin, left, tmp_path, key)
        assert await answers(askers_of(left, tmp_path, other)) == {OK}


async def publish_to_all(client, payload):
    for topic in TOPICS:
        async with client.producer(topic) as producer:
            await producer.send(payload)


async def lose_permissions_everywhere(admin, brokers, ca_file, key):
    """Open producers are closed on each broker when their binding is removed."""
    async with AsyncExitStack() as opened:
        producers = []
        for broker in brokers:
            client = await opened.enter_async_context(
                pydanube.connect(url_of(broker), ca_file=ca_file, api_key=key)
            )
            for topic in TOPICS:
                producer = await opened.enter_async_context(client.producer(topic))
                await producer.send(b"allowed")
                producers.append(producer)
        await admin.security.remove_binding("own")
        async with asyncio.timeout(ENDED_S):
            for producer in producers:
                with pytest.raises(pydanube.PermissionDenied):
                    await publish_until_refused(producer)


async def publish_until_refused(producer):
    while True:
        await producer.send(b"x")


async def lose_key_everywhere(admin, brokers, directory, key):
    """Open connections to each broker end when their key is revoked."""
    lost: asyncio.Queue[Exception] = asyncio.Queue()
    async with AsyncExitStack() as opened:
        for broker in brokers:
            await opened.enter_async_context(
                pydanube.connect(
                    url_of(broker),
                    ca_file=directory / "ca.pem",
                    api_key=key,
                    on_disconnected=lost.put_nowait,
                )
            )
        await admin.security.revoke_api_key("billing")
        async with asyncio.timeout(ENDED_S):
            for _ in brokers:
                assert "the API key was revoked" in str(await lost.get())
    assert await answers(askers_of(brokers, directory, key)) == {"unauthenticated"}
