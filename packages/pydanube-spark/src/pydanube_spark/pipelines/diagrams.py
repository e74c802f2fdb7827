"""The graph of a pipeline as text, and as a diagram in Mermaid.  Pure."""

from __future__ import annotations

import re

from pydanube_spark.pipelines.graph import Graph, Node, NodeKind

SCHEMA_CHARACTERS_MAX = 120
"""How many characters of a schema a diagram shows on an edge."""

_SHAPES = {
    NodeKind.SOURCE: ('[("', '")]'),
    NodeKind.STEP: ('["', '"]'),
    NodeKind.SINK: ('[/"', '"/]'),
}


def text_of(graph: Graph) -> list[str]:
    """Return lines with the nodes of *graph*; below each are the rows that it reads."""
    by_id = {node.id: node for node in graph.nodes}
    lines = []
    for node in graph.nodes:
        lines.append(f"{node.kind.value} {node.name}: {node.what}")
        for edge in graph.edges:
            if edge.target == node.id:
                source = by_id[edge.source]
                schema = "" if edge.schema is None else f": {edge.schema}"
                lines.append(f"  <- {source.kind.value} {source.name}{schema}")
    return lines


def mermaid_of(graph: Graph) -> list[str]:
    """Return the lines of a flowchart in Mermaid that shows *graph*."""
    lines = ["flowchart LR"]
    for node in graph.nodes:
        start, end = _SHAPES[node.kind]
        lines.append(f"    {_id(node.id)}{start}{_label(node)}{end}")
    for edge in graph.edges:
        schema = "" if edge.schema is None else f'|"{_escaped(_short(edge.schema))}"|'
        lines.append(f"    {_id(edge.source)} -->{schema} {_id(edge.target)}")
    return lines


def _label(node: Node) -> str:
    return f"{_escaped(node.name)}<br>{_escaped(node.what)}"


def _id(text: str) -> str:
    # The id may not be a word of Mermaid, such as "end"; it begins with the kind.
    return re.sub(r"\W", "_", text)


def _short(text: str) -> str:
    if len(text) <= SCHEMA_CHARACTERS_MAX:
        return text
    return f"{text[:SCHEMA_CHARACTERS_MAX]} …"


def _escaped(text: str) -> str:
    for character, entity in (("#", "#35;"), ('"', "#quot;"), ("<", "#lt;")):
        text = text.replace(character, entity)
    return " ".join(text.split())
