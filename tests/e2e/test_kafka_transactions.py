"""Transactions of librdkafka: all becomes visible together, once, or nothing does."""

from __future__ import annotations

import asyncio

import confluent_kafka
import pytest

import pydanube
from pydanube.model.errors import Refused
from pydanube.objects.directory import DirectoryObjects
from pydanube_broker.servers.directories.restore import choose_backup, restore_backup
from pydanube_broker.servers.run import serve
from pydanube_broker.servers.settings.config import ListenConfig, config_type
from pydanube_broker.storage.config import NamedStoreConfig
from pydanube_kafka.config import KafkaConfig
from pydanube_kafka.transaction_parts import query_of
from pydanube_kafka.wire.apis import ErrorCode
from support.drivers.kafka_requests import KafkaRequests
from support.drivers.kafka_transactions import ID, Producer
from support.fakes.secured import bootstrap_key, secured
from support.servers.ports import free_port
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

WAIT_S = 60
COUNT = 60
COMMITS = 8


def served(directory):
    """A broker that all may use."""
    return serve(
        config_type()(
            data_dir=directory / "data",
            listen=ListenConfig(stream_port=0, grpc_port=0, admin_port=0, http_port=0),
            kafka=KafkaConfig(port=0),
        )
    )


def options_of(broker, **options):
    address = broker.listener_urls["kafka"].partition("://")[2]
    return {"bootstrap.servers": address, "log_level": 0, **options}


def transactional(options, name="tx"):
    producer = confluent_kafka.Producer(options | {"transactional.id": name})
    producer.init_transactions(WAIT_S)
    return producer


async def read_all(url, topic, **options):
    async with pydanube.connect(url, **options) as client:
        batches = client.read(topic)
        return [each.payload async for batch in batches for each in batch]


def publish_two_transactions(options):
    """Publish one that is aborted, and one that is committed."""
    producer = transactional(options)
    for value, end in (
        (b"aborted", producer.abort_transaction),
        (b"committed", producer.commit_transaction),
    ):
        producer.begin_transaction()
        for topic in ("t", "u"):
            producer.produce(topic, value)
        assert producer.flush(WAIT_S) == 0
        end(WAIT_S)


async def test_only_committed_records_are_seen(tmp_path):
    async with served(tmp_path) as broker:
        await asyncio.to_thread(publish_two_transactions, options_of(broker))
        for topic in ("t", "u"):
            assert await read_all(broker.stream_url, f"/default/{topic}") == [
                b"committed"
            ]


def be_fenced(options):
    """Let a second producer begin while the first has an open transaction."""
    first = transactional(options)
    first.begin_transaction()
    first.produce("t", b"of the first")
    assert first.flush(WAIT_S) == 0
    second = transactional(options)
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        first.commit_transaction(WAIT_S)
    assert raised.value.args[0].fatal()
    second.begin_transaction()
    second.produce("t", b"of the second")
    second.commit_transaction(WAIT_S)


async def test_a_new_producer_fences_the_one_before(tmp_path):
    async with served(tmp_path) as broker:
        await asyncio.to_thread(be_fenced, options_of(broker))
        assert await read_all(broker.stream_url, "/default/t") == [b"of the second"]


async def test_a_permission_that_is_revoked_refuses_the_commit(tmp_path):
    async with secured(tmp_path, kafka={"port": 0}) as broker:
        key = bootstrap_key(tmp_path)
        async with pydanube.connect(broker.stream_url, api_key=key) as admin:
            made = await admin.security.create_api_key("bob")
            options = options_of(
                broker,
                **{
                    "security.protocol": "SASL_PLAINTEXT",
                    "sasl.mechanism": "PLAIN",
                    "sasl.username": "bob",
                    "sasl.password": made.key,
                },
            )
            for topic in ("/default/t", "/default/u"):
                await admin.topics.create(topic)
            permit = admin.security.add_binding
            both = await permit("user:bob", ["producer"], ["/default/*"])
            producer = await asyncio.to_thread(transactional, options)
            producer.begin_transaction()
            for topic in ("t", "u"):
                producer.produce(topic, b"1")
            assert await asyncio.to_thread(producer.flush, WAIT_S) == 0
            await admin.security.remove_binding(both)
            await permit("user:bob", ["producer"], ["/default/t"])
            with pytest.raises(confluent_kafka.KafkaException) as raised:
                await asyncio.to_thread(producer.commit_transaction, WAIT_S)
            assert raised.value.args[0].fatal()
            again = await asyncio.to_thread(transactional, options)
            again.begin_transaction()
            again.produce("t", b"2")
            await asyncio.to_thread(again.commit_transaction, WAIT_S)
            for topic, values in (("/default/t", [b"2"]), ("/default/u", [])):
                batches = admin.read(topic)
                found = [each.payload async for batch in batches for each in batch]
                assert found == values


