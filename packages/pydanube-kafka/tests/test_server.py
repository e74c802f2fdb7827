"""Kafka clients publish to topics of a broker and read from them, as native ones do."""

from __future__ import annotations

import asyncio
import json
import struct
import threading
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from pydanube.client.messages.schema import Schema
from pydanube.model.errors import JournalFailed
from pydanube.model.names import TopicName
from pydanube.model.policy import NamespacePolicy, Retention, TopicPolicy
from pydanube.model.schemas import SchemaPolicy, TopicSchema
from pydanube.security.principals import Principal
from pydanube_broker.testing import memory_broker
from pydanube_kafka import producing
from pydanube_kafka.config import KafkaConfig
from pydanube_kafka.connection import listen_kafka
from pydanube_kafka.server import open_kafka_server
from pydanube_kafka.wire.apis import Api, ErrorCode
from pydanube_kafka.wire.compression import Compression
from pydanube_kafka.wire.record_batches import Records, encode_batch
from support.drivers.kafka_requests import KafkaRequests, request_bytes
from support.fakes.brokers import BrokerWorld
from support.fakes.listener_parts import listener_parts
from support.fakes.principals import ChosenIdentity
from support.fakes.storages import seal

aiokafka = pytest.importorskip("aiokafka")

pytestmark = pytest.mark.slow

TOPIC = TopicName.parse("/default/orders")
LONG = request_bytes(Api.DELETE_GROUPS, 2, groups_names=("g" * 1000,) * 1100)
"""A request that names more than a client may ask for at once."""


@asynccontextmanager
async def serving(broker, store=None, authenticator=None, **kafka):
    """Serve Kafka clients over *broker*."""
    parts = listener_parts(broker, "kafka", store=store)
    if authenticator is not None:
        parts = replace(parts, authenticator=authenticator)
    async with (
        open_kafka_server(KafkaConfig(port=0, **kafka), parts) as server,
        listen_kafka(server, "127.0.0.1", 0) as port,
    ):
        yield SimpleNamespace(
            server=server, broker=broker, port=port, address=f"127.0.0.1:{port}"
        )


@asynccontextmanager
async def served(**kafka):
    """Serve Kafka clients over a broker in memory; has a native client, too."""
    async with (
        memory_broker() as memory,
        memory.connect() as client,
        serving(memory.broker, **kafka) as running,
    ):
        running.client = client
        yield running


def producer(running, **options):
    return aiokafka.AIOKafkaProducer(bootstrap_servers=running.address, **options)


def consumer(running, *topics, **options):
    options = {"auto_offset_reset": "earliest", "enable_auto_commit": False} | options
    return aiokafka.AIOKafkaConsumer(
        *topics, bootstrap_servers=running.address, **options
    )


async def read_all(running):
    """The messages that native clients read."""
    batches = running.client.read("/default/orders")
    return [message async for batch in batches for message in batch]


async def take(reading, number):
    return [await anext(reading) for _ in range(number)]


async def test_clients_are_listed_and_disconnected():
    async with served() as running:
        connections = running.broker.connections
        async with producer(running, client_id="web-1") as kafka:
            await kafka.send_and_wait("orders", b"1")
            facts = {
                number: connection.facts(lambda _: True)
                for number, connection in connections.page(0, 9)
            }
            named = {each for each in facts if facts[each].client == "web-1"}
            assert named
            assert {facts[each].listener for each in named} == {"kafka"}
            for each in named:
                connections.close(each, "new limits")
            # It connects again.
            await kafka.send_and_wait("orders", b"2")
            assert named.isdisjoint(number for number, _ in connections.page(0, 99))


async def test_a_client_that_authenticates_again_is_counted_once():
    identity = ChosenIdentity()
    async with (
        served(authenticator=identity) as running,
        KafkaRequests(running.port) as raw,
    ):
        counts = []
        for name in ("alice", "alice", "bob"):
            identity.principal = Principal(name, "token")
            await raw.authenticate("user", "secret")
            meter = running.broker.quotas.of_principal(identity.principal)
            counts.append(meter.connections)
        assert counts == [1, 1, 1]
        alice = running.broker.quotas.of_principal(Principal("alice", "token"))
        assert not alice.connections


