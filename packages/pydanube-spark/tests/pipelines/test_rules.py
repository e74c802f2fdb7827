"""Tests of the checks without Spark."""

import pytest

from pydanube.declarations.pure.problems import InvalidDeclaration
from pydanube_spark.pipelines.loading import load

SOURCE = {"topic": "/default/a"}
SINK = {"input": "a", "format": "noop"}


def problems(tmp_path, **tree):
    import yaml

    base = {"name": "p", "sources": {"a": SOURCE}, "sinks": {"out": SINK}}
    path = tmp_path / "p.yaml"
    path.write_text(yaml.safe_dump(base | tree, sort_keys=False))
    try:
        load(path)
    except InvalidDeclaration as invalid:
        return {each.path: each.message for each in invalid.problems}
    return {}


def test_valid_file_has_no_problems(tmp_path):
    (tmp_path / "f.py").write_text("def g(a): pass\nfrom x import y as h\nk = g\n")
    (tmp_path / "q.sql").write_text("SELECT 1")
    assert not problems(
        tmp_path,
        steps={
            "b": {"python": "f.py:g", "inputs": ["a"]},
            "c": {"python": "f.py:h", "inputs": ["b"]},
            "d": {"python": "f.py:k", "inputs": ["c"]},
            "e": {"sql_file": "q.sql"},
            "f": {"python": "package.module:function", "inputs": ["a", "e"]},
        },
    )


SOURCES = [
    ({}, "", "has nothing to read"),
    ({"topic": "/default/a", "files": "x"}, "", "topic and files; keep only one"),
    ({"topic": "/default/a", "topics": ["/default/b"]}, "", "one of them"),
    ({"topic": "orders"}, ".topic", "orders"),
    ({"topics": ["/default/a", "nope"]}, ".topics", "nope"),
    ({"topic": "/default/a", "start": "first"}, ".start", "earliest"),
    ({"pattern": "("}, ".pattern", "unterminated"),
    (
        {**SOURCE, "options": {"maxOffsetPerTrigger": 1}},
        ".options.maxOffsetPerTrigger",
        "did you mean 'maxOffsetsPerTrigger'",
    ),
    (
        {**SOURCE, "options": {"subscribe": "/default/b", "x": 1}},
        ".options.x",
        "unknown",
    ),
    (
        {**SOURCE, "options": {"kafka.bootstrap.servers": "x:9092"}},
        ".options.kafka.bootstrap.servers",
        "; use 'url'",
    ),
    ({**SOURCE, "dead_letters": {"topic": "/default/d"}}, ".dead_letters", "decode"),
    (
        {**SOURCE, "decode": True, "read": "table", "dead_letters": {"format": "noop"}},
        ".dead_letters",
        "stream",
    ),
    (
        {**SOURCE, "decode": True, "dead_letters": {"format": "noop", "input": "a"}},
        ".dead_letters.input",
        "the input is the source",
    ),
    (
        {
            **SOURCE,
            "decode": True,
            "dead_letters": {"format": "noop", "mode": "update"},
        },
        ".dead_letters.mode",
        "append",
    ),
    (
        {**SOURCE, "decode": True, "dead_letters": {}},
        ".dead_letters",
        "has no target",
    ),
    ({**SOURCE, "table": "t"}, ".table", "jdbc"),
    ({**SOURCE, "format": "csv"}, ".format", "danube"),
    ({"files": "x"}, "", "set the format"),
    ({"files": "x", "format": "csv"}, "", "needs a schema"),
    (
        {"files": "x", "format": "csv", "schema": "a int", "start": "latest"},
        ".start",
        "only valid for topics",
    ),
    (
        {"files": "x", "format": "csv", "read": "table", "query": "q"},
        ".query",
        "'jdbc'",
    ),
    ({**SOURCE, "cdc": "debezum"}, ".cdc", "must be debezium"),
    ({**SOURCE, "cdc": "debezium"}, ".cdc", "the columns of a row"),
    (
        {**SOURCE, "cdc": "debezium", "decode": True, "schema": "id BIGINT"},
        ".cdc",
        "set either schema",
    ),
    (
        {**SOURCE, "cdc": "debezium", "decode": True, "optional_columns": ["a"]},
        ".optional_columns",
        "only valid with 'schema'",
    ),
    ({**SOURCE, "optional_columns": ["a"]}, ".optional_columns", "with 'cdc'"),
    ({**SOURCE, "truncate": "ignore"}, ".truncate", "with 'cdc'"),
    (
        {
            "topics": ["/default/a", "/default/b"],
            "cdc": "debezium",
            "schema": "id INT",
            "truncate": "apply",
        },
        ".truncate",
        "one topic",
    ),
    (
        {**SOURCE, "cdc": "debezium-mongodb", "decode": True},
        ".schema",
        "the fields of a document",
    ),
    ({**SOURCE, "unavailable_as_null": True}, ".unavailable_as_null", "with 'cdc'"),
    (
        {"files": "x", "format": "csv", "read": "table", "cdc": "debezium"},
        ".cdc",
        "only valid for topics",
    ),
    ({"jdbc": "jdbc:x"}, "", "either a table or a query"),
    ({"jdbc": "jdbc:x", "table": "t", "query": "q"}, "", "either a table or a query"),
    ({"jdbc": "jdbc:x", "table": "t", "read": "stream"}, ".read", "as a table"),
    (
        {"format": "rate", "watermark": {"column": "c", "delay": "1 s"}},
        ".watermark",
        "stream",
    ),
]


