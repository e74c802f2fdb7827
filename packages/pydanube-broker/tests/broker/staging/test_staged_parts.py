"""Filling parts, and the errors that end them."""

from __future__ import annotations

import asyncio

import pytest

from pydanube.model.errors import (
    InvalidName,
    InvalidPayload,
    InvalidRequest,
    MessageTooLarge,
    OutOfSequence,
    QuotaExceeded,
    SchemaMismatch,
    StagedPartNotFound,
    StagingClosed,
)
from pydanube.model.names import TopicName, parse_client_name
from pydanube.model.policy import NamespacePolicy
from pydanube.model.schemas import SchemaReference
from pydanube_broker.broker.staging import staged_parts
from pydanube_broker.storage.config import StagingConfig
from support.drivers.running import using
from support.fakes.batches import frame_of
from support.fakes.brokers import RELIABLE
from support.fakes.schemas import AN_ORDER, NO_ORDER, registered, strict
from support.fakes.staging import A_QUERY, PartMaker, stage_part, stored

A = "/default/a"
PRODUCER = staged_parts.producer_of(A_QUERY)


@pytest.fixture
async def part(broker):
    """Open a part for the new topic A."""
    await broker.topics.create(TopicName.parse(A), RELIABLE)
    part = PartMaker(broker, 0, "0")
    await part.open(A)
    return part


async def test_repeated_batch_is_staged_once(broker, part):
    await part.write(A, [b"1", b"2"])
    again = await part.open(A)
    assert again.next_sequence == 2
    again.take(frame_of([b"1", b"2"], producer=PRODUCER, base_sequence=0))
    await part.ports[A].reached(2)
    await part.write(A, [b"3"])
    await broker.staging.commit(A_QUERY, 0, [await part.finish()])
    assert await stored(broker, A) == [b"1", b"2", b"3"]


async def test_reopening_a_stage_closes_the_earlier_one(part):
    first, port = part.stages[A], part.ports[A]
    await part.open(A)
    assert isinstance(await port.closed(), StagingClosed)
    first.take(frame_of([b"late"], producer=PRODUCER, base_sequence=0))
    await part.write(A, [b"1"])
    named = await part.finish()
    assert named.message_count == 1


async def test_batches_of_a_lost_connection_stay(broker, part):
    port = part.ports[A]
    part.send(A, [b"1"])
    part.stages[A].leave()
    again = await part.open(A)
    assert again.next_sequence == 1
    await part.write(A, [b"2"])
    assert (port.next_sequence, port.reason) == (0, None)
    await broker.staging.commit(A_QUERY, 0, [await part.finish()])
    assert await stored(broker, A) == [b"1", b"2"]


@pytest.mark.parametrize(
    ("frame", "error"),
    [
        (frame_of([b"1"], producer=PRODUCER, base_sequence=1), OutOfSequence),
        (frame_of([b"1"], producer="web-1"), InvalidRequest),
        (frame_of([b"1"], producer=PRODUCER, producers=["x"]), InvalidRequest),
        (frame_of([b"1" * 100], producer=PRODUCER), MessageTooLarge),
    ],
)
async def test_invalid_batch_ends_the_part(broker, part, frame, error):
    limits = NamespacePolicy(max_message_size=50)
    await broker.topics.configure(TopicName.parse(A), limits=limits)
    part.stages[A].take(frame)
    assert type(await part.ports[A].closed()) is error
    assert len(broker.staging.parts) == 0
    with pytest.raises(StagedPartNotFound):
        await part.finish()


async def test_damaged_batch_ends_the_part(part):
    frame = frame_of([b"1"], producer=PRODUCER)
    frame.buffer[-1] ^= 1
    part.stages[A].take(frame)
    assert "damaged" in str(await part.ports[A].closed())


@using(broker_options={"staging": StagingConfig(bytes_max=2000)})
async def test_staging_limit_is_enforced_and_space_is_reclaimed(broker, part):
    kept = await stage_part(broker, 0, "1", [(A, [b"1" * 100])])
    part.send(A, [b"2" * 2000])
    assert isinstance(await part.ports[A].closed(), QuotaExceeded)
    other = await stage_part(broker, 0, "2", [(A, [b"3" * 100])])
    await broker.staging.commit(A_QUERY, 0, [kept, other])
    assert broker.staging.parts.byte_count == 0


async def test_payload_that_does_not_match_the_schema_ends_the_part(broker, part):
    await registered(broker)
    schema = strict(validates_payload=True)
    await broker.topics.configure(TopicName.parse(A), schema=schema)
    reference = SchemaReference(subject="orders")
    good = PartMaker(broker, 0, "good")
    stage = await good.open(A, reference)
    written = {
        "schema_id": stage.schema.schema_id,
        "schema_version": stage.schema.version,
    }
    await good.write(A, [AN_ORDER], **written)
    bad = PartMaker(broker, 0, "bad")
    await bad.open(A, reference)
    bad.send(A, [NO_ORDER], **written)
    assert isinstance(await bad.ports[A].closed(), InvalidPayload)
    part.send(A, [AN_ORDER])
    assert isinstance(await part.ports[A].closed(), SchemaMismatch)
    await broker.staging.commit(A_QUERY, 0, [await good.finish()])
    assert await stored(broker, A) == [AN_ORDER]


async def test_declared_schema_binds_the_topic(broker, part):
    await registered(broker)
    other = PartMaker(broker, 0, "1")
    stage = await other.open(A, SchemaReference(subject="orders"))
    assert (stage.schema.version, part.stages[A].schema) == (1, None)
    assert (await broker.catalog.get(TopicName.parse(A))).schema.subject == "orders"


async def test_part_is_finished_only_with_matching_counts(broker, part):
    await part.write(A, [b"1", b"2"])
    for counts in ((1, 3), (2, 2)):
        with pytest.raises(StagedPartNotFound, match="stage the part again"):
            await broker.staging.finish_part(part.key, *counts)
    byte_count = await broker.staging.finish_part(part.key, 1, 2)
    assert await broker.staging.finish_part(part.key, 1, 2) == byte_count


async def test_concurrent_finishes_of_a_part_are_both_answered(part):
    await part.write(A, [b"1"])
    async with asyncio.TaskGroup() as tasks:
        both = [tasks.create_task(part.finish()) for _ in range(2)]
    assert both[0].result() == both[1].result()


async def test_finished_part_accepts_no_batches(part):
    await part.write(A, [b"1"])
    await part.finish()
    assert isinstance(await part.ports[A].closed(), StagingClosed)
    with pytest.raises(StagingClosed):
        await part.open(A)


async def test_two_parts_of_one_name_are_two_parts(broker, part):
    await part.write(A, [b"1"])
    other = PartMaker(broker, 0, "0", part_id="another")
    await other.write(A, [b"2"])
    await part.finish()
    await broker.staging.commit(A_QUERY, 0, [await other.finish()])
    assert await stored(broker, A) == [b"2"]


async def test_part_does_not_continue_with_a_recreated_topic(broker, part):
    await part.write(A, [b"1"])
    await broker.topics.delete(TopicName.parse(A))
    await broker.topics.create(TopicName.parse(A), RELIABLE)
    with pytest.raises(StagedPartNotFound, match="stage the part again"):
        await part.open(A)


def test_clients_cannot_use_the_producer_name_of_a_query():
    with pytest.raises(InvalidName):
        parse_client_name("producer", PRODUCER)
