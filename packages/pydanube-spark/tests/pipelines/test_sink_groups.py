"""Tests of the sinks that share a query."""

from pydanube_spark.pipelines.pure.sink_groups import sink_groups
from pydanube_spark.pipelines.pure.spec import (
    Action,
    Expectation,
    Mode,
    Sink,
    Spec,
    Step,
)

DELTA = Sink(input="a", format="danube-delta")
TOPIC = Sink(input="a", topic="/default/a")
FUNCTION = Sink(input="a", python="f.py:g")


def groups(*, fan_out=True, **sinks):
    return sink_groups(Spec(name="p", fan_out=fan_out, sinks=sinks))


def test_sinks_of_one_input_share_a_query_if_asked_for():
    assert groups(t=DELTA, u=TOPIC, v=FUNCTION) == [["t", "u", "v"]]
    assert groups(t=DELTA, u=TOPIC, fan_out=False) == []


def test_each_input_mode_and_trigger_has_a_query_of_its_own():
    other = Sink(input="b", format="danube-delta")
    update = Sink(input="a", topic="/default/a", mode=Mode.UPDATE)
    slow = Sink(input="a", topic="/default/a", trigger={"every": "1h"})
    default = Sink(input="a", topic="/default/b", trigger="available-now")
    found = groups(t=DELTA, o=other, u=update, s=slow, d=default, v=other)
    assert found == [["t", "d"], ["o", "v"]]


def test_formats_of_spark_have_queries_of_their_own():
    files = Sink(input="a", format="parquet", path="x")
    assert groups(t=DELTA, f=files) == []


def test_quarantine_joins_the_sinks_of_its_step():
    expect = {"ok": Expectation(condition="true", action=Action.QUARANTINE)}
    step = Step(sql="SELECT 1", expect=expect, quarantine=Sink(topic="/default/q"))
    spec = Spec(name="p", fan_out=True, steps={"a": step}, sinks={"t": DELTA})
    assert sink_groups(spec) == [["t", "a.quarantine"]]
