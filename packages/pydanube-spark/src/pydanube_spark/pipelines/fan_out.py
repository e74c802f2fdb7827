"""
One query for several sinks: ``fan_out: true``.

The sinks have the same input, mode and trigger.  Spark computes a micro-batch once, and
each sink writes it with a mark of its own.  If one of them fails, the query repeats the
micro-batch, and the others recognise it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame

from pydanube_spark.pipelines.batch_caching import Write, cached, checked_first
from pydanube_spark.pipelines.building import Query
from pydanube_spark.pipelines.pure.sink_groups import sink_groups
from pydanube_spark.pipelines.pure.spec import Sink, Spec
from pydanube_spark.pipelines.queries import batch_writer

SUFFIX = "fan_out"
"""The end of the names of such queries, after the first sink and a dot."""


def share_queries(
    queries: Sequence[Query], spec: Spec, checkpoints: Path
) -> list[Query]:
    """Return *queries* with one query for each of ``sink_groups``."""
    found = list(queries)
    for names in sink_groups(spec):
        members = sorted(
            (query for query in queries if query.name in names),
            key=lambda query: names.index(query.name),
        )
        # Tables are written once per run, each by itself.
        if not all(query.is_stream for query in members):
            continue
        found = [query for query in found if query.name not in names]
        found.append(_shared(members, checkpoints))
    return found


def _shared(members: Sequence[Query], checkpoints: Path) -> Query:
    first = members[0]
    name = f"{first.name}.{SUFFIX}"
    writes = [_write(query, checkpoints / name) for query in members]

    def write_all(batch: DataFrame, number: int) -> None:
        for write in writes:
            write(batch, number)

    keep = checked_first if first.checked_steps else cached
    return Query(
        name=name,
        path=first.path,
        base=first.base,
        frame=first.base,
        sink=Sink(
            input=first.sink.input,
            python=", ".join(query.name for query in members),
            mode=first.sink.mode,
        ),
        options={},
        trigger=first.trigger,
        function=keep(write_all),
    )


def _write(query: Query, checkpoint: Path) -> Write:
    write: Write
    if query.function is not None:
        write = query.function
    else:
        write = batch_writer(
            query.sink.format_name,
            query.sink.mode,
            query.options,
            checkpoint,
            app_suffix=f".{query.name}",
        )
    return lambda batch, number: write(query.written(batch), number)