@pytest.mark.parametrize("codec", [None, "gzip"])
async def test_native_clients_read_what_kafka_clients_publish(codec):
    async with served() as running, producer(running, compression_type=codec) as kafka:
        for number in range(3):
            sent = await kafka.send_and_wait(
                "orders",
                b"v%d" % number * 200,
                key=b"k",
                headers=[("h", b"1")],
                timestamp_ms=1_700_000_000_000 + number,
            )
        assert (sent.partition, sent.offset) == (0, 2)
        read = await read_all(running)
        assert [each.payload for each in read] == [b"v%d" % n * 200 for n in range(3)]
        assert {(each.key, each.attributes["h"]) for each in read} == {("k", "1")}
        assert read[2].publish_time == datetime(2023, 11, 14, 22, 13, 20, 2000, UTC)


async def test_kafka_clients_read_what_native_clients_publish():
    async with served() as running:
        await running.client.topics.create("/default/orders")
        async with running.client.producer("/default/orders") as native:
            await native.send(b"1", key="k", attributes={"a": "é"})
            await native.send(b"2")
        async with consumer(running, "orders") as kafka:
            first, second = await take(kafka, 2)
        assert (first.value, first.key, first.headers) == (
            b"1",
            b"k",
            (("a", "é".encode()),),
        )
        assert (second.value, second.key, second.offset) == (b"2", None, 1)


async def test_nulls_and_headers_come_back_as_they_were():
    headers = [("a", b"\xff"), ("a", None), ("b", b"")]
    async with served() as running, producer(running) as kafka:
        await kafka.send_and_wait("orders", None, key=b"k", headers=headers)
        await kafka.send_and_wait("orders", b"", key=b"")
        async with consumer(running, "orders") as reading:
            tombstone, empty = await take(reading, 2)
        assert (tombstone.value, tombstone.headers) == (None, tuple(headers))
        assert (empty.value, empty.key, empty.headers) == (b"", b"", ())


async def test_a_topic_is_read_from_segments_and_after_a_restart():
    world = BrokerWorld()
    async with world.broker() as broker, serving(broker, world.store) as running:
        async with producer(running) as kafka:
            for number in range(4):
                await kafka.send_and_wait("orders", b"%d" % number)
                if number == 1:
                    topic = broker.topics.opened[TOPIC]
                    await seal(broker.storage, topic.topic_id)
        async with consumer(running, "orders", group_id="g") as reading:
            assert [each.value for each in await take(reading, 2)] == [b"0", b"1"]
            await reading.commit()
    async with (
        world.broker() as broker,
        serving(broker, world.store) as running,
        consumer(running, "orders", group_id="g") as reading,
    ):
        assert [each.value for each in await take(reading, 2)] == [b"2", b"3"]


async def test_committed_offsets_are_the_cursor_of_a_subscription():
    async with served() as running, producer(running) as kafka:
        for number in range(4):
            await kafka.send_and_wait("orders", b"%d" % number)
        async with consumer(running, "orders", group_id="g") as reading:
            await take(reading, 2)
            await reading.commit()
        found = await running.client.subscriptions.describe("/default/orders", "g")
        assert (found.cursor, found.backlog) == (2, 2)
        async with running.client.consumer(
            "/default/orders", subscription="g", type="shared"
        ) as own:
            assert (await own.receive()).payload == b"2"


async def test_an_earlier_commit_delivers_again_what_native_consumers_have():
    async with served() as running:
        native = running.client
        async with (
            native.producer("/default/orders") as sending,
            native.consumer(
                "/default/orders", subscription="g", type="shared", start="earliest"
            ) as own,
        ):
            for number in range(6):
                await sending.send(b"%d" % number)
            held = [await own.receive() for _ in range(6)]
            for each in held[:4]:
                await own.ack(each)
            assert await commit(running, 2, None) is ErrorCode.none
            # Acknowledging what was held before the commit is no error.
            await own.ack(held[4])
            again = [await own.receive() for _ in range(4)]
            assert [each.payload for each in again] == [b"2", b"3", b"4", b"5"]
            for each in again:
                await own.ack(each)
            await sending.send(b"6")
            last = await own.receive()
            assert last.payload == b"6"
            await own.ack(last)
        found = await native.subscriptions.describe("/default/orders", "g")
        assert (found.cursor, found.backlog) == (7, 0)


