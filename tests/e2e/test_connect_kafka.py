"""Kafka's messages are published once, although the connector is killed."""

import asyncio
import json
from contextlib import asynccontextmanager, suppress

import pytest

pytest.importorskip("confluent_kafka")

import confluent_kafka
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

import pydanube
from pydanube_broker.servers.run import serve
from pydanube_broker.servers.settings.config import ListenConfig, config_type
from pydanube_broker.testing import memory_broker
from pydanube_kafka.config import KafkaConfig
from support.drivers.connectors import (
    ConnectProcess,
    declared,
    numbers_under_kills,
    running,
)
from support.servers.kafka import consume, kafka_in_memory, produce
from support.servers.kafka_broker import KafkaProcess
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

COUNT, KILLS = 3000, 2
FILE = """
connectors:
  orders:
    kind: kafka-source
    topic: /default/orders
    retries: {{backoff: 100ms}}
    options: {{servers: "{servers}", topics: {{"^orders": "/default/{{topic}}"}}}}
"""

THROUGH = """
connectors:
  there:
    kind: kafka-sink
    topic: /default/orders
    retries: {{backoff: 100ms}}
    batch: {{messages: 100}}
    options: {{servers: "{servers}", topic: through}}
  back:
    kind: kafka-source
    topic: /default/back
    retries: {{backoff: 100ms}}
    options: {{servers: "{servers}", topics: {{through: }}}}
"""


@pytest.fixture(scope="module")
def servers():
    with kafka_in_memory() as servers:
        yield servers


def test_each_message_is_published_once_and_in_order_of_its_key(servers, tmp_path):
    file = tmp_path / "connectors.yaml"
    file.write_text(FILE.format(servers=servers))
    part = COUNT // (KILLS + 1)
    messages = [(b"%d" % (n % 5), b'{"n": %d}' % n) for n in range(COUNT)]
    produce(servers, "orders", messages[:part], partition=-1)
    with (
        BrokerProcess(tmp_path / "data") as broker,
        ConnectProcess(file, broker.url) as connector,
    ):

        async def follow():
            found, sent = [], part
            async with pydanube.connect(broker.url) as client:
                await client.topics.create("/default/orders")
                while len(found) < COUNT:
                    with suppress(pydanube.Unavailable):
                        async for batch in client.read(
                            "/default/orders", start=len(found), end=COUNT, follow=True
                        ):
                            found += [(each.key, each.payload) for each in batch]
                            if sent < COUNT and len(found) > sent - part // 2:
                                connector.kill()
                                following = messages[sent : sent + part]
                                produce(servers, "orders", following, partition=-1)
                                sent += part
                                connector.start()
                described = await client.topics.describe("/default/orders")
            return found, described.message_count

        found, stored = pydanube.run(follow())
        assert connector.terminate() == 143
    assert stored == COUNT
    by_key = {}
    for key, payload in found:
        by_key.setdefault(key, []).append(json.loads(payload)["n"])
    assert connector.starts == 1 + KILLS
    assert by_key == {str(key): [*range(key, COUNT, 5)] for key in range(5)}


@pytest.mark.soak
def test_nothing_is_lost_or_published_twice_although_all_are_killed(tmp_path):
    """Through Kafka and back, while connectors, broker and Kafka are killed."""
    count = 4000
    file = tmp_path / "connectors.yaml"
    (tmp_path / "kafka").mkdir()
    server = KafkaProcess(tmp_path / "kafka")
    file.write_text(THROUGH.format(servers=server.servers))

    async def run(kill):
        async with pydanube.connect(broker.url, retry_s=60) as client:
            server.create_topic("through")
            await client.topics.create("/default/orders", exist_ok=True)
            await client.topics.create("/default/back", exist_ok=True)
            async with client.producer("/default/orders") as producer:
                for first in range(0, count, 100):
                    payloads = [b"%d" % each for each in range(first, first + 100)]
                    await producer.send_batch(payloads)
            found = await numbers_under_kills(client, "/default/back", count, kill)
            in_kafka = server.count("through")
            while True:
                facts = await client.topics.describe("/default/back")
                if facts.message_count >= in_kafka:
                    return found, in_kafka, facts.message_count
                await asyncio.sleep(0.1)

    with (
        server,
        BrokerProcess(tmp_path / "data") as broker,
        ConnectProcess(file, broker.url) as connectors,
    ):

        def kill(number):
            process = (connectors, broker, server)[number % 3]
            process.kill()
            process.start()

        found, in_kafka, stored = pydanube.run(run(kill))
    # The sink may write messages again; the source publishes each of Kafka once.
    assert list(dict.fromkeys(found)) == list(range(count))
    assert stored == in_kafka


RECORDS = [
    (b"k", b"one", [("a", b"1"), ("a", b"2"), ("raw", b"\xff"), ("none", None)]),
    (None, b"", []),
    (b"k", None, [("text", "\u00e9".encode())]),
    (b"\xff", b"\0", []),
]
COPY = """
connectors:
  in:
    kind: kafka-source
    topic: /default/copied
    options: {{servers: "{servers}", topics: {{origin: }}}}
  out:
    kind: kafka-sink
    topic: /default/copied
    options: {{servers: "{servers}", topic: copy}}
"""


