"""From the words of a file to the options of Spark's readers and writers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from pydanube.pipelines.spec import Read, Scalar, option_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydanube.pipelines.spec import Sink, Source


def read_of(source: Source) -> Read:
    """How *source* is read if it does not say so itself."""
    if source.read is not None:
        return source.read
    is_stream = source.is_topic or source.files is not None
    return Read.STREAM if is_stream else Read.TABLE


def format_of(source: Source) -> str:
    """The format that Spark reads *source* with."""
    if source.is_topic:
        return "danube"
    return "jdbc" if source.jdbc is not None else source.format or ""


def source_options(source: Source, broker: str) -> dict[str, str]:
    """The options that *source* is read with; its own options win."""
    said: dict[str, Scalar] = {}
    if source.is_topic:
        said = _topic_options(source, broker)
    elif source.jdbc is not None:
        said["url"] = source.jdbc
        if source.table is not None:
            said["dbtable"] = source.table
        if source.query is not None:
            said["query"] = source.query
    return _texts(said, source.options)


def sink_options(sink: Sink, broker: str, directory: Path) -> dict[str, str]:
    """The options that *sink* is written with; its own options win."""
    said: dict[str, Scalar] = {}
    if sink.format_name == "danube":
        said["url"] = sink.broker or broker
    if sink.topic is not None:
        said["topic"] = sink.topic
    if sink.path is not None:
        said["path"] = resolve(directory, sink.path)
    return _texts(said, sink.options)


def resolve(directory: Path, text: str) -> str:
    """*text* as an absolute path, seen from *directory*; a URL stays as it is."""
    return text if "://" in text else str(directory / text)


def _topic_options(source: Source, broker: str) -> dict[str, Scalar]:
    said: dict[str, Scalar] = {"url": source.broker or broker}
    topics = source.topics if source.topic is None else [source.topic]
    if topics is not None:
        said["subscribe"] = ",".join(topics)
    if source.pattern is not None:
        said["subscribePattern"] = source.pattern
    said["startingOffsets"] = _starting(source.start)
    if source.decode:
        said["decode"] = True
    if source.dead_letters is not None:
        said["onUndecodable"] = "null"
    return said


def _starting(start: str | dict[str, Any] | None) -> str:
    if isinstance(start, dict):
        return msgspec.json.encode(start).decode()
    return start or "earliest"


def _texts(said: Mapping[str, Scalar], options: Mapping[str, Scalar]) -> dict[str, str]:
    """Both as texts; an option replaces what was said, whatever its case."""
    own = {name.lower() for name in options}
    kept = {name: value for name, value in said.items() if name.lower() not in own}
    return {name: option_text(value) for name, value in (kept | dict(options)).items()}
