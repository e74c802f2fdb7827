"""Binding topics to schemas, and protecting schemas in use."""

from __future__ import annotations

import pytest

from pydanube.model.errors import (
    AlreadyExists,
    OtherSchema,
    SchemaInUse,
    SchemaNotFound,
    TopicNotFound,
)
from pydanube.model.names import TopicName
from pydanube.model.schemas import SchemaPolicy, SchemaReference, TopicSchema
from support.fakes.batches import frame_of
from support.fakes.brokers import (
    A_TOPIC,
    NON_RELIABLE,
    RELIABLE,
    Outcome,
)
from support.fakes.schemas import registered, strict

BASE = TopicName.parse("/default/parts")
LATEST = SchemaReference(subject="orders")


async def open_producer(broker, reference=None, name="p", topic=A_TOPIC):
    return await broker.producers.open(topic, name, policy=RELIABLE, schema=reference)


# Binding.


async def test_topic_can_be_rebound_and_unbound(broker):
    await registered(broker)
    await registered(broker, "users")
    topic = await broker.topics.create(A_TOPIC, RELIABLE, strict())
    assert (await broker.catalog.get(A_TOPIC)).schema == strict() == topic.schema
    users = TopicSchema(subject="users", validates_payload=True)
    await broker.topics.configure(A_TOPIC, schema=users)
    assert (
        (await broker.catalog.get(A_TOPIC)).schema == users == topic.describe().schema
    )
    await broker.topics.configure(A_TOPIC, schema=None)
    assert (await broker.catalog.get(A_TOPIC)).schema is None
    assert topic.schema_validation is None


async def test_partitions_share_one_schema(broker):
    await registered(broker)
    await broker.topics.create_partitioned(BASE, 2, RELIABLE)
    await broker.topics.configure(BASE.partition(1), schema=strict())
    for name in (BASE, BASE.partition(0), BASE.partition(1)):
        assert (await broker.catalog.get(name)).schema == strict()
    # Later partitions and open ones are bound, too.
    opened = await broker.topics.get(BASE.partition(0))
    await broker.topics.add_partitions(BASE, 3)
    assert (await broker.topics.get(BASE.partition(2))).schema == strict()
    await broker.topics.create(BASE.partition(3), RELIABLE)
    assert (await broker.topics.get(BASE.partition(3))).schema == strict()
    await broker.topics.configure(BASE, schema=None)
    assert opened.schema_validation is None
    assert (await broker.catalog.get(BASE.partition(3))).schema is None


async def test_partitions_are_created_with_a_schema(broker):
    await registered(broker)
    await broker.topics.create_partitioned(BASE, 2, RELIABLE, strict())
    assert (await broker.catalog.get(BASE)).schema == strict()
    other = TopicName.parse("/default/others")
    await broker.topics.create(other.partition(0), RELIABLE, strict())
    assert (await broker.catalog.get(other)).schema == strict()


async def test_missing_topics_and_subjects_cannot_be_bound(broker):
    with pytest.raises(TopicNotFound):
        await broker.topics.configure(A_TOPIC, schema=None)
    with pytest.raises(TopicNotFound):
        await broker.catalog.get(A_TOPIC)
    with pytest.raises(SchemaNotFound, match="subject 'orders' not found in registry"):
        await broker.topics.create(A_TOPIC, RELIABLE, strict())
    assert await broker.catalog.names() == []
    await registered(broker)
    await broker.topics.create(A_TOPIC, RELIABLE)
    for schema in (
        strict(version=2),
        strict(version_min=2),
        TopicSchema(subject="users"),
    ):
        with pytest.raises(SchemaNotFound, match="not found in registry"):
            await broker.topics.configure(A_TOPIC, schema=schema)
    assert (await broker.catalog.get(A_TOPIC)).schema is None


