from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from random import Random
from threading import Barrier

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pydanube.model.batch import Column
from pydanube.model.errors import CorruptSegment
from pydanube.model.segments import SegmentEntry
from pydanube.wire.batches import BATCH_MESSAGES_MAX, Codec
from pydanube.wire.files.segment_checksums import (
    FREE_MEMORY_MAX,
    _free_memory,
    part_checksums_of,
    release_row_group_memory,
)
from pydanube.wire.files.segment_format import SCHEMA, SegmentIdentity
from pydanube.wire.files.segment_ranges import RangeFile
from pydanube_broker.storage.segments.segments import (
    JOINED_AT_ONCE,
    JOINED_MESSAGES_MAX,
    ROW_GROUP_MESSAGES_MAX,
    SegmentReader,
    encode_segment,
    publish_times_of,
    tables_of,
    topic_id_of,
)
from support.fakes.arrow_memory import arrow_memory
from support.fakes.batches import (
    A_TIME,
    empty_messages,
    frame_of,
    offsets_of,
    payloads_of,
)

randbytes = Random(1).randbytes

IDENTITY = SegmentIdentity(topic="/default/a", topic_id=7, epoch=3)


def log_of(*frames, base=0):
    for frame in frames:
        frame.stamp(base, 1)
        base += frame.count
    return list(frames)


def reader_of(frames, *, row_group_bytes=8 << 20, frame_bytes=1 << 20, verified=False):
    data = encode_segment(frames, IDENTITY, row_group_bytes=row_group_bytes)
    entry = SegmentEntry(
        base=frames[0].base,
        end=frames[-1].end,
        epoch=3,
        count=frames[-1].end - frames[0].base,
        byte_count=data.size,
        object_name="one",
        first_publish_time=A_TIME,
        last_publish_time=A_TIME,
        sealed_at=A_TIME,
        part_checksums=part_checksums_of(pa.BufferReader(data)) if verified else None,
    )
    return SegmentReader(entry, lambda: pa.BufferReader(data), frame_bytes=frame_bytes)


def read_all(reader):
    return [
        frame
        for index in range(reader.row_group_count)
        for frame in reader.read_row_group(index)
    ]


def rows(frames):
    return [row for table in tables_of(frames, 8 << 20) for row in table.to_pylist()]


def various():
    return log_of(
        frame_of([b"a", b"b"], producer="web-1", producer_id=1),
        frame_of([b"c"], keys=[b"k"], attributes=[{"x": "1", "y": ""}]),
        frame_of([b"d", b"e"], keys=[None, b"k"], codec=Codec.ZSTD),
        frame_of([b"f"], schema_id=4, schema_version=2, producer="ü"),
        frame_of([b"g"], schema_id=4, schema_version=3, time=A_TIME + 5),
        frame_of([b"", b"i"], publish_times=[A_TIME + 7, A_TIME + 9]),
        frame_of(
            [b"j"], attributes=[{}], deliver_at=[A_TIME + 9], expires_at=[A_TIME + 10]
        ),
        base=1000,
    )


@pytest.mark.parametrize("verified", [True, False])
def test_segment_is_read_as_it_was_written(verified):
    frames = various()
    again = read_all(reader_of(frames, verified=verified))
    assert payloads_of(again) == [
        b"a",
        b"b",
        b"c",
        b"d",
        b"e",
        b"f",
        b"g",
        b"",
        b"i",
        b"j",
    ]
    assert offsets_of(again) == list(range(1000, 1010))
    assert rows(again) == rows(frames)


def test_segment_of_a_newer_format_is_refused():
    frames = various()[:-1]
    now = encode_segment(frames, IDENTITY, row_group_bytes=8 << 20)
    with pq.ParquetFile(pa.BufferReader(now)) as file:
        table = file.read()
    sink = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata({"danube.format": "2"}), sink)
    entry = replace(reader_of(frames).entry, byte_count=sink.tell())
    data = sink.getvalue()
    with pytest.raises(CorruptSegment, match="format version 2; this version of pyd"):
        SegmentReader(entry, lambda: pa.BufferReader(data), frame_bytes=1 << 20)


def test_frames_are_cut_where_the_schema_changes():
    again = read_all(reader_of(various()))
    schemas = [(f.header.schema_id, f.header.schema_version) for f in again]
    assert schemas == [(0, 0), (4, 2), (4, 3), (0, 0)]
    assert [frame.base for frame in again] == [1000, 1005, 1006, 1007]


