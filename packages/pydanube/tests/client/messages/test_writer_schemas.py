"""Values of consumed messages, decoded by their writer schemas."""

from dataclasses import dataclass

import pytest

import pydanube
from pydanube import Schema
from pydanube.client.messages.writer_schemas import WriterSchemas
from pydanube.wire.native.kinds import Kind
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.operations.handlers import handlers
from support.drivers.running import TOPIC, published, received


@dataclass
class Order:
    number: int


@dataclass
class Named:
    name: str


async def produced(client, *numbers, schema=Order, topic=TOPIC):
    async with client.producer(topic, schema=schema) as producer:
        await producer.send_batch([Order(n) for n in numbers])


def consuming(client, **options):
    return client.consumer(TOPIC, subscription="s", start="earliest", **options)


async def test_values_are_plain_without_a_reader_schema(client):
    await produced(client, 1, 2)
    async with consuming(client) as consumer:
        batch = await consumer.receive_batch(timeout_s=60)
        assert batch.values() == [{"number": 1}, {"number": 2}]
        assert batch[1].value == {"number": 2}
        await consumer.seek("earliest")
    async with consuming(client, schema=Order) as consumer:
        batch = await consumer.receive_batch(timeout_s=60)
        assert batch.values() == [Order(1), Order(2)]
        assert batch[1].value == Order(2)


async def test_messages_of_several_schemas_are_decoded_in_order(client):
    await produced(client, 1)
    await published(client, b'{"number": 2}')
    await produced(client, 3, schema=Schema.from_dataclass(Order))
    await client.schemas.set_compatibility("default-orders", "none")
    await produced(client, 4, schema=Schema.from_dataclass(Order, type="avro"))
    async with consuming(client, schema=Order) as consumer:
        values = []
        while len(values) < 4:
            batch = await consumer.receive_batch(timeout_s=60)
            values += batch.values()
        assert values == [Order(1), Order(2), Order(3), Order(4)]


async def test_message_without_a_schema_has_a_value_only_with_a_reader_schema(client):
    await published(client, b'{"number": 7}', b"no order")
    async with consuming(client) as consumer:
        message = await consumer.receive(timeout_s=60)
        with pytest.raises(pydanube.SchemaNotFound, match=f"message 0 of {TOPIC}"):
            _ = message.value
        with pytest.raises(pydanube.SchemaNotFound, match="no value"):
            consumer._batch_nowait(10).values()
        await consumer.seek("earliest")
    async with consuming(client, schema=Order) as consumer:
        batch = await consumer.receive_batch(timeout_s=60)
        assert batch[0].value == Order(7)
        for look in (lambda: batch[1].value, batch.values):
            with pytest.raises(pydanube.InvalidPayload, match=f"1 of {TOPIC}: "):
                look()
        assert batch.payloads[1] == b"no order"


async def test_invalid_payload_does_not_hide_the_other_values(client):
    await client.topics.create(TOPIC)
    version = await client.schemas.register("orders", Order)
    await client.topics.configure(
        TOPIC,
        schema=pydanube.TopicSchema(
            subject="orders", policy=pydanube.SchemaPolicy.NONE
        ),
    )
    async with client.producer(TOPIC, schema=Order) as producer:
        await producer.send_batch([Order(0)])
        raw = producer._producer
        ids = await raw.send_batch([b'{"number":1}', b"{", b'{"number":3}'])
    assert version.version == 1
    async with consuming(client, schema=Order) as consumer:
        got = await received_messages(consumer, 4)
        assert [m.value for m in got if m.offset != ids.offsets[1]] == [
            Order(0),
            Order(1),
            Order(3),
        ]
        with pytest.raises(pydanube.InvalidPayload, match=f"message 2 of {TOPIC}"):
            _ = got[2].value


async def received_messages(consumer, count):
    got = []
    while len(got) < count:
        got += await consumer.receive_batch(timeout_s=60)
    return got


async def test_reading_a_value_that_does_not_fit_the_class_raises(client):
    await produced(client, 1)
    async with consuming(client, schema=Named) as consumer:
        message = await consumer.receive(timeout_s=60)
        with pytest.raises(pydanube.InvalidPayload, match="name"):
            _ = message.value
        assert message.payload == b'{"number":1}'


