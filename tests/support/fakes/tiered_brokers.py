"""Complete brokers with a remote object store."""

import asyncio
import json
import time
from pathlib import Path

TOPIC = "/default/orders"
DEADLINE_S = 60


def settings(tmp_path, store, stores=(), **remote):
    """
    Write the settings of a broker that seals at once; return their path.

    *stores* are the URLs and options by name that requests may use.
    """
    url, options = store
    config = {
        "storage": {
            "seal_age_s": 0,
            "seal_interval_s": 0.05,
            "remote": {"url": url, "options": options, **remote},
        },
        "stores": {
            name: {"url": url, "options": options}
            for name, (url, options) in dict(stores).items()
        },
    }
    path = tmp_path / "broker.yaml"
    path.write_text(json.dumps(config))
    return path


async def publish(client, payloads):
    async with client.producer(TOPIC) as producer:
        for payload in payloads:
            await producer.send(payload)


async def stored(client):
    return [payload async for batch in client.read(TOPIC) for payload in batch.payloads]


async def until(condition, what):
    """Ask until *condition* holds: only other processes know when."""
    deadline = time.monotonic() + DEADLINE_S
    while not await condition():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.05)


async def uploaded(client, count):
    """Return when *count* messages are sealed and uploaded."""

    async def is_done():
        if (await client.topics.describe(TOPIC)).sealed_offset < count:
            return False
        return not (await client.storage.describe()).backlog_segments

    await until(is_done, "not everything is uploaded")


def payloads_of(count, size=1000):
    return [b"%06d" % at + bytes(size) for at in range(count)]


def local_segments(data_dir):
    return sorted(Path(data_dir, "objects").rglob("*.parquet"))