@pytest.mark.parametrize("verified", [True, False])
@pytest.mark.parametrize("keys", [None, [b"k", b"k"], [None, b"k"]])
def test_what_all_messages_of_a_row_group_have_is_read_from_verified_statistics(
    verified, keys
):
    frames = log_of(
        *(
            frame_of([b"a", b"b"], keys=keys, producer="ü", schema_id=4)
            for _ in range(3)
        )
    )
    [again] = read_all(reader_of(frames, verified=verified))
    has_column = bool(again.header.columns & Column.PRODUCER)
    assert (again.header.producer, has_column) == (("", True), ("ü", False))[verified]
    assert again.header.schema_id == 4
    assert rows([again]) == rows(frames)


@pytest.mark.parametrize(
    ("fields", "decoded"),
    [
        ({}, None),
        ({"keys": [b"k", None]}, "key"),
        ({"attributes": [None, {"x": ""}]}, "attributes"),
        ({"attributes": [None, {"x": "1", "y": "2"}]}, "attributes"),
        ({"deliver_at": [A_TIME, None]}, "deliver_at"),
        ({"expires_at": [None, A_TIME]}, "expires_at"),
    ],
)
def test_columns_without_values_are_not_read(fields, decoded):
    frames = log_of(frame_of([b"a", b"b"], **fields), frame_of([b"c"]))
    reader = reader_of(frames, verified=True)
    data = bytearray(encode_segment(frames, IDENTITY, row_group_bytes=8 << 20))
    group = pq.read_metadata(pa.BufferReader(data)).row_group(0)
    for chunk in map(group.column, range(group.num_columns)):
        column = chunk.path_in_schema.partition(".")[0]
        if column in {"key", "attributes", "deliver_at", "expires_at"} - {decoded}:
            data[chunk.data_page_offset] ^= 1
    source = partial(RangeFile, 0, data, len(data))
    assert rows(reader.read_row_group(0, source)) == rows(frames)


def test_empty_attributes_are_none_if_no_message_has_any():
    frames = log_of(frame_of([b"a", b"b"], attributes=[{}, None]))
    [again] = read_all(reader_of(frames, verified=True))
    assert not again.header.columns & Column.ATTRIBUTES
    assert again.arrow().column("payload").to_pylist() == [b"a", b"b"]


@pytest.mark.parametrize(
    ("payloads", "codec"),
    [
        ([randbytes(100) for _ in range(2000)], "UNCOMPRESSED"),
        ([randbytes(100_000) for _ in range(20)], "UNCOMPRESSED"),
        ([b'{"order": %d}' % at for at in range(2000)], "ZSTD"),
        ([b"%d" % at * 30_000 for at in range(20)], "ZSTD"),
        ([randbytes(100) for _ in range(10)] + [b"x" * 100] * 2000, "ZSTD"),
    ],
)
def test_payloads_are_compressed_if_that_saves_space(payloads, codec):
    data = encode_segment(log_of(frame_of(payloads)), IDENTITY, row_group_bytes=8 << 20)
    group = pq.read_metadata(pa.BufferReader(data)).row_group(0)
    chunks = map(group.column, range(group.num_columns))
    found = {chunk.path_in_schema: chunk.compression for chunk in chunks}
    assert found.pop("payload") == codec
    assert set(found.values()) == {"ZSTD"}


def test_header_of_a_read_frame_has_times_and_no_producer():
    again = read_all(reader_of(various()))
    last = again[-1].header
    assert (last.first_publish_time, last.last_publish_time) == (A_TIME + 7, A_TIME)
    assert {frame.header.producer for frame in again} == {""}
    assert {frame.header.epoch for frame in again} == {3}
    again[-1].check()


def test_a_file_tells_between_which_times_its_messages_were_published():
    frames = log_of(
        frame_of([b"a", b"b"], time=A_TIME + 5),
        frame_of([b"c", b"d", b"e"], publish_times=[A_TIME, A_TIME + 9, A_TIME + 1]),
    )
    for row_group_bytes in (1, 8 << 20):
        data = encode_segment(frames, IDENTITY, row_group_bytes=row_group_bytes)
        assert publish_times_of(pa.BufferReader(data)) == (A_TIME, A_TIME + 9)


