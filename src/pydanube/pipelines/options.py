"""The options of Spark's readers and writers for sources and sinks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from pydanube.pipelines.spec import Scalar, Sink, Source, option_text
from pydanube.reader.read_options import Mode, ReadOptions, parse_read_options


def source_options(source: Source, broker: str) -> dict[str, str]:
    """Return the options for reading *source*; its own options take precedence."""
    found: dict[str, Scalar | None] = {}
    if source.is_topic:
        topics = source.topics if source.topic is None else [source.topic]
        start = source.start
        if isinstance(start, dict):
            start = msgspec.json.encode(start).decode()
        found = {
            "url": source.broker or broker,
            "subscribe": None if topics is None else ",".join(topics),
            "subscribePattern": source.pattern,
            "startingOffsets": start or "earliest",
            "decode": source.decode or None,
            "onUndecodable": None if source.dead_letters is None else "null",
        }
    elif source.jdbc is not None:
        found = {"url": source.jdbc, "dbtable": source.table, "query": source.query}
    return _texts(found, source.options)


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
    return _texts(found, sink.options)


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
