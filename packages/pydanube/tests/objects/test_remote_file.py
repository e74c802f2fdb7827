"""Remote objects as files."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pydanube.objects.remote_file import RemoteFile


def file_of(data, reads=None):
    def read_into(begin, view):
        if reads is not None:
            reads.append((begin, len(view)))
        view[:] = data[begin : begin + len(view)]

    return RemoteFile("s3://bucket/a", len(data), read_into)


def test_each_read_is_one_request_within_the_object():
    reads = []
    file = file_of(b"abcdef", reads)
    assert file.read(2) == b"ab"
    assert file.read() == b"cdef"
    assert file.read() == b""
    file.seek(100)
    assert file.read(5) == b""
    assert reads == [(0, 2), (2, 4)]


def test_seek_counts_from_the_beginning_the_position_or_the_end():
    file = file_of(b"abcdef")
    assert file.seek(2) == 2
    assert file.seek(1, io.SEEK_CUR) == 3
    assert file.seek(-2, io.SEEK_END) == 4
    assert file.read() == b"ef"
    with pytest.raises(ValueError, match="not a position"):
        file.seek(-1)


def test_arrow_reads_parquet_from_it():
    table = pa.table({"a": range(1000)})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    with file_of(sink.getvalue().to_pybytes()) as file:
        assert pq.ParquetFile(file).read() == table
    with pytest.raises(ValueError, match="closed"):
        file.seek(0)


def test_a_failed_read_leaves_the_position():
    def read_into(begin, view):
        raise ConnectionError("away")

    file = RemoteFile("s3://bucket/a", 6, read_into)
    file.seek(3)
    with pytest.raises(ConnectionError):
        file.read(2)
    assert file.tell() == 3


def test_a_file_is_shown_by_its_name():
    assert repr(file_of(b"abc")) == "RemoteFile('s3://bucket/a', 3 bytes)"