async def test_nothing_can_be_done_to_a_transaction_of_another_tenant(tmp_path):
    async with secured(tmp_path, kafka={"port": 0}) as broker:
        key = bootstrap_key(tmp_path)
        port = int(broker.listener_urls["kafka"].rpartition(":")[2])
        async with (
            pydanube.connect(broker.stream_url, api_key=key) as admin,
            KafkaRequests(port) as bobs,
            KafkaRequests(port) as eves,
        ):
            await admin.topics.create("/default/orders")
            for name, raw in (("bob", bobs), ("eve", eves)):
                made = await admin.security.create_api_key(name)
                await raw.authenticate(name, made.key)
                roles = ["producer", "consumer"]
                await admin.security.add_binding(f"user:{name}", roles, ["/default/*"])
            bob = Producer(bobs)
            assert not await bob.init()
            assert not await bob.add()
            assert not await bob.produce(b"1", 0)
            denied = ErrorCode.transactional_id_authorization_failed
            for known in ((-1, -1), (bob.producer_id, bob.epoch)):
                assert await Producer(eves).init(known=known) is denied
            eve, fenced = Producer(eves, 7, 0), ErrorCode.invalid_producer_epoch
            for refused in (
                eve.add(),
                eve.produce(b"2", 1),
                eve.commit_offset("g", 0),
                eve.end(),
                eve.end(committed=False),
            ):
                assert await refused is fenced
            # Neither can natives, whose names of queries are the same.
            url = broker.stream_url
            async with pydanube.connect(url, api_key=made.key) as native:
                with pytest.raises(Refused):
                    await native.staging(query_of(ID), 2**62).abort()
            assert not await bob.produce(b"2", 1)
            assert not await bob.end()
        found = await read_all(broker.stream_url, "/default/orders", api_key=key)
        assert found == [b"1", b"2"]


async def test_a_backup_has_all_of_a_transaction_or_nothing(tmp_path):
    store = NamedStoreConfig(url=f"fs://{tmp_path}/backups")
    objects, topics = DirectoryObjects(tmp_path / "backups"), ("orders", "other")

    def running(name):
        return serve(
            config_type()(
                data_dir=tmp_path / name,
                listen=ListenConfig(
                    stream_port=0, grpc_port=0, admin_port=0, http_port=0
                ),
                kafka=KafkaConfig(port=0),
                stores={"backups": store},
            )
        )

    async def values(broker):
        return [
            await read_all(broker.stream_url, f"/default/{each}") for each in topics
        ]

    async def commit_some(producer, first, *, is_last_open=False):
        for number in range(first, first + COMMITS):
            for topic in topics:
                assert not await producer.add(topic)
                assert not await producer.produce(b"%d" % number, number, topic)
            if not is_last_open or number < first + COMMITS - 1:
                assert not await producer.end()

    async with running("data") as broker:
        port = int(broker.listener_urls["kafka"].rpartition(":")[2])
        async with (
            pydanube.connect(broker.stream_url) as client,
            KafkaRequests(port) as raw,
        ):
            for topic in topics:
                await client.topics.create(f"/default/{topic}")
            producer = Producer(raw)
            assert not await producer.init()
            await commit_some(producer, 0, is_last_open=True)
            ids = [await backed_up(client)]
            assert not await producer.end()
            # At any moment of a commit.
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(commit_some(producer, COMMITS))
                ids += [await backed_up(client) for _ in range(3)]
    for number, backup_id in enumerate(ids):
        name = f"restored{number}"
        chosen = await choose_backup(objects, backup_id)
        await restore_backup(objects, chosen, tmp_path / name)
        async with running(name) as broker:
            port = int(broker.listener_urls["kafka"].rpartition(":")[2])
            async with KafkaRequests(port) as raw, asyncio.timeout(WAIT_S):
                again = Producer(raw, producer.producer_id, producer.epoch)
                assert await again.end() is ErrorCode.invalid_producer_id_mapping
                # A commit that was decided is carried out.
                while (found := await values(broker))[0] != found[1]:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                begun = [b"%d" % each for each in range(len(found[0]))]
                assert found[0] == begun
                assert len(begun) == COMMITS - 1 or number
                assert not await again.init()
                assert not await again.add("orders")
                assert not await again.produce(b"new", 0, "orders")
                assert not await again.end()
                assert (await values(broker))[0] == [*begun, b"new"]


