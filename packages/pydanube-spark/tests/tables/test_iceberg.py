"""Tests of the checks of ``danube-iceberg``."""

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from pydanube.model.errors import InvalidRequest
from pydanube_spark.formats import check_sink
from pydanube_spark.tables.iceberg import IcebergDataSource
from support.drivers.lake_tables import catalog_of, options, table_in

pytestmark = pytest.mark.slow

ROWS = StructType([StructField("n", LongType())])
OTHERS = StructType([StructField("m", LongType())])


def given(tmp_path):
    catalog = {f"catalog.{k}": v for k, v in catalog_of(tmp_path).items()}
    return {"table": "db.table", **catalog}


def test_missing_table_accepts_any_schema(tmp_path):
    assert check_sink("danube-iceberg", given(tmp_path), ROWS) == []
    assert table_in(tmp_path, "iceberg").schema() is None


def test_incompatible_columns_are_reported(tmp_path):
    table_in(tmp_path, "iceberg").prepare(pa.schema([("n", pa.int64())]), options())
    [problem] = check_sink("danube-iceberg", given(tmp_path), OTHERS)
    assert "no columns m" in problem
    [problem] = check_sink(
        "danube-iceberg", given(tmp_path) | {"partitionBy": "day(n)"}, ROWS
    )
    assert "the column n is int64" in problem


def test_reading_is_refused():
    with pytest.raises(InvalidRequest, match="only writes"):
        IcebergDataSource({}).schema()
