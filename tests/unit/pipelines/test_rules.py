"""What does not fit together in a file is found without Spark."""

import pytest

from pydanube.pipelines.loading import load
from pydanube.pipelines.problems import InvalidPipeline

SOURCE = {"topic": "/default/a"}
SINK = {"input": "a", "format": "noop"}


def problems(tmp_path, **tree):
    import yaml

    base = {"name": "p", "sources": {"a": SOURCE}, "sinks": {"out": SINK}}
    path = tmp_path / "p.yaml"
    path.write_text(yaml.safe_dump(base | tree, sort_keys=False))
    try:
        load(path)
    except InvalidPipeline as invalid:
        return {each.path: each.message for each in invalid.problems}
    return {}


def test_a_good_file_has_none(tmp_path):
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
    ({}, "", "says nothing to read"),
    ({"topic": "/default/a", "files": "x"}, "", "topic and files: one of them"),
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
    ({**SOURCE, "dead_letters": {"topic": "/default/d"}}, ".dead_letters", "decode"),
    (
        {**SOURCE, "decode": True, "read": "table", "dead_letters": {"format": "noop"}},
        ".dead_letters",
        "only a stream",
    ),
    (
        {**SOURCE, "decode": True, "dead_letters": {"format": "noop", "input": "a"}},
        ".dead_letters.input",
        "their own source",
    ),
    (
        {
            **SOURCE,
            "decode": True,
            "dead_letters": {"format": "noop", "mode": "update"},
        },
        ".dead_letters.mode",
        "appended",
    ),
    (
        {**SOURCE, "decode": True, "dead_letters": {}},
        ".dead_letters",
        "nothing to write",
    ),
    ({**SOURCE, "table": "t"}, ".table", "jdbc"),
    ({**SOURCE, "format": "csv"}, ".format", "danube"),
    ({"files": "x"}, "", "which format"),
    ({"files": "x", "format": "csv"}, "", "needs a schema"),
    (
        {"files": "x", "format": "csv", "schema": "a int", "start": "latest"},
        ".start",
        "only a source of topics",
    ),
    (
        {"files": "x", "format": "csv", "read": "table", "query": "q"},
        ".query",
        "'jdbc'",
    ),
    ({"jdbc": "jdbc:x"}, "", "one table or one query"),
    ({"jdbc": "jdbc:x", "table": "t", "query": "q"}, "", "one table or one query"),
    ({"jdbc": "jdbc:x", "table": "t", "read": "stream"}, ".read", "as a table"),
    (
        {"format": "rate", "watermark": {"column": "c", "delay": "1 s"}},
        ".watermark",
        "only a stream",
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
    ({"sql": "x", "inputs": ["a"]}, ".inputs", "only a python step"),
    ({"python": "f.py:g"}, ".inputs", "is missing"),
    ({"python": "f.py:gg", "inputs": ["a"]}, ".python", "did you mean 'g'"),
    ({"python": "broken.py:g", "inputs": ["a"]}, ".python", "is not Python"),
    ({"python": "f", "inputs": ["a"]}, ".python", "FILE.py:FUNCTION"),
    ({"python": "f.py:g", "inputs": ["later"]}, ".inputs[0]", "further down"),
    ({"python": "f.py:g", "inputs": ["aa"]}, ".inputs[0]", "did you mean 'a'"),
]


@pytest.mark.parametrize(("step", "path", "words"), STEPS)
def test_steps(tmp_path, step, path, words):
    (tmp_path / "f.py").write_text("def g(a): pass\n")
    (tmp_path / "broken.py").write_text("def g(:\n")
    found = problems(tmp_path, steps={"s": step, "later": {"sql": "SELECT 1"}})
    assert words in found[f"steps.s{path}"]


SINKS = [
    ({"input": "a"}, "", "says nothing to write to"),
    ({"format": "noop"}, ".input", "is missing"),
    ({"input": "b", "format": "noop"}, ".input", "no source or step b"),
    ({"input": "a", "topic": "x"}, ".topic", "x"),
    ({"input": "a", "topic": "/default/x", "format": "noop"}, ".topic", "danube"),
    ({"input": "a", "format": "danube"}, "", "options.topic is missing"),
    ({"input": "a", "format": "parquet"}, "", "path is missing"),
    ({"input": "a", "format": "jdbc", "options": {"url": "x"}}, "", "options.dbtable"),
    ({"input": "a", "format": "noop", "broker": "x"}, ".broker", "only the format"),
    (
        {"input": "a", "format": "danube-delta", "path": "x", "partition_by": ["c"]},
        ".partition_by",
        "Spark's own",
    ),
    (
        {"input": "a", "topic": "/default/x", "mode": "complete"},
        ".mode",
        "not replaced",
    ),
    (
        {"input": "a", "format": "csv", "path": "x", "mode": "update"},
        ".mode",
        "appended",
    ),
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
    ({"sources": {"a-b": SOURCE}}, "sources.a-b", "table in SQL"),
    ({"steps": {"a": {"sql": "x"}}}, "steps.a", "has this name already"),
    ({"sinks": {"x.y": SINK}}, "sinks.x.y", "directory"),
    ({"trigger": "later"}, "trigger", "a trigger is"),
    ({"spark": {"master": "local", "remote": "sc://x"}}, "spark.remote", "either"),
    ({"retries": {"backoff": "soon"}}, "retries.backoff", "duration"),
    ({"retries": {"count": -1}}, "retries.count", "0 or more"),
]


@pytest.mark.parametrize(("tree", "path", "words"), OTHERS)
def test_the_rest(tmp_path, tree, path, words):
    assert words in problems(tmp_path, **tree)[path]


def test_what_is_wrong_with_a_source_is_told_once(tmp_path):
    found = problems(tmp_path, sources={"a": 5}, sinks={"out": {**SINK}})
    assert found.keys() == {"sources.a"}