@pytest.mark.parametrize(("source", "path", "words"), SOURCES)
def test_sources(tmp_path, source, path, words):
    found = problems(tmp_path, sources={"a": source})
    assert words in found[f"sources.a{path}"]


STEPS = [
    ({}, "", "one of sql, sql_file and python"),
    ({"sql": "x", "python": "f.py:g"}, "", "sql and python"),
    ({"sql_file": "none.sql"}, ".sql_file", "there is no file"),
    ({"sql": "x", "inputs": ["a"]}, ".inputs", "only valid for a python step"),
    ({"python": "f.py:g"}, ".inputs", "is missing"),
    ({"python": "f.py:gg", "inputs": ["a"]}, ".python", "did you mean 'g'"),
    ({"python": "broken.py:g", "inputs": ["a"]}, ".python", "is not Python"),
    ({"python": "f", "inputs": ["a"]}, ".python", "FILE.py:FUNCTION"),
    ({"python": "f.py:g", "inputs": ["later"]}, ".inputs[0]", "is defined later"),
    ({"python": "f.py:g", "inputs": ["aa"]}, ".inputs[0]", "did you mean 'a'"),
]


@pytest.mark.parametrize(("step", "path", "words"), STEPS)
def test_steps(tmp_path, step, path, words):
    (tmp_path / "f.py").write_text("def g(a): pass\n")
    (tmp_path / "broken.py").write_text("def g(:\n")
    found = problems(tmp_path, steps={"s": step, "later": {"sql": "SELECT 1"}})
    assert words in found[f"steps.s{path}"]


DELTA = {"input": "a", "format": "danube-delta", "path": "x"}

