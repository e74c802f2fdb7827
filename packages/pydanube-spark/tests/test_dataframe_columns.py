"""The columns of a DataFrame as a sink sees them."""

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import (
    ArrayType,
    LongType,
    MapType,
    StructType,
    TimestampType,
    YearMonthIntervalType,
)

from pydanube.model.errors import InvalidConfig
from pydanube_spark.dataframe_columns import arrow_schema


def test_every_column_may_be_null_and_times_are_utc():
    schema = StructType().add("id", LongType(), nullable=False)
    found = arrow_schema(schema.add("at", TimestampType()))
    assert found == pa.schema({"id": pa.int64(), "at": pa.timestamp("us", "UTC")})


def test_a_table_without_columns_is_refused():
    with pytest.raises(InvalidConfig, match="no columns"):
        arrow_schema(StructType())


def test_names_that_occur_twice_are_refused():
    """JSON and jsonb would keep one of the values."""
    twice = StructType().add("a", LongType()).add("a", LongType())
    with pytest.raises(InvalidConfig, match="several columns with the name 'a'"):
        arrow_schema(twice)
    nested = StructType().add("s", MapType(LongType(), ArrayType(twice)))
    with pytest.raises(InvalidConfig, match=r"the column s\S* has several fields"):
        arrow_schema(nested)
    # Names that differ in case are two names.
    arrow_schema(StructType().add("a", LongType()).add("A", LongType()))


def test_a_column_that_arrow_has_no_type_for_is_refused():
    schema = StructType().add("length", YearMonthIntervalType())
    with pytest.raises(InvalidConfig, match="cannot be written"):
        arrow_schema(schema)