async def test_texts_of_committed_offsets_survive_a_restart():
    world = BrokerWorld()
    async with world.broker() as broker, serving(broker) as running:
        async with producer(running) as kafka:
            await kafka.send_and_wait("orders", b"1")
        assert await commit(running, 1, "né\0te" * 500) is ErrorCode.none
        assert await commit(running, 1, "x" * 4096) is ErrorCode.none
        too_large = ErrorCode.offset_metadata_too_large
        assert await commit(running, 1, "x" * 4097) is too_large
        assert await committed(running) == (1, "x" * 4096)
        assert await commit(running, 1, "né\0te") is ErrorCode.none
    async with world.broker() as broker, serving(broker) as running:
        assert await committed(running) == (1, "né\0te")
        # A commit without a text replaces one that has a text.
        assert await commit(running, 1, None) is ErrorCode.none
        assert await committed(running) == (1, "")


async def commit(running, offset, text):
    """Commit an offset as tools do; return the error."""
    async with KafkaRequests(running.port) as raw:
        types = raw.types(Api.OFFSET_COMMIT, 8)
        partition = types.OffsetCommitRequestPartition(
            partition_index=0,
            committed_offset=offset,
            committed_leader_epoch=-1,
            committed_metadata=text,
        )
        answer = await raw.ask(
            Api.OFFSET_COMMIT,
            8,
            group_id="g",
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            topics=(
                types.OffsetCommitRequestTopic(name="orders", partitions=(partition,)),
            ),
        )
        return answer.topics[0].partitions[0].error_code


async def committed(running):
    """The committed offset, and its text."""
    async with KafkaRequests(running.port) as raw:
        types = raw.types(Api.OFFSET_FETCH, 7)
        topic = types.OffsetFetchRequestTopic(name="orders", partition_indexes=(0,))
        answer = await raw.ask(
            Api.OFFSET_FETCH, 7, group_id="g", topics=(topic,), require_stable=False
        )
        (found,) = answer.topics[0].partitions
        return found.committed_offset, found.metadata


async def test_an_idempotent_producer_stores_a_repeated_batch_once():
    async with served() as running:
        async with KafkaRequests(running.port) as raw:
            await running.client.topics.create("/default/orders")
            answers = [
                await raw.produce("orders", b"%d" % sequence, sequence)
                for sequence in (0, 0, 1)
            ]
            gap = await raw.produce("orders", b"9", 9)
        assert [(each.error_code, each.base_offset) for each in answers] == [
            (ErrorCode.none, 0),
            (ErrorCode.none, 0),
            (ErrorCode.none, 1),
        ]
        assert gap.error_code is ErrorCode.out_of_order_sequence_number
        assert [each.payload for each in await read_all(running)] == [b"0", b"1"]


async def test_a_producer_continues_on_a_topic_that_does_not_know_it():
    world = BrokerWorld()
    last = 2**31 - 1
    async with (
        world.broker() as broker,
        serving(broker) as running,
        KafkaRequests(running.port) as raw,
    ):
        await broker.topics.get_or_create(TOPIC, TopicPolicy())
        assert (await raw.produce("orders", b"0", 0)).error_code is ErrorCode.none
        await broker.topics.delete(TOPIC, force=True)
        await broker.topics.get_or_create(TOPIC, TopicPolicy())
        # After the last sequence they begin again at 0.
        answers = [await raw.produce("orders", b"1", each) for each in (last, last, 0)]
        assert [(each.error_code, each.base_offset) for each in answers] == [
            (ErrorCode.none, 0),
            (ErrorCode.none, 0),
            (ErrorCode.none, 1),
        ]
        gap = await raw.produce("orders", b"9", 9)
        assert gap.error_code is ErrorCode.out_of_order_sequence_number
        # The client recovers with a new epoch.
        numbers = {"producer_id": 7, "producer_epoch": 1, "base_sequence": 0}
        data = batch_of(b"2", **numbers)
        for _ in range(2):
            assert (await raw.produce("orders", b"", data=data)).base_offset == 2
    async with (
        world.broker() as broker,
        serving(broker) as running,
        KafkaRequests(running.port) as raw,
    ):
        assert (await raw.produce("orders", b"1", 0)).base_offset == 1
        assert (await raw.produce("orders", b"", data=data)).base_offset == 2
        gap = await raw.produce("orders", b"9", 9)
        assert gap.error_code is ErrorCode.out_of_order_sequence_number
        assert (await raw.produce("orders", b"3", 1)).base_offset == 3