async def test_existing_topic_must_have_the_requested_schema(broker):
    await registered(broker)
    topic = await broker.topics.create(A_TOPIC, RELIABLE)
    with pytest.raises(AlreadyExists):
        await broker.topics.create(A_TOPIC, RELIABLE, strict(), exist_ok=True)
    await broker.topics.configure(A_TOPIC, schema=strict())
    for schema in (None, strict()):
        found = await broker.topics.create(A_TOPIC, RELIABLE, schema, exist_ok=True)
        assert found is topic


@pytest.mark.parametrize("policy", [RELIABLE, NON_RELIABLE], ids=["stored", "passed"])
async def test_binding_survives_a_restart(world, policy):
    async with world.broker() as broker:
        schema_id = await registered(broker)
        await broker.topics.create(A_TOPIC, policy, strict(validates_payload=True))
        await broker.topics.create(BASE, policy)
        reference = SchemaReference(subject="orders", version=1)
        await broker.producers.open(BASE, "p", policy=policy, schema=reference)
    async with world.broker() as broker:
        topic, session = await broker.producers.open(A_TOPIC, "p", policy=None)
        assert topic.schema == strict(validates_payload=True)
        outcome = Outcome()
        frame = frame_of(
            [b"no JSON"],
            producer="p",
            producer_id=session.producer_id,
            producer_epoch=session.epoch,
            base_sequence=session.next_sequence,
            schema_id=schema_id,
            schema_version=1,
        )
        topic.publish(session, frame, outcome)
        assert "not JSON" in str(await outcome.error())
        first = (await broker.catalog.get(BASE)).schema
        assert first == TopicSchema(subject="orders")


# Producers that declare a schema.


async def test_first_producer_binds_the_topic_with_policy_warn(broker):
    schema_id = await registered(broker, versions=2)
    topic, session = await open_producer(broker, LATEST)
    assert topic.schema == TopicSchema(subject="orders")
    assert topic.schema.policy is SchemaPolicy.WARN
    assert (await broker.catalog.get(A_TOPIC)).schema == topic.schema
    chosen = session.registration.schema
    assert (chosen.schema_id, chosen.version) == (schema_id, 2)
    _, without = await open_producer(broker, name="q")
    assert without.registration.schema is None


async def test_producer_of_a_partition_binds_all_partitions(broker):
    await registered(broker)
    await broker.topics.create_partitioned(BASE, 2, RELIABLE)
    await open_producer(broker, LATEST, topic=BASE.partition(0))
    assert (await broker.catalog.get(BASE)).schema == TopicSchema(subject="orders")
    await open_producer(broker, LATEST, topic=BASE.partition(1))
    await registered(broker, "users")
    users = SchemaReference(subject="users")
    with pytest.raises(OtherSchema):
        await open_producer(broker, users, topic=BASE.partition(2))
    assert len(await broker.catalog.partitions_of(BASE)) == 2


async def test_producer_gets_the_requested_version(broker):
    await registered(broker, versions=3)
    for reference, version in (
        (SchemaReference(subject="orders"), 3),
        (SchemaReference(subject="orders", version=2), 2),
        (SchemaReference(subject="orders", version_min=2), 3),
    ):
        _, registration = await broker.producers.attach(
            A_TOPIC, "p", policy=RELIABLE, schema=reference
        )
        assert (registration.schema.version, registration.schema.reference) == (
            version,
            reference,
        )


async def test_producer_of_a_pinned_topic_gets_its_version(broker):
    await registered(broker, versions=3)
    await broker.topics.create(A_TOPIC, RELIABLE, strict(version=2))
    _, session = await open_producer(broker, LATEST)
    assert session.registration.schema.version == 2
    with pytest.raises(OtherSchema, match=r"version 2 .* cannot use version 3"):
        await open_producer(broker, SchemaReference(subject="orders", version=3))
    with pytest.raises(SchemaNotFound, match="3 or later"):
        await open_producer(broker, SchemaReference(subject="orders", version_min=3))