SINKS = [
    ({"input": "a"}, "", "has no target"),
    ({"format": "noop"}, ".input", "is missing"),
    ({"input": "b", "format": "noop"}, ".input", "no source or step b"),
    ({"input": "a", "topic": "x"}, ".topic", "x"),
    ({"input": "a", "topic": "/default/x", "format": "noop"}, ".topic", "danube"),
    ({"input": "a", "format": "danube"}, "", "options.topic is missing"),
    ({"input": "a", "format": "parquet"}, "", "path is missing"),
    ({"input": "a", "format": "jdbc", "options": {"url": "x"}}, "", "options.dbtable"),
    (
        {"input": "a", "format": "noop", "broker": "x"},
        ".broker",
        "only valid for the format",
    ),
    (
        {"input": "a", "format": "danube-delta", "path": "x", "partition_by": ["c"]},
        ".partition_by",
        "Spark's file formats",
    ),
    (
        {"input": "a", "topic": "/default/x", "mode": "complete"},
        ".mode",
        "only be appended",
    ),
    (
        {"input": "a", "format": "csv", "path": "x", "mode": "update"},
        ".mode",
        "added beside the old ones",
    ),
    (
        {"input": "a", "format": "danube-delta", "path": "x", "mode": "update"},
        ".mode",
        "set table: {key: …}",
    ),
    (
        {"input": "a", "format": "noop", "table": {"key": "k"}},
        ".table.key",
        "only valid for danube-delta",
    ),
    ({"input": "a", "python": "f.py:g", "table": {"key": "k"}}, ".table", "a format"),
    (DELTA | {"table": {"key": []}}, ".table.key", "columns that identify a row"),
    (DELTA | {"table": {"order": "k"}}, ".table", "'key' is missing"),
    (
        DELTA | {"table": {"key": "k"}, "options": {"keyColumns": "k"}},
        ".options.keyColumns",
        "the same meaning as table.key",
    ),
    (
        {
            "input": "a",
            "format": "danube-lancedb",
            "options": {"uri": "x", "table": "t"},
            "table": {"key": "k", "delete": "gone"},
        },
        ".table.delete",
        "danube-delta, danube-iceberg and danube-postgres",
    ),
    (
        {
            "input": "a",
            "format": "danube-lancedb",
            "options": {"uri": "x", "table": "t"},
            "table": {"key": "k", "order": "o", "truncate": "_op = 't'"},
        },
        ".table.truncate",
        "danube-delta, danube-iceberg and danube-postgres",
    ),
    (
        {
            "input": "a",
            "format": "danube-delta",
            "path": "x",
            "table": {"key": "k", "truncate": "_op = 't'"},
        },
        "",
        "truncateColumn: only with orderColumns",
    ),
    (
        {
            "input": "a",
            "format": "danube-postgres",
            "options": {"uri": "postgresql://x/y", "table": "t"},
            "mode": "update",
        },
        ".mode",
        "set table: {key: …}",
    ),
    (
        {
            "input": "a",
            "format": "danube-clickhouse",
            "options": {"ur": "http://127.0.0.1:1", "table": "t"},
        },
        ".options.ur",
        "did you mean 'url'?",
    ),
    (
        {
            "input": "a",
            "format": "danube-postgres",
            "options": {"uri": "postgresql://x/y", "tabel": "t"},
        },
        ".options.tabel",
        "did you mean 'table'?",
    ),
    (
        {
            "input": "a",
            "format": "danube-delta",
            "path": "x",
            "options": {"partitonBy": "day"},
        },
        ".options.partitonBy",
        "did you mean 'partitionBy'?",
    ),
    (
        {
            "input": "a",
            "topic": "/default/x",
            "options": {"kafka.bootstrap.servers": "127.0.0.1:9092"},
        },
        ".options.kafka.bootstrap.servers",
        "; use 'url'",
    ),
    ({"input": "a", "format": "danube-iceberg"}, "", "options.table is missing"),
    ({"input": "a", "format": "danube-lancedb"}, "", "options.uri is missing"),
    ({"input": "a", "format": "noop", "trigger": "never"}, ".trigger", "a trigger is"),
    ({"input": "a", "python": "f.py:g", "format": "noop"}, "", "not both"),
    ({"input": "a", "python": "nope.py:g"}, ".python", "cannot be read"),
]


@pytest.mark.parametrize(("sink", "path", "words"), SINKS)
def test_sinks(tmp_path, sink, path, words):
    (tmp_path / "f.py").write_text("def g(a, n): pass\n")
    assert words in problems(tmp_path, sinks={"o": sink})[f"sinks.o{path}"]


OTHERS = [
    ({"sources": {}}, "sources", "at least one"),
    ({"sinks": None}, "sinks", "at least one"),
    ({"name": "a/b"}, "name", "directory"),
    ({"sources": {"a-b": SOURCE}}, "sources.a-b", "SQL view"),
    ({"steps": {"a": {"sql": "x"}}}, "steps.a", "has this name already"),
    ({"sinks": {"x.y": SINK}}, "sinks.x.y", "directory"),
    ({"trigger": "later"}, "trigger", "a trigger is"),
    ({"spark": {"master": "local", "remote": "sc://x"}}, "spark.remote", "either"),
    ({"retries": {"backoff": "soon"}}, "retries.backoff", "duration"),
    ({"fan_out": True}, "fan_out", "no two sinks share a query"),
    ({"retries": {"count": -1}}, "retries.count", "0 or more"),
]


@pytest.mark.parametrize(("tree", "path", "words"), OTHERS)
def test_other_fields(tmp_path, tree, path, words):
    assert words in problems(tmp_path, **tree)[path]


def test_source_problem_is_reported_once(tmp_path):
    found = problems(tmp_path, sources={"a": 5}, sinks={"out": {**SINK}})
    assert found.keys() == {"sources.a"}


def test_every_unknown_option_of_a_sink_is_reported_once(tmp_path):
    options = {"uri": "postgresql://x/y", "tabel": "t", "keyColumn": "k"}
    sink = {"input": "a", "format": "danube-postgres", "options": options}
    found = problems(tmp_path, sinks={"o": sink})
    assert found.keys() == {"sinks.o.options.tabel", "sinks.o.options.keyColumn"}


def test_options_of_families_and_of_spark_are_known(tmp_path):
    options = {
        "uri": "/tmp/lance",
        "table": "t",
        "Storage.Region": "eu",
        "checkpointLocation": "/tmp/x",
        "INDEXMINROWS": 10,
    }
    sink = {"input": "a", "format": "danube-lancedb", "options": options}
    assert not problems(tmp_path, sinks={"o": sink})


