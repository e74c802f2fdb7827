"""Graphs of pipelines are drawn from left to right, and end also if they are wrong."""

import re

from pydanube_console.pure.graph_drawing import NODES_MAX, columns_of, draw_graph
from pydanube_spark.pipelines.graph import Edge, Graph, Node, NodeKind


def graph(*pairs, kind=NodeKind.STEP, what="sql"):
    names = dict.fromkeys(name for pair in pairs for name in pair)
    nodes = [Node(name, kind, what) for name in names]
    ids = {node.name: node.id for node in nodes}
    return Graph("p", nodes, [Edge(ids[a], ids[b]) for a, b in pairs])


def columns(*pairs):
    found = columns_of(graph(*pairs))
    return {name.removeprefix("step."): column for name, column in found.items()}


def test_nodes_stand_to_the_right_of_all_that_they_read():
    found = columns(("a", "c"), ("a", "b"), ("b", "c"), ("x", "c"))
    # What reads nothing is beside its first reader.
    assert found == {"a": 0, "c": 2, "b": 1, "x": 1}


def test_graph_with_a_cycle_is_drawn():
    found = columns(("a", "b"), ("b", "a"))
    assert max(found.values()) <= 1


def test_nodes_do_not_cover_each_other():
    shown = draw_graph(graph(("a", "c"), ("b", "c")))
    places = re.findall(r'<rect x="(\d+)" y="(\d+)"', shown)
    assert len(set(places)) == len(places) == 3
    assert shown.count("<path") == 2


def test_names_are_text_and_long_ones_are_shortened():
    shown = draw_graph(graph(("<b>", "n" * 50), what="<script>"))
    assert "<script>" not in shown
    assert "<b>" not in shown
    assert f">{'n' * 21}…<" in shown


def test_edge_to_an_unknown_node_is_left_out():
    found = graph(("a", "b"))
    found.edges.append(Edge("step.a", "step.none"))
    assert draw_graph(found).count("<path") == 1


def test_large_graph_is_listed():
    shown = draw_graph(graph(*((f"n{at}", "last") for at in range(NODES_MAX))))
    assert "too many for a picture" in shown
    assert "<svg" not in shown
    assert f"n{NODES_MAX - 1}" in shown
