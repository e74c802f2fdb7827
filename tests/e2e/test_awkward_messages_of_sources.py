"""
No message stops or blocks a source: each is published, or is a dead letter.

Every kind of source is tested with the same payloads and a real server.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from pydanube_broker.testing import memory_broker
from pydanube_connect.connector import Source
from pydanube_connect.kinds import KINDS, find_kind
from pydanube_connect.status import State
from support.drivers.connectors import declared, running
from support.fakes.awkward_messages import LONG, PAYLOADS, PLAIN
from support.servers.ports import free_port

pytestmark = [pytest.mark.e2e]

TOPIC = "/default/awkward"
DEAD = "/default/dead"
WITHOUT_MESSAGES = {"generator-source": "it makes its messages itself"}

ALL = [PLAIN, *PAYLOADS.values(), PLAIN.replace(b'"1"', b'"2"')]
TEXTS = ["id", "key", "a"]


def rows():
    """The payloads as rows: fields of JSON objects, or the bytes."""
    for number, payload in enumerate(ALL):
        try:
            found = json.loads(payload, parse_constant=str)
        except (ValueError, RecursionError):
            found = None
        texts = [None] * len(TEXTS)
        if isinstance(found, dict):
            values = [found.get(name) for name in TEXTS]
            texts = [
                each if each is None or isinstance(each, str) else json.dumps(each)
                for each in values
            ]
            # Databases have no halves of characters.
            texts = [each and each.encode(errors="replace").decode() for each in texts]
        yield number, *texts, payload


@asynccontextmanager
async def webhook(_):
    httpx = pytest.importorskip("httpx")
    address = f"127.0.0.1:{free_port()}"
    options = {"listen": address, "id_header": "X-Id", "body_bytes_max": "20MiB"}

    async def feed():
        async with httpx.AsyncClient(base_url=f"http://{address}") as http:
            ids = [None, "", "x" * 300, "\u00fc".encode()]
            given = [(payload, None) for payload in ALL]
            given += [(PLAIN, each) for each in ids]
            for payload, id_ in given:
                headers = {} if id_ is None else {"x-id": id_}
                answer = await http.post("/", content=payload, headers=headers)
                assert answer.status_code == 200, answer.text
        return len(given)

    yield options, feed


@asynccontextmanager
async def otlp(_):
    httpx = pytest.importorskip("httpx")
    logs = pytest.importorskip("opentelemetry.proto.collector.logs.v1.logs_service_pb2")
    address = f"127.0.0.1:{free_port()}"
    url = f"http://{address}/v1/logs"

    async def feed():
        request = logs.ExportLogsServiceRequest()
        records = request.resource_logs.add().scope_logs.add().log_records
        for payload in ALL:
            record = records.add()
            record.body.string_value = payload.decode(errors="replace")
            record.attributes.add(key="").value.bytes_value = payload[:LONG]
            record.trace_id, record.time_unix_nano = payload[:20], 2**64 - 1
        type_ = {"content-type": "application/x-protobuf"}
        async with httpx.AsyncClient(timeout=60) as http:
            data = request.SerializeToString()
            answer = await http.post(url, content=data, headers=type_)
            assert answer.status_code == 200, answer.text
        return len(ALL)

    yield {"listen": address}, feed


@asynccontextmanager
async def files(directory):
    file = directory / "lines" / "a.log"
    file.parent.mkdir()
    lines = [*ALL, b"x" * 3_000_000, PLAIN]

    async def feed():
        with file.open("ab") as opened:
            for each in lines:
                opened.write(each + b"\n")
        return len(lines)

    options = {"directory": str(file.parent), "patterns": ["*"], "poll": "10ms"}
    yield options, feed


@asynccontextmanager
async def objects(directory):
    store = directory / "store"
    store.mkdir()

    async def feed():
        for number, each in enumerate(ALL):
            (store / f"{number:03}").write_bytes(each)
        return len(ALL)

    yield {"url": f"fs://{store}", "format": "whole", "poll": "10ms"}, feed


@asynccontextmanager
async def object_lines(directory):
    store = directory / "store"
    store.mkdir()
    lines = [*ALL, b"x" * 12_000_000, PLAIN]

    async def feed():
        (store / "a").write_bytes(b"\n".join(lines))
        return len(lines)

    yield {"url": f"fs://{store}", "poll": "10ms"}, feed


@asynccontextmanager
async def http(_):
    from support.servers.http_server import Answer, LocalServer

    items = [{"n": 1, "id": "first"}]
    for payload in ALL:
        try:
            found = json.loads(payload, parse_constant=str)
            json.dumps(found, allow_nan=False)
        except (ValueError, RecursionError):
            continue
        items.append(found)
        if isinstance(found, dict):
            items.append({**found, "n": len(items)})
    items.append({"n": len(items), "id": "last"})
    digests = {json.dumps(each, sort_keys=True) for each in items}

    def answer(_):
        return Answer(200, json.dumps(items, skipkeys=True).encode())

    with LocalServer(answer) as server:

        async def feed():
            return len(digests)

        yield {"url": server.url, "cursor": "n", "poll": "10ms"}, feed


@asynccontextmanager
async def sql(directory):
    pytest.importorskip("sqlalchemy")
    file = directory / "shop.db"
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE t (number INTEGER, id, key, a, payload BLOB)")

    async def feed():
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", rows())
        connection.commit()
        return len(ALL)

    options = {"url": f"sqlite:///{file}", "table": "t", "column": "number"}
    yield {**options, "poll": "10ms"}, feed
    connection.close()


@asynccontextmanager
async def redis(directory):
    client = pytest.importorskip("redis")
    from support.servers.redis_servers import DurableRedis

    with DurableRedis(directory) as server:
        password = server.options["password"]

        async def feed():
            with client.Redis(port=server.port, password=password) as connection:
                for each in ALL:
                    connection.xadd("s", {"p": each, b"\xff": b"\xff", "": ""})
            return len(ALL)

        options = {"url": f"redis://127.0.0.1:{server.port}", "streams": {"s": None}}
        yield {**options, "field": "p", **server.options}, feed


@asynccontextmanager
async def mqtt(directory):
    aiomqtt = pytest.importorskip("aiomqtt")
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties

    from support.servers.mosquitto import MosquittoProcess

    topics = ["t", "t/", "t//x", "t/ü😀", "t/" + "x" * 400, "t/a b", "t/-", "t/$x"]

    with MosquittoProcess(directory) as server:
        # The session exists, so nothing is lost before the connector subscribes.
        expiry = Properties(PacketTypes.CONNECT)
        expiry.SessionExpiryInterval = 3600
        session = {"identifier": "c", "properties": expiry, "clean_start": False}
        async with aiomqtt.Client(
            "127.0.0.1",
            server.port,
            protocol=aiomqtt.ProtocolVersion.V5,
            **session,
        ) as client:
            await client.subscribe("t/#", qos=1)

        async def feed():
            async with aiomqtt.Client("127.0.0.1", server.port) as client:
                for each in ALL:
                    await client.publish("t/a", each, qos=1)
                for each in topics:
                    await client.publish(each, PLAIN, qos=1)
            return len(ALL) + len(topics)

        filters = {"t/+": "/default/t-{1}", "t/#": None}
        yield {"port": server.port, "client_id": "c", "filters": filters}, feed


@asynccontextmanager
async def kafka(_):
    pytest.importorskip("confluent_kafka")
    from confluent_kafka import Producer

    from support.servers.kafka import kafka_in_memory

    with kafka_in_memory() as servers:
        producer = Producer(
            {"bootstrap.servers": servers, "message.max.bytes": 10_000_000}
        )

        async def feed():
            # Topics that do not exist are found later.
            headers = [("", b""), ("x", None), ("b", b"\xff"), ("a" * 300, b"\0")]
            for each in ALL:
                producer.produce("t", value=each, key=b"\xff", headers=headers)
            producer.produce("t", value=None, key=b"")
            await asyncio.to_thread(producer.flush)

        async def count():
            return len(ALL) + 1

        await feed()
        yield {"servers": servers, "topics": {"t": None}}, count


@asynccontextmanager
async def nats(directory):
    pytest.importorskip("nats")
    from nats import connect

    from support.servers.nats_server import NatsProcess

    with NatsProcess(directory, max_payload=8_000_000) as server:
        client = await connect(server.url)
        jetstream = client.jetstream()
        await jetstream.add_stream(name="ALL", subjects=["t.>"])

        async def feed():
            for each in ALL:
                await jetstream.publish("t.a", each, headers={"x": "", "Y": "\u00fc"})
            for each in ("t.\u00fc", "t." + "x" * 500):
                await jetstream.publish(each, PLAIN)
            return len(ALL) + 2

        yield {"servers": server.url, "stream": "ALL"}, feed
        await client.close()


@asynccontextmanager
async def rabbitmq(directory):
    aio_pika = pytest.importorskip("aio_pika")
    from support.servers.rabbitmq_server import RabbitmqProcess

    def message(payload, **more):
        return aio_pika.Message(payload, **more)

    with RabbitmqProcess(directory) as server:
        async with await aio_pika.connect(server.url) as connection:
            channel = await connection.channel()
            await channel.declare_queue("q")

            async def feed():
                headers = {
                    "none": None,
                    "bytes": bytearray(b"\xff"),
                    "table": {"x": [1, {"y": 2.5}]},
                    "": "",
                }
                given = [message(each, headers=headers) for each in ALL]
                given += [message(PLAIN, message_id=each) for each in ("", "x" * 255)]
                for each in given:
                    await channel.default_exchange.publish(each, "q")
                return len(given)

            yield {"url": server.url, "queues": {"q": None}}, feed


@asynccontextmanager
async def postgres(_):
    psycopg = pytest.importorskip("psycopg")
    from support.servers.postgres import PostgresProcess

    with (
        PostgresProcess(wal_level="logical") as server,
        psycopg.connect(server.uri, autocommit=True) as connection,
    ):
        connection.execute(
            "CREATE TABLE t (number int PRIMARY KEY, id text, key text, a text, "
            "payload bytea)"
        )

        async def feed():
            count = 0
            for row in rows():
                texts = [each and each.replace("\0", "") for each in row[1:4]]
                connection.execute(
                    "INSERT INTO t VALUES (%s, %s, %s, %s, %s)",
                    (row[0], *texts, row[4]),
                )
                count += 1
            return count

        yield {"url": server.uri, "slot": "t", "tables": {"public.t": None}}, feed


@asynccontextmanager
async def mysql(_):
    pytest.importorskip("pymysqlreplication")
    from support.servers.mariadb import MariadbProcess

    with MariadbProcess(max_allowed_packet="64M") as server:
        server.execute(
            "CREATE DATABASE shop CHARACTER SET utf8mb4",
            "CREATE TABLE shop.t (number int PRIMARY KEY, id text, `key` longtext, "
            "a longtext, payload longblob)",
        )

        async def feed():
            with (
                server.connect(charset="utf8mb4") as connection,
                connection.cursor() as cursor,
            ):
                for row in rows():
                    cursor.execute(
                        "INSERT INTO shop.t VALUES (%s, %s, %s, %s, _binary %s)", row
                    )
                connection.commit()
            return len(ALL)

        yield (
            {
                "port": server.port,
                "username": "danube",
                "password": "sesame",
                "tables": {"shop.t": None},
            },
            feed,
        )


@asynccontextmanager
async def queue(directory):
    pytest.importorskip("botocore")
    from support.servers.aws import new_queue, options_of, service
    from support.servers.object_stores import S3Server

    with S3Server(directory) as server:
        sqs = service(server, "sqs")
        url = new_queue(sqs, "awkward")

        async def feed():
            texts = [each.decode(errors="replace") for each in ALL]
            texts = [each.replace("\0", "") for each in texts if 0 < len(each) < 2**18]
            attribute = {"DataType": "Binary.x", "BinaryValue": b"\xff"}
            for each in texts:
                sqs.send_message(
                    QueueUrl=url, MessageBody=each, MessageAttributes={"a": attribute}
                )
            return len(texts)

        yield {**options_of(server), "queue": url}, feed


@asynccontextmanager
async def kinesis(directory):
    pytest.importorskip("botocore")
    from support.servers.aws import options_of, service
    from support.servers.object_stores import S3Server

    with S3Server(directory) as server:
        client = service(server, "kinesis")
        client.create_stream(StreamName=directory.name, ShardCount=2)

        async def feed():
            records = [each for each in ALL if len(each) < 2**20]
            for number, each in enumerate(records):
                key = "\U0001f600" if number % 2 else str(number)
                client.put_record(
                    StreamName=directory.name, Data=each, PartitionKey=key
                )
            return len(records)

        stream = {"stream": directory.name, "poll": "10ms"}
        yield {**options_of(server), **stream}, feed


SYSTEMS = [
    ("files-source", files),
    ("http-source", http),
    ("kafka-source", kafka),
    ("kinesis-source", kinesis, pytest.mark.soak),
    ("mqtt-source", mqtt),
    ("mysql-source", mysql, pytest.mark.soak),
    ("nats-source", nats, pytest.mark.soak),
    ("objects-source", object_lines),
    ("objects-source", objects),
    ("otlp-source", otlp),
    ("postgres-source", postgres),
    ("rabbitmq-source", rabbitmq, pytest.mark.soak),
    ("redis-source", redis),
    ("sql-source", sql),
    ("sqs-source", queue, pytest.mark.soak),
    ("webhook-source", webhook),
]


def test_every_kind_of_source_gets_the_awkward_messages(tmp_path):
    sources = {each for each in KINDS if issubclass(find_kind(each, tmp_path), Source)}
    assert {kind for kind, *_ in SYSTEMS} == sources - WITHOUT_MESSAGES.keys()


MAPPINGS = {
    "none": "",
    "fields": "mapping: {key: key, id: id, attributes: {a: a}}",
    "row": "mapping: {key: after.key, id: after.id, attributes: {a: after.a}}",
    "transform": "transform: ['{key: key, id: id, a: a}']",
}


@pytest.mark.rotated
@pytest.mark.parametrize(
    ("kind", "system"),
    [
        pytest.param(kind, system, marks=marks, id=system.__name__)
        for kind, system, *marks in SYSTEMS
    ],
)
@pytest.mark.parametrize("mapping", MAPPINGS)
async def test_each_message_is_published_or_is_a_dead_letter(
    kind, system, mapping, tmp_path
):
    async with AsyncExitStack() as stack:
        options, feed = await stack.enter_async_context(system(tmp_path))
        text = f"""
connectors:
  in:
    kind: {kind}
    topic: {TOPIC}
    dead_letters: {DEAD}
    deduplicate: 1d
    {MAPPINGS[mapping]}
    batch: {{messages: 20}}
    retries: {{backoff: 10ms, backoff_max: 20ms, count: 3}}
    options: {json.dumps(options)}
"""
        broker = await stack.enter_async_context(memory_broker())
        client = await stack.enter_async_context(broker.connect())
        connectors = declared(text, broker.url, tmp_path)
        async with running(connectors) as until:
            await until(lambda all_: all_["in"].state is not State.STARTING)
            count = await feed()

            def is_done(statuses):
                status = statuses["in"]
                done = status.messages + status.dead_letters + status.dropped
                return done >= count or status.state.is_over

            status = (await until(is_done))["in"]
            assert status.state is State.RUNNING, status
            assert (status.retries, status.error) == (0, None)
        assert status.messages + status.dead_letters + status.dropped == count
        assert status.messages or mapping in {"fields", "row"}
        if status.dead_letters:
            dead = [each async for batch in client.read(DEAD) for each in batch]
            assert len(dead) == status.dead_letters
            assert all(each.attributes["x-failure-reason"] for each in dead)
