"""Validation of messages against the schema of their topic."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import replace

import pytest

from pydanube.model.errors import (
    Draining,
    InvalidPayload,
    MetadataUnavailable,
    ProducerFenced,
    SchemaMismatch,
    TopicNotFound,
)
from pydanube.model.names import TopicName
from pydanube.model.policy import ProducerAccess
from pydanube.model.schemas import (
    Compatibility,
    SchemaPolicy,
    SchemaReference,
    SchemaType,
    TopicSchema,
)
from pydanube_broker.broker.publishing import schema_validation
from pydanube_broker.broker.publishing.message_batcher import SingleMessage
from support.drivers.running import using
from support.fakes.batches import A_TIME, frame_of, payloads_of
from support.fakes.brokers import (
    A_TOPIC,
    NON_RELIABLE,
    RELIABLE,
    BrokerWorld,
    MeddledStore,
    Outcome,
)
from support.fakes.schemas import (
    AN_ORDER,
    NO_ORDER,
    WARN,
    new_schema,
    order_schema,
    registered,
    strict,
)


class Publisher:
    """A producer of a topic that is bound to ``orders``, which has a schema id."""

    def __init__(self, topic, session, schema_id):
        self.topic = topic
        self.session = session
        self.schema_id = schema_id
        self.sequence = session.next_sequence

    def publish(self, *payloads, version=1, schema_id=None, keys=None):
        """Publish a batch and return its outcome; immediate errors are raised."""
        outcome = Outcome()
        id_ = self.schema_id if schema_id is None else schema_id
        frame = frame_of(
            payloads or [AN_ORDER],
            keys=keys,
            producer=self.session.name,
            producer_id=self.session.producer_id,
            producer_epoch=self.session.epoch,
            base_sequence=self.sequence,
            schema_id=id_,
            schema_version=version if id_ else 0,
        )
        self.topic.publish(self.session, frame, outcome)
        self.sequence += len(payloads or [AN_ORDER])
        return outcome

    async def refusal(self, *payloads, **options):
        """Return why a batch is rejected; the producer continues without it."""
        before = self.sequence
        try:
            error = await self.publish(*payloads, **options).error()
        except (SchemaMismatch, InvalidPayload) as raised:
            error = raised
        self.sequence = before
        assert error is not None, "it was taken"
        return error

    async def taken(self, *payloads, **options):
        """The offset of a batch."""
        return await self.publish(*payloads, **options).offset()


async def bound(broker, keeps=None, *, policy=RELIABLE, versions=1, **options):
    """Return a publisher of a topic that is bound to a schema."""
    schema_id = await registered(broker, versions=versions)
    await broker.topics.create(A_TOPIC, policy, keeps or strict())
    topic, session = await broker.producers.open(A_TOPIC, "p", policy=None, **options)
    return Publisher(topic, session, schema_id)


def reasons(topic):
    return dict(topic.schema_counts.failed)


# Enforced schemas.


@pytest.mark.parametrize("policy", [RELIABLE, NON_RELIABLE], ids=["stored", "passed"])
async def test_enforcing_topic_accepts_only_its_subject(broker, policy):
    producer = await bound(broker, policy=policy)
    other = await registered(broker, "users")
    assert await producer.taken() == 0
    assert "has no schema" in str(await producer.refusal(schema_id=0))
    assert f"schema id {other}" in str(await producer.refusal(schema_id=other))
    assert "no version 2" in str(await producer.refusal(version=2))
    assert "no version 0" in str(await producer.refusal(version=0))
    # The producer remains usable.
    assert await producer.taken() == 1
    assert reasons(producer.topic) == {
        "missing": 1,
        "other_subject": 1,
        "unknown_version": 2,
    }
    assert producer.topic.schema_counts.validated["enforce"] == 6


async def test_new_version_is_accepted_at_once(broker):
    producer = await bound(broker)
    await producer.refusal(version=2)
    definition = order_schema(note={"type": "string"})
    await broker.registry.register("orders", new_schema(definition))
    assert await producer.taken(version=2) == 0


async def test_pinned_topic_accepts_only_its_version(broker):
    producer = await bound(broker, strict(version=1), versions=2)
    await producer.taken(version=1)
    assert "accepts only version 1 " in str(await producer.refusal(version=2))


async def test_topic_may_require_a_minimum_version(broker):
    producer = await bound(broker, strict(version_min=2), versions=3)
    assert "2 or later" in str(await producer.refusal(version=1))
    await producer.taken(version=2)
    await producer.taken(version=3)


async def test_payloads_are_validated_only_if_configured(broker):
    producer = await bound(broker)
    await producer.taken(NO_ORDER)
    await broker.topics.configure(A_TOPIC, schema=strict(validates_payload=True))
    await producer.taken(AN_ORDER)
    await producer.refusal(NO_ORDER)


async def test_batch_with_an_invalid_message_is_rejected(broker):
    producer = await bound(broker, strict(validates_payload=True))
    error = await producer.refusal(AN_ORDER, AN_ORDER, NO_ORDER, b"no JSON")
    assert isinstance(error, InvalidPayload)
    assert "message 2 of the batch" in str(error)
    assert reasons(producer.topic) == {"payload": 2}
    assert await producer.taken(AN_ORDER, AN_ORDER) == 0


async def test_tombstones_need_no_schema(broker):
    producer = await bound(broker, strict(validates_payload=True))
    assert await producer.taken(b"", b"", keys=[b"a", b"b"], schema_id=0) == 0
    assert await producer.taken(AN_ORDER, b"", keys=[None, b"a"]) == 2
    for keys in ([b"a", None], None):
        await producer.refusal(b"", b"", keys=keys, schema_id=0)
    await producer.refusal(b"", b"", keys=[b"a", None])
    await producer.refusal(b"", NO_ORDER, keys=[b"a", b"b"])


async def test_messages_are_validated_by_their_own_version(broker):
    schema_id = await registered(broker, versions=1)
    later = order_schema(id={"type": ["integer", "string"]})
    await broker.registry.register("orders", new_schema(later))
    schema = strict(validates_payload=True)
    topic = await broker.topics.create(A_TOPIC, RELIABLE, schema)
    topic, session = await broker.producers.open(A_TOPIC, "p", policy=None)
    producer = Publisher(topic, session, schema_id)
    await producer.taken(NO_ORDER, version=2)
    await producer.refusal(NO_ORDER, version=1)
    await producer.taken(NO_ORDER, version=2)


async def test_slow_schema_is_validated_in_a_worker_process(broker):
    # Twice the same reference for the same property: exponential in the depth.
    twice = [{"properties": {"next": {"$ref": "#"}, "id": {"type": "integer"}}}] * 2
    definition = json.dumps({"allOf": twice})
    found, _ = await broker.registry.register("orders", new_schema(definition))
    await broker.topics.create(A_TOPIC, RELIABLE, strict(validates_payload=True))
    topic, session = await broker.producers.open(A_TOPIC, "p", policy=None)
    producer = Publisher(topic, session, found.schema_id)
    deep = b'{"next":' * 200 + b"%b" + b"}" * 200
    await producer.taken(deep % b'{"id": 1}')
    # It is rejected later: publishing itself does not raise.
    outcome = producer.publish(deep % b'{"id": "one"}')
    assert isinstance(await outcome.error(), InvalidPayload)


AVRO = json.dumps(
    {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
)
PROTO = 'syntax = "proto3"; message R { int32 a = 1; }'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("type_", "definition", "good", "bad"),
    [
        (SchemaType.AVRO, AVRO, b"\x02", b"\x02\x02"),
        (SchemaType.PROTOBUF, PROTO, b"\x08\x01", b"\xff"),
        (SchemaType.STRING, "", "für".encode(), b"\xff"),
        (SchemaType.NUMBER, "", bytes(8), b"seven.."),
    ],
    ids=lambda value: value.value if isinstance(value, SchemaType) else "",
)
async def test_payloads_of_every_type_are_validated(
    broker, type_, definition, good, bad
):
    new = new_schema(definition, type_)
    found, _ = await broker.registry.register("orders", new)
    schema = strict(validates_payload=True)
    await broker.topics.create(A_TOPIC, RELIABLE, schema)
    topic, session = await broker.producers.open(A_TOPIC, "p", policy=None)
    producer = Publisher(topic, session, found.schema_id)
    await producer.taken(good)
    assert isinstance(await producer.refusal(bad), InvalidPayload)


# Warnings, and batches that are not validated.


async def test_warning_topic_accepts_everything_and_logs_rarely(broker, caplog):
    caplog.set_level(logging.WARNING)
    schema = TopicSchema(subject="orders", policy=WARN, validates_payload=True)
    producer = await bound(broker, schema)
    await producer.taken(schema_id=0)
    await producer.taken(schema_id=4711)
    await producer.taken(version=7)
    await producer.taken(NO_ORDER, NO_ORDER, AN_ORDER)
    assert reasons(producer.topic) == {
        "missing": 1,
        "other_subject": 1,
        "unknown_version": 1,
        "payload": 2,
    }
    assert producer.topic.end_offset == 6
    warnings = [each for each in caplog.messages if "not match the schema" in each]
    assert len(warnings) == 1


async def test_topic_with_policy_none_does_not_validate(broker):
    schema = TopicSchema(subject="orders", policy=SchemaPolicy.NONE)
    producer = await bound(broker, schema)
    assert producer.topic.schema_validation is None
    await producer.taken(schema_id=0)
    assert producer.topic.schema_counts is None


async def test_batches_of_the_broker_are_not_validated(broker):
    producer = await bound(broker)
    outcome = Outcome()
    producer.topic.publish_unchecked(frame_of([b"dead"]), outcome)
    assert await outcome.offset() == 0


# Declared versions of producers.


async def test_producer_must_write_its_declared_version(broker):
    reference = SchemaReference(subject="orders", version=1)
    producer = await bound(broker, versions=2, schema=reference)
    await producer.taken(version=1)
    assert "opened for version 1 " in str(await producer.refusal(version=2))


async def test_producer_must_write_its_minimum_version(broker):
    reference = SchemaReference(subject="orders", version_min=2)
    producer = await bound(broker, versions=3, schema=reference)
    assert "version 2 or later" in str(await producer.refusal(version=1))
    await producer.taken(version=2)
    await producer.taken(version=3)


async def test_single_messages_must_have_the_declared_version(broker):
    schema_id = await registered(broker, versions=2)
    await broker.topics.create(A_TOPIC, RELIABLE, strict())
    topic, registration = await broker.producers.attach(
        A_TOPIC,
        "p",
        policy=None,
        schema=SchemaReference(subject="orders", version=1),
    )
    topic.schema_validation.check_producer_schema(registration.schema, schema_id, 1)
    with pytest.raises(SchemaMismatch):
        topic.schema_validation.check_producer_schema(registration.schema, schema_id, 2)
    await broker.topics.configure(A_TOPIC, schema=TopicSchema(subject="orders"))
    topic.schema_validation.check_producer_schema(registration.schema, schema_id, 2)
    assert reasons(topic) == {"other_version": 2}


# Pending batches.


class SlowStore(MeddledStore):
    """A store that finds schemas only when the test allows it."""

    def __init__(self):
        super().__init__()
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.failure = None

    async def get(self, key):
        if key.path.startswith("/schemas/"):
            await self.may_answer.wait()
            if self.failure is not None:
                raise self.failure
        return await super().get(key)


@pytest.fixture
def store():
    return SlowStore()


@pytest.fixture
def world(store):
    return BrokerWorld(store)


@pytest.fixture
def schema():
    return None


@pytest.fixture
def producer_options():
    return {}


@pytest.fixture
async def producer(broker, store, schema, producer_options):
    """Return a publisher of a topic whose schema the broker has yet to look up."""
    producer = await bound(broker, schema, versions=2, **producer_options)
    store.may_answer.clear()
    yield producer
    store.may_answer.set()


async def turns():
    for _ in range(20):
        await asyncio.sleep(0)


async def test_batches_wait_in_order_for_a_version_lookup(store, producer):
    first = producer.publish(b"1", b"2", version=1)
    second = producer.publish(b"3", version=2)
    third = producer.publish(b"4", version=1)
    await turns()
    assert not any(each.is_known for each in (first, second, third))
    store.may_answer.set()
    offsets = [await each.offset() for each in (first, second, third)]
    assert offsets == [0, 2, 3]
    frames = producer.topic.log.read_tail(0, bytes_max=1 << 20)
    assert payloads_of(frames) == [b"1", b"2", b"3", b"4"]


async def test_batch_behind_an_invalid_one_is_accepted(broker, store, producer):
    topic, session = await broker.producers.open(A_TOPIC, "q", policy=None)
    other = Publisher(topic, session, producer.schema_id)
    bad = producer.publish(version=9)
    good = other.publish(version=1)
    store.may_answer.set()
    assert isinstance(await bad.error(), SchemaMismatch)
    assert await good.offset() == 0


async def test_pending_batch_of_a_fenced_producer_is_rejected(broker, store, producer):
    waiting = producer.publish()
    await turns()
    await broker.producers.open(A_TOPIC, "p", policy=None)
    store.may_answer.set()
    assert isinstance(await waiting.error(), ProducerFenced)
    assert producer.topic.end_offset == 0


async def test_pending_single_messages_of_a_fenced_producer_are_rejected(
    broker, store, producer
):
    broker.producers.close(producer.topic, producer.session, forget=False)
    outcome = Outcome()
    message = SingleMessage("q", AN_ORDER, A_TIME)
    message = replace(message, schema_id=producer.schema_id, schema_version=1)
    broker.batcher.publish(producer.topic, message, outcome)
    await turns()
    fence = ProducerAccess.EXCLUSIVE_FENCE
    await broker.producers.open(A_TOPIC, "owner", policy=None, access=fence)
    store.may_answer.set()
    assert isinstance(await outcome.error(), ProducerFenced)


async def test_pending_batches_are_rejected_when_the_broker_drains(
    broker, store, producer
):
    waiting = producer.publish()
    await broker.drain()
    store.may_answer.set()
    assert isinstance(await waiting.error(), Draining)


async def test_pending_batches_are_rejected_when_the_topic_is_deleted(broker, producer):
    waiting = producer.publish()
    await turns()
    await broker.topics.delete(A_TOPIC, force=True)
    assert isinstance(await waiting.error(), TopicNotFound)


async def test_pending_batches_are_validated_by_a_new_schema(broker, store, producer):
    first, second = producer.publish(version=1), producer.publish(version=2)
    await turns()
    store.may_answer.set()
    await broker.topics.configure(A_TOPIC, schema=strict(version=2))
    assert isinstance(await first.error(), SchemaMismatch)
    # Its producer must send it again, because of the gap in its sequence.
    assert await second.error() is not None


async def test_pending_batches_are_accepted_when_the_binding_is_removed(
    broker, producer
):
    first, second = producer.publish(), producer.publish()
    await turns()
    await broker.topics.configure(A_TOPIC, schema=None)
    assert [await first.offset(), await second.offset()] == [0, 1]


async def test_enforcing_topic_rejects_if_lookup_fails(store, producer):
    store.failure = MetadataUnavailable("on purpose")
    store.may_answer.set()
    assert isinstance(await producer.refusal(), MetadataUnavailable)
    store.failure = None
    assert await producer.taken() == 0


@using(schema=TopicSchema(subject="orders"))
async def test_warning_topic_accepts_if_lookup_fails(store, producer):
    store.failure = MetadataUnavailable("on purpose")
    store.may_answer.set()
    assert await producer.taken() == 0
    assert reasons(producer.topic) == {"not_looked_up": 1}


async def test_unexpected_error_rejects_only_one_batch(store, producer, caplog):
    store.failure = ZeroDivisionError("on purpose")
    store.may_answer.set()
    assert "its log says why" in str(await producer.publish().error())
    store.failure = None
    producer.sequence = 0
    assert await producer.taken() == 0
    assert "could not be validated" in caplog.text


@pytest.mark.slow
@using(producer_options={"policy": NON_RELIABLE})
async def test_broker_has_no_room_while_the_backlog_is_full(broker, store, producer):
    half = bytes(schema_validation.BACKLOG_BYTES_MAX // 2)
    assert broker.topics.has_room
    outcomes = [producer.publish(half), producer.publish(half)]
    assert not broker.topics.has_room
    async with asyncio.TaskGroup() as tasks:
        room = tasks.create_task(broker.topics.wait_for_room())
        await turns()
        assert not room.done()
        store.may_answer.set()
    for outcome in outcomes:
        await outcome.offset()
    assert broker.topics.has_room


async def test_large_batch_is_validated_in_a_thread_in_order(broker):
    producer = await bound(broker, strict(validates_payload=True))
    long = json.dumps({"id": 1, "note": "x" * 1000}).encode()
    large = [long] * (schema_validation.INLINE_BYTES_MAX // 1000 + 1)
    await producer.taken()
    first, second = producer.publish(*large), producer.publish()
    assert not first.is_known
    assert await first.offset() == 1
    assert await second.offset() == 1 + len(large)
    error = await producer.refusal(*large, NO_ORDER)
    assert f"message {len(large)} of" in str(error)


@pytest.mark.slow
async def test_versions_beyond_the_bound_are_looked_up_again(broker):
    producer = await bound(broker)
    await broker.registry.set_compatibility("orders", Compatibility.NONE)
    versions = schema_validation.VERSIONS_MAX + 1
    for number in range(1, versions):
        await broker.registry.register("orders", new_schema(f'{{"const": {number}}}'))
    for version in (*range(1, versions + 1), 1):
        await producer.taken(version=version)


# Single messages.


def single(schema_id, payload, producer="p", version=1):
    return SingleMessage(
        producer, payload, A_TIME, schema_id=schema_id, schema_version=version
    )


async def test_only_invalid_messages_of_a_batch_are_rejected(broker):
    schema_id = await registered(broker)
    topic = await broker.topics.create(
        A_TOPIC, RELIABLE, strict(validates_payload=True)
    )
    for _ in range(2):  # The first time, they wait for the schema to be found.
        outcomes = [Outcome() for _ in range(5)]
        payloads = [AN_ORDER, NO_ORDER, b'{"id": 2}', b"no JSON", b'{"id": 3}']
        for payload, outcome in zip(payloads, outcomes, strict=True):
            message = single(schema_id, payload, producer=payload.hex())
            broker.batcher.publish(topic, message, outcome)
        errors = [await outcome.error() for outcome in outcomes]
        assert [type(error) for error in errors] == [
            type(None),
            InvalidPayload,
            type(None),
            InvalidPayload,
            type(None),
        ]
        assert "not JSON" in str(errors[3])
    frames = topic.log.read_tail(0, bytes_max=1 << 20)
    assert payloads_of(frames) == [AN_ORDER, b'{"id": 2}', b'{"id": 3}'] * 2


async def test_batch_of_only_invalid_messages_is_not_stored(broker):
    schema_id = await registered(broker)
    topic = await broker.topics.create(
        A_TOPIC, RELIABLE, strict(validates_payload=True)
    )
    outcomes = [Outcome(), Outcome()]
    for outcome in outcomes:
        broker.batcher.publish(topic, single(schema_id, NO_ORDER), outcome)
    for outcome in outcomes:
        assert isinstance(await outcome.error(), InvalidPayload)
    assert topic.end_offset == 0


async def test_single_messages_without_schema_are_rejected(broker):
    await registered(broker)
    topic = await broker.topics.create(A_TOPIC, RELIABLE, strict())
    outcome = Outcome()
    broker.batcher.publish(topic, SingleMessage("p", b"x", A_TIME), outcome)
    assert isinstance(await outcome.error(), SchemaMismatch)


# Deleted subjects and versions.


async def test_subject_may_be_registered_again_after_forced_deletion(broker):
    producer = await bound(broker)
    await producer.taken()
    await broker.schemas.delete("orders", force=True)
    assert "was not found" in str(await producer.refusal())
    new_id = await registered(broker)
    assert new_id != producer.schema_id
    await producer.taken(schema_id=new_id)
    assert isinstance(await producer.refusal(), SchemaMismatch)


async def test_deleted_version_is_rejected(broker):
    producer = await bound(broker, versions=2)
    await producer.taken(version=1)
    await broker.schemas.delete("orders", 1)
    assert "no version 1" in str(await producer.refusal(version=1))
    await producer.taken(version=2)


async def test_each_partition_validates(broker):
    schema_id = await registered(broker)
    base = TopicName.parse("/default/parts")
    await broker.topics.create_partitioned(base, 2, RELIABLE, strict())
    for name in await broker.catalog.partitions_of(base):
        topic, session = await broker.producers.open(name, "p", policy=None)
        producer = Publisher(topic, session, schema_id)
        await producer.taken()
        await producer.refusal(schema_id=0)