async def test_producer_with_another_subject_is_refused(broker):
    await registered(broker)
    await registered(broker, "users")
    await open_producer(broker, LATEST)
    with pytest.raises(OtherSchema) as caught:
        await open_producer(broker, SchemaReference(subject="users"))
    assert str(caught.value) == (
        "Topic '/default/orders' uses schema subject 'orders', cannot use 'users'. "
        "Only admin can change topic schema."
    )


@pytest.mark.parametrize(
    "reference",
    [
        SchemaReference(subject="nobody"),
        SchemaReference(subject="orders", version=2),
        SchemaReference(subject="orders", version_min=2),
    ],
    ids=str,
)
async def test_unregistered_schema_is_refused_and_leaves_nothing(broker, reference):
    await registered(broker)
    with pytest.raises(SchemaNotFound) as caught:
        await open_producer(broker, reference)
    said = str(caught.value)
    assert said.startswith(
        f"Failed to assign schema '{reference.subject}' to topic '/default/orders':"
    )
    assert "not found" in said
    assert said.endswith("Ensure schema is registered first.")
    assert await broker.catalog.names() == []


# Deleting.


async def test_pinned_version_cannot_be_deleted(broker):
    await registered(broker, versions=3)
    await broker.topics.create(A_TOPIC, RELIABLE, strict(version=2))
    with pytest.raises(SchemaInUse, match=r"Version 2 .* is used by /default/orders"):
        await broker.schemas.delete("orders", 2)
    await broker.schemas.delete("orders", 1)
    await broker.schemas.delete("orders", 2, force=True)
    assert (await broker.registry.describe("orders")).versions == (3,)
    with pytest.raises(SchemaNotFound):
        await broker.schemas.delete("orders", 2)


async def test_bound_subject_cannot_be_deleted(broker):
    await registered(broker)
    await broker.topics.create(A_TOPIC, RELIABLE, strict())
    await broker.topics.create_partitioned(BASE, 9, RELIABLE, strict())
    with pytest.raises(SchemaInUse, match=r"used by .*/default/orders.* and 8 more"):
        await broker.schemas.delete("orders")
    await broker.topics.configure(BASE, schema=None)
    with pytest.raises(SchemaInUse, match=r"used by /default/orders$"):
        await broker.schemas.delete("orders")
    await broker.topics.configure(A_TOPIC, schema=None)
    await broker.schemas.delete("orders")
    assert await broker.registry.subjects() == []


async def test_concurrent_binding_prevents_subject_deletion(world, broker):
    await registered(broker)
    await broker.topics.create(A_TOPIC, RELIABLE)
    world.store.concurrent_actions = [
        lambda: broker.topics.configure(A_TOPIC, schema=strict())
    ]
    with pytest.raises(SchemaInUse):
        await broker.schemas.delete("orders")


async def test_concurrent_subject_deletion_prevents_binding(world, broker):
    await registered(broker)
    await broker.topics.create(A_TOPIC, RELIABLE)
    world.store.concurrent_actions = [lambda: broker.schemas.delete("orders")]
    with pytest.raises(SchemaNotFound):
        await broker.topics.configure(A_TOPIC, schema=strict())
    assert (await broker.catalog.get(A_TOPIC)).schema is None


async def test_concurrent_binding_by_another_producer_is_refused(broker):
    await registered(broker)
    await registered(broker, "users")
    topic, _ = await open_producer(broker)

    # Both have found the topic unbound.
    users = SchemaReference(subject="users")
    await broker.schemas.resolve(A_TOPIC, users)
    await open_producer(broker, LATEST)
    with pytest.raises(OtherSchema):
        await broker.schemas.bind_first(topic, users)


async def test_deleted_topic_does_not_keep_its_subject(broker):
    await registered(broker)
    await broker.topics.create(A_TOPIC, RELIABLE, strict())
    with pytest.raises(SchemaInUse):
        await broker.schemas.delete("orders")
    await broker.topics.delete(A_TOPIC)
    await broker.schemas.delete("orders")
