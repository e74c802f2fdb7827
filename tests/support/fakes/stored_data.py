"""
A data directory with something of everything that a broker stores.

``python -m support.fakes.stored_data FILE.tar.gz`` writes one with this broker.  Keep
one file for each version that changes a format; ``test_stored_formats`` opens them all.
"""

from __future__ import annotations

import asyncio
import sys
import tarfile
import tempfile
from pathlib import Path

import pydanube
from support.servers.processes import BrokerProcess

ORDERS = "/default/orders"
COUNTERS = "/shop/counters"
PRICES = "/shop/prices"
SEALED = [f"order {number}".encode() for number in range(300)]
UNSEALED = [f"late order {number}".encode() for number in range(200, 250)]
PRICE = pydanube.Schema.json_schema(
    '{"type": "object", "properties": {"price": {"type": "number"}}}'
)


async def write_sealed(url: str) -> None:
    """Write what the broker seals into segments, and wait until it has."""
    async with pydanube.connect(url) as client:
        await client.namespaces.create("shop")
        await client.topics.create(
            ORDERS, deduplication=pydanube.Deduplication(age_s=604_800)
        )
        await client.subscriptions.create(ORDERS, "billing", start="earliest")
        async with client.producer(ORDERS, name="web") as producer:
            for payload in SEALED:
                producer.send_nowait(payload, key=payload[-1:], id=payload.decode())
            await producer.flush()
        while (  # noqa: ASYNC110
            await client.topics.describe(ORDERS)
        ).sealed_offset < len(SEALED):
            await asyncio.sleep(0.05)


async def write_unsealed(url: str) -> None:
    """Write what stays in the journal, and the metadata."""
    async with pydanube.connect(url) as client:
        async with client.producer(ORDERS, name="web", compression="zstd") as producer:
            for payload in UNSEALED:
                producer.send_nowait(payload, attributes={"origin": "web"})
            await producer.flush()
        async with client.consumer(
            ORDERS, subscription="billing", prefetch_messages=20
        ) as consumer:
            for number in range(10):
                message = await consumer.receive()
                if number != 5:
                    await consumer.ack(message)
            await consumer.flush()
        await client.topics.create(
            COUNTERS, partitions=3, retention=pydanube.Retention(age_s=1e9)
        )
        await client.subscriptions.create(
            COUNTERS, "all", type="key_shared", start="earliest"
        )
        async with client.transaction("fill") as transaction:
            for number in range(30):
                await transaction.send(COUNTERS, str(number), key=str(number))
        await client.schemas.register("price", PRICE)
        await client.topics.create(PRICES)
        await client.topics.configure(
            PRICES,
            schema=pydanube.TopicSchema(
                subject="price", policy=pydanube.SchemaPolicy.ENFORCE
            ),
        )
        async with client.producer(PRICES, schema=PRICE, subject="price") as prices:
            await prices.send({"price": 1.5})
        await client.security.set_role("readers", ["consume"], ["/shop/*"])


async def verify(url: str) -> None:
    """Compare everything with what was written, then use it."""
    async with pydanube.connect(url) as client:
        stored = [m async for batch in client.read(ORDERS) for m in batch]
        assert [message.payload for message in stored] == SEALED + UNSEALED
        assert stored[0].key == "0"
        assert stored[-1].attributes == {"origin": "web"}
        billing = await client.subscriptions.describe(ORDERS, "billing")
        assert (billing.cursor, billing.backlog) == (5, len(stored) - 9)

        counters = [m async for batch in client.read(COUNTERS) for m in batch]
        assert {message.payload for message in counters} == {
            str(number).encode() for number in range(30)
        }
        assert len(counters) == 30
        assert len(await client.topics.partitions(COUNTERS)) == 3

        (price,) = [
            message.value
            async for batch in client.read(PRICES, schema=PRICE)
            for message in batch
        ]
        assert price == {"price": 1.5}
        async with client.producer(PRICES) as untyped:
            try:
                await untyped.send(b"no price")
            except pydanube.SchemaMismatch:
                pass
            else:
                raise AssertionError("the schema of the topic is not enforced")
        roles = {role.name: role for role in await client.security.roles()}
        assert set(roles["readers"].patterns) == {"/shop/*"}

        # New messages follow the old ones, and have ids.
        async with client.producer(ORDERS, name="web") as producer:
            for _ in range(2):
                new = await producer.send(b"new", id="new")
                assert new.offset == len(stored)


def write_archive(path: Path) -> None:
    """Write a data directory, as a crash leaves it, into the archive *path*."""
    with tempfile.TemporaryDirectory() as name:
        data = Path(name) / "data"
        config = Path(name) / "danube.yaml"
        config.write_text("storage: {seal_age_s: 0.1, seal_interval_s: 0.1}\n")
        with BrokerProcess(data, "--config", str(config)) as broker:
            asyncio.run(write_sealed(broker.url))
        with BrokerProcess(data) as broker:
            asyncio.run(write_unsealed(broker.url))
        with tarfile.open(path, "w:gz") as archive:
            archive.add(data, arcname="data")


if __name__ == "__main__":
    write_archive(Path(sys.argv[1]))
