"""Tests of request bodies."""

import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pydanube.model.errors import InvalidConfig
from pydanube.sinks.http_bodies import FORMATS, idempotency_key
from pydanube.spark.sink import BatchKey, TaskKey

ROWS = pa.record_batch({"id": [1, 2, 3], "text": ["a", None, "b\n"]})
WANTED = [
    {"id": 1, "text": "a"},
    {"id": 2, "text": None},
    {"id": 3, "text": "b\n"},
]
PIECE = TaskKey(BatchKey("app", 7, "query"), 3, 99)


def bodies(name, rows_max=1000, bytes_max=1000):
    found = FORMATS[name]
    chunks = list(found.chunks([ROWS.slice(0, 1), ROWS.slice(1)], rows_max, bytes_max))
    return [found.body(chunk) for chunk in chunks]


def test_json_is_an_array_of_objects():
    [body] = bodies("json")
    assert json.loads(body) == WANTED


def test_ndjson_has_one_object_per_line():
    [body] = bodies("ndjson")
    assert body.endswith(b"\n")
    assert [json.loads(line) for line in body.splitlines()] == WANTED


def test_arrow_is_a_stream():
    [body] = bodies("arrow")
    assert pa.ipc.open_stream(body).read_all().to_pylist() == WANTED


@pytest.mark.parametrize("name", ["json", "ndjson", "arrow"])
def test_single_row_has_no_enclosing_array(name):
    found = FORMATS[name]
    [chunk] = found.chunks([ROWS], 10, 1000)
    row = found.rows(chunk.slice(1, 1))[0].as_py()
    if name == "arrow":
        assert pa.ipc.open_stream(row).read_all().to_pylist() == [WANTED[1]]
    else:
        assert json.loads(row) == WANTED[1]


@settings(deadline=None)
@given(st.lists(st.text(max_size=20), min_size=1), st.integers(1, 200))
def test_body_fills_its_size_limit(texts, bytes_max):
    found = FORMATS["ndjson"]
    rows = pa.record_batch({"t": pa.array(texts, pa.string())})
    sent = [found.body(chunk) for chunk in found.chunks([rows], 1000, bytes_max)]
    assert [
        json.loads(x)["t"] for body in sent for x in body.split(b"\n") if x
    ] == texts
    for body in sent:
        assert len(body) <= bytes_max or body.count(b"\n") == 1


def test_unsupported_type_is_reported_for_json_only():
    schema = pa.schema({"x": pa.duration("us")})
    assert len(FORMATS["json"].problems(schema)) == 1
    assert FORMATS["arrow"].problems(schema) == []


def test_idempotency_key_depends_on_position_and_content():
    key = idempotency_key(PIECE, 5, b"rows")
    assert key.startswith("app:7:3:5:")
    assert key == idempotency_key(PIECE, 5, b"rows")
    assert key != idempotency_key(PIECE, 5, b"other rows")
    with pytest.raises(InvalidConfig, match="printable ASCII"):
        idempotency_key(TaskKey(BatchKey("a\r\nb", 0, ""), 0, 0), 0, b"")
