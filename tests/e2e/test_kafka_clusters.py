"""Clients of librdkafka work with a cluster whose topics move and whose brokers die."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from functools import partial
from itertools import chain
from threading import Event

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from pydanube.model.names import TopicName
from pydanube.model.schemas import SchemaType
from pydanube.schemas.pure.confluent_schemas import VERSION_BITS
from pydanube_broker.broker.publishing.schema_registry import NewSchema
from pydanube_kafka.pure.nodes import number_of, shard_of
from pydanube_kafka.wire.apis import Api, ErrorCode
from support.drivers.kafka_clients import (
    CLASSIC,
    CONSUMER,
    PARTITIONS,
    WAIT_S,
    Publishing,
    check_all_once,
    consume,
    create,
    options_of,
)
from support.drivers.kafka_requests import KafkaRequests
from support.fakes.broker_clusters import SHARDS
from support.fakes.kafka_clusters import KafkaCluster
from support.servers.cluster_processes import cluster_broker, cluster_settings
from support.servers.ports import free_port
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

BROKERS = ("a", "b", "c")


async def test_clients_learn_who_leads_each_partition():
    async with KafkaCluster().running(*BROKERS) as cluster:
        admin = await create(cluster.addresses, "t")
        listed = partial(admin.list_topics, timeout=WAIT_S)
        before = await asyncio.to_thread(listed)
        assert set(before.brokers) == set(map(number_of, BROKERS))
        for index in range(PARTITIONS):
            for broker_id in BROKERS:
                await cluster.move(f"/default/t-part-{index}", broker_id)
                # The controller may move it on.
                leader = owner = None
                while leader is None or leader != owner:
                    found = await asyncio.to_thread(listed)
                    leader = found.topics["t"].partitions[index].leader
                    owner = number_of(await cluster.owner(f"/default/t-part-{index}"))


async def test_nothing_is_lost_or_stored_twice_while_topics_move():
    async with KafkaCluster().running(*BROKERS) as cluster:
        await create(cluster.addresses, "t")
        async with Publishing(
            options_of(cluster.addresses), "t"
        ).running() as publishing:
            for step in range(6):
                await publishing.acknowledges(20)
                await cluster.move_shard(step % SHARDS, BROKERS[step % len(BROKERS)])
        await check_all_once(cluster.addresses, publishing)
        for broker_id in BROKERS:
            server = cluster.server(broker_id)
            server.sessions.sweep()
            opened = server.broker.topics.opened.values()
            assert server.sessions.topics <= set(opened)


async def test_values_with_ids_of_schemas_come_back_when_their_topic_moves():
    async with KafkaCluster().running("a", "b") as cluster:
        await create(cluster.addresses, "t")
        new = NewSchema(type=SchemaType.JSON_SCHEMA, definition="{}")
        registry = cluster.server("a").broker.registry
        schema, _ = await registry.register("t-value", new)
        number = schema.schema_id << VERSION_BITS | schema.version
        options = options_of(cluster.addresses)
        producer, sent = Producer(options), []
        for broker_id in ("a", "b", "a"):
            await cluster.move("/default/t-part-0", broker_id)
            sent.append(b"\0" + number.to_bytes(4) + f'"{broker_id}"'.encode())
            producer.produce("t", sent[-1], b"k", 0)
            assert await asyncio.to_thread(producer.flush, WAIT_S) == 0
        for broker_id in ("a", "b"):
            await cluster.move("/default/t-part-0", broker_id)
            read = await asyncio.to_thread(values_of, options, len(sent))
            assert read == sent
        topic = await cluster.server("b").broker.topics.get(
            TopicName.parse("/default/t-part-0")
        )
        (first, *_) = await topic.log.read(0, bytes_max=1)
        assert first.header.schema_id == schema.schema_id


def values_of(options, count):
    """The first values of a partition."""
    consumer = Consumer(options | {"group.id": "values"})
    consumer.assign([TopicPartition("t", 0, 0)])
    found = []
    while len(found) < count:
        for message in consumer.consume(count, 0.2):
            assert not message.error() or message.error().retriable()
            if not message.error():
                found.append(message.value())
    consumer.close()
    return found


async def test_nothing_is_lost_or_stored_twice_when_a_broker_dies():
    async with KafkaCluster().running(*BROKERS) as cluster:
        await create(cluster.addresses, "t")
        async with Publishing(
            options_of(cluster.addresses), "t"
        ).running() as publishing:
            await publishing.acknowledges(50)
            await cluster.kill("b")
            await publishing.acknowledges(50)
        await check_all_once(cluster.addresses, publishing)


@pytest.mark.parametrize("protocol", [CLASSIC, CONSUMER])
async def test_a_group_goes_on_when_its_coordinator_dies(protocol):
    async with KafkaCluster(group_heartbeat_interval_s=0.3).running(
        *BROKERS
    ) as cluster:
        await create(cluster.addresses, "t")
        shard = shard_of("g", SHARDS)
        await cluster.move_shard(shard, "b")
        assert cluster.server("b").brokers.is_coordinator("g")
        reached, loop = asyncio.Event(), asyncio.get_running_loop()
        is_killed = Event()

        def on_read(found):
            if sum(map(len, found.values())) >= 40:
                loop.call_soon_threadsafe(reached.set)

        async with Publishing(
            options_of(cluster.addresses), "t"
        ).running() as publishing:

            def has_all(found):
                count = sum(map(len, found.values()))
                return is_killed.is_set() and count >= publishing.acknowledged

            async with asyncio.TaskGroup() as tasks:
                reading = tasks.create_task(
                    asyncio.to_thread(
                        consume,
                        options_of(cluster.addresses),
                        "t",
                        has_all,
                        on_read,
                        protocol,
                    )
                )
                await reached.wait()
                await cluster.kill("b")
                await publishing.acknowledges(40)
                is_killed.set()
        found = reading.result()
        for partition, numbers in found.items():
            # What was not committed may come again, and nothing is left out.
            seen = sorted(set(numbers))
            assert seen == list(range(partition, seen[-1] + 1, PARTITIONS))


async def test_requests_for_groups_of_other_brokers_are_refused():
    async with KafkaCluster().running(*BROKERS) as cluster:
        await cluster.move_shard(shard_of("g", SHARDS), "b")
        for broker_id in BROKERS:
            async with KafkaRequests(cluster.server(broker_id).brokers.port) as raw:
                found = await raw.ask(
                    Api.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=("g",)
                )
                assert found.coordinators[0].node_id == number_of("b")
                beat = await raw.ask(
                    Api.HEARTBEAT,
                    3,
                    group_id="g",
                    generation_id=1,
                    member_id="m",
                    group_instance_id=None,
                )
                expected = ErrorCode.not_coordinator
                if broker_id == "b":
                    expected = ErrorCode.unknown_member_id
                assert beat.error_code is expected


MOVING = {"NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION"}


def steady(ask):
    """The result of *ask*, which is repeated while the controller moves its shard."""
    while True:
        try:
            return ask().result()
        except KafkaException as error:
            if error.args[0].name() not in MOVING:
                raise


def administer(address, topic):
    """Create a topic, look at its settings and offsets, change it, and delete it."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result()
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    change = ConfigEntry(
        "retention.ms", "60000", incremental_operation=AlterConfigOpType.SET
    )
    resource.add_incremental_config(change)
    admin.incremental_alter_configs([resource])[resource].result()
    wanted = ConfigResource(ConfigResource.Type.TOPIC, topic)
    described = steady(lambda: admin.describe_configs([wanted])[wanted])
    assert described["retention.ms"].value == "60000"
    admin.create_partitions([NewPartitions(topic, PARTITIONS + 1)])[topic].result()
    group = TopicPartition(topic, PARTITIONS, 0)
    offsets = ConsumerGroupTopicPartitions(topic, [group])
    steady(lambda: admin.alter_consumer_group_offsets([offsets])[topic])
    listed = []
    while listed != [topic]:
        found = admin.list_consumer_groups().result()
        assert found.errors == []
        listed = [each.group_id for each in found.valid]
    steady(lambda: admin.delete_consumer_groups([topic])[topic])
    whole = [TopicPartition(topic, index, -1) for index in range(PARTITIONS)]
    deleted = steady(lambda: admin.delete_records(whole)[whole[-1]])
    assert deleted.low_watermark == 0
    admin.delete_topics([topic])[topic].result()
    assert topic not in admin.list_topics(timeout=WAIT_S).topics


