"""Holds, retention, schemas and lost messages of a replication."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import msgspec
import pytest

from pydanube.model.errors import (
    InvalidRequest,
    OffsetDropped,
    PermissionDenied,
    SchemaInUse,
)
from pydanube.model.policy import Retention
from pydanube.model.schemas import ReferencedVersion
from pydanube.security.permissions import Permission
from pydanube.security.policy import Binding, Role
from pydanube.security.principals import Principal
from pydanube_connect.replication.pure.naming import TopicNaming
from pydanube_connect.replication.replicator import (
    Replication,
    ReplicationStatus,
    Replicator,
)
from support.fakes.principals import ROOT, client_of, guarded_broker
from support.worlds.current import memory_broker, two_brokers

pytestmark = pytest.mark.slow

ALICE = Principal("alice", "token")
ORDERS = "/default/orders"
SEAL_BYTES = 65_536
NAMING = TopicNaming.parse(["/default/*"], [])
REPLICATION = Replication(name="edge", naming=NAMING)


async def replicate_to_end(source, target, replication=REPLICATION):
    """Replicate what there is, as a program that starts anew; return its status."""
    status = ReplicationStatus(replication="edge")
    loop = asyncio.get_running_loop()
    replicator = Replicator(replication, source, target, status, now=loop.time)
    await replicator.open()
    await replicator.run(asyncio.Event(), to_end=True)
    return status


async def publish_sealed(source, payload):
    """Publish a message in a segment of its own."""
    async with source.producer(ORDERS) as producer:
        await producer.send(payload)
    facts = await source.topics.describe(ORDERS)
    while facts.sealed_offset < facts.end_offset:
        await asyncio.sleep(0)
        facts = await source.topics.describe(ORDERS)


def test_retention_drops_only_what_is_replicated():
    async def run():
        async with two_brokers() as ((_, source), (_, target)):
            await source.topics.create(ORDERS)
            await source.topics.configure(ORDERS, seal_bytes=SEAL_BYTES)
            await replicate_to_end(source, target)
            await source.topics.configure(ORDERS, retention=Retention(bytes_max=1))
            for number in range(4):
                await publish_sealed(source, bytes([number]) * SEAL_BYTES)
            # The hold keeps the messages although nothing runs.
            await source.topics.apply_retention(ORDERS)
            assert (await source.topics.describe(ORDERS)).base_offset == 0

            status = await replicate_to_end(source, target)
            assert (status.messages, status.lost) == (4, 0)
            facts = await source.topics.describe(ORDERS)
            assert facts.base_offset > 0
            assert [each.name for each in facts.holds] == ["replicate-edge"]

            # Somebody releases it.
            await source.topics.release(ORDERS, "replicate-edge")
            for number in range(4):
                await publish_sealed(source, bytes([number]) * SEAL_BYTES)
            await source.topics.apply_retention(ORDERS)
            with pytest.raises(OffsetDropped, match="--skip-lost"):
                await replicate_to_end(source, target)
            skipping = Replication(name="edge", naming=NAMING, skips_lost=True)
            status = await replicate_to_end(source, target, skipping)
            assert status.lost > 0
            assert status.messages + status.lost == 4
            assert (await target.topics.describe(ORDERS)).message_count == (
                4 + status.messages
            )

    asyncio.run(run())


def test_a_replicator_that_starts_again_holds_its_topics():
    async def run():
        async with two_brokers() as ((_, source), (_, target)):
            await source.topics.create(ORDERS)
            await replicate_to_end(source, target)
            # As if it had been killed while it applied the retention.
            await source.topics.release(ORDERS, "replicate-edge")
            await replicate_to_end(source, target)
            facts = await source.topics.describe(ORDERS)
            assert [each.name for each in facts.holds] == ["replicate-edge"]

    asyncio.run(run())


def test_versions_of_a_schema_are_copied():
    class Old(msgspec.Struct):
        number: int

    class New(msgspec.Struct):
        number: int
        text: str = ""

    async def run():
        async with two_brokers() as ((_, source), (_, target)):
            # The ids of schemas differ at the target.
            await target.schemas.register("other", Old)
            for schema in (Old, New, Old):
                async with source.producer(
                    ORDERS, schema=schema, subject="orders"
                ) as producer:
                    await producer.send_batch([schema(1), schema(2)])
            await replicate_to_end(source, target)
            old = [each async for batch in source.read(ORDERS) for each in batch]
            new = [each async for batch in target.read(ORDERS) for each in batch]
            assert [each.value for each in old] == [each.value for each in new]
            assert [each.schema_version for each in new] == [1, 1, 2, 2, 1, 1]
            assert {each.schema_id for each in old} != {each.schema_id for each in new}
            for name in ("compatibility", "type"):
                found = [
                    getattr(await each.schemas.describe("orders"), name)
                    for each in (source, target)
                ]
                assert found[0] == found[1]

    asyncio.run(run())


def test_versions_that_are_deleted_but_readable_are_copied():
    fields = [f"field{number}" for number in range(4)]
    schemas = [
        msgspec.defstruct("Order", [(each, int, 0) for each in fields[: number + 1]])
        for number in range(4)
    ]

    async def run():
        async with two_brokers() as ((one, source), (_, target)):
            for schema in schemas:
                async with source.producer(
                    ORDERS, schema=schema, subject="orders"
                ) as producer:
                    await producer.send(schema())
            await source.schemas.delete("orders", 1)
            # Clients of Confluent's registry delete versions so.
            for version in (2, 3):
                await one.broker.schemas.delete("orders", version, keep_readable=True)
            await replicate_to_end(source, target)
            new = [each async for batch in target.read(ORDERS) for each in batch]
            # The last version stays the last one.
            assert [each.schema_version for each in new] == [0, 1, 2, 3]
            found = await target.schemas.versions("orders")
            for each, field in zip(found, fields[1:], strict=True):
                assert field in each.definition

    asyncio.run(run())


def test_references_of_schemas_are_copied():
    class Money(msgspec.Struct):
        cents: int

    class Priced(msgspec.Struct):
        cents: int
        currency: str = ""

    class Order(msgspec.Struct):
        price: int

    async def run():
        async with two_brokers() as ((_, source), (_, target)):
            old = source.schemas
            await old.register("money", Money)
            await old.set_compatibility("money", "none")
            await old.register("money", Priced)
            # The numbers of versions at the target are others.
            await old.delete("money", 1)
            price = ReferencedVersion(name="price", subject="money", version=2)
            order = ReferencedVersion(name="order", subject="orders", version=1)
            await old.register("orders", Order, references=[price])
            # Subjects may refer to each other.
            await old.register("money", Priced, references=[order])
            async with source.producer(
                ORDERS, schema=Order, subject="orders"
            ) as producer:
                await producer.send(Order(1))
            await replicate_to_end(source, target)
            # Nothing happens if all is there.
            await replicate_to_end(source, target)

            new = target.schemas
            assert (await new.latest("orders")).references == (
                replace(price, version=1),
            )
            assert (await new.latest("money")).references == (order,)
            assert (await new.compatibility("money")).value == "none"
            assert (await new.compatibility("orders")).value == "backward"
            with pytest.raises(SchemaInUse):
                await new.delete("money", 1)

    asyncio.run(run())


def test_schemas_that_are_not_permitted_end_it():
    class Order(msgspec.Struct):
        price: int

    async def run():
        async with (
            memory_broker() as one,
            guarded_broker() as two,
            one.connect() as source,
            client_of(two, ALICE) as target,
        ):
            access = two.broker.access
            role = Role("copier", frozenset(Permission))
            await access.set_role(ROOT, role)
            patterns = ("/default/*", "/default", "subject:orders")
            binding = Binding("user:alice", ("copier",), patterns, "copies")
            await access.add_binding(ROOT, binding)
            await source.schemas.register("money", Order)
            price = ReferencedVersion(name="price", subject="money", version=1)
            await source.schemas.register("orders", Order, references=[price])
            async with source.producer(
                ORDERS, schema=Order, subject="orders"
            ) as producer:
                await producer.send(Order(1))
            with pytest.raises(PermissionDenied, match="money"):
                await replicate_to_end(source, target)
            assert await target.schemas.subjects() == []

    asyncio.run(run())


def test_partitions_are_those_of_the_source():
    async def run():
        async with two_brokers() as ((_, source), (_, target)):
            await source.topics.create(ORDERS, partitions=2)
            await replicate_to_end(source, target)
            await source.topics.add_partitions(ORDERS, 3)
            await replicate_to_end(source, target)
            assert len(await target.topics.partitions(ORDERS)) == 3
            await source.topics.create("/default/plain")
            await target.topics.create("/default/plain", partitions=2)
            with pytest.raises(InvalidRequest, match="has 2 partitions"):
                await replicate_to_end(source, target)

    asyncio.run(run())