async def backed_up(client):
    """Make a backup, and return its id."""
    await client.storage.create_backup("backups")
    while (progress := await client.storage.describe_backup()).is_running:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    assert not progress.error
    return progress.id


class Crash(Exception):
    """The program has crashed, and does not clean up."""


def copy_some(options, total, *, crash_at=0, on_commit=lambda: None):
    """
    Copy records from one topic to another, in transactions with their offsets.

    Crashes before the transaction *crash_at* is committed; otherwise ends at *total*.
    """
    consumer = confluent_kafka.Consumer(
        options
        | {
            "group.id": "copy",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 1000,
            "heartbeat.interval.ms": 100,
            "isolation.level": "read_committed",
        }
    )
    producer = transactional(options)
    consumer.subscribe(["from"])
    try:
        number = 0
        while True:
            messages = consumer.consume(5, 0.5)
            failed = [each.error() for each in messages if each.error()]
            assert not [each for each in failed if not each.retriable()], failed
            records = [each for each in messages if not each.error()]
            if not records:
                partition = confluent_kafka.TopicPartition("from", 0)
                (found,) = consumer.committed([partition], WAIT_S)
                if found.offset == total:
                    return
                continue
            producer.begin_transaction()
            for each in records:
                producer.produce("to", each.value())
            producer.send_offsets_to_transaction(
                consumer.position(consumer.assignment()),
                consumer.consumer_group_metadata(),
                WAIT_S,
            )
            number += 1
            if number == crash_at:
                assert producer.flush(WAIT_S) == 0
                raise Crash
            on_commit()
            producer.commit_transaction(WAIT_S)
    finally:
        consumer.close()


def fill(options):
    producer = confluent_kafka.Producer(options)
    for number in range(COUNT):
        producer.produce("from", str(number).encode())
    assert producer.flush(WAIT_S) == 0


async def test_records_are_copied_once_although_the_program_crashes(tmp_path):
    async with served(tmp_path) as broker:
        options = options_of(broker)
        await asyncio.to_thread(fill, options)
        for crash_at in (3, 2):
            with pytest.raises(Crash):
                await asyncio.to_thread(copy_some, options, COUNT, crash_at=crash_at)
        await asyncio.to_thread(copy_some, options, COUNT)
        copied = await read_all(broker.stream_url, "/default/to")
        assert copied == [str(number).encode() for number in range(COUNT)]


def copy_all(options, total, on_commit):
    """Copy as programs do: begin again after each error."""
    while True:
        try:
            copy_some(options, total, on_commit=on_commit)
        except (confluent_kafka.KafkaException, AssertionError):
            continue
        return


@pytest.mark.soak
async def test_records_are_copied_once_although_the_broker_is_killed(tmp_path):
    port, commits = free_port(), 0
    log_file = tmp_path / "broker.log"
    options = ("--kafka-port", str(port))
    clients = {"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0}

    def on_commit():
        nonlocal commits
        commits += 1

    with BrokerProcess(tmp_path / "data", *options, log_file=log_file) as broker:
        await asyncio.to_thread(fill, clients)
        async with asyncio.TaskGroup() as tasks:
            copying = asyncio.to_thread(copy_all, clients, COUNT, on_commit)
            task = tasks.create_task(copying)
            for kill_at in range(2, 14, 2):
                while commits < kill_at and not task.done():  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
                broker.kill()
                await asyncio.to_thread(broker.start)
        copied = await read_all(broker.url, "/default/to")
        assert copied == [str(number).encode() for number in range(COUNT)]
