"""The columns of a DataFrame as a sink sees them."""

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import LongType, StructType, TimestampType, YearMonthIntervalType

from pydanube.model.errors import InvalidConfig
from pydanube_spark.dataframe_columns import arrow_schema


def test_every_column_may_be_null_and_times_are_utc():
    schema = StructType().add("id", LongType(), nullable=False)
    found = arrow_schema(schema.add("at", TimestampType()))
    assert found == pa.schema({"id": pa.int64(), "at": pa.timestamp("us", "UTC")})


def test_a_table_without_columns_is_refused():
    with pytest.raises(InvalidConfig, match="no columns"):
        arrow_schema(StructType())


def test_a_column_that_arrow_has_no_type_for_is_refused():
    schema = StructType().add("length", YearMonthIntervalType())
    with pytest.raises(InvalidConfig, match="cannot be written"):
        arrow_schema(schema)
