"""
The names of the data that a pipeline reads and writes, for OpenLineage.  Pure.

A dataset has a namespace, which is where it is, and a name, as the naming rules of
OpenLineage say for files and databases.  A topic has the address of its broker.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from pydanube_spark.pipelines.options import resolve, sink_options, source_options
from pydanube_spark.pipelines.pure.spec import Sink, Source, Spec

DEFAULT_PORT = 6651


@dataclass(frozen=True, slots=True, order=True)
class Dataset:
    """The name of a topic, a table or files."""

    namespace: str
    name: str


def datasets_read(spec: Spec, broker: str, directory: Path) -> list[Dataset]:
    """Return the datasets of the sources of *spec*, sorted."""
    found = {
        dataset
        for source in spec.sources.values()
        for dataset in _of_source(source, broker, directory)
    }
    return sorted(found)


def datasets_written(spec: Spec, broker: str, directory: Path) -> list[Dataset]:
    """Return the datasets of the sinks and dead letters of *spec*, sorted."""
    sinks = dict(spec.sinks)
    for name, source in spec.sources.items():
        if source.dead_letters is not None:
            sinks[f"{name}.dead_letters"] = source.dead_letters
    return sorted(
        {_of_sink(name, sink, broker, directory) for name, sink in sinks.items()}
    )


def _of_source(source: Source, broker: str, directory: Path) -> Iterator[Dataset]:
    options = _lowered(source_options(source, broker))
    if source.is_topic:
        names = options.get("subscribe") or options.get("subscribepattern")
        for name in (names or options.get("assign", "")).split(","):
            yield _topic(options["url"], name)
    elif source.files is not None:
        yield _file(resolve(directory, source.files))
    elif source.jdbc is not None:
        yield _database(source.jdbc, source.table or "query")
    else:
        yield Dataset(source.format_name, options.get("path", source.format_name))


def _of_sink(name: str, sink: Sink, broker: str, directory: Path) -> Dataset:
    options = _lowered(sink_options(sink, broker, directory))
    table = options.get("table") or options.get("dbtable")
    if sink.python is not None:
        return Dataset("python", sink.python)
    if sink.format_name == "danube":
        return _topic(options["url"], options.get("topic", name))
    if "path" in options:
        return _file(options["path"])
    if "url" in options:
        return _database(options["url"], table or "")
    return Dataset(sink.format_name, table or name)


def _topic(url: str, name: str) -> Dataset:
    first = url.split(",", maxsplit=1)[0]
    parts = urlsplit(first if "://" in first else f"danube://{first}")
    address = f"{parts.hostname}:{parts.port or DEFAULT_PORT}"
    return Dataset(f"danube://{address}", name.strip())


def _file(path: str) -> Dataset:
    scheme, separator, rest = path.partition("://")
    if not separator or scheme == "file":
        return Dataset("file", rest if separator else path)
    bucket, _, name = rest.partition("/")
    return Dataset(f"{scheme}://{bucket}", name or "/")


def _database(url: str, table: str) -> Dataset:
    """Return a table of the database at *url*, without its user and password."""
    parts = urlsplit(url.removeprefix("jdbc:"))
    port = f":{parts.port}" if parts.port else ""
    database = parts.path.strip("/").replace("/", ".")
    name = ".".join(each for each in (database, table) if each)
    return Dataset(f"{parts.scheme}://{parts.hostname or ''}{port}", name or "/")


def _lowered(options: dict[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in options.items()}
