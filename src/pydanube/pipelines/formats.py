"""What Spark's own formats need, as far as it is known before Spark is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydanube.spark import formats

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE_FORMATS = frozenset({"csv", "json", "orc", "parquet", "text", "xml"})
"""Written as files into a directory, exactly once by Spark's own log there."""

BATCH_ONLY = frozenset({"jdbc"})
"""Those that Spark writes as tables only, so each micro-batch is written as one."""

SCHEMALESS = frozenset({"text", "binaryfile"})
"""Files whose columns are always the same."""

OURS = frozenset(formats.SINKS)

SINKS = OURS | FILE_FORMATS | BATCH_ONLY | {"console", "memory", "noop"}
SOURCES = FILE_FORMATS | {"binaryfile", "danube", "jdbc", "rate", "rate-micro-batch"}
"""Those that are known; Spark may have more from elsewhere."""

NEEDS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(sorted(FILE_FORMATS), ("path",)),
    "jdbc": ("url", "dbtable"),
    "danube": ("topic",),
    "danube-delta": ("path",),
    "danube-iceberg": ("table",),
}
"""Options without which nothing can be written."""


def is_plain_stream(name: str, mode: str) -> bool:
    """
    Whether a stream can be written by the format itself.

    Otherwise each of its micro-batches is written as a table of its own: Spark
    refuses to stream updates into a Python data source, and any stream into JDBC.
    """
    return name not in BATCH_ONLY and not (name in OURS and mode == "update")
