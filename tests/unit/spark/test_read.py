"""One scan as Arrow batches."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pydanube.model.errors import CorruptSegment, InvalidRequest, OffsetDropped
from pydanube.spark import read
from pydanube.spark.planning import Scan, plan_scans
from pydanube.spark.read import SCHEMA, check_schema, read_scan
from support.topic_directory import TopicDirectory

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


def rows(topics, planned, schema=SCHEMA, *, fail_on_data_loss=True):
    batches = [
        batch
        for scan in planned
        for batch in read_scan(
            scan, schema, topics, fail_on_data_loss=fail_on_data_loss
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
def test_a_range_is_read_in_order_whatever_the_cuts(topics, base, end, limits):
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


def test_only_the_wanted_columns_come_in_the_wanted_order(topics):
    schema = pa.schema({"payload": pa.string(), "offset": pa.int64()})
    found = rows(topics, scans(topics, 79, 81), schema)
    assert found == [{"payload": "m79", "offset": 79}, {"payload": "m80", "offset": 80}]


def test_the_offset_need_not_be_wanted(topics):
    schema = pa.schema({"topic": pa.string()})
    assert len(rows(topics, scans(topics, 5, 95), schema)) == 90


def test_only_row_groups_that_hold_some_of_it_are_read(topics, monkeypatch):
    groups = []
    whole = pq.ParquetFile.iter_batches

    def recording(self, size, row_groups, **rest):
        groups.extend(row_groups)
        return whole(self, size, row_groups, **rest)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", recording)
    assert offsets(rows(topics, scans(topics, 12, 18))) == list(range(12, 18))
    assert groups == [1]


def test_no_batch_is_larger_than_the_bound(topics, monkeypatch):
    monkeypatch.setattr(read, "BATCH_BYTES_MAX", 300)
    topics.payload_bytes = 100
    topics.publish(TOPIC, 20)
    topics.seal(TOPIC)
    (scan,) = scans(topics, 80, 120)
    batches = list(read_scan(scan, SCHEMA, topics, fail_on_data_loss=True))
    assert all(batch.nbytes <= 300 or batch.num_rows == 1 for batch in batches)
    assert sum(batch.num_rows for batch in batches) == 40


def test_a_segment_that_was_replaced_meanwhile_is_looked_up_again(topics):
    planned = scans(topics, 10, 95)
    topics.compact(TOPIC)
    assert offsets(rows(topics, planned)) == list(range(10, 95))


def test_a_tail_that_was_sealed_meanwhile_is_still_read_once(topics):
    planned = scans(topics, 70, 100)
    topics.seal(TOPIC)
    assert offsets(rows(topics, planned)) == list(range(70, 100))


def test_what_retention_dropped_meanwhile_is_reported_with_the_gap(topics):
    planned = scans(topics, 10, 95)
    topics.drop_below(TOPIC, 40)
    with pytest.raises(OffsetDropped, match="messages 10 … 40"):
        rows(topics, planned)
    found = rows(topics, planned, fail_on_data_loss=False)
    assert offsets(found) == list(range(40, 95))


def test_a_topic_that_was_created_again_meanwhile_is_not_mixed_in(topics):
    planned = scans(topics, 0, 40)
    topics.drop_below(TOPIC, 80)
    topics.create(TOPIC, topic_id=2)
    topics.publish(TOPIC, 200)
    with pytest.raises(OffsetDropped, match="created again"):
        rows(topics, planned)
    assert rows(topics, planned, fail_on_data_loss=False) == []


def test_a_segment_that_lacks_messages_is_refused(topics):
    (scan,) = scans(topics, 0, 40)
    short = Scan(TOPIC, 1, 0, 40, scan.slices)
    path = scan.slices[0].url.removeprefix("file://")
    pq.write_table(pq.read_table(path).slice(0, 39), path)
    with pytest.raises(CorruptSegment, match="39 … 40"):
        rows(topics, [short])


def test_a_segment_whose_offsets_have_gaps_is_refused(topics):
    planned = scans(topics, 0, 40)
    path = planned[0].slices[0].url.removeprefix("file://")
    whole = pq.read_table(path)
    pq.write_table(pa.concat_tables([whole.slice(0, 10), whole.slice(11)]), path)
    with pytest.raises(CorruptSegment, match="gaps"):
        rows(topics, planned)


def test_bytes_that_are_no_text_are_refused_with_the_column_s_name(topics):
    batch = pa.record_batch({"payload": pa.array([b"\xff"])})
    schema = pa.schema({"payload": pa.string()})
    with pytest.raises(InvalidRequest, match="payload cannot be read as string"):
        list(read.conform(batch, TOPIC, schema))


@pytest.mark.parametrize(
    ("name", "arrow_type"), [("colour", pa.string()), ("offset", pa.int32())]
)
def test_a_schema_that_topics_do_not_have_is_refused(name, arrow_type):
    with pytest.raises(InvalidRequest, match=name):
        check_schema(pa.schema({name: arrow_type}))