async def test_message_of_a_deleted_schema_keeps_its_payload(client):
    await produced(client, 1, 2)
    await client.schemas.delete("default-orders", force=True)
    async with consuming(client) as consumer:
        batch = await consumer.receive_batch(timeout_s=60)
        assert batch.payloads == [b'{"number":1}', b'{"number":2}']
        with pytest.raises(pydanube.SchemaNotFound, match="Schema not found"):
            _ = batch[0].value
        await consumer.ack(batch)


async def test_each_schema_is_requested_once(client, monkeypatch):
    asked = []
    handle = handlers()[Kind.GET_SCHEMA]

    async def note(broker, message):
        asked.append((message.schema_id, message.version))
        return await handle(broker, message)

    monkeypatch.setitem(handlers(), Kind.GET_SCHEMA, note)
    for number in range(5):
        await produced(client, number)
    async with consuming(client) as one, consuming_as(client, "t") as two:
        for consumer in (one, two):
            await received(consumer, 5)
    assert [len(b.values()) async for b in client.read(TOPIC)] == [1] * 5
    assert asked == [(1, 1)]


def consuming_as(client, subscription):
    return client.consumer(TOPIC, subscription=subscription, start="earliest")


async def test_missing_schema_is_requested_again_later(client):
    answers = [pydanube.SchemaNotFound("not yet"), Schema.of(str)]

    async def ask(schema_id, version):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    schemas = WriterSchemas(ask, client.requester.tasks, failure_cached_s=0.0)
    missing = await schemas.load((1, 1))
    with pytest.raises(pydanube.SchemaNotFound):
        missing.build_decoder(None)
    for _ in range(3):
        await client.topics.list()
    assert (await schemas.load((1, 1))).decoder(None)([b"x"]) == ["x"]


async def test_schema_cache_is_bounded(client):
    asked = []

    async def ask(schema_id, version):
        asked.append(version)
        return Schema.of(str)

    schemas = WriterSchemas(ask, client.requester.tasks, schemas_max=2)
    for version in (1, 2, 1, 3, 1, 2):
        await schemas.load((1, version))
    assert asked == [1, 2, 3, 2]


async def test_messages_keep_their_order_while_a_schema_is_loaded(broker, monkeypatch):
    async with broker.connect() as client:
        async with client.producer(TOPIC, schema=Order) as producer:
            for n in range(3):
                await producer.send(Order(n))
        await published(client, b"plain")
    async with broker.connect() as client, consuming(client) as consumer:
        payloads = await received(consumer, 4)
        assert payloads[0] == b'{"number":0}'
        assert payloads[3] == b"plain"


async def test_messages_waiting_for_a_schema_are_redelivered_after_a_broken_connection(
    broker, client, monkeypatch
):
    handle = handlers()[Kind.GET_SCHEMA]

    async def break_once(b, message):
        monkeypatch.setitem(handlers(), Kind.GET_SCHEMA, handle)
        broker.disconnect_all()
        return await handle(b, message)

    await produced(client, 1, 2)
    monkeypatch.setitem(handlers(), Kind.GET_SCHEMA, break_once)
    async with consuming(client, schema=Order) as consumer:
        got = await received_messages(consumer, 2)
        assert [m.value for m in got] == [Order(1), Order(2)]


async def test_consumer_may_close_while_a_schema_is_loaded(broker):
    async with broker.connect() as client:
        await produced(client, 1)
    async with broker.connect() as client:
        async with consuming(client, schema=Order):
            await client.topics.list()
        async with consuming(client, schema=Order) as consumer:
            assert (await consumer.receive(timeout_s=60)).value == Order(1)


@pytest.mark.slow
async def test_protobuf_values_are_instances_of_the_generated_class(client):
    async with client.producer(TOPIC, schema=pb.Position) as producer:
        await producer.send(pb.Position(offset=7))
    async with consuming(client, schema=pb.Position) as consumer:
        assert (await consumer.receive(timeout_s=60)).value == pb.Position(offset=7)
        await consumer.seek("earliest")
    async with consuming(client) as consumer:
        assert (await consumer.receive(timeout_s=60)).value["offset"] == 7


@pytest.mark.parametrize(
    ("kind", "values"), [(str, ["a", "ü"]), (int, [1, -1]), (bytes, [b"\xff"])]
)
async def test_primitive_values_are_decoded(client, kind, values):
    async with client.producer(TOPIC, schema=kind) as producer:
        await producer.send_batch(values)
    assert [v async for b in client.read(TOPIC) for v in b.values()] == values
