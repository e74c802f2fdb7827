"""Facts about Spark's formats, without starting Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pydanube_spark import formats
from pydanube_spark.pure.write_options import parse_write_options
from pydanube_spark.tables.pure.table_options import parse_delta, parse_iceberg

FILE_FORMATS = frozenset({"csv", "json", "orc", "parquet", "text", "xml"})
"""File formats, which Spark writes exactly once with its log in the directory."""

BATCH_ONLY = frozenset({"jdbc"})
"""Formats without streaming writes; each micro-batch is written as a table."""

SCHEMALESS = frozenset({"text", "binaryfile"})
"""File formats whose columns are always the same."""

OURS = frozenset(formats.SINKS)

SINKS = OURS | FILE_FORMATS | BATCH_ONLY | {"console", "memory", "noop"}
SOURCES = FILE_FORMATS | {"binaryfile", "danube", "jdbc", "rate", "rate-micro-batch"}
"""The known formats; jars may add more."""

NEEDS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(sorted(FILE_FORMATS), ("path",)),
    "jdbc": ("url", "dbtable"),
    "danube": ("topic",),
}
"""The required options of formats, besides those that this package declares."""

TARGETS: Mapping[str, str] = {
    "danube": "topic",
    "danube-clickhouse": "table",
    "danube-delta": "path",
    "danube-iceberg": "table",
    "danube-lancedb": "table",
    "danube-postgres": "table",
    "jdbc": "dbtable",
    **dict.fromkeys(sorted(FILE_FORMATS), "path"),
}
"""The option with the target of each format that can have another one."""

PARSERS: Mapping[str, Callable[[Mapping[str, str]], object]] = {
    "danube": parse_write_options,
    "danube-delta": parse_delta,
    "danube-iceberg": parse_iceberg,
}
"""The functions that check the options of formats without columns."""


def has_option(name: str, option: str) -> bool:
    """Return whether *name* is a format of this package with *option*."""
    return name in OURS and any(
        each.name == option for each in formats.declared_options(name)
    )


def required_options(name: str) -> tuple[str, ...]:
    """Return the required options of the format *name*."""
    declared = formats.declared_options(name) if name in OURS else ()
    needed = [each.name for each in declared if each.is_required]
    return (*NEEDS.get(name.lower(), ()), *needed)


def is_plain_stream(name: str, mode: str) -> bool:
    """
    Return whether Spark can write a stream with this format and output mode.

    Otherwise each micro-batch is written as a table: Spark cannot stream updates into a
    Python data source, nor any stream into JDBC.
    """
    return name not in BATCH_ONLY and not (name in OURS and mode == "update")
