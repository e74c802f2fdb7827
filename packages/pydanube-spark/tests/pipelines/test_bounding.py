"""Tests of pipelines whose topics are read once."""

import json

from pydanube_spark.pipelines.bounding import (
    offset_options,
    offsets_of,
    only_sink,
    with_bounds,
)
from pydanube_spark.pipelines.loading import load
from pydanube_spark.pipelines.options import topic_options
from pydanube_spark.pipelines.pure.spec import Source

FILE = """\
name: p
sources:
  a:
    topic: /default/a
    start: "2026-01-01"
    options: {maxOffsetsPerTrigger: 5, failOnDataLoss: false}
  b: {topics: [/default/b, /default/c]}
  files: {files: x, format: text}
sinks: {out: {input: a, format: noop}}
"""


def test_bounded_sources_are_tables_and_keep_their_other_options(tmp_path):
    file = tmp_path / "p.yaml"
    file.write_text(FILE)
    pipeline = load(file)
    bounds = {"a": offset_options({"/default/a": 3}, {"/default/a": 7})}
    sources = with_bounds(pipeline, bounds).spec.sources
    assert not sources["a"].is_stream
    assert not sources["b"].is_stream
    assert sources["files"] == pipeline.spec.sources["files"]
    options = topic_options(sources["a"], pipeline.broker)
    assert options.starting.by_name == {("/default/a", None): 3}
    assert options.ending.by_name == {("/default/a", None): 7}
    assert sources["a"].options["failOnDataLoss"] is False
    assert topic_options(sources["b"], pipeline.broker).starting.value == -2


def test_topics_without_a_start_are_read_from_the_oldest_message():
    found = offset_options({"/default/a": 1}, {"/default/a": 2, "/default/b": 3})
    assert json.loads(found["startingOffsets"]) == {"/default/a": 1, "/default/b": -2}
    assert json.loads(found["endingOffsets"]) == {"/default/a": 2, "/default/b": 3}


def test_offsets_belong_to_the_sources_that_read_their_topics():
    offsets = {"/default/a": 1, "/default/p-part-0": 2, "/default/p-part-1": 3}
    parts = {"/default/p-part-0": 2, "/default/p-part-1": 3}
    assert offsets_of(Source(topic="/default/a"), offsets) == {"/default/a": 1}
    assert offsets_of(Source(topics=["/default/p"]), offsets) == parts
    assert offsets_of(Source(pattern="/default/p.*"), offsets) == parts
    assert offsets_of(Source(topic="/default/b"), offsets) == {}


def test_a_sink_of_a_source_is_alone_with_it(tmp_path):
    file = tmp_path / "p.yaml"
    step = "steps: {s: {sql: SELECT * FROM b}}"
    sinks = "sinks: {out: {input: a, format: noop}, other: {input: s, format: noop}}"
    file.write_text(FILE.replace("sinks: {out: {input: a, format: noop}}", ""))
    file.write_text(f"{file.read_text()}{step}\n{sinks}\n")
    pipeline = load(file)
    alone = only_sink(pipeline, "out").spec
    assert (list(alone.sources), list(alone.steps), list(alone.sinks)) == (
        ["a"],
        [],
        ["out"],
    )
    assert only_sink(pipeline, "other") is pipeline
