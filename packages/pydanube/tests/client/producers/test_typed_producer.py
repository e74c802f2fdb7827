"""Producers of values."""

from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

import pydanube
from pydanube import Schema
from support.drivers.running import TOPIC, published


@dataclass
class Order:
    number: int
    user: str = ""


@dataclass
class Wider:
    number: int
    user: str = ""
    note: str = ""


@dataclass
class Narrow:
    number: str


async def values_of(client, topic=TOPIC, cls=None):
    return [v async for b in client.read(topic, schema=cls) for v in b.values()]


async def open_and_close(scope):
    async with scope:
        pass


@pytest.mark.parametrize("language", ["json_schema", "avro"])
async def test_all_send_methods_publish_values(client, language):
    schema = Schema.from_dataclass(Order, type=language)
    async with client.producer(TOPIC, schema=schema, name="me") as producer:
        assert (producer.topic, producer.name) == (TOPIC, "me")
        assert (await producer.send(Order(0), key="k")).offset == 0
        pending = producer.send_nowait(Order(1, "u"), attributes={"a": "b"})
        assert producer.pending_count == 1
        assert (await pending).offset == 1
        ids = await producer.send_batch(
            [Order(2), Order(3)], keys=["x", b"y"], attributes=[None, {"c": "d"}]
        )
        assert ids.offsets == range(2, 4)
        assert len(await producer.send_batch([])) == 0
        assert producer.is_connected
        assert producer.has_capacity
        await producer.wait_for_capacity()
        await producer.flush()
    [messages] = [[m async for b in client.read(TOPIC, schema=Order) for m in b]]
    assert [m.value for m in messages] == [
        Order(0),
        Order(1, "u"),
        Order(2),
        Order(3),
    ]
    assert [m.key for m in messages] == ["k", None, "x", "y"]
    assert messages[3].attributes == {"c": "d"}
    assert {(m.schema_id, m.schema_version) for m in messages} == {(1, 1)}


async def test_default_subject_is_named_after_the_topic_which_is_bound_to_it(client):
    async with client.producer(TOPIC, schema=Order) as producer:
        assert producer.schema.subject == "default-orders"
    assert (await client.schemas.topic_schema(TOPIC)).subject == "default-orders"


async def test_producer_of_a_bound_topic_uses_its_subject(client):
    await client.topics.create(TOPIC)
    await client.schemas.register("shop", Order)
    await client.topics.configure(TOPIC, schema=pydanube.TopicSchema(subject="shop"))
    async with client.producer(TOPIC, schema=Wider) as producer:
        assert (producer.schema.subject, producer.schema.version) == ("shop", 2)
    with pytest.raises(pydanube.OtherSchema):
        await open_and_close(client.producer(TOPIC, schema=Order, subject="another"))


async def test_producer_writes_the_version_of_its_class(client):
    async with (
        client.producer(TOPIC, schema=Order) as old,
        client.producer(TOPIC, schema=Wider) as new,
        client.producer(TOPIC, schema=Order) as old_again,
    ):
        versions = [each.schema.version for each in (old, new, old_again)]
        assert versions == [1, 2, 1]
        await old.send(Order(1))
        await new.send(Wider(2, note="n"))
    assert await values_of(client) == [
        {"number": 1, "user": ""},
        {"number": 2, "user": "", "note": "n"},
    ]
    # A reader gets the fields of its class, whichever producer wrote them.
    assert await values_of(client, cls=Order) == [Order(1), Order(2)]
    assert await values_of(client, cls=Wider) == [Wider(1), Wider(2, note="n")]


async def test_incompatible_class_is_refused(client):
    await open_and_close(client.producer(TOPIC, schema=Order))
    with pytest.raises(pydanube.IncompatibleSchema, match="number"):
        await open_and_close(client.producer(TOPIC, schema=Narrow))


async def test_producer_without_a_schema_writes_plain_values_by_the_subject(client):
    await client.schemas.register("orders", Order)
    await client.schemas.register("orders", Wider)
    async with client.producer(TOPIC, subject="orders") as producer:
        assert producer.schema.version == 2
        await producer.send({"number": 1, "note": "n"})
        with pytest.raises(pydanube.InvalidPayload, match="number"):
            await producer.send({"note": "n"})
    async with client.producer(TOPIC, subject="orders", schema_version=1) as producer:
        assert producer.schema.version == 1
        await producer.send({"number": 2})
    assert await values_of(client) == [{"number": 1, "note": "n"}, {"number": 2}]


