"""
The columns of a DataFrame as Arrow types.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pydanube.model.errors import InvalidConfig
from pydanube.model.suggestions import did_you_mean


def columns_of(schema: StructType) -> pa.Schema:
    """
    Convert *schema* to Arrow types, with times in UTC.

    Raises:
        InvalidConfig: There are no columns, or Arrow has no type for a column.
    """
    if not len(schema):
        raise InvalidConfig("the DataFrame has no columns")
    try:
        return to_arrow_schema(schema, timezone="UTC")
    except PySparkTypeError as error:
        raise InvalidConfig(f"a column cannot be written: {error}") from error


def arrow_schema(schema: StructType) -> pa.Schema:
    """
    Convert *schema* to Arrow types, with every column nullable.

    Raises:
        InvalidConfig: See ``columns_of``.
    """
    return pa.schema([pa.field(each.name, each.type) for each in columns_of(schema)])


def missing_columns(option: str, wanted: Iterable[str], there: pa.Schema) -> list[str]:
    """Return an error message for each name in *option* that is not a column."""
    known = there.names
    return [
        f"{option}: the DataFrame has no column {name!r}"
        + (did_you_mean(name, known) or f"; it has {', '.join(known)}")
        for name in wanted
        if name not in known
    ]
