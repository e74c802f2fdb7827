"""
The columns of a DataFrame as Arrow types.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pydanube.model.errors import InvalidConfig


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
