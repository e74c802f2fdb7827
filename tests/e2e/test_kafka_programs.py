"""Programs that are made for Kafka work against a broker: its tools, clients, Spark."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import confluent_kafka
import httpx
import pytest

import pydanube
from pydanube import sync
from pydanube.objects.directory import DirectoryObjects
from pydanube_broker.servers.directories.restore import choose_backup, restore_backup
from support.fakes.secured import (
    AUDIENCE,
    ISSUER,
    bootstrap_key,
    claims,
    jwks,
    now,
    secured,
    signed,
)
from support.project import ROOT
from support.servers.ports import free_port
from support.servers.postgres import PostgresProcess
from support.servers.processes import BrokerProcess
from support.servers.programs import required_program

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.soak]

JARS = ROOT / ".venv" / "kafka"
DEBEZIUM = ROOT / ".venv" / "debezium"
CLIENTS = ROOT / ".venv" / "kafka-clients" / "bin" / "python"
TOOLS = "org.apache.kafka.tools"
GROUPS = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
WAIT_S = 120


class Running:
    """A broker with a listener for Kafka clients."""

    def __init__(self, process, port):
        self.process = process
        self.address = f"127.0.0.1:{port}"


@pytest.fixture
def broker(tmp_path):
    assert JARS.is_dir(), "this test needs Kafka's tools: run tools/kafka"
    port = free_port()
    with BrokerProcess(tmp_path / "data", "--kafka-port", str(port)) as process:
        yield Running(process, port)


def java(main):
    """Return the beginning of a command that runs a class of Kafka's jars."""
    limits = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    return ["java", *limits, "-cp", f"{JARS}/*", main]


