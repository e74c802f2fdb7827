"""Tests of the drawings of graphs."""

from pydanube_spark.pipelines.diagrams import SCHEMA_CHARACTERS_MAX, mermaid_of, text_of
from pydanube_spark.pipelines.graph import Edge, Graph, Node, NodeKind

GRAPH = Graph(
    pipeline="p",
    nodes=[
        Node("orders", NodeKind.SOURCE, "topic /default/orders"),
        Node("end", NodeKind.STEP, 'sql, "quoted" #1'),
        Node("end", NodeKind.SINK, "danube-delta t"),
    ],
    edges=[
        Edge("source.orders", "step.end", "tags:array<string>"),
        Edge("step.end", "sink.end"),
    ],
)


def test_text_has_the_rows_that_each_node_reads():
    assert text_of(GRAPH) == [
        "source orders: topic /default/orders",
        'step end: sql, "quoted" #1',
        "  <- source orders: tags:array<string>",
        "sink end: danube-delta t",
        "  <- step end",
    ]


def test_mermaid_has_the_nodes_and_edges():
    assert mermaid_of(GRAPH) == [
        "flowchart LR",
        '    source_orders[("orders<br>topic /default/orders")]',
        '    step_end["end<br>sql, #quot;quoted#quot; #35;1"]',
        '    sink_end[/"end<br>danube-delta t"/]',
        '    source_orders -->|"tags:array#lt;string>"| step_end',
        "    step_end --> sink_end",
    ]


def test_long_schemas_are_shortened_in_diagrams():
    edge = Edge("source.orders", "step.end", "x" * 500)
    [line] = mermaid_of(Graph("p", [], [edge]))[1:]
    assert "x" * SCHEMA_CHARACTERS_MAX + " …" in line