async def test_version_may_be_chosen_or_have_a_minimum(client):
    await client.schemas.register("orders", Order)
    chosen = client.producer(TOPIC, schema=Wider, subject="orders", schema_version=1)
    async with chosen as producer:
        # Nothing was registered, and fields that the version lacks are accepted.
        assert producer.schema.version == 1
        await producer.send(Wider(1, note="n"))
    assert (await client.schemas.describe("orders")).versions == (1,)
    for options in (
        {"subject": "orders", "schema_version": 2},
        {"subject": "orders", "schema_version_min": 2},
        {"subject": "nothing"},
        {"schema": Order, "subject": "orders", "schema_version_min": 2},
    ):
        with pytest.raises(pydanube.SchemaNotFound):
            await open_and_close(client.producer(TOPIC, **options))
    await client.schemas.register("orders", Wider)
    async with client.producer(
        TOPIC, subject="orders", schema_version_min=2
    ) as producer:
        assert producer.schema.version == 2


@pytest.mark.parametrize(
    "options",
    [
        {"schema_version": 1},
        {"schema_version_min": 1},
        {"subject": "orders", "schema_version": 0},
        {"subject": "orders", "schema_version": "newest"},
        {"subject": "orders", "schema_version": True},
        {"subject": "a/b"},
    ],
)
async def test_contradictory_options_are_refused(client, options):
    with pytest.raises(pydanube.InvalidRequest):
        client.producer(TOPIC, **options)


async def test_invalid_value_is_refused_and_nothing_of_its_batch_is_sent(client):
    async with client.producer(TOPIC, schema=Order) as producer:
        with pytest.raises(pydanube.InvalidPayload, match=r"^\['number'\]"):
            await producer.send(Order("one"))
        with pytest.raises(pydanube.InvalidPayload):
            producer.send_nowait(Order("one"))
        with pytest.raises(pydanube.InvalidPayload, match="message 1 of the batch"):
            await producer.send_batch([Order(1), Order("two")])
        with pytest.raises(pydanube.InvalidRequest, match="1 keys for 2 payloads"):
            await producer.send_batch([Order(1), Order(2)], keys=["k"])
        await producer.send(Order(3))
    assert await values_of(client, cls=Order) == [Order(3)]


async def test_values_go_to_the_partition_of_their_key(client):
    async with client.producer(TOPIC, schema=Order, partitions=3) as producer:
        orders = [Order(n) for n in range(30)]
        ids = await producer.send_batch(orders, keys=[str(n) for n in range(30)])
        assert {each.topic for each in ids} == set(
            await client.topics.partitions(TOPIC)
        )
        await producer.send(Order(30), key="0")
    names = await client.topics.partitions(TOPIC)
    assert {(await client.topics.describe(n)).schema.subject for n in names} == {
        "default-orders"
    }
    async with client.consumer(
        TOPIC, subscription="s", start="earliest", schema=Order
    ) as consumer:
        # A message that is not acknowledged may come again.
        got = set()
        while len(got) < 31:
            values = (await consumer.receive_batch(timeout_s=60)).values()
            got |= {each.number for each in values}
    assert got == set(range(31))


async def test_producer_writes_the_same_version_when_its_connection_breaks(
    broker, client
):
    async with client.producer(TOPIC, schema=Order) as producer:
        await producer.send(Order(1))
        await open_and_close(client.producer(TOPIC, schema=Wider))
        broker.disconnect_all()
        await producer.send(Order(2))
    batches = [b async for b in client.read(TOPIC)]
    versions = [message.schema_version for b in batches for message in b]
    assert versions == [1, 1]


async def test_values_may_be_delayed_and_expire(client):
    async with client.producer(TOPIC, schema=Order) as producer:
        due = datetime(2100, 1, 1, tzinfo=UTC)
        await producer.send(Order(1), deliver_at=due)
        await producer.send_batch([Order(2)], ttl_s=60)
    messages = [m async for b in client.read(TOPIC) for m in b]
    assert messages[0].deliver_at == due
    assert messages[1].expires_at is not None


async def test_topic_that_enforces_its_subject_accepts_only_values(client):
    await client.topics.create(TOPIC)
    await client.schemas.register("orders", Order)
    await client.topics.configure(
        TOPIC,
        schema=pydanube.TopicSchema(
            subject="orders",
            policy=pydanube.SchemaPolicy.ENFORCE,
            validates_payload=True,
        ),
    )
    async with client.producer(TOPIC, schema=Order) as producer:
        await producer.send(Order(1))
    with pytest.raises(pydanube.SchemaMismatch):
        await published(client, b'{"number":1}')
    assert await values_of(client, cls=Order) == [Order(1)]
