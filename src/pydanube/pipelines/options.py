"""The options of Spark's readers and writers for sources and sinks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from pydanube.pipelines.spec import Read, Scalar, option_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydanube.pipelines.spec import Sink, Source


def read_of(source: Source) -> Read:
    """Return how *source* is read."""
    if source.read is not None:
        return source.read
    is_stream = source.is_topic or source.files is not None
    return Read.STREAM if is_stream else Read.TABLE


def format_of(source: Source) -> str:
    """Return Spark's format for *source*."""
    if source.is_topic:
        return "danube"
    return "jdbc" if source.jdbc is not None else source.format or ""


def source_options(source: Source, broker: str) -> dict[str, str]:
    """Return the options for reading *source*; its own options take precedence."""
    found: dict[str, Scalar] = {}
    if source.is_topic:
        found = _topic_options(source, broker)
    elif source.jdbc is not None:
        found["url"] = source.jdbc
        if source.table is not None:
            found["dbtable"] = source.table
        if source.query is not None:
            found["query"] = source.query
    return _texts(found, source.options)


def sink_options(sink: Sink, broker: str, directory: Path) -> dict[str, str]:
    """Return the options for writing *sink*; its own options take precedence."""
    found: dict[str, Scalar] = {}
    if sink.format_name == "danube":
        found["url"] = sink.broker or broker
    if sink.topic is not None:
        found["topic"] = sink.topic
    if sink.path is not None:
        found["path"] = resolve(directory, sink.path)
    return _texts(found, sink.options)


def resolve(directory: Path, text: str) -> str:
    """Return *text* as a path relative to *directory*; URLs stay unchanged."""
    return text if "://" in text else str(directory / text)


def _topic_options(source: Source, broker: str) -> dict[str, Scalar]:
    found: dict[str, Scalar] = {"url": source.broker or broker}
    topics = source.topics if source.topic is None else [source.topic]
    if topics is not None:
        found["subscribe"] = ",".join(topics)
    if source.pattern is not None:
        found["subscribePattern"] = source.pattern
    found["startingOffsets"] = _starting(source.start)
    if source.decode:
        found["decode"] = True
    if source.dead_letters is not None:
        found["onUndecodable"] = "null"
    return found


def _starting(start: str | dict[str, Any] | None) -> str:
    if isinstance(start, dict):
        return msgspec.json.encode(start).decode()
    return start or "earliest"


def _texts(
    found: Mapping[str, Scalar], options: Mapping[str, Scalar]
) -> dict[str, str]:
    """Return both as text; *options* take precedence, and names ignore case."""
    own = {name.lower() for name in options}
    kept = {name: value for name, value in found.items() if name.lower() not in own}
    return {name: option_text(value) for name, value in (kept | dict(options)).items()}
