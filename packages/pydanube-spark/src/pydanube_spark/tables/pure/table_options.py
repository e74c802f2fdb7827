"""
The options of ``danube-delta`` and ``danube-iceberg``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from pydanube.model.errors import InvalidConfig
from pydanube_spark.pure.sink import BatchIdentity
from pydanube_spark.pure.sink_options import (
    APP_ID,
    BATCH_ID,
    TRUNCATE_COLUMN,
    UNAVAILABLE,
    parse_sink_options,
)
from pydanube_spark.pure.upserts import INSERT_ONLY, UpsertColumns
from pydanube_spark.reader.pure.option_parsing import Option, ParsedOptions

MIB = 1024 * 1024
FILE_BYTES_MAX = 128 * MIB
"""The default size at which a file is closed."""
CLEAN_OLDER_THAN_MIN_S = 3600.0
"""The least age of unreferenced files that a sink deletes."""


_COMMON = (
    Option(
        "keyColumns",
        "",
        "Replace the row that has the same values in these columns, or insert it. "
        "Without this option all rows are inserted.",
    ),
    Option(
        "orderColumns",
        "",
        "The latest row of a key in a batch is the one with the greatest values in "
        "these columns, then the last one in the highest partition. It does not "
        "replace a row of the table that has greater values.",
    ),
    Option(
        "deleteColumn",
        "",
        "A boolean column that is not written: if it is true, the row with that key is "
        "deleted. Only with `keyColumns`.",
        instead_of=("deletewhen",),
    ),
    TRUNCATE_COLUMN,
    *UNAVAILABLE,
    Option(
        "mergeSchema",
        "false",
        "Add new columns to the table, and widen the numbers of an Iceberg table. "
        "Without this option both are errors. Other column types never change.",
    ),
    APP_ID,
    BATCH_ID,
    Option(
        "fileBytesMax", str(FILE_BYTES_MAX), "The approximate maximum size of a file."
    ),
    Option(
        "compactFiles",
        "",
        "Merge small files after a batch if there are this many or more, such as "
        "`100`. Every tenth batch of a query looks for them. Without this option the "
        "table is compacted only by `danube lakehouse compact`.",
    ),
    Option(
        "cleanOlderThan",
        "",
        "After each compaction, delete files that were replaced, or left by killed "
        "tasks, this long ago, such as `7d`. Only with `compactFiles`.",
    ),
)

DELTA_OPTIONS = (
    Option(
        "path",
        "",
        "The table: a directory or a URL such as s3://bucket/table.",
        is_required=True,
    ),
    Option(
        "partitionBy",
        "",
        "The columns that a new table is partitioned by, separated by commas.",
    ),
    *_COMMON,
    Option(
        "storage.*",
        "",
        "Options of the object store, such as `storage.aws_region`; the names are "
        "those of the package deltalake.",
    ),
)

ICEBERG_OPTIONS = (
    Option(
        "table",
        "",
        "The table as NAMESPACE.TABLE; a new namespace is created.",
        is_required=True,
    ),
    Option(
        "catalog.*",
        "",
        "The catalog's properties, such as `catalog.uri`; the names are those of the "
        "package pyiceberg. `catalog.name` names a catalog in its configuration file.",
    ),
    Option(
        "partitionBy",
        "",
        "The partition fields of a new table, separated by commas: columns, and "
        "`year(c)`, `month(c)`, `day(c)`, `hour(c)`, `bucket(16, c)`, "
        "`truncate(4, c)`.",
    ),
    *_COMMON,
)


class UndecodablePolicy(Enum):
    """How an export treats messages that cannot be decoded."""

    FAIL = "fail"
    NULL = "null"
    DEAD_LETTER = "dead-letter"


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One field of a table's partitioning."""

    column: str
    transform: str = "identity"
    """As in Iceberg, such as ``bucket[16]``."""

    def __str__(self) -> str:
        if self.transform == "identity":
            return self.column
        name, _, argument = self.transform.rstrip("]").partition("[")
        return (
            f"{name}({argument}, {self.column})"
            if argument
            else f"{name}({self.column})"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepPolicy:
    """When a sink maintains its table."""

    files_min: int
    """How many small files are merged at least."""
    clean_older_than_s: float | None = None
    """The age of unreferenced files that are deleted; None: they stay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The options for writing to a table of either kind."""

    partition_by: tuple[PartitionField, ...] = ()
    """Empty: as the existing table is partitioned; a new table is not partitioned."""
    merge_schema: bool = False
    file_bytes_max: int = FILE_BYTES_MAX
    upsert: UpsertColumns = INSERT_ONLY
    upkeep: UpkeepPolicy | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """The options of ``danube-delta`` or ``danube-iceberg``."""

    table: str
    connection: Mapping[str, str]
    """The options of the object store, or the properties of the catalog."""
    identity: BatchIdentity
    write: WriteOptions


def parse_delta(options: Mapping[str, str]) -> TableOptions:
    """
    Parse *options*, whose names may have any case.

    Raises:
        InvalidConfig: An option is unknown, missing or malformed.
    """
    given = parse_sink_options(options, DELTA_OPTIONS)
    found = _parse(given, given.text("path"), "storage.")
    for part in found.write.partition_by:
        if part.transform != "identity":
            raise InvalidConfig(
                f"partitionBy: Delta tables are partitioned by columns, not by {part}; "
                "add a column with this value"
            )
    return found


def parse_iceberg(options: Mapping[str, str]) -> TableOptions:
    """
    Parse *options*, whose names may have any case.

    Raises:
        InvalidConfig: An option is unknown, missing or malformed.
    """
    given = parse_sink_options(options, ICEBERG_OPTIONS)
    table = given.text("table")
    if len(table.split(".")) < 2 or not all(table.split(".")):
        raise InvalidConfig(f"table: must be NAMESPACE.TABLE, not {table!r}")
    return _parse(given, table, "catalog.")


def _parse(given: ParsedOptions, table: str, connection: str) -> TableOptions:
    return TableOptions(
        table=table,
        connection=given.family(connection),
        identity=BatchIdentity.parse(given),
        write=WriteOptions(
            partition_by=parse_partition_by(given.text("partitionBy")),
            merge_schema=given.boolean("mergeSchema"),
            file_bytes_max=given.count("fileBytesMax", FILE_BYTES_MAX),
            upsert=UpsertColumns.parse(given),
            upkeep=_upkeep(given),
        ),
    )


def _upkeep(given: ParsedOptions) -> UpkeepPolicy | None:
    files_min = given.count("compactFiles", None, smallest=2)
    older_than_s = None
    if "cleanOlderThan" in given:
        older_than_s = given.duration_s("cleanOlderThan", 0.0)
        if files_min is None:
            raise InvalidConfig("cleanOlderThan: only with compactFiles")
        if older_than_s < CLEAN_OLDER_THAN_MIN_S:
            raise InvalidConfig(
                f"cleanOlderThan: must be 1h or more, because younger files may be "
                f"about to be committed, not {given.text('cleanOlderThan')!r}"
            )
    if files_min is None:
        return None
    return UpkeepPolicy(files_min=files_min, clean_older_than_s=older_than_s)


def parse_partition_by(text: str) -> tuple[PartitionField, ...]:
    """
    Parse partition fields such as ``day(publish_time), bucket(16, key)``.

    Raises:
        InvalidConfig: *text* is malformed.
    """
    parts = [part for part in re.split(r",(?![^()]*\))", text) if part.strip()]
    fields = tuple(_partition_field(part.strip()) for part in parts)
    if len(set(fields)) != len(fields):
        raise InvalidConfig(f"partitionBy: {text!r} has the same field twice")
    return fields


_TIME_TRANSFORMS = {"year", "month", "day", "hour"}


def _partition_field(text: str) -> PartitionField:
    if re.fullmatch(r"[^\s(),]+", text):
        return PartitionField(text)
    matched = re.fullmatch(r"(\w+)\(\s*([^(),]+?)\s*(?:,\s*([^(),]+?)\s*)?\)", text)
    if matched is not None:
        name, first, second = matched[1].lower(), matched[2], matched[3]
        plain = name.removesuffix("s")
        if plain in _TIME_TRANSFORMS and second is None:
            return PartitionField(first, plain)
        if name in ("bucket", "truncate") and second is not None:
            # Iceberg and Spark order the arguments differently.
            count, column = (first, second) if first.isdecimal() else (second, first)
            if count.isdecimal() and int(count) > 0:
                return PartitionField(column, f"{name}[{int(count)}]")
    raise InvalidConfig(
        f"partitionBy: {text!r} is neither a column nor year(c), month(c), day(c), "
        "hour(c), bucket(16, c) or truncate(4, c)"
    )
