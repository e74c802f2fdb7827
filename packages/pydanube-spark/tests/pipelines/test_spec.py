"""Tests of the fields of a pipeline file."""

import pytest

from pydanube.declarations.pure.problems import Problems
from pydanube.model.errors import InvalidConfig
from pydanube_spark.pipelines.pure.spec import (
    Mode,
    Read,
    Trigger,
    TriggerKind,
    parse_spec,
    parse_trigger,
)


def parse(**tree):
    problems = Problems(lambda _: None)
    spec = parse_spec({"name": "p", **tree}, problems)
    return spec, {each.path: each.message for each in problems.found}


def test_spec_is_parsed():
    spec, problems = parse(
        sources={"a": {"topic": "/default/a", "read": "table"}},
        steps={"b": {"sql": "SELECT 1", "watermark": {"column": "c", "delay": "1 s"}}},
        sinks={"d": {"input": "b", "format": "noop", "mode": "update"}},
        spark={"settings": {"spark.x": True}},
        steps_=None,
    )
    assert problems == {"steps_": "unknown; did you mean 'steps'?"}
    assert spec.sources["a"].read is Read.TABLE
    assert spec.steps["b"].watermark.column == "c"
    assert spec.sinks["d"].mode is Mode.UPDATE
    assert spec.spark.settings == {"spark.x": True}


def test_empty_section_counts_as_omitted():
    spec, problems = parse(steps=None, spark=None)
    assert not problems
    assert spec.steps == {}


def test_all_problems_are_found_with_their_paths():
    _, problems = parse(
        sources={"a": {"topik": "x", "topics": "x"}, "b": 1},
        steps={"c": {"watermark": {"column": "d"}}},
        sinks={"e": {"mode": "updat", "options": {"x": [1]}}},
        retries={"count": "many"},
        checkpoints=[],
    )
    assert problems.keys() == {
        "sources.a.topik",
        "sources.a.topics",
        "sources.b",
        "steps.c.watermark",
        "sinks.e.mode",
        "sinks.e.options",
        "retries.count",
        "checkpoints",
    }
    assert problems["sources.a.topik"] == "unknown; did you mean 'topic'?"
    assert problems["steps.c.watermark"] == "'delay' is missing"
    assert "did you mean 'update'?" in problems["sinks.e.mode"]
    assert problems["checkpoints"] == "must be settings by name, not a list"


def test_pipeline_without_name_is_invalid():
    problems = Problems(lambda _: None)
    assert parse_spec({}, problems) is None
    assert [each.message for each in problems.found] == ["'name' is missing"]


@pytest.mark.parametrize(
    ("value", "trigger"),
    [
        ("available-now", Trigger(TriggerKind.AVAILABLE_NOW)),
        ("continuous", Trigger(TriggerKind.CONTINUOUS)),
        ({"every": "10s"}, Trigger(TriggerKind.EVERY, 10.0)),
    ],
)
def test_triggers(value, trigger):
    assert parse_trigger(value) == trigger
    assert trigger.ends is (trigger.kind is TriggerKind.AVAILABLE_NOW)


@pytest.mark.parametrize("value", ["once", {"every": "10"}, {"each": "10s"}, 5, None])
def test_invalid_trigger_is_refused(value):
    with pytest.raises(InvalidConfig, match=r"trigger|duration"):
        parse_trigger(value)
