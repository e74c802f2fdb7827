"""
The graph of a pipeline as SVG.

Pure.  Nodes stand in columns: each is to the right of those that it reads, and what
reads nothing is beside its first reader.
"""

from __future__ import annotations

from pydanube_console.pure.markup import Column, Html, badge, element, join, table
from pydanube_spark.pipelines.graph import Graph, Node

NODES_MAX = 100
"""A larger graph is not drawn, only listed."""
_WIDTH, _HEIGHT, _GAP_X, _GAP_Y = 204, 52, 44, 18
_NAME_CHARACTERS, _WHAT_CHARACTERS = 22, 26
_BOW = 72
"""How far an edge bows downwards that passes other columns."""

Corners = dict[str, tuple[int, int]]
"""The upper left corner of each node, by its id."""


def draw_graph(graph: Graph) -> Html:
    """Return the picture of *graph*, and its nodes as a table."""
    if len(graph.nodes) > NODES_MAX:
        note = f"The graph has {len(graph.nodes)} nodes, too many for a picture."
        return join([element("p", note, class_="muted"), _list(graph)])
    places = _places(graph)
    width = max((x for x, _ in places.values()), default=0) + _WIDTH + 2
    # The bow of an edge needs some of the space below the last row.
    height = max((y for _, y in places.values()), default=0) + _HEIGHT + _GAP_Y * 2
    edges = [
        element(
            "path", d=_curve(places[edge.source], places[edge.target]), class_="edge"
        )
        for edge in graph.edges
        if edge.source in places and edge.target in places
    ]
    svg = element(
        "svg",
        *edges,
        *(_box(node, *places[node.id]) for node in graph.nodes),
        width=str(width),
        height=str(height),
        viewBox=f"0 0 {width} {height}",
        role="img",
        aria_label=f"Graph of {graph.pipeline} with {len(graph.nodes)} nodes",
    )
    box = element("div", svg, class_="table-box", tabindex="0", role="region")
    return join([box, _list(graph)])


def columns_of(graph: Graph) -> dict[str, int]:
    """Return the column of each node by its id."""
    columns = {node.id: 0 for node in graph.nodes}
    # The column is the longest way.  A graph without cycles needs no more rounds; one
    # with cycles ends all the same.
    for _ in graph.nodes:
        before = dict(columns)
        for edge in graph.edges:
            if edge.source in columns and edge.target in columns:
                least = min(columns[edge.source] + 1, len(columns) - 1)
                columns[edge.target] = max(columns[edge.target], least)
        if columns == before:
            break
    reading = {edge.target for edge in graph.edges}
    for name in columns.keys() - reading:
        readers = [
            columns[edge.target]
            for edge in graph.edges
            if edge.source == name and edge.target in columns
        ]
        columns[name] = max(0, min(readers, default=1) - 1)
    return columns


def _places(graph: Graph) -> Corners:
    places: Corners = {}
    rows: dict[int, int] = {}
    for name, column in columns_of(graph).items():
        row = rows.get(column, 0)
        rows[column] = row + 1
        x = 1 + column * (_WIDTH + _GAP_X)
        places[name] = (x, 1 + row * (_HEIGHT + _GAP_Y))
    return places


def _curve(source: tuple[int, int], target: tuple[int, int]) -> str:
    x1, y1 = source[0] + _WIDTH, source[1] + _HEIGHT // 2
    x2, y2 = target[0], target[1] + _HEIGHT // 2
    if x2 - x1 > _GAP_X:
        # Straight, it would be behind the nodes between them.
        first, second = x1 + _GAP_X, x2 - _GAP_X
        return f"M{x1},{y1} C{first},{y1 + _BOW} {second},{y2 + _BOW} {x2},{y2}"
    middle = (x1 + x2) // 2
    return f"M{x1},{y1} C{middle},{y1} {middle},{y2} {x2},{y2}"


def _box(node: Node, x: int, y: int) -> Html:
    kind = node.kind.value
    return element(
        "g",
        element("title", f"{kind} {node.name}: {node.what}"),
        element(
            "rect",
            x=str(x),
            y=str(y),
            width=str(_WIDTH),
            height=str(_HEIGHT),
            rx="8",
            class_=f"node node-{kind}",
        ),
        element(
            "text",
            _short(node.name, _NAME_CHARACTERS),
            x=str(x + 12),
            y=str(y + 22),
            class_="node-name",
        ),
        element(
            "text",
            _short(node.what, _WHAT_CHARACTERS),
            x=str(x + 12),
            y=str(y + 40),
            class_="node-what",
        ),
    )


def _list(graph: Graph) -> Html:
    names = {node.id: node.name for node in graph.nodes}
    rows = [
        (
            node.name,
            badge(node.kind.value),
            ", ".join(
                names.get(edge.source, edge.source)
                for edge in graph.edges
                if edge.target == node.id
            ),
            node.what,
        )
        for node in graph.nodes
    ]
    columns = [
        Column("Name"),
        Column("Kind"),
        Column("Reads", is_wide_only=True),
        Column("What it is"),
    ]
    return table(columns, rows, caption="Sources, steps and sinks")


def _short(text: str, characters_max: int) -> str:
    return text if len(text) <= characters_max else f"{text[: characters_max - 1]}…"
