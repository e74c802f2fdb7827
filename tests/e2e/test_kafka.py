"""Clients of librdkafka work against a broker, with credentials and without."""

from __future__ import annotations

import asyncio
import json
from functools import partial

import aiokafka
import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import pydanube
from pydanube.schemas.pure.confluent_schemas import VERSION_BITS
from pydanube_broker.servers.run import serve
from pydanube_broker.servers.settings.config import ListenConfig, config_type
from pydanube_cli.messages.message_fields import parse_fields
from pydanube_cli.messages.message_table import MessageTable
from pydanube_cli.messages.pure.conditions import parse_conditions
from pydanube_console.administration.message_samples import sample
from pydanube_console.message_search import MessageFilter, Search
from pydanube_kafka.config import KafkaConfig
from pydanube_kafka.wire.apis import ErrorCode
from support.drivers.kafka_requests import KafkaRequests, kafka_broker
from support.fakes.secured import bootstrap_key, secured
from support.servers.certificates import tls_settings, write_certificates

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

WAIT_S = 60


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


def publish(options, topic, values):
    """Publish with a client of librdkafka; returns the errors."""
    errors = []
    producer = confluent_kafka.Producer(options)
    for value in values:
        producer.produce(
            topic, value, on_delivery=lambda error, _: error and errors.append(error)
        )
    assert producer.flush(WAIT_S) == 0
    return errors


