"""Tests of the checks of ``danube-delta``."""

import pyarrow as pa
import pytest
from pyspark.sql.types import BooleanType, LongType, StructField, StructType

from pydanube.model.errors import InvalidConfig, InvalidRequest
from pydanube_spark.formats import check_sink
from pydanube_spark.tables.delta import DeltaDataSource
from support.drivers.lake_tables import options, table_in

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


CHANGES = StructType([*ROWS, StructField("gone", BooleanType())])


def test_delete_column_is_staged_and_not_stored(tmp_path):
    given = {"path": str(tmp_path / "table"), "keyColumns": "n"}
    given["deleteColumn"] = "gone"
    assert check_sink("danube-delta", given, CHANGES) == []
    sink, _ = DeltaDataSource(given).sink(CHANGES)
    assert sink.location.schema.names == ["n", "gone"]
    assert sink.table.schema().names == ["n"]


def test_keys_are_refused_if_all_rows_are_overwritten(tmp_path):
    source = DeltaDataSource({"path": str(tmp_path / "table"), "keyColumns": "n"})
    with pytest.raises(InvalidConfig, match="all rows are overwritten"):
        source.writer(ROWS, overwrite=True)


def test_unsuitable_keys_and_conditions_are_reported():
    given = {"path": "table", "keyColumns": "m"}
    [problem] = check_sink("danube-delta", given, ROWS)
    assert problem.startswith("keyColumns: the DataFrame has no column 'm'")
    [problem] = check_sink("danube-delta", given | {"deleteWhen": "n > 1"}, ROWS)
    assert problem == "unknown option 'deleteWhen'; use 'deleteColumn'"
