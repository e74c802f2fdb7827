"""Subjects and versions, and the topics that are bound to them."""

import asyncio
from dataclasses import dataclass

import pytest

import pydanube
from pydanube import Compatibility, Schema, SchemaPolicy, SchemaType, TopicSchema
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.operations import schemas as schema_operations
from support.drivers.running import TOPIC, published


@dataclass
class Order:
    number: int


@dataclass
class Richer:
    number: int
    note: str = ""


def avro(*fields):
    listed = ",".join(
        f'{{"name":"{name}","type":"long"{default}}}' for name, default in fields
    )
    return Schema.avro(f'{{"type":"record","name":"R","fields":[{listed}]}}')


ONE = avro(("a", ""))
TWO = avro(("a", ""), ("b", ',"default":0'))
OTHER = avro(("c", ""))


async def test_subject_is_registered_described_and_deleted(client):
    schemas = client.schemas
    assert await schemas.subjects() == []
    first = await schemas.register(
        "orders", ONE, description="the first", created_by="me", tags=["x", "y"]
    )
    assert (first.subject, first.version, first.type) == (
        "orders",
        1,
        SchemaType.AVRO,
    )
    assert (first.description, first.created_by, first.tags) == (
        "the first",
        "me",
        ("x", "y"),
    )
    second = await schemas.register("orders", TWO)
    assert (second.schema_id, second.version) == (first.schema_id, 2)
    assert await schemas.get("orders", 1) == first
    assert await schemas.latest("orders") == second
    assert await schemas.by_id(first.schema_id, 1) == first
    assert await schemas.versions("orders") == [first, second]
    assert await schemas.subjects() == ["orders"]
    described = await schemas.describe("orders")
    assert described.versions == (1, 2)
    await schemas.delete("orders", 1)
    assert await schemas.versions("orders") == [second]
    await schemas.delete("orders")
    assert await schemas.subjects() == []


async def test_schema_is_registered_once(client):
    one, is_new = await client.schemas.submit("orders", ONE)
    assert is_new
    same, is_new = await client.schemas.submit("orders", ONE)
    assert (same, is_new) == (one, False)


async def test_class_is_registered_as_it_is(client):
    await client.schemas.register("orders", Order)
    await client.schemas.register("orders", Richer)
    kept = await client.schemas.latest("orders")
    assert kept.definition == Schema.of(Richer).definition


async def test_incompatible_schema_is_refused_with_its_violations(client):
    schemas = client.schemas
    await schemas.register("orders", ONE)
    assert await schemas.compatibility("orders") is Compatibility.BACKWARD
    with pytest.raises(pydanube.IncompatibleSchema, match="mode: Backward"):
        await schemas.register("orders", OTHER)
    [violation] = await schemas.check("orders", OTHER)
    assert (violation.version, violation.direction.value) == (1, "backward")
    assert violation.incompatibility.rule == "reader_field_missing_default"
    assert await schemas.check("orders", OTHER, mode="none") == []
    assert len(await schemas.check("orders", OTHER, mode=Compatibility.FULL)) == 2
    await schemas.set_compatibility("orders", "full-transitive")
    assert await schemas.compatibility("orders") is Compatibility.FULL_TRANSITIVE
    await schemas.set_compatibility("orders", Compatibility.NONE)
    await schemas.register("orders", OTHER)
    with pytest.raises(pydanube.InvalidSchema):
        await schemas.register("orders", Schema.avro("{"))


async def test_missing_subjects_and_versions_are_not_found(client):
    schemas = client.schemas
    await schemas.register("orders", ONE)
    for question in (
        schemas.get("orders", 2),
        schemas.get("others", 1),
        schemas.latest("others"),
        schemas.by_id(77, 1),
        schemas.versions("others"),
        schemas.describe("others"),
        schemas.check("others", ONE),
        schemas.set_compatibility("others", "full"),
        schemas.delete("others"),
        schemas.delete("orders", 2),
    ):
        with pytest.raises(pydanube.SchemaNotFound):
            await question


async def test_invalid_arguments_are_refused(client):
    schemas = client.schemas
    for question in (
        schemas.get("orders", 0),
        schemas.by_id(0, 1),
        schemas.by_id(1, 0),
        schemas.delete("orders", 0),
        schemas.get("a/b", 1),
        schemas.set_compatibility("orders", "sideways"),
        client.topics.configure(TOPIC, schema=TopicSchema(subject="")),
    ):
        with pytest.raises(pydanube.InvalidRequest):
            await question


async def test_long_lists_of_versions_are_paged(client, monkeypatch):
    monkeypatch.setattr(schema_operations, "VERSIONS_BYTES_MAX", 300)
    await client.schemas.register("orders", ONE)
    await client.schemas.set_compatibility("orders", "none")
    for n in range(8):
        await client.schemas.register("orders", avro((f"a{n}", "")))
    versions = await client.schemas.versions("orders")
    assert [each.version for each in versions] == list(range(1, 10))
    # Descriptions and references are as long as definitions.
    for n in range(2):
        text = "d" * 300
        await client.schemas.register("long", avro((f"a{n}", "")), description=text)
        await client.schemas.set_compatibility("long", "none")
    listed = pb.ListSchemaVersions(subject="long")
    answer = await client.schemas._requester.send_request(listed)
    assert (len(answer.versions), answer.has_more) == (1, True)


async def test_topic_is_bound_and_unbound(client):
    schemas = client.schemas
    await client.topics.create(TOPIC)
    assert await schemas.topic_schema(TOPIC) is None
    await schemas.register("orders", Order)
    binding = TopicSchema(
        subject="orders",
        policy=SchemaPolicy.ENFORCE,
        validates_payload=True,
        version_min=1,
    )
    await client.topics.configure(TOPIC, schema=binding)
    assert await schemas.topic_schema(TOPIC) == binding
    assert (await client.topics.describe(TOPIC)).schema == binding
    with pytest.raises(pydanube.SchemaInUse, match=TOPIC):
        await schemas.delete("orders")
    with pytest.raises(pydanube.SchemaMismatch):
        await published(client, b"{}")
    await client.topics.configure(TOPIC, schema=None)
    assert await schemas.topic_schema(TOPIC) is None
    await published(client, b"{}")
    with pytest.raises(pydanube.SchemaNotFound):
        await client.topics.configure(TOPIC, schema=TopicSchema(subject="others"))
    with pytest.raises(pydanube.TopicNotFound):
        await client.topics.configure(
            "/default/nothing", schema=TopicSchema(subject="orders")
        )
    with pytest.raises(pydanube.TopicNotFound):
        await schemas.topic_schema("/default/nothing")
    await client.topics.configure(TOPIC, schema=TopicSchema(subject="orders"))
    await schemas.delete("orders", force=True)


async def test_partitions_are_bound_together(client):
    await client.topics.create(TOPIC, partitions=2)
    await client.schemas.register("orders", Order)
    await client.topics.configure(TOPIC, schema=pydanube.TopicSchema(subject="orders"))
    for name in (TOPIC, *await client.topics.partitions(TOPIC)):
        assert (await client.schemas.topic_schema(name)).subject == "orders"


async def test_concurrent_requests_are_answered(client):
    async with asyncio.TaskGroup() as group:
        asked = [
            group.create_task(client.schemas.register("orders", ONE)) for _ in range(20)
        ]
    assert {task.result().version for task in asked} == {1}
