"""One scan as Arrow batches."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import datasource as spark

from pydanube.model.envelope import TIME_TYPE
from pydanube.model.errors import CorruptSegment, InvalidRequest, OffsetDropped
from pydanube_spark.pushdown import condition_of
from pydanube_spark.reader import scan_reader
from pydanube_spark.reader.pure.read_options import ReadThrough
from pydanube_spark.reader.pure.scans import plan_scans
from pydanube_spark.reader.scan_reader import SCHEMA, check_schema, read_scan
from pydanube_spark.reader.segment_access import SegmentAccess
from support.fakes.topic_directory import FIRST_TIME_US, TopicDirectory

TOPIC = "/default/orders"


@pytest.fixture
def topics(tmp_path):
    """Messages 0 … 100: two segments of 40 and a tail of 20."""
    directory = TopicDirectory(tmp_path)
    directory.create(TOPIC)
    for _ in range(2):
        directory.publish(TOPIC, 40)
        directory.seal(TOPIC)
    directory.publish(TOPIC, 20)
    return directory


def scans(topics, base, end, **limits):
    _, layout = topics.layout(TOPIC, base, end)
    return plan_scans([layout], **({"scan_bytes_max": 10**9} | limits))


def rewritten(planned, change):
    """Write the file of *planned*, one segment, again; return it with the new size."""
    (scan,) = planned
    (piece,) = scan.segments
    path = Path(piece.segment.url.removeprefix("file://"))
    pq.write_table(change(pq.read_table(path)), path, row_group_size=10)
    segment = replace(piece.segment, byte_count=path.stat().st_size)
    return [replace(scan, segments=(replace(piece, segment=segment),))]


def rows(
    topics,
    planned,
    schema=SCHEMA,
    *,
    fail_on_data_loss=True,
    conditions=(),
    access=None,
):
    batches = [
        batch
        for scan in planned
        for batch in read_scan(
            scan,
            schema,
            topics,
            fail_on_data_loss=fail_on_data_loss,
            conditions=conditions,
            access=access,
        )
    ]
    assert all(batch.schema.equals(schema) for batch in batches)
    return pa.Table.from_batches(batches, schema).to_pylist()


def offsets(found):
    return [row["offset"] for row in found]


@pytest.mark.parametrize("limits", [{}, {"scan_bytes_max": 1}, {"scans_min": 7}])
@pytest.mark.parametrize(
    ("base", "end"), [(0, 100), (0, 1), (39, 41), (45, 95), (80, 100), (99, 100)]
)
def test_range_is_read_in_order_however_it_is_split(topics, base, end, limits):
    found = rows(topics, scans(topics, base, end, **limits))
    assert offsets(found) == list(range(base, end))


def test_segments_and_the_tail_give_the_same_columns(topics):
    sealed, tail = (rows(topics, scans(topics, at, at + 1))[0] for at in (71, 91))
    for row, at in ((sealed, 71), (tail, 91)):
        assert row["topic"] == TOPIC
        assert row["payload"] == b"m%d" % at
        assert row["key"] == b"k1"
        assert row["attributes"] == [("n", str(at))]
        assert row["producer"] == "test"


def test_only_requested_columns_are_returned_in_order(topics):
    schema = pa.schema({"payload": pa.string(), "offset": pa.int64()})
    found = rows(topics, scans(topics, 79, 81), schema)
    assert found == [{"payload": "m79", "offset": 79}, {"payload": "m80", "offset": 80}]


def test_offset_column_need_not_be_requested(topics):
    schema = pa.schema({"topic": pa.string()})
    assert len(rows(topics, scans(topics, 5, 95), schema)) == 90


def test_only_needed_row_groups_are_read(topics, monkeypatch):
    groups = []
    whole = pq.ParquetFile.iter_batches

    def recording(self, size, row_groups, **rest):
        groups.extend(row_groups)
        return whole(self, size, row_groups, **rest)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", recording)
    assert offsets(rows(topics, scans(topics, 12, 18))) == list(range(12, 18))
    assert groups == [1]


def test_no_batch_is_larger_than_the_bound(topics, monkeypatch):
    monkeypatch.setattr(scan_reader, "BATCH_BYTES_MAX", 300)
    topics.payload_bytes = 100
    topics.publish(TOPIC, 20)
    topics.seal(TOPIC)
    (scan,) = scans(topics, 80, 120)
    batches = list(read_scan(scan, SCHEMA, topics, fail_on_data_loss=True))
    assert all(batch.nbytes <= 300 or batch.num_rows == 1 for batch in batches)
    assert sum(batch.num_rows for batch in batches) == 40


def test_segment_replaced_since_the_plan_is_planned_again(topics):
    planned = scans(topics, 10, 95)
    topics.compact(TOPIC)
    assert offsets(rows(topics, planned)) == list(range(10, 95))


def test_segments_replaced_again_and_again_are_read_where_they_are_then(topics):
    planned = scans(topics, 10, 80)

    class Restless(TopicDirectory):
        replacements = 0

        def layouts(self, ranges):
            found = super().layouts(ranges)
            if self.replacements < 3:
                # The broker merges what it has just listed.
                self.replacements += 1
                self.thin_out(TOPIC, lambda _: True)
            return found

    restless = Restless(topics.path)
    topics.compact(TOPIC)
    access = SegmentAccess(ReadThrough.NEVER)
    assert offsets(rows(restless, planned, access=access)) == list(range(10, 80))
    assert restless.replacements == 3


def test_tail_sealed_since_the_plan_is_read_once(topics):
    planned = scans(topics, 70, 100)
    topics.seal(TOPIC)
    assert offsets(rows(topics, planned)) == list(range(70, 100))


def test_messages_dropped_since_the_plan_are_reported(topics):
    planned = scans(topics, 10, 95)
    topics.drop_below(TOPIC, 40)
    with pytest.raises(OffsetDropped, match="messages 10 … 40"):
        rows(topics, planned)
    found = rows(topics, planned, fail_on_data_loss=False)
    assert offsets(found) == list(range(40, 95))


def test_topic_recreated_since_the_plan_is_not_read(topics):
    planned = scans(topics, 0, 40)
    topics.drop_below(TOPIC, 80)
    topics.create(TOPIC, topic_id=2)
    topics.publish(TOPIC, 200)
    with pytest.raises(OffsetDropped, match="created again"):
        rows(topics, planned)
    assert rows(topics, planned, fail_on_data_loss=False) == []


def test_a_segment_that_lacks_messages_is_refused(topics):
    planned = rewritten(scans(topics, 0, 40), lambda whole: whole.slice(0, 39))
    with pytest.raises(CorruptSegment, match="has 39 messages, the manifest says 40"):
        rows(topics, planned)


@pytest.mark.parametrize(("gap", "words"), [(5, "gaps"), (10, "10 … 11 are missing")])
def test_a_segment_whose_offsets_have_gaps_is_refused(topics, gap, words):
    def with_gap(whole):
        twice = [whole.slice(0, gap), whole.slice(gap + 1), whole.slice(39)]
        return pa.concat_tables(twice)

    # Inside a row group of ten messages, and between two.
    planned = rewritten(scans(topics, 0, 40), with_gap)
    with pytest.raises(CorruptSegment, match=words):
        rows(topics, planned)


def test_a_segment_that_is_known_to_have_gaps_is_read_as_it_is(topics):
    topics.thin_out(TOPIC, lambda offset: offset % 10 not in (0, 9))
    kept = [each for each in range(100) if each >= 80 or each % 10 not in (0, 9)]
    for limits in ({}, {"scan_bytes_max": 200}, {"scans_min": 9}):
        assert offsets(rows(topics, scans(topics, 0, 100, **limits))) == kept
    for base in (0, 8, 9, 10, 39, 40):
        found = offsets(rows(topics, scans(topics, base, 79)))
        assert found == [each for each in kept if base <= each < 79]


def test_a_segment_without_any_message_left_is_no_loss(topics):
    topics.thin_out(TOPIC, lambda offset: offset >= 40)
    assert offsets(rows(topics, scans(topics, 0, 100))) == list(range(40, 100))


def test_segment_with_gaps_must_have_the_count_of_the_manifest(topics):
    topics.thin_out(TOPIC, lambda offset: offset % 2)
    planned = rewritten(scans(topics, 0, 40), lambda whole: whole.slice(1))
    with pytest.raises(CorruptSegment, match="has 19 messages, the manifest says 20"):
        rows(topics, planned)

    def backwards(whole):
        part = whole.take([5, 4, *range(6, 19), 0])
        return pa.concat_tables([part, part.slice(0, 4)])

    planned = rewritten(planned, backwards)
    with pytest.raises(CorruptSegment, match="not in order"):
        rows(topics, planned)


def test_tail_sealed_and_compacted_since_the_plan_is_read(topics):
    planned = scans(topics, 75, 100)
    topics.seal(TOPIC)
    topics.thin_out(TOPIC, lambda offset: offset % 3 == 0)
    assert offsets(rows(topics, planned)) == list(range(75, 100, 3))


def test_messages_missing_from_the_broker_are_an_error(topics):
    class Forgetful(TopicDirectory):
        def read(self, topic, base, end):
            for batch in super().read(topic, base, end):
                yield batch.slice(0, 3)

    planned = scans(topics, 80, 100)
    with pytest.raises(CorruptSegment, match=r"messages 80 … 84 are missing"):
        rows(Forgetful(topics.path), planned)


TIME = datetime.fromtimestamp(FIRST_TIME_US // 1_000_000, UTC)


@pytest.mark.parametrize(
    ("pushed", "expected"),
    [
        (spark.GreaterThanOrEqual(("offset",), 77), range(77, 100)),
        (spark.In(("offset",), (3, 50, 99)), [3, 50, 99]),
        (spark.EqualTo(("key",), b"k3"), range(3, 100, 5)),
        (spark.EqualTo(("key",), "k3"), range(3, 100, 5)),
        (spark.IsNull(("key",)), range(0, 100, 5)),
        (spark.LessThan(("publish_time",), TIME + timedelta(microseconds=4)), range(4)),
        (spark.StringStartsWith(("key",), "x"), []),
    ],
)
@pytest.mark.parametrize("limits", [{}, {"scans_min": 7}])
def test_messages_that_do_not_match_are_dropped(topics, pushed, expected, limits):
    conditions = (condition_of(pushed),)
    planned = scans(topics, 0, 100, **limits)
    for schema in (SCHEMA, pa.schema({"offset": pa.int64()})):
        found = rows(topics, planned, schema, conditions=conditions)
        assert offsets(found) == list(expected)


def test_row_groups_without_matches_are_not_read(topics, monkeypatch):
    groups = []
    whole = pq.ParquetFile.iter_batches

    def recording(self, size, row_groups, **rest):
        groups.append(row_groups)
        return whole(self, size, row_groups, **rest)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", recording)
    late = spark.GreaterThan(("publish_time",), TIME + timedelta(microseconds=24))
    early = spark.In(("offset",), (27, 61))
    conditions = (condition_of(late), condition_of(early))
    assert offsets(rows(topics, scans(topics, 0, 80), conditions=conditions)) == [
        27,
        61,
    ]
    assert groups == [[2], [2]]


def test_missing_message_is_an_error_even_if_it_does_not_match(topics):
    def with_gap(whole):
        gap = [whole.slice(0, 9), whole.slice(10), whole.slice(39)]
        return pa.concat_tables(gap)

    planned = rewritten(scans(topics, 0, 40), with_gap)
    conditions = (condition_of(spark.GreaterThan(("offset",), 30)),)
    with pytest.raises(CorruptSegment):
        rows(topics, planned, conditions=conditions)


def test_a_partition_is_known_by_its_topic_and_its_number(topics):
    schema = pa.schema({"topic": pa.string(), "partition": pa.int32()})
    assert rows(topics, scans(topics, 0, 1), schema) == [
        {"topic": TOPIC, "partition": 0}
    ]
    batch = pa.record_batch({"offset": pa.array([0])})
    [found] = scan_reader.conform(batch, f"{TOPIC}-part-3", schema)
    assert found.to_pylist() == [{"topic": TOPIC, "partition": 3}]


def test_times_of_delivery_and_expiry_are_null_where_a_segment_has_no_column(topics):
    schema = pa.schema({"deliver_at": TIME_TYPE, "expires_at": TIME_TYPE})
    assert rows(topics, scans(topics, 0, 1), schema) == [
        {"deliver_at": None, "expires_at": None}
    ]


def test_invalid_utf8_is_refused_with_the_column(topics):
    batch = pa.record_batch({"payload": pa.array([b"\xff"])})
    schema = pa.schema({"payload": pa.string()})
    with pytest.raises(InvalidRequest, match="payload cannot be read as string"):
        list(scan_reader.conform(batch, TOPIC, schema))


@pytest.mark.parametrize(
    ("name", "arrow_type"), [("colour", pa.string()), ("offset", pa.int32())]
)
def test_schema_with_unknown_columns_is_refused(name, arrow_type):
    with pytest.raises(InvalidRequest, match=name):
        check_schema(pa.schema({name: arrow_type}))