@pytest.mark.parametrize("first", [0, 5])
async def test_later_batches_of_an_unknown_producer_wait_for_one_that_was_refused(
    first,
):
    gap = ErrorCode.out_of_order_sequence_number

    async def codes(raw, *sequences):
        answers = [await raw.produce("orders", b"%d" % at, at) for at in sequences]
        return [each.error_code for each in answers]

    async with served() as running, KafkaRequests(running.port) as raw:
        missing = ErrorCode.unknown_topic_or_partition
        assert await codes(raw, first, first + 1) == [missing, missing]
        await running.client.topics.create("/default/orders")
        assert await codes(raw, first + 1, first + 2) == [gap, gap]
        # Refused by the topic itself.
        bad = batch_of(b"x" * 200, producer_id=7, producer_epoch=0, base_sequence=first)
        await running.client.topics.configure(
            "/default/orders", limits=NamespacePolicy(max_message_size=100)
        )
        refused = await raw.produce("orders", b"", data=bad)
        assert refused.error_code is ErrorCode.message_too_large
        assert await codes(raw, first + 1, first, first + 1) == [gap, 0, 0]
        read = await read_all(running)
        assert [int(each.payload) for each in read] == [first, first + 1]


async def test_later_batches_wait_for_one_that_the_journal_has_refused(monkeypatch):
    async with served() as running, KafkaRequests(running.port) as raw:
        await running.client.topics.create("/default/orders")
        topic = running.broker.topics.opened[TOPIC]

        def fail(_, committed):
            error = JournalFailed("the disk is full")
            asyncio.get_running_loop().call_soon(committed, error)
            return topic.log.next_offset

        with monkeypatch.context() as patch:
            patch.setattr(topic.log, "append_nowait", fail)
            refused = await raw.produce("orders", b"5", 5)
            assert refused.error_code is ErrorCode.kafka_storage_error
        gap = ErrorCode.out_of_order_sequence_number
        # The session, which the topic does not know any more, is opened again.
        for sequence, code in ((6, gap), (5, 0), (6, 0)):
            answer = await raw.produce("orders", b"%d" % sequence, sequence)
            assert answer.error_code == code
        assert [each.payload for each in await read_all(running)] == [b"5", b"6"]


class Assigned(aiokafka.ConsumerRebalanceListener):
    """The numbers of partitions of a consumer, as they change."""

    def __init__(self):
        self.counts = asyncio.Queue()

    async def on_partitions_revoked(self, revoked):
        pass

    async def on_partitions_assigned(self, assigned):
        self.counts.put_nowait(len(assigned))

    async def reaches(self, count):
        while await self.counts.get() != count:
            pass


async def test_members_of_a_group_divide_partitions_and_take_over():
    options = {"group_id": "g", "heartbeat_interval_ms": 100}
    async with served(partitions=4) as running:
        async with consumer(running, **options) as first:
            of_first, of_second = Assigned(), Assigned()
            first.subscribe(["orders"], listener=of_first)
            await of_first.reaches(4)
            async with consumer(running, **options) as second:
                second.subscribe(["orders"], listener=of_second)
                await of_first.reaches(2)
                await of_second.reaches(2)
                assert not first.assignment() & second.assignment()
            await of_first.reaches(4)
        assert not running.server.groups.rooms("g")


async def test_offsets_are_found_by_time_and_after_retention():
    async with served() as running, producer(running) as kafka:
        for number in range(3):
            await kafka.send_and_wait(
                "orders", b"%d" % number, timestamp_ms=1000 + number
            )
        partition = aiokafka.TopicPartition("orders", 0)
        async with consumer(running) as reading:
            reading.assign([partition])
            for asked, time in ((1001, 1001), (0, 1000)):
                (found,) = (
                    await reading.offsets_for_times({partition: asked})
                ).values()
                assert (found.offset, found.timestamp) == (time - 1000, time)
            assert await reading.offsets_for_times({partition: 5000}) == {
                partition: None
            }
            topics = running.broker.topics
            topic = topics.opened[TOPIC]
            await seal(running.broker.storage, topic.topic_id)
            await topics.configure(TOPIC, retention=Retention(bytes_max=1))
            await kafka.send_and_wait("orders", b"3")
            await seal(running.broker.storage, topic.topic_id)
            await topics.apply_retention(TOPIC)
            begin = (await reading.beginning_offsets([partition]))[partition]
            assert begin > 0
            # A position that was dropped is reset as the client is configured.
            reading.seek(partition, 0)
            assert (await anext(reading)).offset == begin