async def test_every_broker_administers_topics_and_groups_of_all():
    async with KafkaCluster().running(*BROKERS) as cluster:
        for broker_id, address in zip(
            BROKERS, cluster.addresses.split(","), strict=True
        ):
            await asyncio.to_thread(administer, address, f"of-{broker_id}")


@pytest.mark.soak
async def test_nothing_is_lost_or_stored_twice_when_processes_are_killed(tmp_path):
    path = tmp_path / "settings.yaml"
    path.write_text(json.dumps({"cluster": {"shards": 8}}))
    port = free_port()
    options = ("--processes", "2", "--config", str(path), "--kafka-port", str(port))
    log_file = tmp_path / "broker.log"
    with BrokerProcess(tmp_path / "data", *options, log_file=log_file) as broker:
        addresses = f"127.0.0.1:{port}"
        admin = await create(addresses, "t")
        listed = await asyncio.to_thread(partial(admin.list_topics, timeout=WAIT_S))
        assert len(listed.brokers) == 2
        async with Publishing(options_of(addresses), "t").running() as publishing:
            await publishing.acknowledges(50)
            for victim in broker.children():
                os.kill(victim, signal.SIGKILL)
                await publishing.acknowledges(200)
        await check_all_once(addresses, publishing)
        assert broker.stop() == 0


