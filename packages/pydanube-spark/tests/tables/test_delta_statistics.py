"""Tests of the file statistics in a Delta table's log."""

import datetime as dt
import io

import pyarrow as pa
import pyarrow.parquet as pq

from pydanube_spark.tables.pure import delta_statistics


def collect(table, rows=2):
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=rows)
    return delta_statistics.collect(pq.read_metadata(sink))


def test_minima_and_maxima_span_all_row_groups():
    noon = dt.datetime(2024, 2, 29, 12, 0, 0, 123456, tzinfo=dt.UTC)
    found = collect(
        pa.table(
            {
                "n": pa.array([3, None, 1, 2]),
                "t": pa.array([noon, None, None, None], pa.timestamp("us", "UTC")),
                "d": pa.array([dt.date(2024, 2, 29)] * 4),
                "s": ["b", "a", "c", "a"],
            }
        )
    )
    assert found["numRecords"] == 4
    assert found["nullCount"] == {"n": 1, "t": 3, "d": 0, "s": 0}
    assert found["minValues"]["n"] == 1
    assert found["maxValues"]["n"] == 3
    assert found["minValues"]["t"] == "2024-02-29T12:00:00.123456Z"
    assert found["maxValues"]["d"] == "2024-02-29"
    assert (found["minValues"]["s"], found["maxValues"]["s"]) == ("a", "c")


def test_inexact_statistics_are_left_out():
    found = collect(
        pa.table(
            {
                "real": [1.0, float("nan")],
                "long": ["x" * 100, "a"],
                "bytes": [b"a", b"b"],
                "yes": [True, False],
                "nothing": pa.array([None, None], pa.int64()),
                "inner": [{"x": 1}, {"x": 2}],
                "names": [["a"], []],
            }
        )
    )
    assert found["minValues"] == {}
    assert found["maxValues"] == {}
    assert found["nullCount"] == {
        **dict.fromkeys(("real", "long", "bytes", "yes"), 0),
        "nothing": 2,
    }
