"""Transactions over topics of a cluster whose brokers are killed: every result once."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

import pydanube
from support.servers.cluster_processes import cluster_broker, cluster_settings
from support.servers.etcd import etcd_member

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(300)]

SOURCE, TARGET = "/default/from", "/default/to"
PARTITIONS = 4
MESSAGES = 300
CONTINUE = (
    pydanube.MessageNotHeld,
    pydanube.TransactionFenced,
    pydanube.StagedPartNotFound,
    pydanube.Unavailable,
)
"""Errors after which a program processes what is delivered."""


async def count_of(client: pydanube.Client, topic: str) -> int:
    names = await client.topics.partitions(topic)
    facts = [await client.topics.describe(each) for each in names]
    return sum(each.end_offset for each in facts)


async def copy_until_all_is_there(
    client: pydanube.Client, committed: asyncio.Semaphore
) -> None:
    """Copy messages in transactions, and release *committed* after each."""
    async with client.consumer(
        SOURCE, subscription="s", start="earliest", type="shared"
    ) as consumer:
        while await count_of(client, TARGET) < MESSAGES:
            batch = await consumer.receive_batch(max_messages=5, timeout_s=1.0)
            if not batch:
                continue
            try:
                async with client.transaction("copy") as transaction:
                    for message in batch:
                        await transaction.send(TARGET, message.payload, key=message.key)
                    await transaction.ack(batch)
            except CONTINUE:
                continue
            committed.release()


@pytest.mark.soak
async def test_killed_brokers_neither_lose_nor_repeat_results(tmp_path) -> None:
    with etcd_member(tmp_path / "etcd") as etcd:
        settings = cluster_settings(etcd.url, tmp_path)
        with (
            cluster_broker(tmp_path, settings, "a") as first,
            cluster_broker(tmp_path, settings, "b") as second,
            cluster_broker(tmp_path, settings, "c") as third,
        ):
            async with pydanube.connect(
                f"{first.url},{second.url},{third.url}"
            ) as client:
                for topic in (SOURCE, TARGET):
                    await client.topics.create(topic, partitions=PARTITIONS)
                async with client.producer(SOURCE) as producer:
                    for number in range(MESSAGES):
                        await producer.send(b"%d" % number, key=b"%d" % number)
                # It has all shards.  The others share them when it is gone.
                assert await asyncio.to_thread(first.stop) == 0
                committed = asyncio.Semaphore(0)
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(copy_until_all_is_there(client, committed))
                    for broker in (second, third):
                        for _ in range(10):
                            await committed.acquire()
                        await asyncio.to_thread(broker.kill)
                        await asyncio.to_thread(broker.start)
                found: Counter[int] = Counter()
                async for batch in client.read(TARGET):
                    found.update(int(each) for each in batch.payloads)
                assert found == Counter(range(MESSAGES))