@pytest.mark.soak
async def test_nothing_is_lost_or_stored_twice_when_brokers_are_killed(tmp_path, etcd):
    settings = cluster_settings(etcd.url, tmp_path)
    ports = {each: free_port() for each in BROKERS}
    brokers = {
        each: cluster_broker(tmp_path, settings | {"kafka": {"port": port}}, each)
        for each, port in ports.items()
    }
    addresses = ",".join(f"127.0.0.1:{port}" for port in ports.values())
    with brokers["a"], brokers["b"], brokers["c"]:
        await create(addresses, "t")
        async with Publishing(options_of(addresses), "t").running() as publishing:
            for each in brokers.values():
                await publishing.acknowledges(100)
                each.kill()
                await publishing.acknowledges(100)
                await asyncio.to_thread(each.start)
        await check_all_once(addresses, publishing)


class Copying:
    """Programs that copy a topic to another one, in transactions with their offsets."""

    def __init__(self, options, total):
        self._options = options
        self._total = total
        self.commits = 0
        self.aborts = 0
        self.errors = []
        self.is_done = False

    def run(self):
        """Copy until all offsets are committed; begin again as programs have to."""
        while not self.is_done:
            producer = Producer(self._options | {"transactional.id": "copy"})
            consumer = Consumer(
                self._options
                | {
                    "group.id": "readers",
                    "auto.offset.reset": "earliest",
                    "enable.auto.commit": False,
                    "session.timeout.ms": 2000,
                    "heartbeat.interval.ms": 200,
                    "isolation.level": "read_committed",
                }
            )
            try:
                producer.init_transactions(WAIT_S)
                consumer.subscribe(["from"])
                while not self.is_done:
                    self._copy_some(consumer, producer)
            except KafkaException as error:
                self.errors.append(error.args[0].name())
            finally:
                consumer.close()

    def _copy_some(self, consumer, producer):
        records = [each for each in consumer.consume(8, 0.2) if not each.error()]
        if not records:
            self.is_done = self._has_committed_all(consumer)
            return
        producer.begin_transaction()
        try:
            for each in records:
                producer.produce("to", each.value(), each.key())
            producer.send_offsets_to_transaction(
                consumer.position(consumer.assignment()),
                consumer.consumer_group_metadata(),
                WAIT_S,
            )
            producer.commit_transaction(WAIT_S)
            self.commits += 1
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            producer.abort_transaction(WAIT_S)
            self.aborts += 1
            # What was read is read again, from what is committed.
            for each in consumer.committed(consumer.assignment(), WAIT_S):
                each.offset = max(each.offset, 0)
                consumer.seek(each)

    def _has_committed_all(self, consumer):
        wanted = [TopicPartition("from", index) for index in range(PARTITIONS)]
        found = consumer.committed(wanted, WAIT_S)
        return sum(max(each.offset, 0) for each in found) == self._total


