"""The program of the guide moves topics and groups of a real broker of Kafka."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from pydanube import sync
from support.project import ROOT
from support.servers.kafka_broker import KafkaProcess
from support.servers.ports import free_port
from support.servers.processes import BrokerProcess

PROGRAM = ROOT / "examples" / "kafka" / "move.py"
AVRO = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}'
COUNT = 3000
WAIT_S = 60


@pytest.fixture
def move():
    spec = importlib.util.spec_from_file_location("move_from_kafka", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_offsets_are_translated_over_gaps_and_from_the_file(move, tmp_path):
    moved = move.Partition(tmp_path / "0.jsonl")
    moved.load()
    assert moved.translate(5) == 0
    # 12 is the marker of a transaction, and 0 to 9 were deleted.
    moved.add([10, 11])
    moved.add([13, 14, 20])
    with moved.path.open("a") as file:
        file.write("[21, 5")
    moved.load()
    assert (moved.next_source, moved.next_target) == (21, 5)
    found = [moved.translate(each) for each in (0, 10, 11, 12, 13, 15, 20, 21, 99)]
    assert found == [0, 0, 1, 2, 2, 4, 4, 5, 5]


def test_schemas_are_registered_after_those_that_they_refer_to(move, monkeypatch):
    money = {"name": "money.proto", "subject": "a/money", "version": 3}
    old = {
        "schemas/ids/7/versions": [{"subject": "orders-value", "version": 1}],
        "subjects/orders-value/versions": [1],
        "subjects/orders-value/versions/1": {
            "id": 7,
            "schema": "order",
            "schemaType": "PROTOBUF",
            "references": [money],
        },
        "subjects/a%2Fmoney/versions": [2, 3],
        "subjects/a%2Fmoney/versions/2": {"id": 5, "schema": "two"},
        "subjects/a%2Fmoney/versions/3": {"id": 6, "schema": "three"},
    }
    registered = []

    def ask(url, body=None):
        _, registry, path = url.split("/", 2)
        if registry == "old":
            return old[path]
        if path.endswith("/versions"):
            registered.append((path, body["schema"], body["references"]))
            return {"id": 100 + len(registered)}
        same = [each for each in registered if each[0] == f"{path}/versions"]
        return {"version": len(same)}

    monkeypatch.setattr(move, "_ask", ask)
    schemas = move.Schemas("/old", "/new")
    assert schemas.rewrite(b"\0\0\0\0\7x") == b"\0\0\0\0\x67x"
    assert registered == [
        ("subjects/a%2Fmoney/versions", "two", []),
        ("subjects/a%2Fmoney/versions", "three", []),
        ("subjects/orders-value/versions", "order", [money | {"version": 2}]),
    ]
    # They are registered already.
    assert schemas.rewrite(b"\0\0\0\0\6") == b"\0\0\0\0\x66"
    money["subject"] = "orders-value"
    with pytest.raises(SystemExit, match="refer to themselves"):
        move.Schemas("/old", "/new").rewrite(b"\0\0\0\0\7x")


def records_of(address, topic, count):
    """The records of a topic by partition, without their offsets."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": address, "group.id": "look", "log_level": 0}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, each, 0) for each in (0, 1)])
    found = {0: [], 1: []}
    while sum(map(len, found.values())) < count:
        for each in consumer.consume(1000, 1.0):
            assert each.error() is None
            row = (each.key(), each.value(), each.headers(), each.timestamp()[1])
            found[each.partition()].append(row)
    consumer.close()
    return found


def context():
    return SerializationContext("orders", MessageField.VALUE)


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.soak
def test_a_topic_and_its_groups_move_over_a_crash(tmp_path):
    port = str(free_port())
    (tmp_path / "kafka").mkdir()
    with (
        KafkaProcess(tmp_path / "kafka") as kafka,
        BrokerProcess(tmp_path / "old") as old,
        BrokerProcess(tmp_path / "new", "--kafka-port", port) as new,
        SchemaRegistryClient({"url": old.http_url}) as old_registry,
        SchemaRegistryClient({"url": new.http_url}) as new_registry,
        sync.connect(new.url) as client,
    ):
        target = f"127.0.0.1:{port}"
        # The ids of the registries differ.
        client.schemas.register("first", str)
        admin = AdminClient({"bootstrap.servers": kafka.servers})
        admin.create_topics([NewTopic("orders", 2, 1)])["orders"].result()
        write = AvroSerializer(old_registry, AVRO)
        producer = confluent_kafka.Producer({"bootstrap.servers": kafka.servers})
        for number in range(COUNT):
            value = None if number % 100 == 99 else write({"id": number}, context())
            producer.produce(
                "orders",
                value,
                b"k%d" % (number % 7),
                number % 2,
                headers=[("h", b"\xff"), ("h", b"2")],
                timestamp=1_700_000_000_000 + number,
            )
        assert producer.flush(WAIT_S) == 0
        groups = confluent_kafka.Consumer(
            {"bootstrap.servers": kafka.servers, "group.id": "billing"}
        )
        committed = [
            confluent_kafka.TopicPartition("orders", 0, 1000),
            confluent_kafka.TopicPartition("orders", 1, 1500),
        ]
        groups.commit(offsets=committed, asynchronous=False)
        groups.close()
        command = [
            *(sys.executable, str(PROGRAM), "orders", "--source", kafka.servers),
            *("--target", target, "--state", str(tmp_path / "state")),
            *("--source-registry", old.http_url, "--target-registry", new.http_url),
        ]
        following = subprocess.Popen(command)
        while not list(tmp_path.glob("state/orders/*.jsonl")):
            assert following.poll() is None
            time.sleep(0.05)
        time.sleep(0.5)
        following.kill()
        following.wait()
        # As after a crash between storing and writing what was stored.
        for file in tmp_path.glob("state/orders/*.jsonl"):
            file.write_text(file.read_text()[:-3])
        printed = subprocess.run(
            [*command, "--finish", "--group", "billing"],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert printed.stdout.strip() == "billing: 2 offsets"
        there, here = (
            records_of(address, "orders", COUNT) for address in (kafka.servers, target)
        )
        read_old, read_new = (
            AvroDeserializer(each) for each in (old_registry, new_registry)
        )
        for partition in (0, 1):
            for was, moved in zip(there[partition], here[partition], strict=True):
                assert (was[0], was[2:]) == (moved[0], moved[2:])
                assert read_old(was[1], context()) == read_new(moved[1], context())
        assert there[0][0][1] != here[0][0][1]
        lags = [
            client.subscriptions.describe(f"/default/orders-part-{each}", "billing")
            for each in (0, 1)
        ]
        assert [each.backlog for each in lags] == [500, 0]
        # Native clients read values.
        batches = client.read("/default/orders-part-0")
        first = next(message for batch in batches for message in batch)
        assert (first.value, first.key) == ({"id": 0}, "k0")
        assert json.loads(
            new_registry.get_latest_version("orders-value").schema.schema_str
        )