def consume(options, topic, number):
    """Read with a client of librdkafka, and commit."""
    consumer = confluent_kafka.Consumer(
        options
        | {
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    found = []
    while len(found) < number:
        (message,) = consumer.consume(1, WAIT_S)
        if message.error():
            raise confluent_kafka.KafkaException(message.error())
        found.append(message.value())
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def administer(options):
    """Create a topic and a group, look at them, and delete them."""
    admin = AdminClient(options)
    admin.create_topics([NewTopic("made", 3)])["made"].result()
    assert len(admin.list_topics(timeout=WAIT_S).topics["made"].partitions) == 3
    publish(options, "made", [b"1"])
    consume(options, "made", 1)
    groups = admin.list_consumer_groups().result().valid
    assert [each.group_id for each in groups] == ["g"]
    (offsets,) = [
        each.result()
        for each in admin.list_consumer_group_offsets(
            [confluent_kafka.ConsumerGroupTopicPartitions("g")]
        ).values()
    ]
    assert sum(max(0, each.offset) for each in offsets.topic_partitions) == 1
    admin.delete_consumer_groups(["g"])["g"].result()
    whole = [confluent_kafka.TopicPartition("made", index, -1) for index in range(3)]
    deleted = [each.result() for each in admin.delete_records(whole).values()]
    assert sum(each.low_watermark for each in deleted) == 1
    (beyond,) = admin.delete_records(
        [confluent_kafka.TopicPartition("made", 0, 9)]
    ).values()
    with pytest.raises(confluent_kafka.KafkaException, match="OFFSET_OUT_OF_RANGE"):
        beyond.result()
    admin.delete_topics(["made"])["made"].result()
    assert "made" not in admin.list_topics(timeout=WAIT_S).topics


async def test_librdkafka_publishes_and_reads_with_each_codec(tmp_path):
    values = [b"v%d" % number for number in range(100)]
    async with served(tmp_path) as broker:
        options = options_of(broker)
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            codecs = {"compression.type": codec, "enable.idempotence": True}
            sent = publish, options | codecs, "t", values
            assert not await asyncio.to_thread(*sent)
        assert await asyncio.to_thread(consume, options, "t", 500) == values * 5


def publish_over_deletion(options):
    """Publish to a topic before and after it is deleted and created again."""
    admin, errors = AdminClient(options), []
    producer = confluent_kafka.Producer(options | {"enable.idempotence": True})
    for number in range(2):
        admin.create_topics([NewTopic("again", 1)])["again"].result()
        for value in (b"1", b"2"):
            producer.produce(
                "again", value, on_delivery=lambda error, _: errors.append(error)
            )
        assert producer.flush(WAIT_S) == 0
        assert errors == [None, None] * (number + 1)
        if not number:
            admin.delete_topics(["again"])["again"].result()


async def test_librdkafka_administers(tmp_path):
    async with served(tmp_path) as broker:
        await asyncio.to_thread(administer, options_of(broker))
        await asyncio.to_thread(publish_over_deletion, options_of(broker))


async def test_clients_prove_by_scram_that_they_know_their_key(tmp_path):
    async with secured(tmp_path, kafka={"port": 0}) as broker:
        async with pydanube.connect(
            broker.stream_url, api_key=bootstrap_key(tmp_path)
        ) as admin:
            await admin.topics.create("/default/mine")
            first = await admin.security.create_api_key("orders", principal="bob")
            made = await admin.security.rotate_api_key("orders")
            await admin.security.add_binding(
                "user:bob", ["producer", "consumer"], ["/default/mine"]
            )
        options = options_of(
            broker,
            **{
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.username": "orders",
            },
        )
        # Both are valid until the grace time ends.
        for number, each in enumerate((first, made)):
            known = options | {"sasl.password": each.key}
            assert not await asyncio.to_thread(publish, known, "mine", [b"%d" % number])
        async with aiokafka.AIOKafkaConsumer(
            "mine",
            bootstrap_servers=options["bootstrap.servers"],
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="SCRAM-SHA-256",
            sasl_plain_username="orders",
            sasl_plain_password=made.key,
            auto_offset_reset="earliest",
        ) as consumer:
            assert [(await anext(consumer)).value for _ in range(2)] == [b"0", b"1"]
        for wrong in ({"sasl.password": "wrong"}, {"sasl.username": "bob"}):
            refused = AdminClient(options | {"sasl.password": made.key} | wrong)
            with pytest.raises(confluent_kafka.KafkaException):
                await asyncio.to_thread(partial(refused.list_topics, timeout=2))


@pytest.mark.parametrize("has_tls", [False, True])
async def test_credentials_and_permissions_hold_for_kafka_clients(tmp_path, has_tls):
    files = write_certificates(tmp_path) if has_tls else None
    tls = tls_settings(files) if files else None
    async with secured(tmp_path, tls=tls, kafka={"port": 0}) as broker:
        protocol, trust = {"security.protocol": "SASL_PLAINTEXT"}, {}
        if files:
            authority = str(files["ca"][0])
            protocol = {"security.protocol": "SASL_SSL", "ssl.ca.location": authority}
            trust = {"ca_file": authority}
        async with pydanube.connect(
            broker.stream_url, api_key=bootstrap_key(tmp_path), **trust
        ) as admin:
            await admin.topics.create("/default/mine")
            await admin.topics.create("/default/theirs")
            made = await admin.security.create_api_key("bob")
            await admin.security.add_binding(
                "user:bob", ["producer", "consumer"], ["/default/mine"]
            )
        sasl = {"sasl.mechanism": "PLAIN", "sasl.username": "bob"}
        options = options_of(broker, **protocol, **sasl)
        allowed = options | {"sasl.password": made.key}
        assert not await asyncio.to_thread(publish, allowed, "mine", [b"1"])
        assert await asyncio.to_thread(consume, allowed, "mine", 1) == [b"1"]
        soon = allowed | {"message.timeout.ms": 2000}
        (refused,) = await asyncio.to_thread(publish, soon, "theirs", [b"1"])
        assert refused.name() == "TOPIC_AUTHORIZATION_FAILED"
        # Whether a topic exists is not to be learnt either.
        port = int(broker.listener_urls["kafka"].rpartition(":")[2])
        if not files:
            async with KafkaRequests(port) as raw:
                await raw.authenticate("bob", made.key)
                for topic in ("theirs", "none"):
                    answer = await raw.produce(topic, b"1")
                    assert answer.error_code is ErrorCode.topic_authorization_failed
        listed = partial(AdminClient(allowed).list_topics, timeout=WAIT_S)
        assert set((await asyncio.to_thread(listed)).topics) == {"mine"}
        wrong = AdminClient(options | {"sasl.password": "wrong"})
        with pytest.raises(confluent_kafka.KafkaException):
            await asyncio.to_thread(partial(wrong.list_topics, timeout=2))


def ask_about_all(options, count):
    """Ask for all topics, and commit and read offsets of all of them."""
    admin = AdminClient(options)
    assert len(admin.list_topics(timeout=WAIT_S).topics) == count
    partitions = [
        confluent_kafka.TopicPartition(f"t{number}", 0, 0) for number in range(count)
    ]
    committed = confluent_kafka.ConsumerGroupTopicPartitions("g", partitions)
    options = {"request_timeout": 5 * WAIT_S}
    admin.alter_consumer_group_offsets([committed], **options)["g"].result()
    asked = confluent_kafka.ConsumerGroupTopicPartitions("g")
    found = admin.list_consumer_group_offsets([asked], **options)["g"].result()
    assert {each.offset for each in found.topic_partitions} == {0}
    assert len(found.topic_partitions) == count


@pytest.mark.soak
async def test_clients_see_five_thousand_topics(tmp_path):
    async with (
        served(tmp_path) as broker,
        pydanube.connect(broker.stream_url) as client,
    ):
        for number in range(5000):
            await client.topics.create(f"/default/t{number}")
        await asyncio.to_thread(ask_about_all, options_of(broker), 5000)


async def test_console_and_command_line_decode_values_of_serializers():
    address = {
        "type": "record",
        "name": "Address",
        "fields": [{"name": "city", "type": "string"}],
    }
    order = {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "long"}, {"name": "to", "type": address}],
    }
    async with kafka_broker() as (_, client, _, raw):
        topic = "/default/orders"
        await client.topics.create(topic)
        schema = pydanube.Schema.avro(json.dumps(order))
        found = await client.schemas.register("orders-value", schema)
        number = found.schema_id << VERSION_BITS | found.version
        value = b"\0" + number.to_bytes(4) + b"\x0e\x08Rome"
        assert not (await raw.produce("orders", value)).error_code
        decoded = {"id": 7, "to": {"city": "Rome"}}
        search = Search()
        wanted = MessageFilter(conditions=parse_conditions(["value.to.city = 'Rome'"]))
        await search.run(client, topic, start="earliest", wanted=wanted)
        (shown,) = search.found
        assert shown.value == decoded
        (shown,) = await sample(client, topic, "earliest", 1, 1000)
        assert shown["value"] == decoded
        (batch,) = [each async for each in client.read(topic)]
        fields = parse_fields("id,to.city")
        table = MessageTable(has_topics=False, terminal_width=None, fields=fields)
        *_, row = b"".join(table(list(batch))).decode().splitlines()
        assert row.split()[-2:] == ["7", "Rome"]
