"""A broker on a full disk."""

import asyncio
import os
import subprocess
from contextlib import contextmanager, suppress

import pytest

import pydanube
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

BIG, KEPT = "/default/big", "/default/kept"
MESSAGE_BYTES = 200_000
CONFIG = "storage: {reserve_bytes: 4194304, journal: {file_bytes_max: 8388608}}"


@contextmanager
def mounted(path, size):
    """Mount a file system of *size*."""
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
    if os.geteuid() or subprocess.run(mount, check=False).returncode:
        pytest.skip("mounting a file system is not allowed here")
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)


@pytest.fixture
def small_disk(tmp_path):
    with mounted(tmp_path / "disk", "32m") as path:
        yield path


def test_deleting_a_topic_frees_a_full_disk(tmp_path, small_disk):
    config = tmp_path / "danube.yaml"
    config.write_text(CONFIG)
    reserve = small_disk / "reserve"

    async def fill(client):
        async with client.producer(BIG) as producer:
            while reserve.exists():
                # The client retries while the disk is full.
                with suppress(TimeoutError):
                    async with asyncio.timeout(1):
                        await producer.send_batch([os.urandom(MESSAGE_BYTES)])
            producer._abandon()

    async def acknowledge(client, count):
        async with client.consumer(BIG, subscription="s", start="earliest") as c:
            for _ in range(count):
                await c.ack(await c.receive(timeout_s=60))
            await c.flush()
        return (await client.subscriptions.describe(BIG, "s")).cursor

    async def run(broker):
        async with pydanube.connect(broker.url) as client:
            async with client.producer(KEPT) as producer:
                await producer.send(b"before")
            await fill(client)
            assert await acknowledge(client, 10) == 10
        # A restart must not need more space than there is.
        assert broker.stop() == 0
        broker.start()
        async with pydanube.connect(broker.url) as client:
            assert await acknowledge(client, 10) == 20
            await client.topics.delete(BIG)
            async with client.producer(KEPT) as producer, asyncio.timeout(120):
                await producer.send(b"after")
            assert reserve.stat().st_size == 4 * 1024 * 1024
            batches = [batch async for batch in client.read(KEPT)]
            assert [p for b in batches for p in b.payloads] == [b"before", b"after"]

    with BrokerProcess(small_disk, "--config", str(config)) as broker:
        asyncio.run(run(broker))
        assert broker.stop() == 0


@pytest.mark.soak
def test_deleting_a_topic_frees_the_full_disk_of_several_processes(tmp_path):
    config = tmp_path / "danube.yaml"
    config.write_text(
        "{cluster: {shards: 8}, storage: {reserve_bytes: 8388608, "
        "journal: {file_bytes_max: 8388608}}}"
    )

    async def fill(client, log):
        async with client.producer(BIG) as producer:
            while "releasing the disk reserve" not in log.read_text():
                with suppress(TimeoutError):
                    async with asyncio.timeout(1):
                        await producer.send_batch([os.urandom(MESSAGE_BYTES)])
            producer._abandon()

    async def run(broker):
        async with pydanube.connect(broker.url) as client:
            async with client.producer(KEPT) as producer:
                await producer.send(b"before")
            await fill(client, broker.log_file)
            await client.topics.delete(BIG)
            async with client.producer(KEPT) as producer, asyncio.timeout(120):
                await producer.send(b"after")
            batches = [batch async for batch in client.read(KEPT)]
            assert [p for b in batches for p in b.payloads] == [b"before", b"after"]

    with (
        mounted(tmp_path / "disk", "96m") as disk,
        BrokerProcess(
            disk / "data",
            "--processes",
            "2",
            "--config",
            str(config),
            log_file=tmp_path / "broker.log",
        ) as broker,
    ):
        asyncio.run(run(broker))
        assert broker.stop() == 0
