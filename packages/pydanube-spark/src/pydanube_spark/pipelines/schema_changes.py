"""
The new columns of change feeds that evolve.

A query that meets an event with columns that it does not have fails before it writes
anything of the micro-batch.  It starts again with these columns, which the state
directory keeps, and repeats the micro-batch.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from pydanube.model.errors import BrokerError, InvalidConfig, InvalidRequest
from pydanube_spark.pipelines.change_feeds import (
    NEW_COLUMNS,
    OFFSET,
    OPERATION,
    TIME,
)
from pydanube_spark.pipelines.loading import Pipeline
from pydanube_spark.pipelines.options import UNAVAILABLE, topic_options
from pydanube_spark.pipelines.pure.new_columns import (
    COLUMNS_MAX,
    columns_of_event,
    declared_names,
    with_new_columns,
)
from pydanube_spark.pipelines.pure.spec import SchemaChanges, Source
from pydanube_spark.reader.catalog import Catalog
from pydanube_spark.reader.decoding import NEWER_VERSION
from pydanube_spark.reader.pure.read_options import ReadOptions

_IN_JSON = re.compile(
    r"the message at offset (\d{1,18}) of (/\S+), partition (\d{1,9})"
    + re.escape(NEW_COLUMNS)
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

    The query was built from *pipeline*.  Another query may have met the columns before.
    None: it is another error, or the source does not evolve.

    Raises:
        InvalidConfig: A source would have more than ``COLUMNS_MAX`` new columns, or two
            of one name.
        BrokerError: The event cannot be read again.
    """
    text = str(error)
    decoded = _DECODED.search(text)
    if decoded is not None:
        # The next plan has the latest version.
        topic, version = decoded.groups()
        if not _evolving(pipeline, topic):
            return None
        # Other queries may have new columns, with which all are checked again.
        spec = with_new_columns(pipeline.spec, pipeline.state.read_new_columns())
        return replace(pipeline, spec=spec), f"starting again for {version}"
    found = _IN_JSON.search(text)
    if found is None:
        return None
    offset, topic, partition = found.groups()
    try:
        names, _ = json.JSONDecoder().raw_decode(text, found.end())
    except ValueError:
        names = None
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        return None
    known = pipeline.state.read_new_columns()
    notes: dict[str, str] = {}
    failure: BrokerError | None = None
    for name in _evolving(pipeline, topic):
        source, before = pipeline.spec.sources[name], known.setdefault(name, {})
        if any(each not in before for each in names):
            catalog = new_catalog(topic_options(source, pipeline.broker))
            try:
                payload = _payload(catalog, topic, int(partition), int(offset))
                new = columns_of_event(payload, names)
            except BrokerError as problem:
                # Another broker may have a topic of this name, with other events.
                failure = problem
                continue
            new = {each: kind for each, kind in new.items() if each not in before}
            _check(name, source, before, new)
            before |= new
        notes |= {each: before[each] for each in names if each in before}
    spec = with_new_columns(pipeline.spec, known)
    if spec == pipeline.spec:
        if failure is not None:
            raise failure
        return None
    pipeline.state.write_new_columns(known)
    columns = ", ".join(f"{name} {kind}" for name, kind in notes.items())
    return (
        replace(pipeline, spec=spec),
        f"starting again with the new columns {columns}",
    )


def _payload(catalog: Catalog, topic: str, partition: int, offset: int) -> bytes:
    part = (
        topic if catalog.partitions(topic) == [topic] else f"{topic}-part-{partition}"
    )
    for batch in catalog.read(part, offset, offset + 1):
        payload: bytes = batch.column("payload")[0].as_py()
        return payload
    raise InvalidRequest(f"the message at offset {offset} of {part} is gone")


def _check(
    name: str, source: Source, before: Mapping[str, str], new: Mapping[str, str]
) -> None:
    """Raise if the source *name* cannot have the columns *new* beside the others."""
    if len(before) + len(new) > COLUMNS_MAX:
        raise InvalidConfig(
            f"{name} would have more than {COLUMNS_MAX} new columns: the names "
            "of its columns seem to be values; name those to drop in "
            "optional_columns, and set schema_changes: fail"
        )
    # Spark does not distinguish upper and lower case.
    taken = {"", OPERATION, TIME, OFFSET, UNAVAILABLE, *map(str.lower, before)}
    taken |= declared_names(source.schema or "")
    for each in new:
        if each.lower() in taken:
            raise InvalidConfig(
                f"{name} cannot have the new column {each!r}: the name is empty, or a "
                "column of the query has it, perhaps in upper or lower case; name it "
                "in optional_columns, which drops it"
            )
        taken.add(each.lower())


def _evolving(pipeline: Pipeline, topic: str) -> list[str]:
    """Return the sources of *pipeline* that read *topic* and evolve."""
    return [
        name
        for name, source in pipeline.spec.sources.items()
        if source.schema_changes is SchemaChanges.EVOLVE
        and topic_options(source, pipeline.broker).selects(topic)
    ]
