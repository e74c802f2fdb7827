"""The options of Spark's readers and writers for sources and sinks."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from time import time_ns
from typing import Any

import msgspec

from pydanube.declarations.pure.parameters import option_text
from pydanube.declarations.pure.sections import Scalar
from pydanube.model.errors import InvalidConfig, InvalidRequest
from pydanube.model.positions import PositionLike, parse_position, to_datetime
from pydanube_spark.pipelines.pure.spec import Decode, Sink, Source
from pydanube_spark.reader.pure.read_options import (
    Mode,
    ReadOptions,
    parse_read_options,
)

TABLE_OPTIONS = {
    "key": "keyColumns",
    "order": "orderColumns",
    "delete": "deleteColumn",
    "truncate": "truncateColumn",
}
"""The option of a sink for each field of ``table``."""

MERGE_SCHEMA = "mergeSchema"
"""The option of sinks that add new columns to their tables."""

DELETED = "_deleted"
"""The column with the result of a sink's condition ``table.delete``."""

TRUNCATED = "_truncated"
"""The column with the result of a sink's condition ``table.truncate``."""

UNAVAILABLE = "_unavailable"
"""The column with the names of columns whose value a change event does not have."""

STARTING = frozenset(
    {"startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp"}
)
"""The options that say where reading begins, in lower case."""


def source_options(
    source: Source, broker: str, now: datetime | None = None
) -> dict[str, str]:
    """
    Return the options for reading *source*; its own options take precedence.

    *now* has a time zone; it is the current time by default.

    Raises:
        InvalidConfig: The field ``start`` is malformed, or contradicts an option.
    """
    found: dict[str, Scalar | None] = {}
    if source.is_topic:
        topics = source.topics if source.topic is None else [source.topic]
        found = {
            "url": source.broker or broker,
            "subscribe": None if topics is None else ",".join(topics),
            "subscribePattern": source.pattern,
            "decode": _decode(source),
            "onUndecodable": "null" if _keeps_undecodable(source) else None,
            "onNewVersion": "fail" if _has_all_columns(source) else None,
            # Dead letters keep them.
            "includeAttributes": source.dead_letters is not None or None,
            **_start_options(source, now or to_datetime(time_ns() // 1000)),
        }
    elif source.jdbc is not None:
        found = {"url": source.jdbc, "dbtable": source.table, "query": source.query}
    return _texts(found, source.options)


def with_starting_offsets(options: Mapping[str, str], offsets: str) -> dict[str, str]:
    """Return *options* of a read that begins at *offsets*, in JSON."""
    dropped = STARTING | {"startingoffsetsbytimestampstrategy"}
    kept = {
        name: value for name, value in options.items() if name.lower() not in dropped
    }
    return {**kept, "startingOffsets": offsets}


def _decode(source: Source) -> Scalar | None:
    decode = source.decode
    return decode.value if isinstance(decode, Decode) else decode or None


def _keeps_undecodable(source: Source) -> bool:
    """Return whether messages that cannot be decoded are rows, with an error."""
    # Tombstones of a change feed cannot be decoded, either.
    is_kept = source.dead_letters is not None or source.cdc is not None
    return is_kept and bool(source.decode)


def _has_all_columns(source: Source) -> bool:
    """Return whether rows must not lose the columns of later schema versions."""
    pinned = any(name.lower() == "schemaversion" for name in source.options)
    return source.cdc is not None and source.decode is True and not pinned


def _listed(names: str | list[str]) -> str:
    return names if isinstance(names, str) else ",".join(names)


def _start_options(source: Source, now: datetime) -> dict[str, Scalar | None]:
    """Return the options that the field ``start`` of *source* stands for."""
    own = [name for name in source.options if name.lower() in STARTING]
    start: PositionLike | str | dict[str, Any] | None = source.start
    if start is None:
        return {} if own else {"startingOffsets": "earliest"}
    if own:
        raise InvalidConfig(f"start: set either start or options.{own[0]}, not both")
    if isinstance(start, str) and not start.lstrip().startswith("{"):
        start = _position(start, now)
    if isinstance(start, datetime):
        return {
            "startingTimestamp": start.isoformat(),
            # A stream may begin before the first message of that time arrives.
            "startingOffsetsByTimestampStrategy": "latest",
        }
    if isinstance(start, int):
        if source.topic is None:
            raise InvalidConfig(
                f"start: {start} is an offset in one topic; write an offset for each "
                "topic, such as {/default/orders: 5}"
            )
        start = {source.topic: start}
    if isinstance(start, dict):
        start = msgspec.json.encode(start).decode()
    return {"startingOffsets": start}


def _position(text: str, now: datetime) -> PositionLike:
    try:
        return parse_position(text, now)
    except InvalidRequest as error:
        raise InvalidConfig(f"start: {error}; or offsets by topic") from None


def topic_options(source: Source, broker: str) -> ReadOptions:
    """
    Return the parsed options for reading *source*, which reads topics.

    Raises:
        InvalidConfig: An option is invalid, or contradicts another.
        InvalidName: The name of a topic is malformed.
    """
    mode = Mode.STREAM if source.is_stream else Mode.BATCH
    return parse_read_options(source_options(source, broker), mode)


def sink_options(sink: Sink, broker: str, directory: Path) -> dict[str, str]:
    """Return the options for writing *sink*; its own options take precedence."""
    is_topic = sink.format_name == "danube"
    found: dict[str, Scalar | None] = {
        "url": (sink.broker or broker) if is_topic else None,
        "topic": sink.topic,
        "path": None if sink.path is None else resolve(directory, sink.path),
    }
    if sink.table is not None:
        found[TABLE_OPTIONS["key"]] = _listed(sink.table.key)
        found[TABLE_OPTIONS["order"]] = _listed(sink.table.order) or None
        deleted = None if sink.table.delete is None else DELETED
        found[TABLE_OPTIONS["delete"]] = deleted
        truncated = None if sink.table.truncate is None else TRUNCATED
        found[TABLE_OPTIONS["truncate"]] = truncated
    return _texts(found, sink.options)


def names_topic(sink: Sink) -> bool:
    """Return whether the rows of *sink*, a topic, name the topics they are sent to."""
    options = {name.lower() for name in sink.options}
    return sink.topic is None and "topic" not in options


def resolve(directory: Path, text: str) -> str:
    """Return *text* as a path relative to *directory*; URLs stay unchanged."""
    return text if "://" in text else str(directory / text)


def _texts(
    found: Mapping[str, Scalar | None], options: Mapping[str, Scalar]
) -> dict[str, str]:
    """Return both as text; *options* take precedence, and names ignore case."""
    own = {name.lower() for name in options}
    kept = {
        name: value
        for name, value in found.items()
        if value is not None and name.lower() not in own
    }
    return {name: option_text(value) for name, value in (kept | dict(options)).items()}
