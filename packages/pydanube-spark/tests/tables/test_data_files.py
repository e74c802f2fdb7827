"""Tests of the data files that tasks write."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pydanube.model.errors import InvalidRequest
from pydanube_spark.tables.data_files import DataFile, FileWriter, conform, write_files


class Kept(io.BytesIO):
    """A file whose bytes stay when it is closed."""

    def close(self):
        self.content = self.getvalue()
        super().close()


class MemoryPlace:
    """Files in a dictionary."""

    def __init__(self, schema, partition_by=()):
        self.schema = schema
        self.partition_by = partition_by
        self.files = {}

    def keys(self, batch):
        return [batch.column(name) for name in self.partition_by]

    def create(self, name):
        self.files[name] = Kept()
        return name, self.files[name]

    def describe(self, path, partition, metadata):
        size = len(self.files[path].content)
        return DataFile(
            path=path, byte_count=size, row_count=metadata.num_rows, partition=partition
        )

    def delete(self, path):
        del self.files[path]

    def read(self, path):
        return pq.read_table(pa.BufferReader(self.files[path].content))


SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])


def batch(*numbers):
    texts = [str(n % 3) for n in numbers]
    return pa.record_batch({"n": pa.array(numbers, pa.int64()), "text": texts})


def write(place, batches):
    return write_files(place, batches, "1-2", file_bytes_max=1 << 30)


def write_with(place, batches, **limits):
    writer = FileWriter(place, "1-2", **({"file_bytes_max": 1 << 30} | limits))
    for each in batches:
        writer.write(each)
    return writer.finish()


def test_rows_keep_their_order_in_one_file():
    place = MemoryPlace(SCHEMA)
    [file] = write(place, [batch(3, 1), batch(2)])
    assert place.read(file.path).column("n").to_pylist() == [3, 1, 2]
    assert file.path.startswith("danube-1-2-")
    assert (file.row_count, file.partition) == (3, ())


def test_no_rows_make_no_file():
    place = MemoryPlace(SCHEMA)
    assert write(place, [batch()]) == []
    assert place.files == {}


def test_each_partition_has_its_own_file():
    place = MemoryPlace(SCHEMA, ["text"])
    found = write(place, [batch(0, 1, 2, 3), batch(4)])
    assert {
        each.partition: place.read(each.path).column("n").to_pylist() for each in found
    } == {("0",): [0, 3], ("1",): [1, 4], ("2",): [2]}


def test_file_is_closed_at_its_size_limit():
    place = MemoryPlace(SCHEMA)
    batches = [batch(1), batch(2), batch(3)]
    found = write_with(place, batches, file_bytes_max=1, row_group_bytes=1)
    assert [each.row_count for each in found] == [1, 1, 1]
    assert len({each.path for each in found}) == 3


def test_buffered_bytes_are_bounded():
    place = MemoryPlace(SCHEMA)
    [file] = write_with(place, [batch(1), batch(2)], waiting_bytes_max=1)
    content = pa.BufferReader(place.files[file.path].content)
    assert pq.read_metadata(content).num_row_groups == 2


def test_open_files_are_bounded():
    place = MemoryPlace(SCHEMA, ["text"])
    found = write_with(place, [batch(0, 1, 2), batch(3, 4, 5)], open_files_max=2)
    assert sum(each.row_count for each in found) == 6
    assert len(found) > 3


def test_failed_write_deletes_its_files():
    place = MemoryPlace(SCHEMA, ["text"])
    writer = FileWriter(place, "x", file_bytes_max=1)
    writer.write(batch(1, 2))
    writer.abort()
    assert place.files == {}

    def breaks():
        yield batch(1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(place, breaks())
    assert place.files == {}


def test_columns_are_matched_by_name_and_structs_widened():
    x, y = ("x", pa.int32()), ("y", pa.string())
    schema = pa.schema([("s", pa.struct([x, y])), ("n", pa.int64()), ("m", pa.int8())])
    rows = pa.record_batch(
        {"n": pa.array([1]), "s": pa.array([{"x": 1}], pa.struct([x]))}
    )
    assert conform(rows, schema).to_pylist() == [
        {"s": {"x": 1, "y": None}, "n": 1, "m": None}
    ]


def test_null_in_required_column_is_refused():
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    with pytest.raises(InvalidRequest, match="the column n has 1 nulls"):
        conform(pa.record_batch({"n": pa.array([None, 1])}), schema)
    with pytest.raises(InvalidRequest, match="the column n"):
        conform(pa.record_batch({"n": ["x"]}), schema)
