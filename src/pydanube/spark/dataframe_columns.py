"""
The columns of a DataFrame as a sink sees them: Arrow types, and who is missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql.pandas.types import to_arrow_schema

from pydanube.model.errors import InvalidConfig
from pydanube.model.suggestions import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql.types import StructType


def columns_of(schema: StructType) -> pa.Schema:
    """
    *schema* in Arrow's words, with times in UTC.

    Raises:
        InvalidConfig: There are no columns, or Arrow has no type for one.
    """
    if not len(schema):
        raise InvalidConfig("the DataFrame has no columns")
    try:
        return to_arrow_schema(schema, timezone="UTC")
    except PySparkTypeError as error:
        raise InvalidConfig(f"a column cannot be written: {error}") from error


def arrow_schema(schema: StructType) -> pa.Schema:
    """
    The same with every column nullable.

    Raises:
        InvalidConfig: See ``columns_of``.
    """
    return pa.schema([pa.field(each.name, each.type) for each in columns_of(schema)])


def missing_columns(option: str, wanted: Iterable[str], there: pa.Schema) -> list[str]:
    """What is wrong with the names in *option*, which must be columns."""
    return [
        f"{option}: the DataFrame has no column {name!r}{near(name, there.names)}"
        for name in wanted
        if name not in there.names
    ]


def near(name: str, names: Iterable[str]) -> str:
    """A suggestion for a wrong *name*, or else what there is."""
    return did_you_mean(name, names) or f"; it has {', '.join(names)}"
