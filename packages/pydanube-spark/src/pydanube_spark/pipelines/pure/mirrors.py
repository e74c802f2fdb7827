"""
The tables that follow a database: a source and a sink for each of them.  Pure.

A mirror is short for these.  Everything else, from the checks to verification, sees
only sources and sinks.  Patterns stand for the tables whose topics exist when a run
starts, which remembers their names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from msgspec import structs

from pydanube.declarations.pure.problems import Path, Problems
from pydanube.declarations.pure.sections import Scalar
from pydanube.model.errors import InvalidName
from pydanube.model.names import TopicName
from pydanube_spark.pipelines.pure import formats
from pydanube_spark.pipelines.pure.spec import (
    Mirror,
    MirroredTable,
    Sink,
    Source,
    Spec,
    TableKey,
    Truncate,
)

TABLE = "{table}"
"""The text that stands for the name of a table."""
ANY = "*"
"""The part of a pattern that stands for letters, digits, ``_`` and ``-``."""
TABLES_MAX = 1000
"""The greatest value of ``tables_max``: each table is a query of Spark."""
_UNUSUAL = re.compile("[^A-Za-z0-9_]")

ORDER = ("_ts", "_offset")
IS_DELETION = "_op = 'd'"
IS_TRUNCATION = "_op = 't'"
"""The order of changes, and the conditions of deletions and truncations."""


def with_mirrors(
    spec: Spec, problems: Problems, known: Mapping[str, Sequence[str]]
) -> Spec:
    """
    Return *spec* with the sources and sinks of its mirrors.

    *known* are the tables that the patterns of each mirror stand for.  Of the mirrors
    only those with patterns are left.
    """
    sources, sinks = dict(spec.sources), dict(spec.sinks)
    for name, mirror in spec.mirrors.items():
        path: Path = ("mirrors", name)
        _check(mirror, path, problems)
        for table, (entry, how) in _tables(mirror, known.get(name, ())).items():
            own = sink_name(name, table)
            if own in sources or own in sinks or own in spec.steps:
                other = "" if entry == table else f", or name {table} in 'exclude'"
                problems.add(
                    (*path, "tables", entry),
                    f"the source and the sink of {table} are called {own}, as another "
                    f"part is; rename that, or the mirror{other}",
                )
                continue
            sources[own] = _source(mirror, table, how)
            sinks[own] = _sink(mirror, table, how, own)
    open_ended = {
        name: mirror for name, mirror in spec.mirrors.items() if has_patterns(mirror)
    }
    return structs.replace(spec, sources=sources, sinks=sinks, mirrors=open_ended)


def sink_name(mirror: str, table: str) -> str:
    """Return the name of the source and the sink of *table* of the mirror *mirror*."""
    return _UNUSUAL.sub("_", f"{mirror}_{table}")


def has_patterns(mirror: Mirror) -> bool:
    """Return whether the topics decide which tables *mirror* has."""
    return any(ANY in each for each in mirror.tables)


def tables_among(mirror: Mirror, topics: Iterable[str]) -> list[str]:
    """
    Return the tables with patterns of *mirror* whose topics are among *topics*.

    *topics* are names of topics and of partitions.  The topics of dead letters are no
    tables, even if the topic of their table is gone.
    """
    names = {TopicName.parse(each) for each in topics}
    texts = {str((each.split_partition() or (each,))[0]) for each in names}
    return sorted(
        table
        for text in texts
        if (table := _table_in(text, mirror.topic)) is not None
        and table not in mirror.tables
        and _pattern_of(mirror, table) is not None
        # A backfill has topics of its own, with its name at their end.
        and not _has_dead_letters(mirror, text)
        and not _has_dead_letters(mirror, text.rpartition("-")[0])
    )


def _table_in(topic: str, template: str) -> str | None:
    """Return the text in *topic* in the place of ``{table}`` in *template*."""
    before, mark, after = template.partition(TABLE)
    size = len(topic) - len(before) - len(after)
    if not mark or size <= 0 or not topic.startswith(before):
        return None
    return topic[len(before) : len(before) + size] if topic.endswith(after) else None


def _has_dead_letters(mirror: Mirror, topic: str) -> bool:
    """Return whether *topic* is that of the dead letters of a table, or of all."""
    letters = mirror.dead_letters.topic if mirror.dead_letters is not None else None
    if letters is None:
        return False
    table = _table_in(topic, letters)
    if table is None:
        return topic == letters
    is_named = table in mirror.tables or table in mirror.exclude
    return is_named or _pattern_of(mirror, table) is not None


def _tables(
    mirror: Mirror, known: Sequence[str]
) -> dict[str, tuple[str, MirroredTable]]:
    """Return the tables of *mirror*, each with the entry that declares it."""
    named = {
        name: (name, how) for name, how in mirror.tables.items() if ANY not in name
    }
    found = {each: _pattern_of(mirror, each) for each in known if each not in named}
    return named | {
        table: (pattern, mirror.tables[pattern])
        for table, pattern in found.items()
        if pattern is not None
    }


def _pattern_of(mirror: Mirror, table: str) -> str | None:
    """Return the first pattern of *mirror* that stands for *table*."""
    if table in mirror.exclude:
        return None
    return next(
        (
            each
            for each in mirror.tables
            if ANY in each
            and re.fullmatch(re.escape(each).replace(r"\*", "[A-Za-z0-9_-]+"), table)
        ),
        None,
    )


def _check(mirror: Mirror, path: Path, problems: Problems) -> None:
    if not mirror.tables:
        problems.add((*path, "tables"), "there must be at least one")
    if mirror.topic.count(TABLE) != 1:
        problems.add((*path, "topic"), f"must contain {TABLE}, the name of a table")
    try:
        TopicName.parse(mirror.topic.replace(TABLE, "t"))
    except InvalidName as error:
        problems.add((*path, "topic"), str(error))
    if TABLE in mirror.topic.rpartition("/")[0]:
        problems.add((*path, "topic"), f"must not have {TABLE} in its namespace")
    if not 0 < mirror.tables_max <= TABLES_MAX:
        problems.add((*path, "tables_max"), f"must be 1 to {TABLES_MAX}")
    if mirror.exclude and not has_patterns(mirror):
        problems.add((*path, "exclude"), "only valid with patterns, such as '*'")
    _check_targets(mirror, path, problems)


def _check_targets(mirror: Mirror, path: Path, problems: Problems) -> None:
    """Check that one option names the table, and that no other one does."""
    # Formats of other packages may call it differently.
    target = formats.TARGETS.get(mirror.format)
    options = {
        (*path, "path"): ("path", mirror.path),
        **{(*path, "options", each): (each, it) for each, it in mirror.options.items()},
    }
    naming = {
        place: option
        for place, (option, value) in options.items()
        if TABLE in str(value or "")
    }
    if not naming:
        problems.add(
            path, f"no option says which table is written: one must contain {TABLE}"
        )
    for place, option in naming.items():
        if target is not None and option.lower() != target:
            problems.add(
                place,
                f"must not contain {TABLE}: the option {target} of {mirror.format} "
                "says which table is written",
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
        schema_changes=mirror.schema_changes,
        dead_letters=None if dead_letters is None else _named(dead_letters, table),
    )


def _sink(mirror: Mirror, table: str, how: MirroredTable, source: str) -> Sink:
    sink = Sink(
        input=source,
        format=mirror.format,
        path=mirror.path,
        trigger=mirror.trigger,
        table=TableKey(
            key=how.key,
            order=list(ORDER),
            delete=IS_DELETION,
            truncate=IS_TRUNCATION if mirror.truncate is Truncate.APPLY else None,
        ),
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
