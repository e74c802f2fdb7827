"""
The graph of a pipeline: which source, step or sink reads which other one.  Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum

import msgspec

from pydanube_spark.pipelines.pure.spec import Sink, Source, Spec, Step
from pydanube_spark.pipelines.sql_tables import tables_in

DEAD_LETTERS = "dead_letters"
QUARANTINE = "quarantine"


class NodeKind(Enum):
    """The part of a pipeline that a node is."""

    SOURCE = "source"
    STEP = "step"
    SINK = "sink"


class Node(msgspec.Struct, frozen=True):
    """A source, step or sink."""

    name: str
    """Unique among the nodes of its kind."""
    kind: NodeKind
    what: str
    """The data that it reads, its computation, or its target, for people."""

    @property
    def id(self) -> str:
        """A name that is unique in the graph: a sink may be called like a step."""
        return f"{self.kind.value}.{self.name}"


class Edge(msgspec.Struct, frozen=True):
    """A connection: the rows of one node are read by another."""

    source: str
    """The id of the node that has the rows."""
    target: str
    schema: str | None = None
    """The columns, in Spark's syntax; None if unknown."""


class Graph(msgspec.Struct, frozen=True):
    """The nodes of a pipeline in the order of its file, and their edges."""

    pipeline: str
    nodes: list[Node]
    edges: list[Edge]

    def upstream(self, node: str) -> set[str]:
        """Return the ids of all nodes whose rows reach the one with the id *node*."""
        found: set[str] = set()
        waiting = [node]
        while waiting:
            at = waiting.pop()
            new = {edge.source for edge in self.edges if edge.target == at} - found
            found |= new
            waiting += new
        return found


def graph_of(
    spec: Spec,
    read_sql: Callable[[str], str],
    schemas: Mapping[str, str] | None = None,
) -> Graph:
    """
    Return the graph of *spec*.

    *read_sql* returns the text of an SQL file; *schemas* has the columns of sources
    and steps, and of the queries of dead letters and quarantines, as far as they are
    known.
    """
    schemas = schemas or {}
    nodes: list[Node] = []
    edges: list[Edge] = []
    ids: dict[str, str] = {}
    for name, source in spec.sources.items():
        node = Node(name, NodeKind.SOURCE, describe_source(source))
        nodes.append(node)
        ids[name] = node.id
    for name, step in spec.steps.items():
        node = Node(name, NodeKind.STEP, describe_step(step))
        nodes.append(node)
        read = _inputs(step, read_sql, ids)
        edges += [Edge(ids[each], node.id, schemas.get(each)) for each in read]
        ids[name] = node.id
    for name, input_name, sink in all_sinks(spec):
        node = Node(name, NodeKind.SINK, describe_sink(sink))
        nodes.append(node)
        if input_name in ids:
            schema = schemas.get(name if "." in name else input_name)
            edges.append(Edge(ids[input_name], node.id, schema))
    return Graph(spec.name, nodes, edges)


def all_sinks(spec: Spec) -> list[tuple[str, str, Sink]]:
    """
    Return the name, the input and the sink of each query of *spec*.

    The names of sinks of dead letters and of quarantines have a dot.
    """
    found = [(name, sink.input, sink) for name, sink in spec.sinks.items()]
    for name, source in spec.sources.items():
        if source.dead_letters is not None:
            found.append((f"{name}.{DEAD_LETTERS}", name, source.dead_letters))
    for name, step in spec.steps.items():
        if step.quarantine is not None:
            found.append((f"{name}.{QUARANTINE}", name, step.quarantine))
    return found


def describe_source(source: Source) -> str:
    """Return what *source* reads, for people; no URL, which may have a password."""
    if source.is_topic:
        topics = source.topics if source.topic is None else [source.topic]
        what = ", ".join(topics or ()) or source.pattern or "options"
        kind = "topics" if source.topic is None else "topic"
    elif source.jdbc is not None:
        what, kind = source.table or "a query", "jdbc"
    else:
        what, kind = source.files or "", source.format_name
    read = "stream" if source.is_stream else "table"
    return f"{kind} {what}".strip() + f", read as a {read}"


def describe_step(step: Step) -> str:
    """Return how *step* computes its rows, for people."""
    what = step.python or step.sql_file or "sql"
    if not step.expect:
        return what
    expected = (f"{name} ({each.action.value})" for name, each in step.expect.items())
    return f"{what}, expects {', '.join(expected)}"


def describe_sink(sink: Sink) -> str:
    """Return what *sink* writes to, for people."""
    if sink.topic is not None:
        what = f"topic {sink.topic}"
    else:
        what = f"{sink.python or sink.format_name} {sink.path or ''}".strip()
    return f"{what}, {sink.mode.value}"


def _inputs(
    step: Step, read_sql: Callable[[str], str], known: Mapping[str, str]
) -> list[str]:
    if step.python is not None:
        return [name for name in step.inputs or () if name in known]
    text = step.sql if step.sql_file is None else read_sql(step.sql_file)
    return tables_in(text or "", known)
