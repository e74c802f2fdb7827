"""Tests of messages as rows of files."""

import re
from datetime import UTC, date, datetime
from types import SimpleNamespace

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pydanube_connect.sinks.pure.file_rows import (
    Column,
    ColumnType,
    Compression,
    FileEncoder,
    FileFormat,
    InvalidRow,
    MessagePart,
    column_problem,
)

COLUMNS = {
    "text": ColumnType.TEXT,
    "integer": ColumnType.INTEGER,
    "number": ColumnType.NUMBER,
    "boolean": ColumnType.BOOLEAN,
    "time": ColumnType.TIME,
    "date": ColumnType.DATE,
    "a b": Column(field="deep.list[1]", type=ColumnType.INTEGER),
    "key": Column(message=MessagePart.KEY),
}
VALUE = {
    "text": {"x": 1},
    "integer": -1,
    "number": 1,
    "boolean": True,
    "time": "2026-01-02T03:04:05+01:00",
    "date": "2026-01-02",
    "deep": {"list": [0, 7]},
}
ROW = {
    "text": '{"x":1}',
    "integer": -1,
    "number": 1.0,
    "boolean": True,
    "time": datetime(2026, 1, 2, 2, 4, 5, tzinfo=UTC),
    "date": date(2026, 1, 2),
    "a b": 7,
    "key": "k",
}


def message_of(value, key=b"k"):
    return SimpleNamespace(payload=msgspec.json.encode(value), key_bytes=key)


def test_values_have_the_types_of_their_columns():
    encoder = FileEncoder(FileFormat.PARQUET, Compression.SNAPPY, COLUMNS)
    rows = [encoder.row_of(message_of(each)) for each in (VALUE, {})]
    file = pq.ParquetFile(pa.BufferReader(encoder.encode(rows)))
    assert file.read().to_pylist() == [ROW, dict.fromkeys(ROW, None) | {"key": "k"}]
    assert file.metadata.row_group(0).column(0).compression == "SNAPPY"


def test_lines_are_objects_of_the_columns():
    encoder = FileEncoder(FileFormat.LINES, None, COLUMNS)
    data = encoder.encode([encoder.row_of(message_of(VALUE))])
    found = msgspec.json.decode(data)
    assert list(found) == list(ROW)
    assert found["time"].startswith("2026-01-02T03:04:05")


@pytest.mark.parametrize(
    "value",
    [
        {"integer": 2**63},
        {"integer": 1.5},
        {"integer": True},
        {"number": "1"},
        {"boolean": 1},
        {"time": 5},
        {"time": "noon"},
        {"date": "2026-02-30"},
    ],
    ids=str,
)
def test_a_value_of_another_type_names_its_column(value):
    encoder = FileEncoder(FileFormat.PARQUET, None, COLUMNS)
    with pytest.raises(InvalidRow, match=f"the column '{next(iter(value))}'"):
        encoder.row_of(message_of(value))


def test_a_key_that_is_no_text_is_no_text_column():
    encoder = FileEncoder(FileFormat.PARQUET, None, COLUMNS)
    with pytest.raises(InvalidRow, match="the key is not text"):
        encoder.row_of(message_of({}, b"\xff"))


@pytest.mark.parametrize(
    ("column", "problem"),
    [
        ({"": ColumnType.TEXT}, "has no name"),
        ({"a": Column(field="a..b")}, "a: .*should be"),
        ({"a": Column(field="a", message=MessagePart.KEY)}, "either"),
    ],
)
def test_a_column_is_a_field_or_a_part(column, problem):
    assert re.search(problem, column_problem(column))


def test_names_of_columns_are_names_of_fields():
    assert column_problem({"a-b c": ColumnType.TEXT, **COLUMNS}) is None
