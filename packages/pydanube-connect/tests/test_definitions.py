"""Definitions of connectors: what is stored, and what a worker makes of it."""

from __future__ import annotations

import json

import pytest

from pydanube.declarations.pure.problems import InvalidDeclaration
from pydanube.model.stored_connectors import StoredConnector
from pydanube.security.permissions import Permission
from pydanube_broker.testing import memory_broker
from pydanube_connect.definitions import (
    access_to_subject,
    accesses_of,
    changes_of,
    load_definition,
    parse_definitions,
    read_definitions,
)

FILE = """
parameters: {host: localhost}
connectors:
  alerts:
    kind: http-sink
    topic: /default/alerts
    dead_letters: /default/dead
    options:
      url: "http://${host}/${env:PATH_OF_ALERTS}"
      headers: {Authorization: "Bearer ${file:token}", Note: "a $${literal}"}
"""


def stored(definition):
    return StoredConnector(
        name=definition.name,
        kind=definition.kind,
        topic=definition.topic,
        revision=1,
        definition=definition.text,
    )


def test_definition_has_values_of_parameters_and_references_to_secrets(tmp_path):
    file = tmp_path / "alerts.yaml"
    file.write_text(FILE)
    [found] = read_definitions(file, {"host": "example.com"})
    assert (found.name, found.topic) == ("alerts", "/default/alerts")
    assert json.loads(found.text)["options"] == {
        "url": "http://example.com/${env:PATH_OF_ALERTS}",
        "headers": {"Authorization": "Bearer ${file:token}", "Note": "a $${literal}"},
    }


def test_worker_reads_the_secrets(tmp_path):
    [found] = parse_definitions(FILE, tmp_path)
    (tmp_path / "token").write_text("t0p")
    environment = {"PATH_OF_ALERTS": "x", "DANUBE_SECRETS": str(tmp_path)}
    declared = load_definition(stored(found), tmp_path, environment, "danube://b")
    assert declared.options.url == "http://localhost/x"
    assert declared.options.headers == {
        "Authorization": "Bearer t0p",
        "Note": "a ${literal}",
    }
    assert declared.broker == "danube://b"
    assert declared.redact("t0p") == "***"


def test_missing_secret_is_named(tmp_path):
    [found] = parse_definitions(FILE, tmp_path)
    with pytest.raises(InvalidDeclaration, match="PATH_OF_ALERTS is not set"):
        load_definition(stored(found), tmp_path, {}, "")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("Bearer ${file:token}", "Bearer abc"), "secret in plain text"),
        (("http://${host}", "http://me:pw@${host}"), "secret in plain text"),
        (("topic: /default/alerts", "broker: danube://b\n    topic: /default/alerts"),
         "leave this out"),
        (("parameters", "broker: danube://b\nparameters"), "leave this out"),
        (("url:", "ulr:"), "did you mean 'url'"),
        (("kind: http-sink", "kind: delta-sink"), "runs with Spark"),
        (("/default/dead", "dead"), "dead_letters"),
        (("/default/alerts", "alerts"), r"connectors\.alerts\.topic"),
    ],
)  # fmt: skip
def test_what_cannot_be_stored_is_refused(tmp_path, change, reason):
    text = FILE.replace(*change)
    if "delta" in text:
        text = """
connectors:
  t: {kind: delta-sink, topic: /default/a, options: {sink: {path: x}}}
"""
    with pytest.raises(InvalidDeclaration, match=reason):
        parse_definitions(text, tmp_path)


def test_changes_are_named_by_option():
    before = '{"kind": "k", "options": {"a": 1, "b": {"c": "x"}}, "topic": "/t/t"}'
    after = '{"kind": "k", "options": {"a": 2, "b": {}}, "topic": "/t/t", "start": "l"}'
    assert changes_of(before, after) == [
        "options.a: 1 → 2",
        "options.b: not given → {}",
        'options.b.c: "x" → not given',
        'start: not given → "l"',
    ]
    assert changes_of(before, before) == []


def test_source_needs_its_topics_and_that_of_its_positions(tmp_path):
    text = """
connectors:
  n: {kind: generator-source, topic: /shop/n, dead_letters: /shop/d, deduplicate: 1h}
"""
    [found] = parse_definitions(text, tmp_path)
    assert accesses_of(found.declared) == [
        (Permission.PRODUCE, "/shop/n"),
        (Permission.MANAGE, "/shop/n"),
        (Permission.PRODUCE, "/shop/n.positions"),
        (Permission.CONSUME, "/shop/n.positions"),
        (Permission.PRODUCE, "/shop/d"),
    ]


async def test_schemas_of_values_need_the_subject_of_their_topic(tmp_path):
    text = """
connectors:
  n:
    kind: kafka-source
    topic: /shop/n
    options: {topics: {n: }, schema_registry: "http://127.0.0.1:8081"}
"""
    async with memory_broker() as broker, broker.connect() as client:
        [found] = parse_definitions(text, tmp_path)
        assert await access_to_subject(client, found.declared, "/shop/n") == (
            Permission.SCHEMA_WRITE,
            "subject:shop-n",
        )
        without = text.replace('schema_registry: "http://127.0.0.1:8081"', "")
        [found] = parse_definitions(without, tmp_path)
        assert await access_to_subject(client, found.declared, "/shop/n") is None


def test_sink_needs_to_consume_its_topic(tmp_path):
    [found] = parse_definitions(FILE, tmp_path)
    assert accesses_of(found.declared) == [
        (Permission.CONSUME, "/default/alerts"),
        (Permission.PRODUCE, "/default/dead"),
    ]


@pytest.mark.parametrize(
    "section",
    [
        "{kind: 'evil.py:Source', topic: /default/a}",
        "{kind: 'os:system', topic: /default/a}",
        "{kind: generator-source, topic: /default/a, transform: [{function: 'a:b'}]}",
        "{kind: generator-source, topic: /d/a, schema: {type: avro, file: /etc/x}}",
        "{kind: qdrant-sink, topic: /default/a, options: {embed: {function: x.py:y}}}",
        "{kind: '${a}${b}', topic: /default/a}",
        "{kind: '${module}', topic: /default/a}",
        "{kind: webhook-source, topic: /d/a, options: {certificate_file: /etc/x}}",
    ],
)
def test_files_of_users_are_refused_before_one_is_opened(tmp_path, section):
    (tmp_path / "evil.py").write_text("raise SystemExit")
    parameters = "{a: evil.p, b: 'y:Source', module: 'os:system'}"
    with pytest.raises(InvalidDeclaration, match="names a file of yours"):
        parse_definitions(
            f"parameters: {parameters}\nconnectors: {{n: {section}}}",
            tmp_path,
            may_name_files=False,
        )