async def test_namespaces_are_in_names_if_they_are_to_be():
    async with served(namespaces=True) as running, producer(running) as kafka:
        await running.client.namespaces.create("shop")
        await kafka.send_and_wait("shop.orders", b"1")
        assert await running.client.topics.list("shop") == ["/shop/orders"]


@pytest.mark.parametrize(("allowed", "asked"), [(False, True), (True, False)])
async def test_topics_that_may_not_be_created_are_unknown(allowed, asked):
    async with (
        served(auto_create_topics=allowed) as running,
        KafkaRequests(running.port) as raw,
    ):
        wanted = raw.types(Api.METADATA, 9).MetadataRequestTopic(name="orders")
        options = {
            "allow_auto_topic_creation": asked,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        }
        (found,) = (await raw.ask(Api.METADATA, 9, topics=(wanted,), **options)).topics
        assert found.error_code is ErrorCode.unknown_topic_or_partition
        assert await running.client.topics.list() == []


async def test_a_schema_refuses_records_with_the_reason():
    async with served() as running:
        client = running.client
        await client.schemas.register(
            "orders", Schema.json_schema('{"type": "object"}')
        )
        await client.topics.create("/default/orders")
        binding = TopicSchema(subject="orders", policy=SchemaPolicy.ENFORCE)
        await client.topics.configure("/default/orders", schema=binding)
        async with KafkaRequests(running.port) as raw:
            found = await raw.produce("orders", b"no json")
        assert found.error_code is ErrorCode.invalid_record
        assert "schema" in found.error_message
        assert await read_all(running) == []


async def registered(client, subject, *definitions):
    """Register versions in JSON Schema; return the prefixes of their values."""
    found = [
        await client.schemas.register(subject, Schema.json_schema(each))
        for each in definitions
    ]
    return [b"\0" + (each.schema_id << 14 | each.version).to_bytes(4) for each in found]


def batch_of(*values, **numbers):
    count = len(values)
    records = Records(
        timestamps=[1] * count,
        keys=[b"k"] * count,
        values=values,
        headers=[()] * count,
    )
    return encode_batch(records, range(count), **numbers)


async def test_values_with_ids_of_schemas_are_values_for_native_clients():
    async with served() as running, KafkaRequests(running.port) as raw:
        client = running.client
        one, two = await registered(client, "orders", '{"maximum": 9}', "{}")
        await client.topics.create("/default/orders")
        binding = TopicSchema(
            subject="orders", policy=SchemaPolicy.ENFORCE, validates_payload=True
        )
        await client.topics.configure("/default/orders", schema=binding)
        sent = [one + b"1", None, two + b"20", one + b"3"]
        numbers = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
        for _ in range(2):
            # The second one is a repetition.
            data = batch_of(*sent, **numbers)
            answer = await raw.produce("orders", b"", data=data)
            assert (answer.error_code, answer.base_offset) == (0, 0)
        answer = await raw.produce("orders", one + b"4", 4)
        assert answer.base_offset == 4
        read = await read_all(running)
        assert [each.payload for each in read] == [b"1", b"", b"20", b"3", b"4"]
        assert [each.schema_version for each in read] == [1, 1, 2, 1, 1]
        data = batch_of(two + b"5", one + b"6", one + b"99")
        bad = await raw.produce("orders", b"", data=data)
        assert bad.error_code is ErrorCode.invalid_record
        assert [each.batch_index for each in bad.record_errors] == [2]
        deleted = await raw.produce("orders", b"", data=batch_of(None))
        assert (deleted.error_code, deleted.base_offset) == (0, 6)
        unknown = await raw.produce("orders", b"\0\0\0\0\1")
        assert unknown.error_code is ErrorCode.invalid_record
        assert "not in the registry: 1" in unknown.error_message
        mixed = await raw.produce("orders", b"", data=batch_of(one + b"1", b"2"))
        assert "not all values" in mixed.error_message
        # What clients have written comes back, also without the schema.
        await client.schemas.delete("orders", force=True)
        assert await client.schemas.subjects() == []
        async with consumer(running, "orders") as kafka:
            found = [each.value for each in await take(kafka, 7)]
        # Of a batch that is divided, each part is stored or not.
        assert found == [*sent, one + b"4", two + b"5", None]


