"""Tests of the checks of ``danube-delta``."""

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from pydanube.model.errors import InvalidRequest
from pydanube.spark.formats import check_sink
from pydanube.tables.delta import DeltaDataSource
from support.lake_tables import options, table_in

ROWS = StructType([StructField("n", LongType())])
OTHERS = StructType([StructField("m", LongType())])


def test_missing_table_accepts_any_schema(tmp_path):
    assert check_sink("danube-delta", {"path": str(tmp_path / "table")}, ROWS) == []
    assert not (tmp_path / "table").exists()


def test_incompatible_columns_are_reported(tmp_path):
    table = table_in(tmp_path, "delta")
    table.prepare(pa.schema([("n", pa.int64())]), options())
    given = {"path": table.name}
    assert check_sink("danube-delta", given, ROWS) == []
    [problem] = check_sink("danube-delta", given, OTHERS)
    assert "no columns m" in problem
    assert check_sink("danube-delta", given | {"mergeSchema": "true"}, OTHERS) == []


def test_options_are_checked_first():
    assert check_sink("danube-delta", {}, ROWS) == ["the option 'path' is required"]


def test_reading_is_refused():
    with pytest.raises(InvalidRequest, match="only writes"):
        DeltaDataSource({}).schema()
