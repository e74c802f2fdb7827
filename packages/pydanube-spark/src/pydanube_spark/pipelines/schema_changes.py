"""
The new columns of change feeds that evolve.

A query that meets an event with columns that it does not have fails before it writes
anything of the micro-batch.  It starts again with these columns, which the state
directory keeps, and repeats the micro-batch.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace

from pydanube.model.errors import InvalidConfig
from pydanube_spark.pipelines.change_feeds import NEW_COLUMNS
from pydanube_spark.pipelines.loading import Pipeline
from pydanube_spark.pipelines.options import topic_options
from pydanube_spark.pipelines.pure.new_columns import (
    COLUMNS_MAX,
    columns_of_event,
    with_new_columns,
)
from pydanube_spark.pipelines.pure.spec import SchemaChanges
from pydanube_spark.reader.catalog import Catalog
from pydanube_spark.reader.decoding import NEWER_VERSION
from pydanube_spark.reader.pure.read_options import ReadOptions

_IN_JSON = re.compile(
    r"the message at offset (\d+) of (/\S+), partition (\d+)"
    + re.escape(NEW_COLUMNS)
    + r"(\[.*?\"\])(?:\s|$)"
)
_DECODED = re.compile(
    r"the message at offset \d+ of (/\S+) has (version \d+ of \S+)"
    + re.escape(NEWER_VERSION)
)


def with_columns_of(
    pipeline: Pipeline,
    error: BaseException,
    new_catalog: Callable[[ReadOptions], Catalog] = Catalog,
) -> tuple[Pipeline, str] | None:
    """
    Return *pipeline* with the columns that *error* says a query lacks, and a note.

    None: it is another error, or the source does not evolve.

    Raises:
        InvalidConfig: A source would have more than ``COLUMNS_MAX`` new columns.
        BrokerError: The event cannot be read again.
    """
    text = str(error)
    decoded = _DECODED.search(text)
    if decoded is not None:
        # The next plan has the latest version.
        topic, version = decoded.groups()
        evolves = _evolving(pipeline, topic)
        return (pipeline, f"starting again for {version}") if evolves else None
    found = _IN_JSON.search(text)
    if found is None:
        return None
    offset, topic, partition, names = found.groups()
    known = pipeline.state.read_new_columns()
    notes: dict[str, str] = {}
    for source in _evolving(pipeline, topic):
        options = topic_options(pipeline.spec.sources[source], pipeline.broker)
        catalog = new_catalog(options)
        parts = catalog.partitions(topic)
        part = topic if parts == [topic] else f"{topic}-part-{partition}"
        [batch] = catalog.read(part, int(offset), int(offset) + 1)
        payload = batch.column("payload")[0].as_py()
        new = columns_of_event(payload, json.loads(names))
        before = known.setdefault(source, {})
        notes |= {name: kind for name, kind in new.items() if name not in before}
        before |= {name: kind for name, kind in new.items() if name not in before}
        if len(before) > COLUMNS_MAX:
            raise InvalidConfig(
                f"{source} would have more than {COLUMNS_MAX} new columns: the names "
                "of its columns seem to be values; name those to drop in "
                "optional_columns, and set schema_changes: fail"
            )
    if not notes:
        return None
    pipeline.state.write_new_columns(known)
    columns = ", ".join(f"{name} {kind}" for name, kind in notes.items())
    return (
        replace(pipeline, spec=with_new_columns(pipeline.spec, known)),
        f"starting again with the new columns {columns}",
    )


def _evolving(pipeline: Pipeline, topic: str) -> list[str]:
    """Return the sources of *pipeline* that read *topic* and evolve."""
    return [
        name
        for name, source in pipeline.spec.sources.items()
        if source.schema_changes is SchemaChanges.EVOLVE
        and topic_options(source, pipeline.broker).selects(topic)
    ]
