"""Tests of the choice between Spark's own reader and the one in Python."""

from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark")

from pydanube.model.descriptions import Segment
from pydanube_spark.reader.pure.read_options import Mode, parse_read_options
from pydanube_spark.topic_table import NotNative, _Snapshot


@pytest.fixture
def path_of():
    """Return the path of a segment of ten bytes, for a session on this machine."""
    spark = SimpleNamespace(sparkContext=SimpleNamespace(master="local[2]"))
    given = {"subscribe": "/default/a"}
    options = parse_read_options(given, Mode.BATCH)
    snapshot = _Snapshot(spark, options, given, None, is_held=False)

    def find(url, remote_url=""):
        segment = Segment(
            base=0,
            end=1,
            epoch=0,
            count=1,
            byte_count=10,
            object_name="a.parquet",
            first_publish_time=0,
            last_publish_time=0,
            sealed_at=0,
            url=url,
            remote_url=remote_url,
        )
        return snapshot.path_of(segment)

    return find


def test_a_file_of_another_size_is_another_one(path_of, tmp_path):
    """Spark would leave out what is beyond the size that it is told."""
    file = tmp_path / "a%20 b.parquet"
    for size in (10, 11):
        file.write_bytes(bytes(size))
        for urls in ((file.as_uri(),), ("file:///none", f"fs://{file}")):
            if size == 10:
                assert path_of(*urls) == f"file:{file}"
            else:
                with pytest.raises(NotNative, match="has 11 bytes, and the segment 10"):
                    path_of(*urls)


def test_a_store_of_another_package_is_left_to_the_broker(path_of):
    with pytest.raises(NotNative, match="expected mystore:///PREFIX"):
        path_of("file:///none", "mystore://bucket/a.parquet")
