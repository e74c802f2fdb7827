"""
The client that ``bench.codecs`` measures, with Arrow or without it.

It prints the microseconds of its processor time for each message, or of wall-clock time
for one that is awaited, as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Awaitable, Callable

import pydanube

BATCH = 1000
PAYLOAD = b"x" * 100
AWAITED = 500
"""How many messages are awaited, one after the other."""


async def publish(client: pydanube.Client, topic: str, messages: int) -> float:
    """Publish lists of payloads."""
    return await _publish(client, topic, messages, None)


async def publish_keys(client: pydanube.Client, topic: str, messages: int) -> float:
    """Publish lists of payloads with a key for each."""
    keys: list[str | bytes | None] = [f"key-{number % 100}" for number in range(BATCH)]
    return await _publish(client, topic, messages, keys)


async def _publish(
    client: pydanube.Client,
    topic: str,
    messages: int,
    keys: list[str | bytes | None] | None,
) -> float:
    payloads = [PAYLOAD] * BATCH
    async with client.producer(topic) as producer:
        await producer.send_batch(payloads, keys=keys)
        begun = time.process_time()
        for _ in range(messages // BATCH):
            await producer.send_batch(payloads, keys=keys)
        return 1e6 * (time.process_time() - begun) / messages


async def consume(client: pydanube.Client, topic: str, messages: int) -> float:
    """Consume what ``publish`` has published, and read and acknowledge everything."""
    await publish(client, topic, messages)
    async with client.consumer(topic, subscription="s", start="earliest") as consumer:
        begun, left, byte_count = time.process_time(), messages, 0
        while left > 0:
            batch = await consumer.receive_batch(timeout_s=30)
            for payload in batch.payloads:
                byte_count += len(payload)
            await consumer.ack(batch)
            left -= len(batch)
        assert byte_count >= messages * len(PAYLOAD)
        return 1e6 * (time.process_time() - begun) / messages


async def send(client: pydanube.Client, topic: str, messages: int) -> float:
    """Send messages with a key, and await each."""
    del messages
    async with client.producer(topic) as producer:
        begun = time.perf_counter()
        for number in range(AWAITED):
            await producer.send(PAYLOAD, key=f"key-{number % 100}")
        return 1e6 * (time.perf_counter() - begun) / AWAITED


Measure = Callable[[pydanube.Client, str, int], Awaitable[float]]
WORKLOADS: dict[str, Measure] = {
    "publish": publish,
    "keys": publish_keys,
    "consume": consume,
    "send": send,
}


async def main(url: str, workload: str, topic: str, messages: int) -> None:
    """Run one workload and print its figure."""
    async with pydanube.connect(url) as client:
        await client.topics.create(topic)
        figure = await WORKLOADS[workload](client, topic, messages)
        await client.topics.delete(topic, force=True)
    sys.stdout.write(json.dumps(figure) + "\n")


if __name__ == "__main__":
    pydanube.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
