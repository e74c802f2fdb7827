"""Tests of the graph of a pipeline."""

from pydanube_spark.pipelines.graph import Edge, all_sinks, graph_of
from pydanube_spark.pipelines.pure.spec import (
    Action,
    Expectation,
    Sink,
    Source,
    Spec,
    Step,
)

SPEC = Spec(
    name="p",
    sources={
        "orders": Source(
            topic="/default/orders", decode=True, dead_letters=Sink(topic="/default/d")
        ),
        "customers": Source(files="c.csv", format="csv"),
    },
    steps={
        "parsed": Step(
            sql="SELECT * FROM orders",
            expect={"ok": Expectation(condition="true", action=Action.QUARANTINE)},
            quarantine=Sink(format="parquet", path="bad"),
        ),
        "joined": Step(sql_file="j.sql"),
        "last": Step(python="f.py:g", inputs=["joined"]),
    },
    sinks={
        "last": Sink(input="last", format="danube-delta", path="t"),
        "raw": Sink(input="orders", python="f.py:h"),
    },
)


def graph(**schemas):
    files = {"j.sql": "SELECT * FROM parsed JOIN customers USING (id)"}
    return graph_of(SPEC, files.__getitem__, schemas)


def test_edges_follow_inputs_and_the_tables_of_queries():
    assert [(each.source, each.target) for each in graph().edges] == [
        ("source.orders", "step.parsed"),
        ("step.parsed", "step.joined"),
        ("source.customers", "step.joined"),
        ("step.joined", "step.last"),
        ("step.last", "sink.last"),
        ("source.orders", "sink.raw"),
        ("source.orders", "sink.orders.dead_letters"),
        ("step.parsed", "sink.parsed.quarantine"),
    ]


def test_edges_have_the_schemas_that_are_known():
    found = graph(parsed="a:int").edges
    assert Edge("step.parsed", "step.joined", "a:int") in found
    assert Edge("step.parsed", "sink.parsed.quarantine") in found


def test_upstream_has_everything_that_reaches_a_sink():
    assert graph().upstream("sink.raw") == {"source.orders"}
    assert graph().upstream("sink.last") == {
        *("step.last", "step.joined", "step.parsed"),
        *("source.orders", "source.customers"),
    }


def test_nodes_say_what_they_are():
    found = {each.id: each.what for each in graph().nodes}
    assert found["source.orders"] == "topic /default/orders, read as a stream"
    assert found["source.customers"] == "csv c.csv, read as a stream"
    assert found["step.parsed"] == "sql, expects ok (quarantine)"
    assert found["sink.last"] == "danube-delta t, append"
    assert found["sink.orders.dead_letters"] == "topic /default/d, append"


def test_sinks_within_sources_and_steps_have_a_name_with_a_dot():
    assert [name for name, _, _ in all_sinks(SPEC)] == [
        *("last", "raw", "orders.dead_letters", "parsed.quarantine")
    ]