@pytest.mark.parametrize("row_group_bytes", [1, 8 << 20])
def test_a_message_is_found_by_its_time(row_group_bytes):
    frames = log_of(
        frame_of([b"a", b"b"], time=A_TIME + 5),
        frame_of([b"c", b"d", b"e"], publish_times=[A_TIME, A_TIME + 9, A_TIME + 1]),
        frame_of([b"f"], time=A_TIME + 7),
        base=1000,
    )
    reader = reader_of(frames, row_group_bytes=row_group_bytes)
    found = [reader.find_time(A_TIME + at) for at in (0, 5, 6, 9, 10)]
    assert found == [1000, 1000, 1003, 1003, None]


def test_row_groups_are_found_by_offset():
    frames = log_of(*(frame_of([b"x" * 1000] * 10) for _ in range(20)))
    reader = reader_of(frames, row_group_bytes=3 * frames[0].memory_bytes)
    assert reader.row_group_count == 7
    assert reader.row_group_of(0) == 0
    assert reader.row_group_of(29) == 0
    assert reader.row_group_of(30) == 1
    assert reader.row_group_of(199) == 6
    assert offsets_of(reader.read_row_group(1)) == list(range(30, 60))


def test_frames_that_are_read_are_no_longer_than_wanted():
    sizes = [10] * 300 + [50_000] * 3 + [10] * 300
    frames = log_of(*(frame_of([b"x" * size]) for size in sizes))
    again = read_all(reader_of(frames, frame_bytes=20_000))
    assert offsets_of(again) == list(range(603))
    assert all(frame.byte_count < 25_000 or frame.count == 1 for frame in again)
    assert len(again) < 60


def test_many_small_frames_become_few_large_ones():
    frames = log_of(*(frame_of([b"%d" % at]) for at in range(2000)))
    again = read_all(reader_of(frames))
    assert len(again) == 1
    assert payloads_of(again) == [b"%d" % at for at in range(2000)]


def test_file_metadata_describes_the_segment():
    data = encode_segment(various(), IDENTITY, row_group_bytes=8 << 20)
    with pq.ParquetFile(pa.BufferReader(data)) as file:
        assert file.schema_arrow.equals(SCHEMA)
        assert file.metadata.metadata[b"danube.topic"] == b"/default/a"
        assert file.metadata.metadata[b"danube.base_offset"] == b"1000"
        assert file.metadata.metadata[b"danube.end_offset"] == b"1010"
        statistics = file.metadata.row_group(0).column(0).statistics
        assert (statistics.min, statistics.max) == (1000, 1009)
    assert topic_id_of(lambda: pa.BufferReader(data)) == 7
    assert topic_id_of(lambda: pa.BufferReader(b"something else")) is None


def test_reading_a_row_group_leaves_those_that_were_read_before_unchanged():
    log = log_of(*(frame_of([randbytes(100)] * 50) for _ in range(4)))
    reader = reader_of(log, row_group_bytes=6_000, verified=True)
    first = reader.read_row_group(0)
    assert reader.row_group_count > 1
    # The next row group is read into the same memory.
    again = read_all(reader)
    assert payloads_of(first) == payloads_of(log)[: len(payloads_of(first))]
    assert payloads_of(again) == payloads_of(log)


def test_threads_that_read_row_groups_at_once_do_not_share_memory():
    logs = [log_of(frame_of([randbytes(8_000)] * 40)) for _ in range(4)]
    readers = [reader_of(log, verified=True) for log in logs]
    barrier = Barrier(len(logs))

    def read(number):
        barrier.wait(60)
        expected = payloads_of(logs[number])
        return [payloads_of(read_all(readers[number])) == expected for _ in range(20)]

    release_row_group_memory()
    with ThreadPoolExecutor(len(logs)) as pool:
        for equal in pool.map(read, range(len(logs))):
            assert all(equal)
    # There were more at once than are kept.
    assert 0 < len(_free_memory) <= FREE_MEMORY_MAX
    release_row_group_memory()
    assert not _free_memory


def test_a_damaged_row_group_does_not_change_what_is_read_next():
    log = log_of(frame_of([randbytes(1000)]), frame_of([randbytes(1000)]))
    whole = reader_of(log, row_group_bytes=1_500, verified=True)
    data = encode_segment(log, IDENTITY, row_group_bytes=1_500).to_pybytes()
    at = data.index(payloads_of(log)[0])
    damaged = data[:at] + bytes(1000) + data[at + 1000 :]
    for _ in range(3):
        with pytest.raises(CorruptSegment, match="row group 0"):
            whole.read_row_group(0, lambda: pa.BufferReader(damaged))
        assert payloads_of(read_all(whole)) == payloads_of(log)


