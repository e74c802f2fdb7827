"""The connectors of the guide work, with real peers."""

from __future__ import annotations

import asyncio
import hmac
import json
import re
import shlex
import sqlite3
from contextlib import asynccontextmanager

import aio_pika
import aiomqtt
import httpx
import nats
import pyarrow.parquet as pq
import pytest
import redis

from pydanube.objects.opening import open_objects
from pydanube_connect.kinds import KINDS
from pydanube_connect.status import State
from pydanube_connect.trial import try_connector
from support.drivers.command_lines import check_line
from support.drivers.commands import danube
from support.drivers.connectors import declared, running
from support.project import ROOT
from support.servers.aws import new_queue, service
from support.servers.http_server import Answer, LocalServer
from support.servers.kafka import consume, kafka_in_memory, produce
from support.servers.mail_server import MailServer
from support.servers.mariadb import MariadbProcess
from support.servers.mosquitto import MosquittoProcess
from support.servers.nats_server import NatsProcess
from support.servers.object_stores import ACCESS_KEY, SECRET_KEY, S3Server
from support.servers.opensearch import OpensearchProcess
from support.servers.ports import free_port
from support.servers.postgres import PostgresProcess
from support.servers.processes import BrokerProcess
from support.servers.rabbitmq_server import RabbitmqProcess
from support.servers.redis_servers import DurableRedis
from support.worlds.current import memory_broker

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.rotated]

PAGE = "".join(
    (ROOT / f"docs/guide/{each}.md").read_text(encoding="utf-8")
    for each in ("connect", "connectors")
)
FILES = dict(
    re.findall(
        r"^```(?:yaml|python)\n# ([\w.]+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL
    )
)
TRIAL_S = 5
"""Sources that have nothing yet take as long."""
BUSY_TRIAL_S = 120
"""Within this time a peer answers also on a busy machine."""


@asynccontextmanager
async def several(name, directory, *changes, **environment):
    """Run the connectors of the file *name* of the guide; *changes* are replaced."""
    text = FILES[name]
    for usual, own in changes:
        assert usual in text
        text = text.replace(usual, own)
    async with memory_broker() as broker, broker.connect() as client:
        found = declared(text, broker.url, directory, **environment)
        for each in found:
            trial = await try_connector(each, timeout_s=TRIAL_S)
            if "no answer" in (trial.problem or ""):
                trial = await try_connector(each, timeout_s=BUSY_TRIAL_S)
            assert trial.problem is None
        async with running(found) as until:
            yield client, until


@asynccontextmanager
async def connectors(name, directory, *changes, **environment):
    """Run the only connector of the file *name*; see ``several``."""
    async with several(name, directory, *changes, **environment) as (client, until):

        async def until_one(state):
            return await until(lambda found: all(map(state, found.values())))

        yield client, until_one


async def payloads(client, topic):
    return [each async for batch in client.read(topic) for each in batch.payloads]


def test_the_guide_names_every_kind():
    for kind in KINDS:
        assert f"kind: {kind}\n" in PAGE or f"`{kind}`" in PAGE


