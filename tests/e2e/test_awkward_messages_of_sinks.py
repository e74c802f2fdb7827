"""
No message stops or blocks a sink: each is written, or is a dead letter with a reason.

Every kind of sink is tested with the same messages and a real server.
"""

from __future__ import annotations

import json
from contextlib import asynccontextmanager, contextmanager

import pytest

from pydanube_broker.testing import memory_broker
from pydanube_connect.connector import Sink
from pydanube_connect.kinds import KINDS, find_kind
from pydanube_connect.status import State
from support.drivers.connectors import declared, running
from support.fakes.awkward_messages import publish

pytestmark = [pytest.mark.e2e]

TOPIC = "/default/awkward"
DEAD = "/default/dead"


@contextmanager
def http_server(_):
    from support.servers.http_server import Answer, LocalServer

    with LocalServer(lambda _: Answer(204)) as server:
        yield {"url": server.url}


@contextmanager
def chat(_):
    from support.servers.http_server import Answer, LocalServer

    with LocalServer(lambda _: Answer(200)) as server:
        yield {"url": server.url, "text": "{key} {value.a} {payload} {time:%F}"}


@contextmanager
def files(directory):
    yield {"url": f"fs://{directory}/files"}


@contextmanager
def parquet_files(directory):
    yield {"url": f"fs://{directory}/files", "format": "parquet"}


@contextmanager
def partitioned_files(directory):
    yield {
        "url": f"fs://{directory}/files",
        "format": "csv",
        "columns": {"id": "text", "n": "number", "key": {"message": "key"}},
        "partition": "{key}/{value.a}",
    }


@contextmanager
def redis(directory):
    pytest.importorskip("redis")
    from support.servers.redis_servers import DurableRedis

    with DurableRedis(directory) as server:
        url = f"redis://127.0.0.1:{server.port}"
        yield {"url": url, "stream": "s", **server.options}


@contextmanager
def mqtt(directory, version="5"):
    pytest.importorskip("aiomqtt")
    from support.servers.mosquitto import MosquittoProcess

    with MosquittoProcess(directory) as server:
        yield {"port": server.port, "topic": "{key}", "version": version}


@contextmanager
def mqtt_3(directory):
    with mqtt(directory, "3.1.1") as options:
        yield options


@contextmanager
def kafka(_):
    pytest.importorskip("confluent_kafka")
    from support.servers.kafka import kafka_in_memory

    with kafka_in_memory() as servers:
        yield {"servers": servers, "topic": "out"}


@contextmanager
def mail(directory):
    pytest.importorskip("aiosmtpd")
    from support.servers.mail_server import MailServer

    with MailServer(directory) as server:
        yield {
            "host": "localhost",
            "port": server.port,
            "username": "danube",
            "password": "sesame",
            "ca_file": str(server.ca_file),
            "sender": "danube@example.com",
            "to": ["on-call@example.com"],
            "subject": "{key} {value.a} {value.n} {payload}",
            "per_minute": 1000,
        }


@contextmanager
def qdrant(_):
    pytest.importorskip("qdrant_client")
    yield {"path": "points", "collection": "c", "vector": "n", "id": "key"}


@contextmanager
def qdrant_embed(directory):
    pytest.importorskip("qdrant_client")
    (directory / "embeds.py").write_text(
        "def embed(texts):\n    return [[len(each), 1] for each in texts]\n"
    )
    embed = {"function": "embeds.py:embed"}
    yield {"path": "points", "collection": "c", "embed": embed, "id": "key"}


@contextmanager
def postgres(_, **options):
    pytest.importorskip("psycopg")
    import psycopg

    from support.servers.postgres import PostgresProcess

    with PostgresProcess() as server:
        with psycopg.connect(server.uri, autocommit=True) as connection:
            connection.execute(
                "CREATE TABLE rows (id text PRIMARY KEY, key text, a jsonb, "
                "n double precision)"
            )
            connection.execute("CREATE INDEX ON rows (key)")
        yield {"url": server.uri, "table": "rows", "key": ["id"], **options}


@contextmanager
def postgres_debezium(directory):
    with postgres(directory, envelope="debezium") as options:
        yield options


@contextmanager
def nats(directory):
    pytest.importorskip("nats")
    import asyncio

    from nats import connect

    from support.servers.nats_server import NatsProcess

    async def add_stream(url):
        client = await connect(url)
        await client.jetstream().add_stream(name="ALL", subjects=["*", "a.>"])
        await client.close()

    with NatsProcess(directory) as server:
        asyncio.run(add_stream(server.url))
        yield {"servers": server.url, "subject": "{key}"}


@contextmanager
def rabbitmq(directory):
    pytest.importorskip("aio_pika")
    import asyncio

    import aio_pika

    from support.servers.rabbitmq_server import RabbitmqProcess

    async def add_queue(url):
        async with await aio_pika.connect(url) as connection:
            channel = await connection.channel()
            exchange = await channel.declare_exchange("all", "fanout")
            queue = await channel.declare_queue("all")
            await queue.bind(exchange)

    with RabbitmqProcess(directory) as server:
        asyncio.run(add_queue(server.url))
        yield {"url": server.url, "exchange": "all", "routing_key": "{key}"}


