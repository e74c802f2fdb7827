from dataclasses import replace
from itertools import pairwise

import pyarrow as pa
import pytest

from pydanube.model.errors import CorruptSegment, ObjectsUnavailable
from pydanube.objects.loop_thread import loop_thread
from pydanube.wire.files.segment_checksums import part_checksums_of
from pydanube.wire.files.segment_ranges import WHOLE_BYTES_MAX
from pydanube_spark.reader import remote_files
from pydanube_spark.reader.pure.read_options import ReadThrough
from pydanube_spark.reader.pure.scans import Scan, SegmentRange
from pydanube_spark.reader.remote_files import (
    REQUESTS_MAX,
    RemoteFile,
    join_spans,
    open_remote,
)
from pydanube_spark.reader.scan_reader import SCHEMA, read_scan
from pydanube_spark.reader.segment_access import SegmentAccess
from pydanube_spark.reader.segment_files import SegmentFile, read_row_groups
from support.fakes.segment_files import TOPIC, Row, write_segment
from support.fakes.storages import until
from support.fakes.tiered_worlds import RemoteObjects, incompressible

COUNT = 20


@pytest.fixture
def local(tmp_path):
    """Write a segment whose 20 messages each have a row group."""
    rows = [Row(b"k", each) for each in incompressible(1, COUNT)]
    segment = write_segment(tmp_path, 0, rows, batch=1, row_group_bytes=1)
    with pa.OSFile(segment.url.removeprefix("file://")) as file:
        parts = part_checksums_of(file)
    assert segment.byte_count > WHOLE_BYTES_MAX
    return replace(segment, part_checksums=parts)


@pytest.fixture
def store(local):
    """Return a remote store with this segment."""
    store = RemoteObjects()
    with pa.OSFile(local.url.removeprefix("file://")) as file:
        loop_thread().run(store.put(local.object_name, file.read_buffer()))
    return store


@pytest.fixture
def segment(local):
    """Return the segment as it is in the remote store."""
    return replace(local, remote_url=f"s3://bucket/{local.object_name}")


def payloads(segment, file, names=None):
    tables = read_row_groups(TOPIC, segment, SegmentFile(file, segment), names)
    return pa.concat_tables(tables).column("payload").to_pylist()


def test_neighbouring_ranges_are_joined():
    spans = [(0, 10), (10, 20), (25, 30), (100, 110), (110, 300), (5, 6)]
    assert join_spans(spans, gap_max=5, bytes_max=100) == [
        (0, 30),
        (100, 110),
        (110, 300),
        (5, 6),
    ]


def test_segment_is_read_with_one_request_for_the_footer_and_each_range(store, segment):
    with RemoteFile(store, segment) as file:
        assert payloads(segment, file) == incompressible(1, COUNT)
    (_, _, end), *ranges = store.requests
    assert end == segment.byte_count
    # All columns of neighbouring row groups follow each other.
    assert len(ranges) == 1


def test_only_requested_columns_are_read(store, segment):
    with RemoteFile(store, segment) as file:
        tables = list(
            read_row_groups(TOPIC, segment, SegmentFile(file, segment), ["offset"])
        )
    assert sum(table.num_rows for table in tables) == COUNT
    _, *ranges = store.requests
    assert len(ranges) == COUNT
    assert sum(end - begin for _, begin, end in ranges) < segment.byte_count // 100


def test_several_ranges_are_requested_at_the_same_time(store, segment):
    async def open_the_door():
        await until(lambda: store.under_way == REQUESTS_MAX)
        store.open_door.set()

    with RemoteFile(store, segment) as file:
        opened = SegmentFile(file, segment)
        store.open_door.clear()
        opened.expect(range(COUNT), ["offset"])
        loop_thread().run(open_the_door())
        assert len(opened.parquet.read(["offset"])) == COUNT
    assert store.under_way_max == REQUESTS_MAX
    assert len(store.requests) == 1 + COUNT


def test_scan_requests_no_byte_twice(store, segment, monkeypatch):
    monkeypatch.setattr(remote_files, "_store_at", lambda *_: store)
    segment = replace(segment, url=segment.remote_url)
    scan = Scan(TOPIC, 1, 0, COUNT, (SegmentRange(segment, 0, COUNT),))
    # They are far apart in each row group.
    schema = pa.schema([SCHEMA.field("offset"), SCHEMA.field("schema_id")])
    access = SegmentAccess(ReadThrough.NEVER)
    batches = read_scan(scan, schema, None, fail_on_data_loss=True, access=access)
    assert sum(batch.num_rows for batch in batches) == COUNT
    ranges = sorted((begin, end) for _, begin, end in store.requests)
    # One for the end of the file, and others that two row groups share.
    assert len(ranges) > COUNT
    assert all(end <= begin for (_, end), (begin, _) in pairwise(ranges))


def test_only_requested_row_groups_are_read(store, segment):
    with RemoteFile(store, segment) as file:
        opened = SegmentFile(file, segment)
        opened.expect([3, 9], ["payload"])
        found = [
            opened.parquet.read_row_group(at, ["payload"]).column(0)[0].as_py()
            for at in (3, 9)
        ]
    assert found == [incompressible(1, COUNT)[at] for at in (3, 9)]
    assert len(store.requests) == 3


def test_what_was_not_expected_is_read_too(store, segment):
    with RemoteFile(store, segment) as file:
        opened = SegmentFile(file, segment)
        opened.expect([3, 9], ["payload"])
        table = opened.parquet.read_row_group(5, ["offset"])
        assert table.column(0).to_pylist() == [5]
        assert len(opened.parquet.read_row_group(9, ["payload"])) == 1


def test_bytes_that_are_read_ahead_are_bounded(segment, store):
    with RemoteFile(store, segment, ahead_bytes_max=1) as file:
        list(read_row_groups(TOPIC, segment, SegmentFile(file, segment), ["offset"]))
    # The one that is waited for, and the next.
    assert store.under_way_max <= 2


def test_damage_is_found(store, segment):
    store.damage(segment.object_name, 300_000)
    with RemoteFile(store, segment) as file, pytest.raises(CorruptSegment):
        payloads(segment, file)


def test_store_that_does_not_answer_is_no_corruption(store, segment):
    with RemoteFile(store, segment) as file:
        opened = SegmentFile(file, segment)
        store.is_away = True
        with pytest.raises(ObjectsUnavailable, match="away on purpose"):
            list(read_row_groups(TOPIC, segment, opened))


def test_missing_object_is_not_found(store, segment):
    other = replace(segment, object_name="other")
    with pytest.raises(FileNotFoundError, match="s3://bucket"):
        RemoteFile(store, other)


def test_store_is_opened_by_the_url_of_the_segment_and_opens_no_other_file(
    local, tmp_path
):
    # The content of this file would be refused.
    (tmp_path / "empty").touch()
    segment = replace(
        local,
        remote_url=f"fs://{tmp_path}/{local.object_name}",
        store_options={"secret_access_key_file": str(tmp_path / "empty")},
    )
    with open_remote(segment) as file:
        assert payloads(segment, file) == incompressible(1, COUNT)
