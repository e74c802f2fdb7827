"""Tests of the loading of files that declare connectors."""

import pytest

from pydanube.declarations.pure.problems import InvalidDeclaration
from pydanube_connect.loading import load


def write(tmp_path, text):
    file = tmp_path / "connectors.yaml"
    file.write_text(text)
    return file


def problems_of(tmp_path, text):
    with pytest.raises(InvalidDeclaration) as caught:
        load(write(tmp_path, text))
    return {each.path: each.message for each in caught.value.problems}


def test_valid_file_is_loaded_with_parameters_and_secrets(tmp_path):
    file = write(
        tmp_path,
        """
parameters: {count: 5}
connectors:
  numbers:
    kind: generator-source
    topic: /shop/numbers
    options: {count: "${count}"}
  out:
    kind: http-sink
    topic: /shop/numbers
    broker: danube://b:1
    options: {url: http://x, headers: {Authorization: "${env:KEY}"}}
""",
    )
    numbers, out = load(
        file,
        parameters={"count": "7"},
        environment={"KEY": "sesame", "DANUBE_URL": "danube://a:1"},
    )
    assert (numbers.options.count, numbers.broker) == (7, "danube://a:1")
    assert numbers.positions_topic == "/shop/numbers.positions"
    assert numbers.is_source
    assert (out.options.headers, out.broker) == (
        {"Authorization": "sesame"},
        "danube://b:1",
    )
    assert not out.is_source
    assert out.redact("Bearer sesame") == "Bearer ***"


def test_all_problems_are_reported_at_once(tmp_path):
    found = problems_of(
        tmp_path,
        """
connectors:
  bad name:
    kind: generator-source
    topic: numbers
  a:
    kind: generator-source
    topic: /default/a
    subscription: s
    mapping: {key: "x[", id: y}
    schema: {type: json_schema}
    retries: {backoff: soon}
    batch: {messages: 0, bytes: many}
    dead_letters: dead
    options: {cuont: 3, rate: -1}
  b: {kind: mqqt-source, topic: /default/b}
  c:
    kind: http-sink
    topic: /default/c
    deduplicate: 1h
    type: sharde
    options: {}
""",
    )
    assert found.keys() == {
        "connectors.bad name",
        "connectors.bad name.topic",
        "connectors.a.subscription",
        "connectors.a.mapping.key",
        "connectors.a.mapping.id",
        "connectors.a.schema",
        "connectors.a.retries.backoff",
        "connectors.a.batch.messages",
        "connectors.a.batch.bytes",
        "connectors.a.dead_letters",
        "connectors.a.options.cuont",
        "connectors.a.options.rate",
        "connectors.b.kind",
        "connectors.c.deduplicate",
        "connectors.c.type",
        "connectors.c.options",
    }
    assert found["connectors.a.options.cuont"] == "unknown; did you mean 'count'?"
    assert "did you mean 'mqtt-source'?" in found["connectors.b.kind"]
    assert "did you mean 'shared'?" in found["connectors.c.type"]
    assert found["connectors.c.options"] == "'url' is missing"


def test_file_without_connectors_is_refused(tmp_path):
    assert problems_of(tmp_path, "connectors: {}") == {
        "connectors": "declares no connectors"
    }


def test_problems_of_a_transform_have_their_place(tmp_path):
    found = problems_of(
        tmp_path,
        """
connectors:
  a:
    kind: generator-source
    topic: /default/a
    transform: ["number", "a[", {function: "no.py:f"}]
  b:
    kind: http-sink
    topic: /default/b
    transform: ["a"]
    options: {url: http://x}
  c:
    kind: generator-source
    topic: /default/c
    transform: [a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a]
""",
    )
    assert found.keys() == {
        "connectors.a.transform[1]",
        "connectors.a.transform[2]",
        "connectors.b.transform",
        "connectors.c.transform",
    }
    assert found["connectors.b.transform"] == "only a source has it"


@pytest.mark.parametrize(
    ("kind", "truncate", "is_refused"),
    [
        ("key_shared", "apply", True),
        ("key_shared", "ignore", False),
        ("failover", "apply", False),
    ],
)
def test_truncations_are_applied_only_in_the_order_of_the_topic(
    tmp_path, kind, truncate, is_refused
):
    pytest.importorskip("psycopg")
    text = f"""
connectors:
  out:
    kind: postgres-sink
    topic: /shop/items
    type: {kind}
    options:
      {{url: "postgresql://h/d", table: t, key: [id], envelope: debezium,
        truncate: {truncate}}}
"""
    text += "  bad name: {kind: generator-source, topic: /default/a}\n"
    found = problems_of(tmp_path, text)
    assert ("connectors.out.type" in found) is is_refused