async def copied_over(addresses, total, disturb):
    """Copy *total* records while *disturb* runs, and check that each is there once."""
    options = options_of(addresses)
    for topic in ("from", "to"):
        await create(addresses, topic)
    copying = Copying(options, total)
    filling = Producer(options)
    for number in range(total):
        filling.produce("from", str(number).encode(), str(number).encode())
    assert await asyncio.to_thread(filling.flush, WAIT_S) == 0
    async with asyncio.TaskGroup() as tasks:
        work = tasks.create_task(asyncio.to_thread(copying.run))
        await disturb(copying, work)
    found = await asyncio.to_thread(
        consume,
        options | {"isolation.level": "read_committed"},
        "to",
        lambda found: sum(map(len, found.values())) >= total,
    )
    assert sorted(chain.from_iterable(found.values())) == list(range(total))


def publish_while(producer, disturb, *, sends_on):
    """Publish a transaction, which *disturb* disturbs, until it is committed."""
    attempts = 0
    while True:
        producer.begin_transaction()
        producer.produce("t", b"%d" % attempts, partition=0)
        assert producer.flush(WAIT_S) == 0
        if not attempts:
            disturb()
        attempts += 1
        try:
            if sends_on:
                producer.produce("t", b"7", partition=0)
            producer.commit_transaction(WAIT_S)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            producer.abort_transaction(WAIT_S)
        else:
            return attempts


async def test_a_transaction_whose_partition_moves_is_committed_or_can_be_aborted():
    async with KafkaCluster().running("a", "b") as cluster:
        await create(cluster.addresses, "t")
        await cluster.move_shard(shard_of("tx", SHARDS), "a")
        options = options_of(cluster.addresses) | {"transactional.id": "tx"}
        producer, loop = Producer(options), asyncio.get_running_loop()
        await asyncio.to_thread(producer.init_transactions, WAIT_S)

        def moving(broker_id):
            move = cluster.move("/default/t-part-0", broker_id)
            asyncio.run_coroutine_threadsafe(move, loop).result(WAIT_S)

        for broker_id, sends_on, attempts in (
            ("b", False, 1),
            ("a", True, 2),
            ("b", True, 2),
        ):
            await cluster.move("/default/t-part-0", "a" if broker_id == "b" else "b")
            needed = await asyncio.to_thread(
                publish_while, producer, partial(moving, broker_id), sends_on=sends_on
            )
            assert needed == attempts
        found = await asyncio.to_thread(
            consume,
            options_of(cluster.addresses),
            "t",
            lambda found: len(found[0]) >= 5,
        )
        assert found[0] == [0, 1, 7, 1, 7]


async def test_records_are_copied_once_while_topics_move():
    async with KafkaCluster().running(*BROKERS) as cluster:

        async def disturb(copying, work):
            step = 0
            while not work.done() and step < SHARDS:
                until = copying.commits + 2
                while copying.commits < until and not work.done():  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                await cluster.move_shard(step % SHARDS, BROKERS[step % len(BROKERS)])
                step += 1

        await copied_over(cluster.addresses, 100, disturb)


async def test_records_are_copied_once_when_their_coordinator_dies():
    async with KafkaCluster().running(*BROKERS) as cluster:
        await cluster.move_shard(shard_of("copy", SHARDS), "b")
        # librdkafka waits for a dead coordinator of the group until that is back.
        await cluster.move_shard(shard_of("readers", SHARDS), "a")
        assert shard_of("copy", SHARDS) != shard_of("readers", SHARDS)

        async def disturb(copying, work):
            while copying.commits < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await cluster.kill("b")

        await copied_over(cluster.addresses, 100, disturb)


@pytest.mark.soak
async def test_records_are_copied_once_although_processes_are_killed(tmp_path):
    path = tmp_path / "settings.yaml"
    path.write_text(json.dumps({"cluster": {"shards": 8}}))
    port = free_port()
    options = ("--processes", "3", "--config", str(path), "--kafka-port", str(port))
    log_file = tmp_path / "broker.log"
    with BrokerProcess(tmp_path / "data", *options, log_file=log_file) as broker:

        async def disturb(copying, work):
            for _ in range(6):
                until = copying.commits + 4
                while copying.commits < until and not work.done():  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                for victim in broker.children()[:1]:
                    os.kill(victim, signal.SIGKILL)

        await copied_over(f"127.0.0.1:{port}", 1000, disturb)
