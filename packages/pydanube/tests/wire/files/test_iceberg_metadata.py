"""The metadata of Iceberg tables, read with pyiceberg."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import ManifestEntryStatus, read_manifest_list
from pyiceberg.table.metadata import TableMetadataUtil

from pydanube.model.segments import SegmentEntry
from pydanube.wire.files import iceberg_metadata as iceberg
from pydanube.wire.files.iceberg_metadata import Origin, TopicSegments

OFFSET, PUBLISH_TIME = 1, 2


def segment(base, end, **changes):
    return SegmentEntry(
        **{
            "base": base,
            "end": end,
            "epoch": 1,
            "count": end - base,
            "byte_count": 1000,
            "object_name": f"default/orders/{base}-{end}.parquet",
            "first_publish_time": 1_000_000 + base,
            "last_publish_time": 2_000_000 + end,
            "sealed_at": 0,
        }
        | changes
    )


def topic(*segments, topic_id=7, partition=None):
    name = "/default/orders"
    if partition is not None:
        name += f"-part-{partition}"
    return TopicSegments(
        topic=name, topic_id=topic_id, partition=partition, segments=segments
    )


def snapshot_of(topics, parent=None, snapshot_id=1):
    return iceberg.new_snapshot(
        topics,
        [],
        origin=Origin(
            snapshot_id, 1 if parent is None else parent["sequence-number"] + 1
        ),
        parent=parent,
        timestamp_ms=5,
        manifest_list="file:///list.avro",
    )


class Files:
    """Writes the metadata of snapshots to a directory, and reads it."""

    def __init__(self, path):
        self.path = path
        self.number = 0
        self.manifests = []
        self.written = []

    def add(self, *topics):
        """Add a snapshot, and return its manifests and their entries."""
        self.number += 1
        names = [each.object_name for found in topics for each in found.segments]
        origin = Origin(self.number, self.number)
        manifests = iceberg.next_manifests(
            topics,
            self.manifests,
            urls={name: f"file:///data/{name}" for name in names},
            origin=origin,
            new_url=lambda at: (self.path / f"{self.number}-{at}.avro").as_uri(),
        )
        self.written = [each for each in manifests if each.data]
        for each in self.written:
            Path(each.url.removeprefix("file://")).write_bytes(each.data)
        path = self.path / f"{self.number}-list.avro"
        path.write_bytes(iceberg.encode_manifest_list(manifests, origin, None))
        self.manifests = [
            iceberg.decode_manifest(row, self._read(row["manifest_path"]))
            for row in iceberg.decode_manifest_list(path.read_bytes())
        ]
        assert [(each.row, each.files) for each in self.manifests] == [
            (each.row, each.files) for each in manifests
        ]
        io = PyArrowFileIO()
        found = list(read_manifest_list(io.new_input(path.as_uri())))
        return found, [
            entry for each in found for entry in each.fetch_manifest_entry(io)
        ]

    def _read(self, url):
        return Path(url.removeprefix("file://")).read_bytes()


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path)


def test_readable_segments_end_at_one_that_is_not_uploaded():
    segments = [
        segment(0, 10, is_uploaded=True),
        segment(10, 20),
        segment(20, 30, is_uploaded=True),
    ]
    readable = iceberg.readable_segments(segments, must_be_uploaded=True)
    assert readable == (segments[0],)
    assert len(iceberg.readable_segments(segments, must_be_uploaded=False)) == 3


def test_a_data_file_has_what_the_manifest_of_the_topic_says(files):
    [manifest], [entry] = files.add(topic(segment(10, 30)))
    assert manifest.added_files_count == 1
    assert manifest.added_rows_count == 20
    assert entry.status == ManifestEntryStatus.ADDED
    file = entry.data_file
    assert file.file_path == "file:///data/default/orders/10-30.parquet"
    assert file.record_count == 20
    assert file.file_size_in_bytes == 1000
    assert int.from_bytes(file.lower_bounds[OFFSET], "little") == 10
    assert int.from_bytes(file.upper_bounds[OFFSET], "little") == 29
    assert int.from_bytes(file.lower_bounds[PUBLISH_TIME], "little") == 1_000_010
    assert int.from_bytes(file.upper_bounds[PUBLISH_TIME], "little") == 2_000_030


def test_bounds_of_a_segment_with_gaps_are_left_out_because_they_are_not_exact(files):
    _, [entry] = files.add(topic(segment(0, 30, count=5)))
    assert OFFSET not in entry.data_file.lower_bounds
    assert PUBLISH_TIME in entry.data_file.lower_bounds


def test_a_segment_without_messages_is_not_a_file(files):
    _, [entry] = files.add(topic(segment(0, 30, count=0), segment(30, 40)))
    assert entry.data_file.record_count == 10


def test_manifests_whose_files_all_remain_are_listed_again(files):
    files.add(topic(segment(0, 10)))
    manifests, entries = files.add(topic(segment(0, 10), segment(10, 20)))
    assert len(files.written) == 1
    assert [each.added_snapshot_id for each in manifests] == [1, 2]
    assert [entry.snapshot_id for entry in entries] == [1, 2]
    assert all(entry.status == ManifestEntryStatus.ADDED for entry in entries)


def test_files_that_remain_of_a_manifest_are_listed_as_existing(files):
    files.add(topic(segment(0, 10), segment(10, 20), segment(20, 30)))
    merged = segment(10, 30, object_name="merged.parquet")
    manifests, entries = files.add(topic(segment(0, 10), merged))
    assert [(entry.status, entry.snapshot_id) for entry in entries] == [
        (ManifestEntryStatus.EXISTING, 1),
        (ManifestEntryStatus.ADDED, 2),
    ]
    assert [each.min_sequence_number for each in manifests] == [1, 2]
    assert [each.sequence_number for each in manifests] == [2, 2]


def test_manifests_are_merged_when_many_are_small(files):
    segments = []
    sizes = []
    for at in range(3 * iceberg.SMALL_MANIFESTS_MAX):
        segments.append(segment(at, at + 1))
        manifests, entries = files.add(topic(*segments))
        sizes.append(len(manifests))
        assert [entry.snapshot_id for entry in entries] == [*range(1, at + 2)]
    assert max(sizes) == iceberg.SMALL_MANIFESTS_MAX + 1
    origins = files.manifests[0].files.values()
    assert {each.sequence_number for each in origins} > {1, 2}


def test_large_manifests_are_not_merged(files):
    large = [segment(at, at + 1) for at in range(iceberg.MANIFEST_FILES_MAX // 2)]
    files.add(topic(*large))
    [first] = [each.url for each in files.manifests]
    for _ in range(2 * iceberg.SMALL_MANIFESTS_MAX):
        large.append(segment(len(large), len(large) + 1))
        files.add(topic(*large))
    assert files.manifests[0].url == first


def test_what_is_no_manifest_is_an_error(files):
    files.add(topic(segment(0, 10)))
    data = (files.path / "1-list.avro").read_bytes()
    for damaged in (b"", data[:-20], data.replace(b"manifest_file", b"manifest_fill")):
        with pytest.raises(ValueError, match="manifest_file"):
            iceberg.decode_manifest_list(damaged)
    with pytest.raises(ValueError, match="manifest_entry"):
        iceberg.decode_manifest({}, data)


def test_manifests_are_split(files):
    count = iceberg.MANIFEST_FILES_MAX + 1
    segments = [segment(at, at + 1) for at in range(count)]
    manifests, entries = files.add(topic(*segments))
    assert [each.added_files_count for each in manifests] == [count - 1, 1]
    assert len(entries) == count


def test_partitions_are_values_of_the_partition_column(files):
    topics = [
        topic(
            segment(0, 10, object_name=f"{number}.parquet"),
            topic_id=7 + number,
            partition=number,
        )
        for number in range(300)
    ]
    [manifest], entries = files.add(*topics)
    assert [entry.data_file.partition[0] for entry in entries] == list(range(300))
    [summary] = manifest.partitions
    assert int.from_bytes(summary.lower_bound, "little") == 0
    assert int.from_bytes(summary.upper_bound, "little") == 299


def test_a_snapshot_that_only_adds_segments_is_an_append():
    first = [topic(segment(0, 10), segment(10, 20))]
    parent = snapshot_of(first)
    assert parent["summary"]["operation"] == "append"
    more = [topic(*first[0].segments, segment(20, 30))]
    assert snapshot_of(more, parent)["summary"]["operation"] == "append"
    dropped = [topic(segment(10, 20), segment(20, 30))]
    assert snapshot_of(dropped, parent)["summary"]["operation"] == "overwrite"
    merged = replace(segment(0, 20), object_name="merged.parquet")
    assert snapshot_of([topic(merged)], parent)["summary"]["operation"] == "overwrite"


def test_a_new_partition_only_adds_segments():
    first = [topic(segment(0, 10), partition=0)]
    parent = snapshot_of(first)
    more = [*first, topic(segment(0, 5), topic_id=8, partition=1)]
    assert snapshot_of(more, parent)["summary"]["operation"] == "append"


def test_a_topic_that_is_created_again_is_another_table():
    old, new = topic(topic_id=7), topic(topic_id=8)
    assert iceberg.table_uuid([old]) == iceberg.table_uuid([topic(topic_id=7)])
    assert iceberg.table_uuid([old]) != iceberg.table_uuid([new])
    partition = topic(topic_id=7, partition=0)
    assert iceberg.table_uuid([old]) != iceberg.table_uuid([partition])


@pytest.mark.parametrize("partition", [None, 0])
def test_the_metadata_file_is_valid(partition):
    topics = [topic(segment(0, 10), partition=partition)]
    first = snapshot_of(topics)
    second = snapshot_of(topics, first, snapshot_id=2)
    metadata = TableMetadataUtil.parse_raw(
        iceberg.encode_metadata(
            topics,
            topic="/default/orders",
            location="file:///data",
            updated_ms=5,
            snapshots=[first, second],
        ).decode()
    )
    assert metadata.current_snapshot_id == 2
    assert metadata.last_sequence_number == 2
    fields = metadata.schema().fields
    assert [field.name for field in fields[:2]] == ["offset", "publish_time"]
    assert (fields[-1].name == "partition") is (partition is not None)
    assert metadata.name_mapping() is not None
    parts = [field.name for field in metadata.spec().fields]
    assert parts == ([] if partition is None else ["partition"])


def test_a_table_without_snapshots_is_valid():
    metadata = TableMetadataUtil.parse_raw(
        iceberg.encode_metadata(
            [topic()], topic="/default/orders", location="x", updated_ms=5, snapshots=[]
        ).decode()
    )
    assert metadata.current_snapshot() is None
