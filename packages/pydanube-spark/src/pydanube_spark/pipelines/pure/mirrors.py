"""
The tables that follow a database: a source and a sink for each of them.  Pure.

A mirror is short for these.  Everything else, from the checks to verification, sees
only sources and sinks.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import structs

from pydanube.declarations.pure.problems import Path, Problems
from pydanube.declarations.pure.sections import Scalar
from pydanube_spark.pipelines.pure.spec import (
    Mirror,
    MirroredTable,
    Sink,
    Source,
    Spec,
    TableKey,
)

TABLE = "{table}"
"""The text that stands for the name of a table."""

ORDER = ("_ts", "_offset")
IS_DELETION = "_op = 'd'"
"""The order of changes, and the condition of deletions, of all change feeds."""


def with_mirrors(spec: Spec, problems: Problems) -> Spec:
    """Return *spec* with the sources and sinks of its mirrors, and without these."""
    sources, sinks = dict(spec.sources), dict(spec.sinks)
    for name, mirror in spec.mirrors.items():
        path: Path = ("mirrors", name)
        _check(mirror, path, problems)
        for table, how in mirror.tables.items():
            own = f"{name}_{table}"
            if own in sources or own in sinks or own in spec.steps:
                problems.add(
                    (*path, "tables", table),
                    f"its source and its sink are called {own}, as another part is; "
                    "rename that, or the mirror",
                )
                continue
            sources[own] = _source(mirror, table, how)
            sinks[own] = _sink(mirror, table, how, own)
    return structs.replace(spec, sources=sources, sinks=sinks, mirrors={})


def _check(mirror: Mirror, path: Path, problems: Problems) -> None:
    if not mirror.tables:
        problems.add((*path, "tables"), "there must be at least one")
    if TABLE not in mirror.topic:
        problems.add((*path, "topic"), f"must contain {TABLE}, the name of a table")
    targets = [mirror.path, *mirror.options.values()]
    if not any(TABLE in str(each) for each in targets):
        problems.add(
            path, f"no option says which table is written: one must contain {TABLE}"
        )


def _source(mirror: Mirror, table: str, how: MirroredTable) -> Source:
    dead_letters = mirror.dead_letters
    return Source(
        topic=mirror.topic.replace(TABLE, table),
        broker=mirror.broker,
        start=mirror.start,
        cdc=mirror.cdc,
        schema=how.schema,
        decode=how.schema is None,
        optional_columns=how.optional_columns,
        unavailable_as_null=mirror.unavailable_as_null,
        truncate=mirror.truncate,
        dead_letters=None if dead_letters is None else _named(dead_letters, table),
    )


def _sink(mirror: Mirror, table: str, how: MirroredTable, source: str) -> Sink:
    sink = Sink(
        input=source,
        format=mirror.format,
        path=mirror.path,
        trigger=mirror.trigger,
        table=TableKey(key=how.key, order=list(ORDER), delete=IS_DELETION),
        options=mirror.options,
    )
    return _named(sink, table)


def _named(sink: Sink, table: str) -> Sink:
    """Return *sink* with the name of the table where it stands for it."""
    return structs.replace(
        sink,
        topic=None if sink.topic is None else sink.topic.replace(TABLE, table),
        path=None if sink.path is None else sink.path.replace(TABLE, table),
        options=_options(sink.options, table),
    )


def _options(options: Mapping[str, Scalar], table: str) -> dict[str, Scalar]:
    return {
        name: each.replace(TABLE, table) if isinstance(each, str) else each
        for name, each in options.items()
    }
