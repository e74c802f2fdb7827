"""Schemas and values, from clients and the command line, with a broker process."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
from typer.testing import CliRunner

import pydanube
from pydanube import Schema, sync
from pydanube_cli import main
from support.drivers.commands import danube
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

TOPIC = "/default/readings"


@dataclass
class Reading:
    sensor: str
    celsius: float


@dataclass
class Better:
    sensor: str
    celsius: float
    humidity: float = 0.5


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as process:
        yield process
        assert process.stop() == 0


def run(broker, *arguments):
    return CliRunner().invoke(main.app, list(arguments), env={"DANUBE_URL": broker.url})


def said(broker, *arguments):
    result = run(broker, *arguments)
    assert (result.exit_code, result.stderr) == (0, ""), arguments
    return result.stdout


def told(broker, *arguments):
    return json.loads(said(broker, *arguments, "--format", "json"))


def refused(broker, code, *arguments):
    result = run(broker, *arguments)
    assert result.exit_code == code, (arguments, result.stdout, result.stderr)
    return result.stderr


@pytest.fixture
def files(tmp_path):
    """Three schemas, of which the last one is incompatible with the others."""
    for name, fields in {
        "one": {"a": {"type": "integer"}},
        "two": {"a": {"type": "integer"}, "b": {"type": "string"}},
        "bad": {"a": {"type": "string"}},
    }.items():
        document = {"type": "object", "properties": fields}
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    return tmp_path


def test_values_and_their_schemas_survive_a_restart(tmp_path):
    with BrokerProcess(tmp_path) as broker:
        with sync.connect(broker.url) as client:
            with client.producer(TOPIC, schema=Reading) as producer:
                producer.send_batch([Reading("roof", float(n)) for n in range(100)])
            with client.producer(
                TOPIC, schema=Schema.from_dataclass(Better)
            ) as producer:
                assert producer.schema.version == 2
                producer.send_nowait(Better("cellar", 9.0, 0.9)).result()
            client.topics.configure(
                TOPIC,
                schema=pydanube.TopicSchema(
                    subject="default-readings", policy=pydanube.SchemaPolicy.ENFORCE
                ),
            )
        assert broker.stop() == 0
        broker.start()
        with sync.connect(broker.url) as client:
            bound = client.schemas.topic_schema(TOPIC)
            assert (bound.subject, bound.policy.value) == (
                "default-readings",
                "enforce",
            )
            with (
                pytest.raises(pydanube.SchemaMismatch),
                client.producer(TOPIC) as producer,
            ):
                producer.send(b"{}")
            with client.producer(TOPIC, schema=Reading) as producer:
                assert producer.schema.version == 1
                producer.send(Reading("roof", 100.0))
            with client.consumer(
                TOPIC, subscription="s", start="earliest", schema=Better
            ) as consumer:
                got = []
                while len(got) < 102:
                    got += consumer.receive_batch(timeout_s=60).values()
            assert got[99] == Better("roof", 99.0)
            assert got[100:] == [Better("cellar", 9.0, 0.9), Better("roof", 100.0)]
            read = [v for batch in client.read(TOPIC) for v in batch.values()]
            assert read[0] == {"sensor": "roof", "celsius": 0.0}


def test_sync_client_uses_the_registry(broker):
    with sync.connect(broker.url) as client:
        schemas = client.schemas
        first = schemas.register("plain", Reading, tags=["t"])
        second = schemas.register("plain", Better)
        assert schemas.get("plain", 1) == first
        assert schemas.latest("plain") == second
        assert schemas.by_id(first.schema_id, 2) == second
        assert schemas.versions("plain") == [first, second]
        assert "plain" in schemas.subjects()
        assert schemas.describe("plain").versions == (1, 2)
        assert schemas.check("plain", str)
        schemas.set_compatibility("plain", "none")
        assert schemas.compatibility("plain") is pydanube.Compatibility.NONE
        schemas.delete("plain", 1)
        schemas.delete("plain")
        assert "plain" not in schemas.subjects()


def test_a_subject_is_registered_listed_and_deleted(broker, files):
    one, two, bad = (str(files / f"{name}.json") for name in ("one", "two", "bad"))
    register = ("schemas", "register", "orders", "-f")
    assert "has version 1 " in said(broker, *register, one, "--description", "first")
    assert "already has this schema as version 1 " in said(broker, *register, one)
    assert told(broker, *register, two, "--tag", "x")["is_new"]
    error = refused(broker, 4, *register, bad)
    assert "$.properties.a" in error
    assert "danube schemas diff" in error
    assert json.loads(said(broker, "schemas", "get", "orders"))[
        "properties"
    ].keys() == {
        "a",
        "b",
    }
    assert told(broker, "schemas", "get", "orders", "-v", "1")["description"] == "first"
    [listed] = [s for s in told(broker, "schemas", "list") if s["subject"] == "orders"]
    assert (listed["type"], listed["compatibility"]) == ("json_schema", "backward")
    assert listed["versions"] == [1, 2]
    assert "orders" in said(broker, "schemas", "list")
    versions = told(broker, "schemas", "versions", "orders")
    assert [each["tags"] for each in versions] == [[], ["x"]]
    assert "first" in said(broker, "schemas", "versions", "orders")
    mode = ("schemas", "set-compatibility", "orders")
    assert told(broker, *mode, "full-transitive")["compatibility"] == "full_transitive"
    assert "full" in said(broker, *mode, "full")
    delete = ("schemas", "delete", "orders", "--yes")
    assert said(broker, *delete, "-v", "1") == "orders, version 1, is deleted.\n"
    assert told(broker, *delete)["deleted"]
    assert "schemas list" in refused(broker, 3, *delete)


def test_new_version_is_checked_before_it_is_registered(broker, files):
    one, two, bad = (str(files / f"{name}.json") for name in ("one", "two", "bad"))
    for path in (one, two):
        said(broker, "schemas", "register", "judged", "-f", path)
    check = ("schemas", "check", "judged", "-f")
    assert "compatible with judged (backward)" in said(broker, *check, one)
    assert told(broker, *check, two, "--mode", "full")["is_compatible"]
    result = run(broker, *check, bad)
    assert result.exit_code == 4
    assert "type_changed" in result.stdout
    assert run(broker, *check, bad, "--mode", "none").exit_code == 0
    shown = said(broker, "schemas", "diff", "judged")
    assert "version 1 and version 2" in shown
    assert "/properties/b" in shown
    found = told(broker, "schemas", "diff", "judged", "-f", bad)
    assert (found["old_version"], found["new_version"]) == (2, None)
    assert {mode: each["holds"] for mode, each in found["modes"].items()} == {
        "backward": False,
        "forward": False,
        "full": False,
    }
    assert "type_changed" in said(broker, "schemas", "diff", "judged", "-f", bad)
    assert told(broker, "schemas", "diff", "judged", "1", "1")["differences"] == []
    assert "There are no differences." in said(
        broker, "schemas", "diff", "judged", "2", "2"
    )
    said(broker, "schemas", "register", "single", "-t", "string")
    assert "no version before 1" in refused(broker, 2, "schemas", "diff", "single")


def test_a_topic_is_bound_from_the_command_line(broker, files):
    topic = "/default/bound"
    said(broker, "topics", "create", topic)
    said(broker, "schemas", "register", "bound", "-f", str(files / "one.json"))
    configure = ("topics", "configure", topic)
    assert told(broker, *configure)["schema"] == "none"
    nothing = refused(broker, 3, *configure, "--set", "schema.subject=nothing")
    assert "schemas list" in nothing
    bind = (
        *configure,
        "--set",
        "schema.subject=bound",
        "--set",
        "schema.policy=enforce",
    )
    bind += ("--set", "schema.validate_payload=true", "--set", "schema.min_version=1")
    said(broker, *bind)
    bound = told(broker, "topics", "describe", topic)["schema"]
    assert (bound["validates_payload"], bound["version_min"]) == (True, 1)
    assert "bound (enforce" in said(broker, "topics", "describe", topic)
    assert "--force" in refused(broker, 4, "schemas", "delete", "bound", "--yes")
    assert "produce --schema" in refused(broker, 2, "produce", topic, "-m", "{}")
    produce = ("produce", topic, "--schema", "bound", "-k", "k", "-a", "x=y", "-m")
    assert "1 message" in said(broker, *produce, '{"a": 1}')
    assert "is not of type" in refused(broker, 2, *produce, '{"a": "one"}')
    assert "takes messages in JSON" in refused(broker, 2, *produce, "{")
    said(broker, *configure, "--set", "schema=none")
    assert told(broker, *configure)["schema"] == "none"


def test_values_are_produced_and_printed_in_json(broker, tmp_path):
    path = tmp_path / "reading.avsc"
    path.write_text(Schema.from_dataclass(Better, type="avro").definition)
    said(broker, "schemas", "register", "printed", "-f", str(path))
    topic = "/default/printed"
    value = '{"sensor":"roof","celsius":20.5,"humidity":0.25}'
    produce = ("produce", topic, "--schema", "printed", "--schema-version")
    said(broker, *produce, "1", "-m", value)
    assert "no version 7" in refused(broker, 3, *produce, "7", "-m", value)
    assert "--schema" in refused(
        broker, 2, "produce", topic, "-m", "x", "--schema-version", "1"
    )
    consume = ("consume", topic, "--from", "earliest", "-n", "1", "--decode", "-s")
    done = danube(*consume, "text", url=broker.url)
    assert (done.stdout, done.stderr) == (f"{value}\n", "")
    line = json.loads(danube(*consume, "json", "-o", "json", url=broker.url).stdout)
    assert line["value"] == json.loads(value)
    assert line["schema_version"] == 1
