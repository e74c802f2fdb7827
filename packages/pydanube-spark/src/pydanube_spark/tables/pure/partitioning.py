"""
Division of batches by the partitions of a table.  Pure.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types  # noqa: PLR0402  # pa has no attribute of the name.

from pydanube.model.errors import InvalidRequest
from pydanube_spark.tables.pure.schema_evolution import plain_type
from pydanube_spark.tables.pure.table_options import PartitionField

PartitionValues = tuple[Any, ...]
"""The Python value of each partition field."""

_TIME_TRANSFORMS = {
    "year": pc.years_between,
    "day": pc.days_between,
    "hour": pc.hours_between,
}


def split(
    batch: pa.RecordBatch, keys: Sequence[Any]
) -> Iterator[tuple[PartitionValues, Any]]:
    """
    Yield the rows of *batch* with equal *keys*, which has an array for each field.

    Ordering: Rows with equal keys keep their order.
    """
    if not batch.num_rows:
        return
    if not keys:
        yield (), batch
        return
    names = [str(index) for index in range(len(keys))]
    rows = pa.array(range(batch.num_rows), pa.int64())
    table = pa.table([*keys, rows], names=[*names, "row"])
    groups = table.group_by(names, use_threads=False).aggregate([("row", "list")])
    if groups.num_rows == 1:
        yield _values(groups, names, 0), batch
        return
    members = groups.column("row_list").combine_chunks()
    for index in range(groups.num_rows):
        yield _values(groups, names, index), batch.take(members[index].values)


def apply_transform(
    column: Any, transform: str, apply: Callable[[Any], Any] | None = None
) -> Any:
    """
    Return *column* after *transform*, which is written as in Iceberg.

    *apply* transforms a single value; ``bucket`` and ``truncate`` need it.
    """
    if transform == "identity":
        return column
    if transform == "month":
        years = apply_transform(column, "year")
        months = pc.add(pc.multiply(years, 12), pc.subtract(pc.month(column), 1))
        return months.cast(pa.int32())
    if transform in _TIME_TRANSFORMS:
        epoch = pa.scalar(0, column.type)
        return _TIME_TRANSFORMS[transform](epoch, column).cast(pa.int32())
    assert apply is not None
    return _by_value(column, apply)


def check_partition_by(
    rows: pa.Schema,
    wanted: Sequence[PartitionField],
    has: Sequence[PartitionField] | None,
) -> None:
    """
    Check that *rows* can be partitioned as *wanted*, or as the table *has* it.

    *has* is None for a new table, *wanted* is empty for the table's own partitioning.

    Raises:
        InvalidRequest: A column is missing or does not support its transform, or the
            table is partitioned in another way.
    """
    for part in wanted:
        if part.column not in rows.names:
            raise InvalidRequest(
                f"partitionBy: the rows have no column {part.column!r}"
            )
        column = plain_type(rows.field(part.column).type)
        check_transform(column, part.transform, part.column)
    if has is None:
        return
    if wanted and list(wanted) != list(has):
        raise InvalidRequest(
            "partitionBy: the table is partitioned by "
            f"{', '.join(map(str, has)) or 'nothing'}, not by "
            f"{', '.join(map(str, wanted))}; omit the option"
        )
    lacking = [part.column for part in has if part.column not in rows.names]
    if lacking:
        raise InvalidRequest(
            f"the rows lack the table's partition columns {', '.join(lacking)}"
        )


def check_transform(column: Any, transform: str, name: str) -> None:
    """
    Check that a column *name* of the type *column* supports *transform*.

    Raises:
        InvalidRequest: It does not.
    """
    is_time = types.is_timestamp(column) or types.is_date32(column)
    is_whole = types.is_integer(column) or types.is_decimal(column)
    is_text = types.is_string(column) or types.is_binary(column)
    match re.sub(r"\[.*", "", transform):
        case "identity":
            is_fine = is_time or is_whole or is_text or types.is_boolean(column)
        case "hour":
            is_fine = types.is_timestamp(column)
        case "year" | "month" | "day":
            is_fine = is_time
        case "bucket":
            is_fine = is_time or is_whole or is_text
        case _:
            is_fine = is_whole or is_text
    if not is_fine:
        raise InvalidRequest(
            f"partitionBy: the column {name} is {column}, which does not support "
            f"{transform}"
        )


def check_delta_partition(column: Any, name: str) -> None:
    """
    Check that all writers and readers agree on the text of values of *column*.

    Raises:
        InvalidRequest: They do not.
    """
    if types.is_binary(column):
        remedy = "hex(…) or CAST(… AS STRING)"
    elif types.is_decimal(column):
        remedy = "CAST(… AS STRING)"
    else:
        return
    raise InvalidRequest(
        f"partitionBy: the column {name} is {column}, and programs disagree on the "
        f"text of such values in the log of a Delta table; partition by {remedy}"
    )


def delta_text(value: str | int | datetime.date | None) -> str | None:
    """Return the partition *value* as text in a Delta table's log."""
    match value:
        case None | "":
            # Delta does not distinguish them.
            return None
        case bool():
            return "true" if value else "false"
        case datetime.datetime():
            # Times with a zone are in UTC.
            plain = value.replace(tzinfo=None)
            return plain.isoformat(sep=" ", timespec="microseconds")
        case datetime.date():
            return value.isoformat()
        case str() | int():
            return str(value)


def _values(groups: Any, names: list[str], index: int) -> PartitionValues:
    return tuple(groups.column(name)[index].as_py() for name in names)


def _by_value(column: Any, apply: Callable[[Any], Any]) -> Any:
    """Apply *apply* to each distinct value of *column*."""
    if types.is_date32(column.type):
        column = column.cast(pa.int32())
    elif types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    encoded = column.dictionary_encode()
    values = [apply(value) for value in encoded.dictionary.to_pylist()]
    return pa.array(values).take(encoded.indices) if values else column.cast(pa.int32())