def run(command, text="", **options):
    """Run a program to its end, and return what it printed."""
    ran = subprocess.run(
        command,
        input=text,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
        **options,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def tool(broker, main, *arguments, text=""):
    command = [*java(main), "--bootstrap-server", broker.address, *arguments]
    return run(command, text)


SCRAM = """
sasl.mechanism=SCRAM-SHA-256
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \
  username="alice" password="{}";
"""
BEARER = """
sasl.mechanism=OAUTHBEARER
sasl.login.callback.handler.class=\
  org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler
sasl.oauthbearer.token.endpoint.url={}
sasl.jaas.config=\
  org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;
"""


async def test_java_clients_prove_who_they_are(tmp_path):
    assert JARS.is_dir(), "this test needs Kafka's tools: run tools/kafka"
    keys, token = tmp_path / "keys.json", tmp_path / "token"
    keys.write_text(jwks())
    jwt = {"issuer": ISSUER, "audience": AUDIENCE, "keys_file": str(keys)}
    async with secured(tmp_path, jwt=jwt, kafka={"port": 0}) as broker:
        async with pydanube.connect(
            broker.stream_url, api_key=bootstrap_key(tmp_path)
        ) as admin:
            made = await admin.security.create_api_key("alice")
        token.write_text(signed(claims(int(now().timestamp())), "RS256"))
        secured_broker = Running(
            broker, broker.listener_urls["kafka"].rpartition(":")[2]
        )
        file = tmp_path / "client.properties"
        options = (f"{TOOLS}.TopicCommand", "--command-config", str(file))
        for number, mechanism in enumerate(
            (SCRAM.format(made.key), BEARER.format(token.as_uri()))
        ):
            file.write_text(f"security.protocol=SASL_PLAINTEXT{mechanism}")
            create = ("--create", "--topic", f"t{number}")
            await asyncio.to_thread(tool, secured_broker, *options, *create)
        found = await asyncio.to_thread(tool, secured_broker, *options, "--list")
        assert found.split() == ["t0", "t1"]


def columns_of(table, *names):
    """Return columns of a table that a tool has printed, row by row."""
    rows = [line.split() for line in table.splitlines() if line.strip()]
    header = next(row for row in rows if set(names) <= set(row))
    at = [header.index(name) for name in names]
    return [
        tuple(row[each] for each in at)
        for row in rows[rows.index(header) + 1 :]
        if len(row) == len(header)
    ]


def test_tools_of_kafka_administer_topics(broker):
    topics, configs = f"{TOOLS}.TopicCommand", "kafka.admin.ConfigCommand"
    made = ("--topic", "t", "--partitions", "3", "--config", "retention.ms=100000")
    tool(broker, topics, "--create", *made)
    tool(broker, topics, "--alter", "--topic", "t", "--partitions", "4")
    found = tool(broker, topics, "--describe", "--topic", "t")
    assert "PartitionCount: 4" in found
    assert "retention.ms=100000" in found
    entity = ("--entity-type", "topics", "--entity-name", "t")
    tool(broker, configs, *entity, "--alter", "--add-config", "retention.ms=5000000")
    assert "retention.ms=5000000" in tool(broker, configs, *entity, "--describe")
    assert tool(broker, topics, "--list").split() == ["t"]
    tool(broker, topics, "--delete", "--topic", "t")
    assert tool(broker, topics, "--list").split() == []


def test_tools_of_kafka_publish_and_consume(broker):
    keyed = ("--property", "parse.key=true", "--property", "key.separator=:")
    lines = "".join(f"k{number}:{number}\n" for number in range(10))
    tool(broker, "kafka.tools.ConsoleProducer", "--topic", "t", *keyed, text=lines)
    with sync.connect(broker.process.url) as client:
        read = [each for batch in client.read("/default/t") for each in batch]
    assert [(each.key, each.payload) for each in read[:2]] == [
        ("k0", b"0"),
        ("k1", b"1"),
    ]
    read = ("--topic", "t", "--group", "g", "--from-beginning", "--max-messages", "10")
    found = tool(broker, f"{TOOLS}.consumer.ConsoleConsumer", *read)
    assert found.split() == [str(number) for number in range(10)]
    offsets = (GROUPS, "--describe", "--group", "g")
    table = tool(broker, *offsets)
    assert columns_of(table, "CURRENT-OFFSET", "LAG") == [("10", "0")]
    reset = (GROUPS, "--group", "g", "--topic", "t", "--reset-offsets", "--execute")
    for where, offset in (
        (("--to-earliest",), "0"),
        (("--to-latest",), "10"),
        (("--shift-by", "-3"), "7"),
        (("--to-datetime", "2020-01-01T00:00:00.000"), "0"),
        (("--to-offset", "4"), "4"),
    ):
        tool(broker, *reset, *where)
        assert columns_of(tool(broker, *offsets), "CURRENT-OFFSET") == [(offset,)]
    # It is the cursor of a subscription.
    with sync.connect(broker.process.url) as client:
        assert client.subscriptions.describe("/default/t", "g").backlog == 6
    tool(broker, GROUPS, "--delete", "--group", "g")
    assert "g" not in tool(broker, GROUPS, "--list").split()
    ends = tool(broker, f"{TOOLS}.GetOffsetShell", "--topic", "t")
    assert ends.split() == ["t:0:10"]


def read_in_group(address, count):
    """Read as the only member of a newer group, commit, and return the offsets."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "g",
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["t"])
    found = []
    while len(found) < count:
        for message in consumer.consume(count - len(found), 1.0):
            assert not message.error(), message.error()
            found.append((message.partition(), message.offset()))
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def low_marks(address):
    """Return where the partitions of the topic begin."""
    while True:
        # A client that meets a partition without a leader does not ask again soon.
        settings = {"bootstrap.servers": address, "group.id": "x"}
        consumer = confluent_kafka.Consumer(settings)
        partitions = [confluent_kafka.TopicPartition("t", each) for each in range(4)]
        try:
            return [
                consumer.get_watermark_offsets(each, timeout=WAIT_S)[0]
                for each in partitions
            ]
        except confluent_kafka.KafkaException:
            time.sleep(0.1)
        finally:
            consumer.close()


def test_trimmed_topics_and_newer_groups_are_restored_by_several_processes(tmp_path):
    assert JARS.is_dir(), "this test needs Kafka's tools: run tools/kafka"
    settings, port = tmp_path / "settings.yaml", free_port()
    stores = {"backups": {"url": f"fs://{tmp_path}/backups"}}
    settings.write_text(json.dumps({"cluster": {"shards": 8}, "stores": stores}))
    options = ("--processes", "2", "--config", str(settings), "--kafka-port", str(port))
    offsets = tmp_path / "offsets.json"
    partitions = [
        {"topic": "t", "partition": number, "offset": 3} for number in range(4)
    ]
    offsets.write_text(json.dumps({"version": 1, "partitions": partitions}))
    with BrokerProcess(tmp_path / "data", *options) as process:
        broker = Running(process, port)
        tool(
            broker,
            f"{TOOLS}.TopicCommand",
            *["--create", "--topic", "t", "--partitions", "4"],
        )
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.address})
        for number in range(40):
            producer.produce("t", b"%d" % number, partition=number % 4)
        assert producer.flush(WAIT_S) == 0
        before = read_in_group(broker.address, 14)
        delete = f"{TOOLS}.DeleteRecordsCommand", "--offset-json-file", str(offsets)
        deleted = tool(broker, *delete)
        assert deleted.count("low_watermark: 3") == 4
        assert low_marks(broker.address) == [3] * 4
        with sync.connect(process.url) as client:
            progress = client.storage.create_backup("backups")
            while progress.is_running:
                time.sleep(0.1)
                progress = client.storage.describe_backup()
            assert not progress.error
    objects = DirectoryObjects(tmp_path / "backups")

    async def restore():
        chosen = await choose_backup(objects, None)
        await restore_backup(objects, chosen, tmp_path / "restored" / "data")

    asyncio.run(restore())
    with BrokerProcess(tmp_path / "restored" / "data", *options) as process:
        broker = Running(process, port)
        assert low_marks(broker.address) == [3] * 4
        kept = {(partition, at) for partition in range(4) for at in range(3, 10)}
        left = sorted(kept - set(before))
        assert sorted(read_in_group(broker.address, len(left))) == left
        for each in partitions:
            each["offset"] = -1
        offsets.write_text(json.dumps({"version": 1, "partitions": partitions}))
        assert tool(broker, *delete).count("low_watermark: 10") == 4
        described = tool(broker, GROUPS, "--describe", "--group", "g")
        marks = columns_of(described, "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")
        assert marks == [("10", "10", "0")] * 4


def test_verifiable_programs_and_performance_tests_of_kafka_end_well(broker):
    wanted = ("--topic", "v", "--max-messages", "1000")
    sent = tool(broker, f"{TOOLS}.VerifiableProducer", *wanted, "--acks", "-1")
    assert '"sent":1000,"acked":1000' in sent
    # It ends when it is told to, also when it has all messages.
    command = java(f"{TOOLS}.VerifiableConsumer")
    options = ("--bootstrap-server", broker.address, *wanted, "--group-id", "g")
    received = run([*command, *options])
    assert '"name":"offsets_committed"' in received
    producer = java(f"{TOOLS}.ProducerPerformance")
    load = ("--topic", "p", "--num-records", "20000", "--record-size", "100")
    props = (f"bootstrap.servers={broker.address}", "enable.idempotence=true")
    done = run([*producer, *load, "--throughput", "-1", "--producer-props", *props])
    assert done.startswith("20000 records sent")
    read = ("--topic", "p", "--messages", "20000")
    figures = tool(broker, f"{TOOLS}.ConsumerPerformance", *read).splitlines()[-1]
    assert figures.split(", ")[4] == "20000"


def written(settings, directory):
    """Write settings of each name into a file, and return the files."""
    files = []
    for name, values in settings.items():
        files.append(directory / f"{name}.properties")
        lines = (f"{key}={value}\n" for key, value in values.items())
        files[-1].write_text("".join(lines))
    return files


def test_connect_copies_files_and_goes_on_after_a_restart(broker, tmp_path):
    settings = {
        "worker": {
            "bootstrap.servers": broker.address,
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "true",
            "offset.storage.file.filename": tmp_path / "offsets",
            "offset.flush.interval.ms": "500",
            "listeners": f"http://127.0.0.1:{free_port()}",
            "plugin.discovery": "only_scan",
            "plugin.path": tmp_path,
        },
        "source": {
            "name": "source",
            "connector.class": "org.apache.kafka.connect.file."
            "FileStreamSourceConnector",
            "file": tmp_path / "in",
            "topic": "lines",
        },
        "sink": {
            "name": "sink",
            "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
            "file": tmp_path / "out",
            "topics": "lines",
        },
    }
    files = written(settings, tmp_path)
    (tmp_path / "in").write_text("one\ntwo\n")
    with started([*java("org.apache.kafka.connect.cli.ConnectStandalone"), *files]):
        wait_for_lines(tmp_path / "out", ["one", "two"])
        broker.process.stop()
        broker.process.start()
        with (tmp_path / "in").open("a") as file:
            file.write("three\n")
        wait_for_lines(tmp_path / "out", ["one", "two", "three"])


def test_debezium_publishes_the_changes_of_a_table(broker, tmp_path):
    assert DEBEZIUM.is_dir(), "this test needs Debezium: run tools/kafka"
    number = free_port()
    # Its port is always 5432, so the address must be one of its own.
    host = f"127.1.{number >> 8}.{number & 127 or 1}"
    json_converter = "org.apache.kafka.connect.json.JsonConverter"
    settings = {
        "worker": {
            "bootstrap.servers": broker.address,
            "key.converter": json_converter,
            "key.converter.schemas.enable": "false",
            "value.converter": json_converter,
            "value.converter.schemas.enable": "false",
            "offset.storage.file.filename": tmp_path / "offsets",
            "offset.flush.interval.ms": "500",
            "listeners": f"http://127.0.0.1:{free_port()}",
            "plugin.discovery": "only_scan",
            "plugin.path": tmp_path,
        },
        "source": {
            "name": "source",
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "plugin.name": "pgoutput",
            "database.hostname": host,
            "database.user": "postgres",
            "database.password": "any",
            "database.dbname": "postgres",
            "topic.prefix": "shop",
            "table.include.list": "public.orders",
        },
    }
    command = [*java("org.apache.kafka.connect.cli.ConnectStandalone")]
    command[command.index("-cp") + 1] += f":{DEBEZIUM}/*"

    def wait_for(count):
        while True:
            with sync.connect(broker.process.url) as client:
                topic = "/default/shop.public.orders"
                if topic in client.topics.list():
                    found = [each for batch in client.read(topic) for each in batch]
                    if len(found) >= count:
                        return found
            time.sleep(0.2)

    with PostgresProcess(wal_level="logical", listen_addresses=host) as server:
        server.execute(
            "create table orders (id int primary key, item text)",
            "alter table orders replica identity full",
            "insert into orders values (1, 'pen')",
        )
        with started([*command, *written(settings, tmp_path)]):
            wait_for(1)
            server.execute("update orders set item = 'ink'", "delete from orders")
            *changes, deleted = wait_for(4)
    values = [json.loads(each.payload) for each in changes]
    assert [each["op"] for each in values] == ["r", "u", "d"]
    assert values[1]["after"] == values[2]["before"] == {"id": 1, "item": "ink"}
    assert {each.key for each in (*changes, deleted)} == {'{"id":1}'}
    assert deleted.attributes["kafka.tombstone"] == "true"


def test_distributed_connect_keeps_its_state_in_topics(broker, tmp_path):
    port = free_port()
    settings = {
        "bootstrap.servers": broker.address,
        "group.id": "connect",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "offset.flush.interval.ms": "500",
        "listeners": f"http://127.0.0.1:{port}",
        "plugin.discovery": "only_scan",
        "plugin.path": tmp_path,
    }
    for name in ("config", "offset", "status"):
        settings[f"{name}.storage.topic"] = f"connect-{name}"
        settings[f"{name}.storage.replication.factor"] = "1"
    connectors = {
        "source": {"file": str(tmp_path / "in"), "topic": "lines"},
        "sink": {"file": str(tmp_path / "out"), "topics": "lines"},
    }
    worker = tmp_path / "worker.properties"
    worker.write_text("".join(f"{key}={each}\n" for key, each in settings.items()))
    command = [*java("org.apache.kafka.connect.cli.ConnectDistributed"), str(worker)]
    (tmp_path / "in").write_text("one\n")
    with started(command), httpx.Client() as http:
        for name, config in connectors.items():
            cls = f"org.apache.kafka.connect.file.FileStream{name.title()}Connector"
            put_until_accepted(
                http,
                f"http://127.0.0.1:{port}/connectors/{name}/config",
                {"connector.class": cls, **config},
            )
        wait_for_lines(tmp_path / "out", ["one"])
    # Another worker finds the connectors, and how far they were.
    with (tmp_path / "in").open("a") as file:
        file.write("two\n")
    with started(command):
        wait_until(lambda: lines_of(tmp_path / "out")[-1:] == ["two"])


def put_until_accepted(http, url, content):
    def is_accepted():
        try:
            return http.put(url, json=content, timeout=WAIT_S).is_success
        except httpx.TransportError:
            return False

    wait_until(is_accepted)


def test_mirror_maker_copies_topics(broker, tmp_path):
    factors = (
        *("replication", "checkpoints.topic.replication"),
        *("heartbeats.topic.replication", "offset-syncs.topic.replication"),
        *(f"{name}.storage.replication" for name in ("offset", "status", "config")),
    )
    settings = {
        "clusters": "a, b",
        "a.bootstrap.servers": broker.address,
        "b.bootstrap.servers": broker.address,
        "a->b.enabled": "true",
        "a->b.topics": "t",
        "refresh.topics.interval.seconds": "2",
    } | {f"{name}.factor": "1" for name in factors}
    file = tmp_path / "mirror.properties"
    file.write_text("".join(f"{key}={each}\n" for key, each in settings.items()))
    with sync.connect(broker.process.url) as client:
        with client.producer("/default/t") as producer:
            for number in range(5):
                producer.send(b"%d" % number, key=f"k{number}")

        def copied():
            if "/default/a.t" not in client.topics.list():
                return []
            batches = client.read("/default/a.t")
            return [(each.key, each.payload) for batch in batches for each in batch]

        expected = [(f"k{number}", b"%d" % number) for number in range(5)]
        command = [*java("org.apache.kafka.connect.mirror.MirrorMaker"), str(file)]
        with started(command):
            wait_until(lambda: copied() == expected)


@contextmanager
def started(command):
    """Run a program during the body."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_for_lines(file, lines):
    wait_until(lambda: lines_of(file) == lines)


def lines_of(file):
    return file.read_text().splitlines() if file.exists() else []


def wait_until(is_done):
    until = time.monotonic() + WAIT_S
    while not is_done():
        assert time.monotonic() < until
        time.sleep(0.2)


KAFKA_PYTHON = """
import sys
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic

address = sys.argv[1]
admin = KafkaAdminClient(bootstrap_servers=address)
admin.create_topics([NewTopic("t", 3, 1)])
producer = KafkaProducer(
    bootstrap_servers=address, enable_idempotence=True, compression_type="gzip"
)
for number in range(100):
    sent = producer.send("t", b"%d" % number, key=b"%d" % number)
sent.get(20)
producer.flush()
consumer = KafkaConsumer(
    "t", bootstrap_servers=address, group_id="g", auto_offset_reset="earliest"
)
found = sorted(int(next(consumer).value) for _ in range(100))
assert found == list(range(100)), found
consumer.commit()
partitions = [TopicPartition("t", number) for number in range(3)]
assert sum(map(consumer.committed, partitions)) == 100
consumer.close()
staged = KafkaProducer(bootstrap_servers=address, transactional_id="tx")
staged.init_transactions()
staged.begin_transaction()
staged.send("u", b"1")
staged.commit_transaction()
admin.delete_topics(["t"])
print(admin.list_topics())
"""

FASTSTREAM = """
import asyncio, sys
from faststream.kafka import KafkaBroker

broker = KafkaBroker(sys.argv[1], logger=None)
found, has_all = [], asyncio.Event()

@broker.subscriber("in", group_id="double", auto_offset_reset="earliest")
@broker.publisher("out")
async def double(message: dict) -> dict:
    return {"n": 2 * message["n"]}

@broker.subscriber("out", group_id="collect", auto_offset_reset="earliest")
async def collect(message: dict):
    found.append(message["n"])
    if len(found) == 10:
        has_all.set()

async def main():
    async with broker:
        await broker.start()
        for number in range(10):
            await broker.publish({"n": number}, "in")
        await asyncio.wait_for(has_all.wait(), 60)
    print(sorted(found))

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("program", "printed"),
    [
        (KAFKA_PYTHON, "['u']"),
        (FASTSTREAM, "[0, 2, 4, 6, 8, 10, 12, 14, 16, 18]"),
    ],
    ids=["kafka-python", "faststream"],
)
def test_clients_in_python_work(broker, program, printed):
    assert CLIENTS.exists(), "this test needs clients of Kafka: run tools/kafka"
    found = run([str(CLIENTS), "-c", program, broker.address])
    assert found.splitlines()[-1] == printed


FAUST = """
import sys, faust

address, directory = sys.argv.pop(1), sys.argv.pop(1)
app = faust.App(
    "adder",
    broker="kafka://" + address,
    datadir=directory,
    topic_partitions=1,
    web_enabled=False,
)
totals, sums = app.Table("totals", default=int), app.topic("sums")

@app.agent(app.topic("numbers"))
async def add(numbers):
    async for number in numbers:
        totals["all"] += number
        await sums.send(value=totals["all"])

app.main()
"""


def test_faust_finds_its_tables_again(broker, tmp_path):
    assert CLIENTS.exists(), "this test needs clients of Kafka: run tools/kafka"
    program = tmp_path / "adder.py"
    program.write_text(FAUST)
    command = [CLIENTS, program, broker.address, tmp_path / "state", "worker"]
    with sync.connect(broker.process.url) as client:

        def has_more_than(limit):
            if "/default/sums" not in client.topics.list():
                return False
            batches = client.read("/default/sums")
            return any(int(each.payload) > limit for batch in batches for each in batch)

        with client.producer("/default/numbers") as producer:
            for number, limit in ((b"100", 0), (b"1", 100)):
                producer.send(number, key="k")
                with started(list(map(str, command))) as worker:
                    wait_until(partial(has_more_than, limit))
                    # It commits its offsets and leaves its group.
                    worker.terminate()
                    worker.communicate(timeout=WAIT_S)


def test_kcat_publishes_and_consumes(broker):
    kcat = [required_program("kcat", "kcat"), "-b", broker.address]
    publish = ("-t", "t", "-P", "-k", "key", "-H", "a=b", "-z", "lz4")
    run([*kcat, *publish], "one\ntwo\n")
    shown = run([*kcat, "-t", "t", "-C", "-e", "-q", "-f", "%o %k %s %h\n"])
    assert shown.splitlines() == ["0 key one a=b", "1 key two a=b"]
    assert 'topic "t" with 1 partitions' in run([*kcat, "-L"])
    assert run([*kcat, "-Q", "-t", "t:0:-1"]).strip() == "t [0] offset 2"
    options = ("-X", "auto.offset.reset=earliest", "-c", "2", "-q")
    assert run([*kcat, "-G", "g", *options, "t"]).split() == ["one", "two"]


SPARK = """
import sys, glob, pathlib, time
from pyspark.sql import SparkSession

address, jars, directory = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.jars", ",".join(glob.glob(jars + "/*.jar")))
    .config("spark.ui.enabled", "false")
    .config("spark.driver.memory", "700m")
    .config("spark.sql.shuffle.partitions", "1")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")

def of(maker, **options):
    return maker.format("kafka").options(
        **{"kafka.bootstrap.servers": address, "startingOffsets": "earliest", **options}
    )

def count(**options):
    return of(spark.read, **options).load().distinct().count()

rows = spark.range(1000).selectExpr("cast(id as string) key", "'v' value")
of(rows.write, topic="in").save()
assert count(subscribe="in") == 1000
assert count(subscribePattern="i.*", startingTimestamp="1") == 1000

def start():
    stream = of(spark.readStream, subscribe="in", maxOffsetsPerTrigger="100").load()
    return of(stream.select("key", "value").writeStream, topic="out").option(
        "checkpointLocation", directory + "/checkpoint"
    ).trigger(processingTime="100 milliseconds").start()

query = start()
while count(subscribe="out") < 300:
    time.sleep(0.2)
# The broker is started again now.
pathlib.Path(directory, "begun").touch()
while not pathlib.Path(directory, "restarted").exists():
    time.sleep(0.1)
of(rows.write, topic="in").save()
query.processAllAvailable()
query.stop()
keys = of(spark.read, subscribe="out").load().selectExpr("cast(key as string)")
counts = {row[0]: row[1] for row in keys.groupBy("key").count().collect()}
assert len(counts) == 1000 and min(counts.values()) >= 2, counts
print("done", sum(counts.values()))
"""


def test_spark_reads_and_writes_over_a_restart(broker, tmp_path):
    jars = ROOT / ".venv" / "spark-kafka"
    assert jars.is_dir(), "this test needs Spark's source for Kafka: run tools/kafka"
    python = os.fspath(Path(ROOT, ".venv", "bin", "python"))
    command = [python, "-c", SPARK, broker.address, str(jars), str(tmp_path)]
    with sync.connect(broker.process.url) as client:
        # The program reads it before its stream writes there.
        client.topics.create("/default/out")
    with started(command) as spark:
        while not (tmp_path / "begun").exists():
            assert spark.poll() is None, spark.stdout.read()
            time.sleep(0.2)
        broker.process.stop()
        broker.process.start()
        (tmp_path / "restarted").touch()
        output, _ = spark.communicate(timeout=3 * WAIT_S)
    # A sink for Kafka may write a batch again that it was writing.
    assert output.splitlines()[-1].startswith("done 2"), output
