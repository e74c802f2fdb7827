"""
The columns of a DataFrame as Arrow types.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pydanube.model.errors import InvalidConfig


def columns_of(schema: StructType) -> pa.Schema:
    """
    Convert *schema* to Arrow types, with times in UTC.

    Raises:
        InvalidConfig: There are no columns, Arrow has no type for a column, or columns
            or fields of a struct have the same name.
    """
    if not len(schema):
        raise InvalidConfig("the DataFrame has no columns")
    try:
        found = to_arrow_schema(schema, timezone="UTC")
    except PySparkTypeError as error:
        raise InvalidConfig(f"a column cannot be written: {error}") from error
    for path, name in _repeated_names(found, ""):
        where = f"the column {path} has several fields" if path else "several columns"
        raise InvalidConfig(
            f"{where} with the name {name!r}, of which readers would see one: rename "
            "all but one"
        )
    return found


def _repeated_names(fields: Iterable[pa.Field], path: str) -> Iterator[tuple[str, str]]:
    """Yield the names that several of *fields* have, and the path of their struct."""
    fields = list(fields)
    for name, count in Counter(each.name for each in fields).items():
        if count > 1:
            yield path, name
    for each in fields:
        inner, at = each.type, f"{path}.{each.name}" if path else each.name
        parts = [inner.field(index) for index in range(inner.num_fields)]
        yield from _repeated_names(parts, at)


def arrow_schema(schema: StructType) -> pa.Schema:
    """
    Convert *schema* to Arrow types, with every column nullable.

    Raises:
        InvalidConfig: See ``columns_of``.
    """
    return pa.schema([pa.field(each.name, each.type) for each in columns_of(schema)])
