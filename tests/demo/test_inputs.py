"""Tests of the input of the demo."""

import json

import pyarrow as pa
import pyarrow.compute as pc

from examples.demo.inputs import (
    POSITION_MODULUS,
    batches_of,
    fingerprint,
    library_path,
    read_source,
    sample,
    source_files,
    telemetry_batch,
)
from pydanube.model.batch import conform


def test_file_is_its_lines_joined_by_newlines():
    path = library_path() / "json" / "decoder.py"
    found = read_source(path)
    assert found.name == "json/decoder.py"
    assert b"\n".join(found.lines) == path.read_bytes()
    assert found.byte_count == path.stat().st_size


def test_small_input_is_part_of_the_standard_library():
    small, whole = source_files(small=True), source_files(small=False)
    assert 10 < len(small) < len(whole)
    assert set(small) <= set(whole)
    assert not any("site-packages" in path.parts for path in whole)


def test_batches_have_every_line_in_order_keyed_by_file():
    files = [read_source(path) for path in source_files(small=True)[:5]]
    table = pa.Table.from_batches(batches_of(files, 100))
    assert all(batch.num_rows <= 100 for batch in batches_of(files, 100))
    assert table.column("payload").to_pylist() == [
        line for file in files for line in file.lines
    ]
    assert pc.count_distinct(table.column("key")).as_py() == len(files)
    assert conform(table)


def test_fingerprint_changes_with_content_and_order():
    payloads = [b"a", b"b", b"c"]
    whole = fingerprint(payloads, [0, 1, 2])
    assert whole == fingerprint([b"a"], [0]) + fingerprint([b"b", b"c"], [1, 2])
    assert whole != fingerprint(payloads, [0, 2, 1])
    assert whole != fingerprint([b"a", b"b"], [0, 1])
    assert whole != fingerprint([*payloads, b"c"], [0, 1, 2, 2])
    assert whole != fingerprint([b"a", b"b", b"d"], [0, 1, 2])
    assert fingerprint([b"a"], [POSITION_MODULUS]) == fingerprint([b"a"], [0])


def test_telemetry_has_counters_only():
    for found in sample():
        assert set(found) == {"source", "name", "cpu_s", "memory_bytes"}


def test_sample_is_json_keyed_by_source():
    found = sample()
    batch = telemetry_batch(found)
    assert [json.loads(each) for each in batch.column("payload").to_pylist()] == found
    assert batch.column("key")[0].as_py() == found[0]["source"].encode()
    assert conform(batch)
