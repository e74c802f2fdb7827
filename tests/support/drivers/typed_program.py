"""A program of a user, which mypy checks; see tests/tidy/test_typing.py."""

import asyncio
from dataclasses import dataclass
from typing import Any, assert_type

import pydanube
from pydanube import sync


@dataclass
class Order:
    number: int


def blocking() -> None:
    with sync.connect("danube://127.0.0.1", close_timeout_s=1.0) as client:
        assert_type(client, sync.Client)
        client.topics.create("/default/a", partitions=2, ttl_s=1.5)
        assert_type(client.topics.list("default"), list[str])
        with client.producer("/default/a", name="p", access="shared") as producer:
            assert_type(producer, sync.Producer)
            assert_type(producer.send("text", key=b"k", ttl_s=1.0), pydanube.MessageId)
            assert_type(producer.send_nowait(b"m", attributes={}), sync.Pending)
        with client.producer("/default/a", schema=Order, schema_version=1) as typed:
            assert_type(typed, sync.TypedProducer[Order])
            typed.send(Order(1), key="k", deliver_after_s=1.0)
        with client.producer("/default/a", subject="orders") as untyped:
            untyped.send({"number": 1})
        with client.consumer("/default/a", subscription="s") as consumer:
            assert_type(consumer, sync.Consumer[Any])
            for message in consumer:
                assert_type(message, pydanube.Message[Any])
                consumer.nack(message, reason="no")
        with client.consumer("/default/a", subscription="s", schema=Order) as orders:
            assert_type(orders, sync.Consumer[Order])
            assert_type(orders.receive(timeout_s=1).value, Order)
        for batch in client.read("/default/a", start="earliest"):
            assert_type(batch, pydanube.MessageBatch[Any])
        for batch_of_orders in client.read("/default/a", schema=Order):
            assert_type(batch_of_orders.values(), list[Order])


async def waiting() -> None:
    async with pydanube.connect(token="t") as client:
        async with client.producer("/default/a", schema=Order) as typed:
            assert_type(typed, pydanube.TypedProducer[Order])
            await typed.send(Order(1), attributes={"a": "b"})
        async with client.producer("/default/a", reliable=False) as producer:
            assert_type(producer, pydanube.Producer | pydanube.PartitionedProducer)
            await producer.send(b"m", key="k")
        async with client.consumer("/default/a", subscription="s") as consumer:
            async for message in consumer:
                assert_type(message, pydanube.Message[Any])
                await consumer.ack(message)
        async with client.consumer("/default/a", subscription="s", schema=Order) as c:
            assert_type(c, pydanube.Consumer[Order])
            await handle(c)
            assert_type(await c.receive_batch(), pydanube.MessageBatch[Order])
        schema = pydanube.Schema.string()
        async for batch in client.read("/default/a", schema=schema):
            assert_type([message.value for message in batch], list[str])
            assert_type(batch[0].value, str)
    try:
        await client.topics.list()
    except pydanube.TopicNotFound as error:
        assert_type(error.remedy, pydanube.Remedy)


async def handle(consumer: pydanube.Consumer[Order]) -> int:
    message = await consumer.receive()
    return message.value.number


def untyped(message: pydanube.Message) -> int | None:
    return message.value if message.attempt == 1 else None


def mistakes(client: sync.Client, producer: pydanube.Producer) -> None:
    client.producer("/default/a", nmae="p")  # type: ignore[call-overload]
    client.topics.create("/default/a", partition=2)  # type: ignore[call-arg]
    client.producer("/default/a", access="alone")  # type: ignore[call-overload]
    client.consumer("/default/a")  # type: ignore[call-overload]
    client.consumer("/default/a", subscription="s", type="first")  # type: ignore[call-overload]
    client.topics.create("/default/a", durability="always")  # type: ignore[arg-type]
    producer.send_nowait(7)  # type: ignore[arg-type]
    producer.send_nowait(b"m", ttl=7)  # type: ignore[call-arg]
    sync.connect(7)  # type: ignore[arg-type]
    asyncio.run(client.topics.list())  # type: ignore[arg-type]