@pytest.mark.parametrize("function", ["_decode", "ids_of", "encode_messages"])
async def test_many_records_in_few_bytes_are_converted_in_threads(
    function, monkeypatch
):
    threads, convert = [], getattr(producing, function)

    def convert_here(*arguments):
        threads.append(threading.current_thread())
        return convert(*arguments)

    monkeypatch.setattr(producing, function, convert_here)
    count = producing.INLINE_RECORDS_MAX + 1
    records = Records(
        timestamps=[1] * count,
        keys=[None] * count,
        values=[b"v"] * count,
        headers=[()] * count,
    )
    data = encode_batch(records, range(count), codec=Compression.GZIP)
    assert len(data) < producing.INLINE_BYTES_MAX
    async with served() as running, KafkaRequests(running.port) as raw:
        await running.client.topics.create("/default/orders")
        answer = await raw.produce("orders", b"", data=data)
        assert not answer.error_code
    assert threads
    assert threading.main_thread() not in threads


async def test_values_of_native_producers_have_the_id_of_their_schema():
    async with served() as running:
        client, schema = running.client, Schema.json_schema('{"type": "object"}')
        async with client.producer("/default/orders", schema=schema) as native:
            await native.send({"id": 1}, key="k")
            await native.send_batch([{"id": n} for n in range(2, 700)])
        async with client.producer("/default/orders") as native:
            await native.send(b"plain")
        (prefix,) = await registered(client, "default-orders", '{"type": "object"}')
        async with consumer(running, "orders") as kafka:
            found = [each.value for each in await take(kafka, 700)]
        assert found[0].startswith(prefix)
        assert [json.loads(each[5:])["id"] for each in found[:-1]] == list(
            range(1, 700)
        )
        assert found[-1] == b"plain"


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">ihhi", 8, 999, 0, 1),
        struct.pack(">ihhi", 9, Api.METADATA, 9, 1) + b"\xff",
        struct.pack(">i", len(LONG)) + LONG,
    ],
    ids=["negative", "long", "unknown", "damaged", "too much work"],
)
async def test_bytes_that_are_no_request_close_only_their_connection(data):
    async with served() as running, producer(running) as kafka:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(data)
        assert await reader.read() == b""
        writer.close()
        assert (await kafka.send_and_wait("orders", b"1")).offset == 0
        assert running.server.parts.counts.abusive_total == 1


async def test_records_that_cannot_be_stored_are_refused_with_the_reason():
    async with served() as running, KafkaRequests(running.port) as raw:
        await running.client.topics.create("/default/orders")
        batch = encode_batch(
            Records(timestamps=[1], keys=[None], values=[b"x"], headers=[()]), [0]
        )
        damaged = batch[:-1] + b"y"
        old = batch[:16] + b"\1" + batch[17:]
        for topic, data, code in (
            ("orders", damaged, ErrorCode.corrupt_message),
            ("orders", old, ErrorCode.unsupported_for_message_format),
            ("orders", b"", ErrorCode.corrupt_message),
            ("orders", batch * 2, ErrorCode.corrupt_message),
            ("others", batch, ErrorCode.unknown_topic_or_partition),
            ("a b", batch, ErrorCode.invalid_topic_exception),
        ):
            found = await raw.produce(topic, b"", data=data)
            assert found.error_code is code, (topic, found)
            assert found.error_message
        assert await read_all(running) == []