def test_the_commands_run(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "numbers.yaml").write_text(FILES["numbers.yaml"])
    monkeypatch.chdir(tmp_path)
    block, *_ = re.findall(r"^```bash\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    with BrokerProcess(tmp_path / "data") as broker:
        for line in block.splitlines():
            program, *arguments = shlex.split(line)
            if program == "danube":
                done = danube(*arguments, url=broker.url)
                assert done.returncode == 0, done.stderr
        again = danube("connect", "run", "numbers.yaml", url=broker.url)
        assert "finished, 0 messages" in again.stdout


def test_webhooks_are_received(tmp_path):
    address = f"127.0.0.1:{free_port()}"

    async def run():
        async with connectors(
            "webhooks.yaml",
            tmp_path,
            ("127.0.0.1:8090", address),
            GITHUB_SECRET="sesame",
        ) as (client, until):
            await until(lambda each: each.state is State.RUNNING)
            body = json.dumps({"repository": {"full_name": "a/b"}}).encode()
            digest = hmac.digest(b"sesame", body, "sha256").hex()
            headers = {
                "x-hub-signature-256": f"sha256={digest}",
                "x-github-event": "push",
                "x-github-delivery": "1",
            }
            async with httpx.AsyncClient() as http:
                url = f"http://{address}/github"
                for _ in range(2):
                    answer = await http.post(url, content=body, headers=headers)
                    assert answer.status_code == 200
            [message] = [
                each async for b in client.read("/default/github") for each in b
            ]
            assert message.key == "a/b"
            assert message.attributes["webhook.header.x-github-event"] == "push"

    asyncio.run(run())


def test_mqtt_messages_are_received(tmp_path):
    async def run(mosquitto):
        async with connectors(
            "sensors.yaml", tmp_path, ("1883", str(mosquitto.port))
        ) as (client, until):
            async with aiomqtt.Client("127.0.0.1", mosquitto.port) as mqtt:
                # Retained, because the connector may not have subscribed yet.
                for name in ("a/temperature", "a/pressure"):
                    await mqtt.publish(f"sensors/{name}", name, qos=1, retain=True)
            await until(lambda each: each.messages == 2)
            assert await payloads(client, "/default/sensors") == [b"a/pressure"]
            assert await payloads(client, "/default/temperature-a") == [
                b"a/temperature"
            ]

    with MosquittoProcess(tmp_path) as mosquitto:
        asyncio.run(run(mosquitto))


async def test_topics_of_kafka_are_read_and_written():
    async with memory_broker() as broker, broker.connect() as client:
        with kafka_in_memory() as servers:
            produce(servers, "orders", [(b"k", b"order")])
            produce(servers, "logs-web", [(b"k", b"line")])
            await client.topics.create("/default/invoices")
            await client.subscriptions.create(
                "/default/invoices", "invoices", type="failover", start="earliest"
            )
            async with client.producer("/default/invoices") as producer:
                await producer.send(b"invoice")
            text = FILES["kafka.yaml"].replace("127.0.0.1:9092", servers)
            async with running(declared(text, broker.url)) as until:
                await until(
                    lambda each: (
                        (each["orders"].messages, each["invoices"].messages) == (2, 1)
                    )
                )
            [invoice] = consume(servers, "invoices", 1)
        assert invoice.value() == b"invoice"
        assert await payloads(client, "/default/orders") == [b"order"]
        assert await payloads(client, "/default/logs-web") == [b"line"]


async def test_messages_are_published_to_mqtt(tmp_path):
    with MosquittoProcess(tmp_path) as mosquitto:
        change = ("1883", str(mosquitto.port))
        async with (
            aiomqtt.Client("127.0.0.1", mosquitto.port) as listener,
            connectors("commands.yaml", tmp_path, change) as (client, _),
        ):
            await listener.subscribe("devices/+/commands")
            async with client.producer("/default/commands") as producer:
                await producer.send(b"on", key="lamp")
            async for message in listener.messages:
                assert str(message.topic) == "devices/lamp/commands"
                assert message.payload == b"on"
                break


def test_commands_of_the_guide_can_be_typed():
    for block in re.findall(r"^```bash\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            if line.startswith("danube "):
                check_line(line)


async def test_lines_of_files_are_read(tmp_path):
    change = ("/var/log/shop", str(tmp_path))
    (tmp_path / "web.log").write_text("one\ntwo\n")
    async with connectors("logs.yaml", tmp_path, change) as (client, until):
        await until(lambda each: each.messages == 2)
        assert await payloads(client, "/default/logs") == [b"one", b"two"]


def test_a_web_server_is_asked(tmp_path):
    answer = json.dumps({"data": {"issues": [{"number": 2}, {"number": 1}]}})

    async def run(server):
        async with connectors(
            "issues.yaml",
            tmp_path,
            ("https://api.example.com", server.url),
            API_TOKEN="sesame",
        ) as (client, until):
            await until(lambda each: each.messages == 2)
            assert await payloads(client, "/default/issues") == [
                *(b'{"number":1}', b'{"number":2}')
            ]

    with LocalServer(lambda _: Answer(200, answer.encode())) as server:
        asyncio.run(run(server))
        assert server.requests[0].headers["authorization"] == "Bearer sesame"


async def test_redis_streams_are_read_and_written(tmp_path):
    with DurableRedis(tmp_path, requirepass="", masterauth="") as server:
        stored = redis.Redis(port=server.port)
        stored.xadd("carts", {"id": 1})
        text = FILES["streams.yaml"].replace("6379", str(server.port))
        async with memory_broker() as broker, broker.connect() as client:
            async with client.producer("/default/offers") as producer:
                await producer.send(b"10 %")
            async with running(declared(text, broker.url)) as until:
                await until(
                    lambda each: each["carts"].messages + each["offers"].messages == 2
                )
            assert await payloads(client, "/default/carts") == [b'{"id":"1"}']
        [(_, entry)] = stored.xrange("offers")
        assert entry == {b"payload": b"10 %"}
        stored.close()


async def test_rows_of_a_database_are_read(tmp_path):
    database = sqlite3.connect(tmp_path / "shop.db")
    database.execute("CREATE TABLE orders (id INTEGER, customer TEXT)")
    database.execute("INSERT INTO orders VALUES (1, 'ada')")
    database.commit()
    database.close()
    change = ("shop.db", str(tmp_path / "shop.db"))
    async with connectors("rows.yaml", tmp_path, change) as (client, until):
        await until(lambda each: each.messages == 1)
        found = await payloads(client, "/default/rows")
    assert found == [b'{"id":1,"customer":"ada"}']


async def test_changes_in_postgresql_are_read(tmp_path):
    with PostgresProcess(wal_level="logical") as server:
        for table in ("orders", "customers"):
            server.execute(f"CREATE TABLE {table} (id int PRIMARY KEY)")
            server.execute(f"INSERT INTO {table} VALUES (7)")
        change = ("postgresql://danube@127.0.0.1/shop", server.uri)
        async with connectors(
            "changes.yaml", tmp_path, change, SHOP_PASSWORD="none"
        ) as (client, until):
            await until(lambda each: each.messages == 2)
            server.execute("DELETE FROM orders")
            await until(lambda each: each.messages == 3)
            orders = await payloads(client, "/default/orders")
            customers = await payloads(client, "/default/shop-changes")
    assert [json.loads(each)["op"] for each in orders] == ["r", "d"]
    assert [json.loads(each)["after"] for each in customers] == [{"id": 7}]


async def test_a_message_is_sent_to_slack(tmp_path):
    with LocalServer(lambda _: Answer(200)) as server:
        variable = {"SLACK_WEBHOOK_URL": f"{server.url}/services/x"}
        async with connectors("slack.yaml", tmp_path, **variable) as (client, until):
            async with client.producer("/default/alerts") as producer:
                await producer.send(b'{"severity": "high", "summary": "<!here> full"}')
            await until(lambda found: found.messages == 1)
    request = server.requests[-1]
    assert request.headers["content-type"] == "application/json"
    assert json.loads(request.body) == {"text": "*high*: &lt;!here&gt; full"}


async def test_logs_of_opentelemetry_are_received(tmp_path):
    address = f"127.0.0.1:{free_port()}"
    change = ("127.0.0.1:4318", address)
    async with connectors("otlp.yaml", tmp_path, change, LOGS_KEY="k") as (
        client,
        until,
    ):
        await until(lambda found: found.state is State.RUNNING)
        record = {"body": {"stringValue": "full"}}
        logs = {"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]}
        async with httpx.AsyncClient(timeout=60) as http:
            answer = await http.post(
                f"http://{address}/v1/logs",
                json=logs,
                headers={"authorization": "Bearer k"},
            )
        assert answer.json() == {}
        [payload] = await payloads(client, "/default/logs")
    assert json.loads(payload) == {"body": "full"}


async def test_a_message_is_mailed(tmp_path):
    with MailServer(tmp_path) as server:
        text = f"localhost\n      port: {server.port}\n      ca_file: {server.ca_file}"
        change, own = ("smtp.example.com", text), {"SMTP_PASSWORD": "sesame"}
        async with connectors("mail.yaml", tmp_path, change, **own) as (client, until):
            async with client.producer("/default/alerts") as producer:
                await producer.send(b'{"severity": "high", "summary": "disk full"}')
            await until(lambda found: found.messages == 1)
    [mail] = server.mails
    assert (mail["To"], mail["Subject"]) == ("on-call@example.com", "high: disk full")


async def test_messages_become_points(tmp_path):
    from qdrant_client import QdrantClient  # Importing it takes long.

    (tmp_path / "embed.py").write_text(FILES["embed.py"])
    change = "url: http://127.0.0.1:6333", "path: points"
    async with connectors("vectors.yaml", tmp_path, change) as (client, until):
        async with client.producer("/default/texts") as producer:
            await producer.send(b'{"text": "banana"}', key="1")
        await until(lambda found: found.messages == 1)
    points = QdrantClient(path=str(tmp_path / "points"))
    [found], _ = points.scroll("texts")
    points.close()
    assert (found.id, found.payload) == (1, {"text": "banana"})


async def test_messages_are_written_to_files(tmp_path):
    changes = ("/var/archive", str(tmp_path / "archive")), ("wait: 1m", "wait: 10ms")
    (tmp_path / "archive").mkdir()
    async with connectors("archive.yaml", tmp_path, *changes) as (client, until):
        async with client.producer("/default/orders") as producer:
            await producer.send_batch([b"1", b"2"])
        await until(lambda found: found.messages == 2)
    rows = pq.read_table(tmp_path / "archive/default").to_pylist()
    assert [each["payload"] for each in rows] == [b"1", b"2"]


async def test_messages_become_rows_of_days_in_a_store(tmp_path):
    sale = {"number": 7, "amount": 1.5, "region": "eu", "customer": {"id": "ann"}}
    with S3Server(tmp_path) as server:
        url, options = server.new_store()
        async with connectors(
            "days.yaml",
            tmp_path,
            ("s3://my-bucket/lake", url),
            ("region: eu-central-1", f"<<: {json.dumps(options)}"),
            ("wait: 10m", "wait: 10ms"),
            LAKE_KEY_ID=options["access_key_id"],
            LAKE_SECRET=options["secret_access_key"],
        ) as (client, until):
            async with client.producer("/default/sales") as producer:
                await producer.send(json.dumps(sale))
                await producer.send(b'{"region": "us", "sold_at": "2026-01-02"}')
                await producer.send(b'{"number": "seven"}')
            await until(lambda found: found.messages + found.dead_letters == 3)
            [message] = [
                each async for b in client.read("/default/sales", end=1) for each in b
            ]
            dead = [
                each async for b in client.read("/default/sales-refused") for each in b
            ]
        assert (
            "the column 'number' is no integer"
            in dead[0].attributes["x-failure-reason"]
        )
        objects = open_objects(url, options)
        day = message.publish_time.strftime("day=%Y-%m-%d")
        names = await objects.names("")
        assert [each.rpartition("/")[0] for each in names] == [
            f"default/sales/{day}/region=eu",
            f"default/sales/{day}/region=us",
        ]
        # Spark and DuckDB find the partitions in the names; the source finds the rows.
        source = {"url": url, "store": options, "format": "parquet", "poll": "10ms"}
        text = f"""
connectors:
  rows:
    kind: objects-source
    topic: /default/rows
    options: {json.dumps(source)}
"""
        async with memory_broker() as broker, broker.connect() as client:
            async with running(declared(text, broker.url, tmp_path)) as until:
                await until(lambda found: found["rows"].messages == 2)
            rows = [
                json.loads(each) for each in await payloads(client, "/default/rows")
            ]
    assert rows[0] == {
        "number": 7,
        "amount": 1.5,
        "sold_at": None,
        "customer": "ann",
        "offset": 0,
    }
    assert rows[1]["sold_at"].startswith("2026-01-02T00:00:00")


@pytest.mark.soak
async def test_queues_topics_and_streams_of_aws_are_read_and_written(
    tmp_path, monkeypatch
):
    with S3Server(tmp_path) as server:
        for name, value in (
            ("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.port}"),
            ("AWS_ACCESS_KEY_ID", ACCESS_KEY),
            ("AWS_SECRET_ACCESS_KEY", SECRET_KEY),
        ):
            monkeypatch.setenv(name, value)
        clients = [service(server, each, "eu-central-1") for each in ("sqs", "kinesis")]
        sqs, kinesis = clients
        for name in ("jobs", "results.fifo"):
            new_queue(sqs, name)
        for name in ("clicks", "scores"):
            kinesis.create_stream(StreamName=name, ShardCount=1)
        service(server, "sns", "eu-central-1").create_topic(Name="alarms")
        sqs.send_message(
            QueueUrl=sqs.get_queue_url(QueueName="jobs")["QueueUrl"], MessageBody="1"
        )
        kinesis.put_record(StreamName="clicks", Data=b"1", PartitionKey="k")
        for name in ("aws.yaml", "kinesis.yaml"):
            async with several(name, tmp_path) as (client, until):
                for topic in ("results", "alarms", "scores"):
                    async with client.producer(f"/default/{topic}") as producer:
                        await producer.send(b"2", key="k")
                await until(lambda found: all(each.messages for each in found.values()))
        url = sqs.get_queue_url(QueueName="results.fifo")["QueueUrl"]
        [message] = sqs.receive_message(QueueUrl=url)["Messages"]
    assert message["Body"] == "2"


@pytest.mark.soak
async def test_messages_become_documents(tmp_path):
    with OpensearchProcess(tmp_path) as server:
        change = "http://127.0.0.1:9200", server.url
        async with connectors("search.yaml", tmp_path, change) as (client, until):
            async with client.producer("/default/orders") as producer:
                await producer.send(b'{"x": 1}', key="a")
            await until(lambda found: found.messages == 1)
        assert server.documents("orders") == {"a": {"x": 1}}


@pytest.mark.soak
async def test_changes_in_mariadb_are_read(tmp_path):
    with MariadbProcess() as server:
        server.execute("CREATE DATABASE shop")
        for table in ("items", "stores"):
            server.execute(f"CREATE TABLE shop.{table} (id int PRIMARY KEY)")
            server.execute(f"INSERT INTO shop.{table} VALUES (7)")
        async with connectors(
            "stock.yaml",
            tmp_path,
            ("port: 3306", f"port: {server.port}"),
            STOCK_PASSWORD="sesame",
        ) as (client, until):
            await until(lambda each: each.messages == 2)
            server.execute("DELETE FROM shop.items")
            await until(lambda each: each.messages == 3)
            items = await payloads(client, "/default/items")
            stores = await payloads(client, "/default/stock-changes")
    assert [json.loads(each)["op"] for each in items] == ["r", "d"]
    assert [json.loads(each)["after"] for each in stores] == [{"id": 7}]


async def test_objects_are_read(tmp_path):
    with S3Server(tmp_path) as server:
        url, options = server.new_store()
        await open_objects(url, options).put("a.jsonl", b"1\n2\n")
        given = json.dumps({**options, "region": "eu-central-1"})
        async with connectors(
            "uploads.yaml",
            tmp_path,
            ("s3://my-bucket/uploads", url),
            (
                "store:\n        region: eu-central-1\n",
                f"store:\n        <<: {given}\n",
            ),
            UPLOADS_KEY_ID=options["access_key_id"],
            UPLOADS_SECRET=options["secret_access_key"],
        ) as (client, until):
            await until(lambda each: each.messages == 2)
            assert await payloads(client, "/default/uploads") == [b"1", b"2"]


@pytest.mark.soak
async def test_streams_of_nats_are_read_and_written(tmp_path):
    with NatsProcess(tmp_path) as server:
        connection = await nats.connect(server.url)
        stream = connection.jetstream()
        for name in ("orders", "replies"):
            await stream.add_stream(name=name.upper(), subjects=[f"{name}.>"])
        await stream.publish("orders.new", b"1")
        change = ("nats://127.0.0.1:4222", server.url)
        async with several("jetstream.yaml", tmp_path, change) as (client, until):
            await until(lambda found: found["orders"].messages == 1)
            async with client.producer("/default/replies") as producer:
                await producer.send(b"2", key="ann")
            await until(lambda found: found["replies"].messages == 1)
            assert await payloads(client, "/default/orders") == [b"1"]
        reader = await stream.subscribe("replies.ann", ordered_consumer=True)
        assert (await reader.next_msg()).data == b"2"
        await connection.close()


@pytest.mark.soak
async def test_queues_of_rabbitmq_are_read_and_written(tmp_path):
    with RabbitmqProcess(tmp_path) as server:
        connection = await aio_pika.connect(server.url)
        channel = await connection.channel()
        for name in ("tasks", "returns", "results"):
            await channel.declare_queue(name, durable=True)
        await channel.default_exchange.publish(aio_pika.Message(b"1"), "tasks")
        url = server.url.replace("guest:guest", "guest")
        change = ("amqp://danube@127.0.0.1/", url)
        async with several(
            "queues.yaml", tmp_path, change, RABBITMQ_PASSWORD="guest"
        ) as (client, until):
            await until(lambda found: found["tasks"].messages == 1)
            async with client.producer("/default/results") as producer:
                await producer.send(b"2")
            await until(lambda found: found["results"].messages == 1)
            assert await payloads(client, "/default/tasks") == [b"1"]
        queue = await channel.get_queue("results")
        assert (await queue.get(no_ack=True)).body == b"2"
        await connection.close()


async def test_a_table_of_postgresql_is_mirrored(tmp_path):
    with PostgresProcess() as server:
        server.execute("CREATE TABLE orders (id int PRIMARY KEY, who text)")
        change = ("postgresql://danube@127.0.0.1/copy", server.uri)
        async with connectors(
            "mirror.yaml", tmp_path, change, COPY_PASSWORD="none"
        ) as (client, until):
            async with client.producer("/default/orders") as producer:
                for name in ("Ann", "Bob"):
                    row = {"id": 7, "who": name}
                    await producer.send(json.dumps({"op": "u", "after": row}))
            await until(lambda each: each.messages == 2)
        assert server.query("SELECT * FROM orders") == [(7, "Bob")]


def test_messages_are_sent_by_http(tmp_path):
    async def run(server):
        async with connectors(
            "alerts.yaml",
            tmp_path,
            ("http://127.0.0.1:9000", server.url),
            ALERTS_TOKEN="sesame",
        ) as (client, until):
            async with client.producer("/default/alerts") as producer:
                await producer.send_batch([b"{}", b"[]"])
            await until(lambda each: each.messages == 2)

    with LocalServer(lambda _: Answer(204)) as server:
        asyncio.run(run(server))
        sent = [each.body for each in server.requests if each.method == "POST"]
        assert sent == [b"{}", b"[]"]
        assert server.requests[0].headers["authorization"] == "Bearer sesame"


def test_own_source_publishes_each_line_once(tmp_path):
    (tmp_path / "lines.py").write_text(FILES["lines.py"])
    log = tmp_path / "access.log"
    log.write_text("one\ntwo\nthr")

    async def run():
        async with memory_broker() as broker, broker.connect() as client:
            text = FILES["lines.yaml"].replace("access.log", str(log))
            found = declared(text, broker.url, tmp_path)
            async with running(found) as until:
                await until(lambda all_: all_["lines"].messages == 2)
                with log.open("a") as file:
                    file.write("ee\n")
                await until(lambda all_: all_["lines"].messages == 3)
            with log.open("a") as file:
                file.write("four\n")
            async with running(found) as until:
                await until(lambda all_: all_["lines"].messages == 1)
            assert await payloads(client, "/default/lines") == [
                *(b"one", b"two", b"three", b"four")
            ]

    asyncio.run(run())


def test_own_sink_writes_each_message_once(tmp_path):
    (tmp_path / "tables.py").write_text(FILES["tables.py"])
    database = tmp_path / "lines.db"

    async def run():
        async with connectors("tables.yaml", tmp_path, ("lines.db", str(database))) as (
            client,
            until,
        ):
            async with client.producer("/default/lines") as producer:
                await producer.send_batch(["one", "", "two"])
            await until(lambda each: each.messages == 2)
            [dead] = [
                each async for b in client.read("/default/lines-dead") for each in b
            ]
            assert dead.attributes["x-failure-reason"] == "the line is empty"

    asyncio.run(run())
    with sqlite3.connect(database) as opened:
        rows = opened.execute("SELECT * FROM lines").fetchall()
    opened.close()
    assert rows == [(0, "one"), (2, "two")]


def test_records_are_transformed(tmp_path):
    (tmp_path / "order_lines.py").write_text(FILES["order_lines.py"])
    address = f"127.0.0.1:{free_port()}"
    order = {"customer": {"name": "ada"}, "lines": [{"item": 1}, {"item": 2}]}

    async def run():
        change = ("127.0.0.1:8091", address)
        async with connectors("orders.yaml", tmp_path, change) as (client, until):
            await until(lambda each: each.state is State.RUNNING)
            async with httpx.AsyncClient() as http:
                for body in ({"order": order}, {"ping": 1}, {"order": {"lines": 5}}):
                    answer = await http.post(f"http://{address}/orders", json=body)
                    assert answer.status_code == 200
            assert await payloads(client, "/default/order-lines") == [
                b'{"customer":"ada","item":1}',
                b'{"customer":"ada","item":2}',
            ]
            [dead] = await payloads(client, "/default/orders-dead")
            assert json.loads(dead) == {"order": {"lines": 5}}
            status = await until(lambda each: each.dead_letters == 1)
            assert status["orders"].dropped == 1

    asyncio.run(run())