@contextmanager
def elasticsearch(directory, **options):
    from support.servers.opensearch import OpensearchProcess

    with OpensearchProcess(directory) as server:
        yield {"url": server.url, "index": "awkward", **options}


@contextmanager
def elasticsearch_by_key(directory):
    with elasticsearch(directory, id="key") as options:
        yield options


@contextmanager
def aws(directory):
    pytest.importorskip("botocore")
    from support.servers.aws import options_of
    from support.servers.object_stores import S3Server

    with S3Server(directory) as server:
        yield server, options_of(server)


@contextmanager
def queue(directory):
    from support.servers.aws import new_queue, service

    with aws(directory) as (server, options):
        new_queue(service(server, "sqs"), directory.name)
        yield {**options, "queue": directory.name}


@contextmanager
def ordered_queue(directory):
    from support.servers.aws import new_queue, service

    with aws(directory) as (server, options):
        name = f"{directory.name}.fifo"
        new_queue(service(server, "sqs"), name)
        yield {**options, "queue": name}


@contextmanager
def notifications(directory):
    from support.servers.aws import service

    with aws(directory) as (server, options):
        created = service(server, "sns").create_topic(Name=directory.name)
        yield {**options, "topic": created["TopicArn"]}


@contextmanager
def kinesis(directory):
    from support.servers.aws import service

    with aws(directory) as (server, options):
        client = service(server, "kinesis")
        client.create_stream(StreamName=directory.name, ShardCount=1)
        yield {**options, "stream": directory.name}


SERVERS = [
    ("chat-sink", chat),
    ("elasticsearch-sink", elasticsearch, pytest.mark.soak),
    ("elasticsearch-sink", elasticsearch_by_key, pytest.mark.soak),
    ("files-sink", files),
    ("files-sink", parquet_files),
    ("files-sink", partitioned_files),
    ("http-sink", http_server),
    ("kafka-sink", kafka),
    ("kinesis-sink", kinesis, pytest.mark.soak),
    ("mail-sink", mail),
    ("mqtt-sink", mqtt),
    ("mqtt-sink", mqtt_3),
    ("nats-sink", nats, pytest.mark.soak),
    ("postgres-sink", postgres),
    ("postgres-sink", postgres_debezium),
    ("qdrant-sink", qdrant),
    ("qdrant-sink", qdrant_embed),
    ("rabbitmq-sink", rabbitmq, pytest.mark.soak),
    ("redis-sink", redis),
    ("sns-sink", notifications, pytest.mark.soak),
    ("sqs-sink", queue, pytest.mark.soak),
    ("sqs-sink", ordered_queue, pytest.mark.soak),
]


def test_every_kind_of_sink_gets_the_awkward_messages(tmp_path):
    sinks = {each for each in KINDS if issubclass(find_kind(each, tmp_path), Sink)}
    assert {kind for kind, *_ in SERVERS} == sinks


@asynccontextmanager
async def messages_of(topic):
    """A broker whose *topic* has the awkward messages; with their number."""
    async with memory_broker() as broker, broker.connect() as client:
        async with client.producer(topic) as producer:
            count = await publish(producer)
        yield broker, client, count


@pytest.mark.rotated
@pytest.mark.parametrize(
    ("kind", "server"),
    [
        pytest.param(kind, server, marks=marks, id=server.__name__)
        for kind, server, *marks in SERVERS
    ],
)
@pytest.mark.parametrize("batch", [1, 1000])
def test_each_message_is_written_or_is_a_dead_letter(kind, server, batch, tmp_path):
    import asyncio

    with server(tmp_path) as options:
        text = f"""
connectors:
  out:
    kind: {kind}
    topic: {TOPIC}
    dead_letters: {DEAD}
    batch: {{messages: {batch}}}
    retries: {{backoff: 10ms, backoff_max: 20ms, count: 3}}
    options: {json.dumps(options)}
"""
        asyncio.run(_check(text, tmp_path))


async def _check(text, directory):
    async with messages_of(TOPIC) as (broker, client, count):
        async with running(declared(text, broker.url, directory)) as until:
            found = await until(
                lambda all_: (
                    all_["out"].messages + all_["out"].dead_letters >= count
                    or all_["out"].state.is_over
                )
            )
            status = found["out"]
            assert status.state is State.RUNNING, status
            assert (status.retries, status.error) == (0, None)
        facts = await client.subscriptions.describe(TOPIC, "out")
        assert facts.backlog == 0
        assert status.messages + status.dead_letters == count
        assert status.messages
        if status.dead_letters:
            dead = [each async for batch in client.read(DEAD) for each in batch]
            assert len(dead) == status.dead_letters
            for each in dead:
                assert each.attributes["x-failure-reason"]
                offset = int(each.attributes["x-original-topic-offset"])
                # The first and the last one are plain.
                assert 0 <= offset < count