def test_an_object_that_is_not_the_segment_is_reported():
    frames = various()
    entry = reader_of(frames).entry
    other = encode_segment(frames[:2], IDENTITY, row_group_bytes=8 << 20)
    for data in (b"", b"not parquet at all", other):
        with pytest.raises(CorruptSegment, match="segment one"):
            SegmentReader(entry, lambda d=data: pa.BufferReader(d), frame_bytes=1)


def test_a_damaged_row_group_is_reported():
    frames = log_of(
        *(frame_of([bytes(at % 251 for at in range(5000))]) for _ in range(9))
    )
    data = bytearray(encode_segment(frames, IDENTITY, row_group_bytes=8 << 20))
    entry = reader_of(frames).entry
    data[10:400] = bytes(390)
    reader = SegmentReader(entry, lambda: pa.BufferReader(bytes(data)), frame_bytes=1)
    with pytest.raises(CorruptSegment, match="row group 0"):
        reader.read_row_group(0)


def test_sealing_decodes_one_row_group_at_a_time_however_well_frames_compress():
    # 12 million messages in 60 KiB, 48 MB of offsets; as rows of a segment 1 GB.
    frame_count = 184
    frames = log_of(
        *(empty_messages(BATCH_MESSAGES_MAX, Codec.ZSTD) for _ in range(frame_count))
    )
    assert sum(frame.byte_count for frame in frames) < 60 * 1024
    with arrow_memory() as memory:
        rows = [table.num_rows for table in tables_of(frames, 8 << 20)]
    assert sum(rows) == frame_count * BATCH_MESSAGES_MAX
    assert max(rows) == ROW_GROUP_MESSAGES_MAX
    assert memory.peak_bytes < 64 << 20


def test_row_groups_are_as_long_as_the_decoded_messages_allow():
    frames = log_of(*(frame_of([bytes(1000)] * 100, codec=Codec.ZSTD) for _ in "abcd"))
    assert sum(frame.byte_count for frame in frames) < 4000
    assert [table.num_rows for table in tables_of(frames, 220_000)] == [200, 200]


def test_frames_that_are_read_have_as_many_messages_as_a_batch_may_have():
    frames = log_of(*(empty_messages(BATCH_MESSAGES_MAX) for _ in "ab"))
    counts = [frame.count for frame in read_all(reader_of(frames, frame_bytes=1 << 30))]
    assert counts == [BATCH_MESSAGES_MAX] * 2


def test_frames_of_few_messages_are_sealed_as_long_ones_are():
    chance = Random(3)
    frames, expected, base = [], [], 0
    while base < 2 * JOINED_AT_ONCE + 1000:
        count = chance.choice([1, 1, 1, 1, 2, JOINED_MESSAGES_MAX])
        payloads = [b"%d" % (base + number) * (number % 3) for number in range(count)]
        fields = {"time": A_TIME + base, "producer": chance.choice(["", "a", "b"])}
        kind = chance.random()
        if kind < 0.1:
            fields["publish_times"] = [A_TIME + base + n for n in range(count)]
        elif kind < 0.12:
            fields["keys"] = [b"k"] * count
        elif kind < 0.14:
            fields["codec"] = Codec.ZSTD
        elif kind < 0.16:
            fields |= {"schema_id": 4, "schema_version": base}
        frames.append(frame_of(payloads, **fields))
        for number, payload in enumerate(payloads):
            times = fields.get("publish_times") or [fields["time"]] * count
            expected.append(
                {
                    "offset": base + number,
                    "publish_time": times[number],
                    "key": fields.get("keys", [None])[0],
                    "payload": payload,
                    "producer": fields["producer"] or None,
                    "schema_id": fields.get("schema_id", 0),
                    "schema_version": fields.get("schema_version", 0),
                }
            )
        base += count
    log_of(*frames)
    for row_group_bytes in (10_000, 8 << 20):
        tables = list(tables_of(frames, row_group_bytes))
        assert (len(tables) == 1) == (row_group_bytes == 8 << 20)
        found = pa.concat_tables(tables)
        for name in expected[0]:
            column = found.column(name)
            if name == "publish_time":
                column = column.cast(pa.int64())
            assert column.to_pylist() == [row[name] for row in expected]


def test_row_groups_of_single_messages_are_as_long_as_those_of_batches():
    singles = log_of(*(frame_of([bytes(100)]) for _ in range(100)))
    batches = log_of(*(frame_of([bytes(100)] * 20) for _ in range(5)))
    counts = [
        [table.num_rows for table in tables_of(frames, 6_000)]
        for frames in (singles, batches)
    ]
    assert counts == [[50, 50], [40, 40, 20]]