@asynccontextmanager
async def own_listener(directory):
    config = config_type()(
        data_dir=directory / "data",
        listen=ListenConfig(stream_port=0, grpc_port=0, admin_port=0, http_port=0),
        kafka=KafkaConfig(port=0),
    )
    async with serve(config) as broker:
        async with pydanube.connect(broker.stream_url) as client:
            for name in ("origin", "copy"):
                await client.topics.create(f"/default/{name}")
        yield broker.listener_urls["kafka"].partition("://")[2]


@asynccontextmanager
async def in_memory(_):
    with kafka_in_memory() as found:
        yield found


@asynccontextmanager
async def apache(directory):
    (directory / "kafka").mkdir()
    with KafkaProcess(directory / "kafka") as server:
        for name in ("origin", "copy"):
            server.create_topic(name)
        yield server.servers


@pytest.mark.parametrize(
    "kafka", [in_memory, own_listener, pytest.param(apache, marks=pytest.mark.soak)]
)
async def test_records_are_copied_as_they_were(kafka, tmp_path):
    """Nulls, repeated and binary headers survive the way through a topic."""
    async with kafka(tmp_path) as servers, memory_broker() as broker:

        def write():
            producer = confluent_kafka.Producer({"bootstrap.servers": servers})
            for key, value, headers in RECORDS:
                producer.produce("origin", value, key, partition=0, headers=headers)
            assert producer.flush(60) == 0

        await asyncio.to_thread(write)
        text = COPY.format(servers=servers)
        async with running(declared(text, broker.url)) as until:
            await until(lambda found: found["out"].messages == len(RECORDS))
        found = await asyncio.to_thread(consume, servers, "copy", len(RECORDS))
    assert sorted((str(each.key()), str(each.value())) for each in found) == sorted(
        (str(key), str(value)) for key, value, _ in RECORDS
    )
    by_value = {each.value(): each.headers() or [] for each in found}
    origin = {"kafka.topic", "kafka.partition", "kafka.offset", "kafka.timestamp"}
    for _, value, headers in RECORDS:
        own = [each for each in by_value[value] if each[0] not in origin]
        assert own == headers


VALUES = """
connectors:
  orders:
    kind: kafka-source
    topic: /default/orders
    dead_letters: /default/refused
    options:
      servers: "{servers}"
      topics: {{origin: }}
      schema_registry: "{registry}"
"""


def order_schema(*names):
    fields = [{"name": each, "type": "long", "default": 0} for each in names]
    return json.dumps({"type": "record", "name": "Order", "fields": fields})


async def test_values_of_serializers_get_the_schemas_of_their_topic(tmp_path):
    """Versions, deletions, values without an id, and ids that nobody knows."""
    config = config_type()(
        data_dir=tmp_path / "data",
        listen=ListenConfig(stream_port=0, grpc_port=0, admin_port=0, http_port=0),
        kafka=KafkaConfig(port=0),
    )
    async with serve(config) as kafka, memory_broker() as broker:
        servers = kafka.listener_urls["kafka"].partition("://")[2]
        context = SerializationContext("origin", MessageField.VALUE)

        def write():
            with SchemaRegistryClient({"url": kafka.http_url}) as registry:
                [old, new] = [
                    AvroSerializer(registry, order_schema(*names))
                    for names in (("id",), ("id", "count"))
                ]
                # The newer version is met first.
                ahead = old({"id": 0}, context)
                values = [
                    new({"id": 1, "count": 5}, context),
                    None,
                    ahead,
                    b"plain",
                    b"\0" + (2**31 - 1).to_bytes(4) + b"x",
                    new({"id": 2, "count": 6}, context),
                ]
            producer = confluent_kafka.Producer({"bootstrap.servers": servers})
            for value in values:
                producer.produce("origin", value, b"k")
            assert producer.flush(60) == 0

        await asyncio.to_thread(write)
        text = VALUES.format(servers=servers, registry=kafka.http_url)
        async with (
            broker.connect() as client,
            running(declared(text, broker.url)) as until,
        ):
            statuses = await until(
                lambda found: found["orders"].error or found["orders"].dead_letters
            )
            assert not statuses["orders"].error
            await until(lambda found: found["orders"].messages == 5)
            found = [
                each async for batch in client.read("/default/orders") for each in batch
            ]
            assert [
                each.value for each in found if each.schema_id and each.payload
            ] == [
                {"id": 1, "count": 5},
                {"id": 0},
                {"id": 2, "count": 6},
            ]
            assert [each.schema_version for each in found if each.payload] == [
                *(2, 1, 0, 2)
            ]
            assert found[1].attributes["kafka.tombstone"] == "true"
            assert found[3].payload == b"plain"
            assert len(await client.schemas.versions("default-orders")) == 2
            [refused] = [
                each
                async for batch in client.read("/default/refused")
                for each in batch
            ]
            assert refused.payload[:1] == b"\0"
            assert "does not know it" in str(refused.attributes)


async def test_messages_come_back_to_kafka(servers, broker_url):
    text = (
        "connectors:\n  back:\n    kind: kafka-sink\n    topic: /default/to-kafka\n"
        f"    options: {{servers: '{servers}', topic: from-danube}}\n"
        "    start: earliest\n"
    )
    async with pydanube.connect(broker_url) as client:
        async with client.producer("/default/to-kafka") as producer:
            for payload in (b"one", b"two"):
                await producer.send(payload, key="k")
        async with running(declared(text, broker_url)) as until:
            await until(lambda each: each["back"].messages == 2)
    found = consume(servers, "from-danube", 2)
    assert [(each.key(), each.value()) for each in found] == [
        (b"k", b"one"),
        (b"k", b"two"),
    ]