async def test_settings_of_topics_are_described_and_changed():
    async with served(partitions=2) as running, KafkaRequests(running.port) as raw:
        await running.client.topics.create("/default/orders", partitions=2)
        types = raw.types(Api.INCREMENTAL_ALTER_CONFIGS, 1)

        async def alter(name, value):
            config = types.AlterableConfig(name=name, config_operation=0, value=value)
            resource = types.AlterConfigsResource(
                resource_type=2, resource_name="orders", configs=(config,)
            )
            answer = await raw.ask(
                Api.INCREMENTAL_ALTER_CONFIGS,
                1,
                resources=(resource,),
                validate_only=False,
            )
            return answer.responses[0]

        assert (await alter("retention.ms", "60000")).error_code is ErrorCode.none
        refused = await alter("flush.ms", "1")
        assert refused.error_code is ErrorCode.invalid_config
        assert "flush.ms" in refused.error_message
        found = await running.client.topics.describe("/default/orders-part-1")
        assert found.policy.retention == Retention(age_s=60.0)
        types = raw.types(Api.DESCRIBE_CONFIGS, 4)
        resource = types.DescribeConfigsResource(
            resource_type=2, resource_name="orders", configuration_keys=None
        )
        answer = await raw.ask(Api.DESCRIBE_CONFIGS, 4, resources=(resource,))
        values = {each.name: each.value for each in answer.results[0].configs}
        assert values["retention.ms"] == "60000"


async def test_a_member_that_brings_too_much_is_refused():
    async with served() as running, KafkaRequests(running.port) as raw:
        types = raw.types(Api.JOIN_GROUP, 5)
        protocol = types.JoinGroupRequestProtocol(name="range", metadata=bytes(70_000))
        answer = await raw.ask(
            Api.JOIN_GROUP,
            5,
            group_id="g",
            session_timeout=timedelta(seconds=10),
            rebalance_timeout=timedelta(seconds=10),
            member_id="",
            group_instance_id=None,
            protocol_type="consumer",
            protocols=(protocol,),
        )
        assert answer.error_code is ErrorCode.inconsistent_group_protocol
        assert not running.server.groups.rooms("g")


class Fetches:
    """Requests of one consumer that fetches in a session."""

    def __init__(self, raw):
        self.raw = raw

    async def ask(self, session_id, epoch, wanted=(), forgotten=()):
        """Return the error, the session, and the records of partitions."""
        types = self.raw.types(Api.FETCH, 12)
        topics = tuple(
            types.FetchTopic(
                topic="orders",
                partitions=(
                    types.FetchPartition(
                        partition=index,
                        current_leader_epoch=-1,
                        fetch_offset=offset,
                        last_fetched_epoch=-1,
                        log_start_offset=-1,
                        partition_max_bytes=100_000,
                    ),
                ),
            )
            for index, offset in wanted
        )
        answer = await self.raw.ask(
            Api.FETCH,
            12,
            replica_id=-1,
            max_wait=timedelta(0),
            min_bytes=1,
            max_bytes=100_000,
            isolation_level=0,
            session_id=session_id,
            session_epoch=epoch,
            topics=topics,
            forgotten_topics_data=tuple(
                types.ForgottenTopic(topic="orders", partitions=(index,))
                for index in forgotten
            ),
            rack_id="",
        )
        found = {
            partition.partition_index: bool(partition.records)
            for each in answer.responses
            for partition in each.partitions
        }
        return answer.error_code, answer.session_id, found


async def test_a_session_answers_only_with_news():
    async with (
        served(partitions=2) as running,
        producer(running) as kafka,
        KafkaRequests(running.port) as raw,
    ):
        await kafka.send_and_wait("orders", b"0", partition=0)
        fetches = Fetches(raw)
        code, session, found = await fetches.ask(0, 0, [(0, 0), (1, 0)])
        assert (code, found) == (ErrorCode.none, {0: True, 1: False})
        assert session > 0
        ask = fetches.ask
        assert await ask(session, 1, [(0, 1)]) == (0, session, {0: False})
        assert await ask(session, 2) == (0, session, {})
        await kafka.send_and_wait("orders", b"1", partition=1)
        assert await ask(session, 3) == (0, session, {1: True})
        assert await ask(session, 4, forgotten=[1]) == (0, session, {})
        wrong_epoch = await ask(session, 9)
        assert wrong_epoch[0] is ErrorCode.invalid_fetch_session_epoch
        unknown = await ask(session + 1, 5)
        assert unknown[0] is ErrorCode.fetch_session_id_not_found
        # Without a session, and so the end of the one before.
        assert (await ask(session, -1, [(0, 1)]))[1:] == (0, {0: False})
        assert (await ask(session, 5))[0] is ErrorCode.fetch_session_id_not_found