def test_expectations_are_checked(tmp_path):
    quarantined = {"condition": "b > 0", "action": "quarantine"}
    empty = {"condition": " ", "action": "drop"}
    target = {"topic": "/default/q", "input": "a", "mode": "update"}
    found = problems(
        tmp_path,
        steps={
            "b": {"sql": "SELECT 1", "expect": {"has b": empty, "ok": quarantined}},
            "c": {"sql": "SELECT 1", "quarantine": target},
            "d": {"sql": "SELECT 1", "expect": {"x": {"condition": "y"}}},
        },
    )
    assert "letters, digits and _" in found.pop("steps.b.expect.has b")
    assert "SQL condition" in found.pop("steps.b.expect.has b.condition")
    assert "quarantine is missing" in found.pop("steps.b")
    assert "no expectation" in found.pop("steps.c.quarantine")
    assert "omit it: the input is the step" in found.pop("steps.c.quarantine.input")
    assert found.pop("steps.c.quarantine.mode") == "must be append"
    assert "'action' is missing" in found.pop("steps.d.expect.x")
    assert not found


def test_messages_may_be_decoded_to_json(tmp_path):
    source = {"pattern": "/default/.*", "decode": "json"}
    assert not problems(tmp_path, sources={"a": source})
    found = problems(tmp_path, sources={"a": {**source, "decode": "jsn"}})
    assert "decode" in "".join(found)
    found = problems(tmp_path, sources={"a": {**SOURCE, **source, "pattern": None}})
    assert not found
    found = problems(
        tmp_path,
        sources={"a": {"topic": "/default/a", "decode": "json", "cdc": "debezium"}},
    )
    assert found == {"sources.a.decode": "change events are columns; use decode: true"}


def test_all_problems_of_a_part_are_reported_at_once(tmp_path):
    source = {
        **SOURCE,
        "start": "yesterday-ish",
        "options": {"maxOffsetPerTrigger": 5, "minPartitions": "few", "tail": "x"},
    }
    sink = {
        "input": "a",
        "format": "danube-delta",
        "path": "t",
        "partition_by": ["b"],
        "mode": "complete",
        "options": {"partitonBy": "x", "fileBytesMax": "abc", "mergeSchema": 1},
        "table": {"key": "k"},
    }
    found = problems(tmp_path, sources={"a": source}, sinks={"out": sink})
    assert sorted(found) == [
        "sinks.out.mode",
        "sinks.out.options.fileBytesMax",
        "sinks.out.options.mergeSchema",
        "sinks.out.options.partitonBy",
        "sinks.out.partition_by",
        "sources.a.options.maxOffsetPerTrigger",
        "sources.a.options.minPartitions",
        "sources.a.options.tail",
        "sources.a.start",
    ]


def test_tables_of_feeds_with_truncations_apply_them(tmp_path):
    feed = {"cdc": "debezium", "schema": "id INT", "truncate": "apply"}
    sink = {"input": "a", "format": "danube-delta", "path": "x"}
    key = {"key": "id", "order": "_ts"}
    condition = {"truncate": "_op = 't'"}
    found = problems(
        tmp_path,
        sources={"a": SOURCE | feed},
        sinks={
            "log": sink,
            "lacks": {**sink, "table": key},
            "equal": {**sink, "table": key | condition},
            "right": {**sink, "table": key | condition | {"order": ["_ts", "_offset"]}},
        },
    )
    assert "which have no key: set truncate" in found["sinks.lacks.table"]
    assert "must have _offset" in found["sinks.equal.table.order"]
    assert len(found) == 2


def test_tables_of_evolving_feeds_can_get_columns(tmp_path):
    feed = {"cdc": "debezium", "schema": "id INT", "schema_changes": "evolve"}
    clickhouse = {
        "format": "danube-clickhouse",
        "options": {"url": "http://x", "table": "t"},
    }
    found = problems(
        tmp_path,
        sources={"a": SOURCE | feed},
        steps={"chosen": {"sql": "SELECT id FROM a"}},
        sinks={
            "delta": {"input": "a", "format": "danube-delta", "path": "x"},
            "topic": {"input": "a", "topic": "/default/out"},
            "direct": clickhouse | {"input": "a"},
            "chosen": clickhouse | {"input": "chosen"},
        },
    )
    [(path, message)] = found.items()
    assert path == "sinks.direct.input"
    assert "write to danube-delta, danube-iceberg and danube-postgres" in message
