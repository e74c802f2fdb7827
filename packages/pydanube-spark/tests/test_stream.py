"""Micro-batches as Spark asks for them, without Spark."""

import json
from collections import Counter

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)

from pydanube.model.errors import InvalidConfig, OffsetDropped, TopicNotFound
from pydanube_spark.reader.catalog import ChangedHeads
from pydanube_spark.reader.pure.query_positions import from_json
from pydanube_spark.reader.pure.read_options import Mode, parse_read_options
from pydanube_spark.reader.scan_reader import SCHEMA
from pydanube_spark.stream import NAMES_AGE_MAX_S, StreamReader
from support.fakes.topic_directory import FIRST_TIME_US, TopicDirectory

A, B = "/default/a", "/default/b"


@pytest.fixture
def topics(tmp_path):
    directory = TopicDirectory(tmp_path)
    for topic, topic_id in ((A, 1), (B, 2)):
        directory.create(topic, topic_id)
        directory.publish(topic, 30)
        directory.seal(topic)
        directory.publish(topic, 10)
    return directory


class Stream:
    """A query, as far as the source sees it."""

    def __init__(self, topics, checkpoint=None, **options):
        options = {"startingOffsets": "earliest"} | options
        if not {"subscribePattern", "assign"} & set(options):
            options = {"subscribe": f"{A},{B}"} | options
        options = {name: value for name, value in options.items() if value is not None}
        self.waits = []
        self.reader = StreamReader(
            parse_read_options(options, Mode.STREAM),
            SCHEMA,
            lambda _: topics,
            wait=self._wait,
            clock=lambda: self.now,
        )
        self.now = 0.0
        self.while_waiting = lambda: None
        self.at = checkpoint or self.reader.initialOffset()
        self.limit = self.reader.getDefaultReadLimit()

    def _wait(self, seconds):
        self.waits.append(seconds)
        self.while_waiting()

    def batch(self):
        """One micro-batch, or None if there is nothing new."""
        end = self.reader.latestOffset(self.at, self.limit)
        if json.dumps(end) == json.dumps(self.at):
            return None
        partitions = self.reader.partitions(self.at, end)
        found = read_all(self.reader, partitions)
        self.at = end
        return found


def read_all(reader, partitions):
    batches = [batch for each in partitions for batch in reader.read(each)]
    table = pa.Table.from_batches(batches, SCHEMA)
    return [
        (row["topic"][-1], row["offset"])
        for row in table.select(["topic", "offset"]).to_pylist()
    ]


def expected(letter, base, end):
    return [(letter, offset) for offset in range(base, end)]


def test_stream_reads_new_messages_once(topics):
    stream = Stream(topics)
    assert stream.batch() == expected("a", 0, 40) + expected("b", 0, 40)
    assert stream.batch() is None
    topics.publish(B, 5)
    assert stream.batch() == expected("b", 40, 45)


def test_stream_from_latest_reads_only_new_messages(topics):
    stream = Stream(topics, startingOffsets="latest")
    assert stream.batch() is None
    topics.publish(A, 1)
    assert stream.batch() == expected("a", 40, 41)


def test_stream_without_new_messages_asks_again_after_a_wait(topics):
    stream = Stream(topics, startingOffsets="latest")
    stream.while_waiting = lambda: topics.publish(A, 1)
    assert stream.batch() == expected("a", 40, 41)
    assert len(stream.waits) == 1


class CountingTopics(TopicDirectory):
    """Topics that count the requests of a stream."""

    def __init__(self, path):
        super().__init__(path)
        self.requests = Counter()

    def partitions(self, topic):
        self.requests["names"] += 1
        return super().partitions(topic)

    def heads(self, names, **options):
        self.requests["heads"] += 1
        return super().heads(names, **options)

    def layouts(self, ranges):
        self.requests["layouts"] += 1
        return super().layouts(ranges)

    def report_positions(self, subscription, offsets):
        self.requests["reports"] += 1
        return super().report_positions(subscription, offsets)


class ChangingTopics(TopicDirectory):
    """Topics that know which of them have changed."""

    def __init__(self, path):
        super().__init__(path)
        self.asked = []
        """How many heads were asked for; None: the changes."""

    def changed_heads(self, topics, since=None, *, skips_non_reliable):
        heads = self.heads(topics, skips_non_reliable=skips_non_reliable)
        self.asked.append(None if since else len(heads))
        changed = {
            name: head
            for name, head in heads.items()
            if not since or since[name] != head
        }
        return ChangedHeads(changed, heads, is_complete=not since)


def test_micro_batch_of_many_topics_needs_few_requests(tmp_path):
    topics = CountingTopics(tmp_path)
    names = [f"/default/t{number:02}" for number in range(64)]
    for number, name in enumerate(names):
        topics.create(name, number)
    stream = Stream(topics, subscribe=",".join(names), subscription="g")
    assert stream.batch() is None
    for name in names:
        topics.publish(name, 1)
    topics.requests.clear()
    assert len(stream.batch()) == 64
    # The names are known, no segment is needed, and reports wait for the next batch.
    assert topics.requests == {"heads": 1}
    for name in names:
        topics.publish(name, 1)
        topics.seal(name)
    assert len(stream.batch()) == 64
    assert topics.requests == {"heads": 2, "layouts": 1, "reports": 1}
    topics.requests.clear()
    assert stream.batch() is None
    assert topics.requests["reports"] == 1


def test_idle_stream_looks_for_new_topics_once_a_second(tmp_path):
    topics = CountingTopics(tmp_path)
    topics.create(A)
    stream = Stream(topics, subscribe=A, startingOffsets="latest")

    def pass_time():
        stream.now += stream.waits[-1]

    stream.while_waiting = pass_time
    assert stream.batch() is None
    topics.requests.clear()
    begin = stream.now
    while stream.now < begin + 10:
        assert stream.batch() is None
    assert topics.requests["heads"] > 100
    assert topics.requests["names"] <= 10


def test_idle_stream_reads_only_changes(tmp_path):
    topics = ChangingTopics(tmp_path)
    for number in range(3):
        topics.create(f"{A}-part-{number}", number + 1)
        topics.publish(f"{A}-part-{number}", 1)
    stream = Stream(topics, subscribe=A)
    assert len(stream.batch()) == 3
    assert stream.batch() is None
    topics.asked.clear()
    assert stream.batch() is None
    assert {*topics.asked} == {None}, "all heads were read again"
    topics.publish(f"{A}-part-1", 2)
    assert len(stream.batch()) == 2
    # A new topic has no changes that a broker knows.
    topics.create(f"{A}-part-3", 4)
    topics.publish(f"{A}-part-3", 5)
    stream.now += NAMES_AGE_MAX_S
    assert len(stream.batch()) == 5
    assert topics.asked[-1] == 4


def test_row_limit_is_divided_among_topics(topics):
    stream = Stream(topics, maxOffsetsPerTrigger="30")
    sizes = []
    while (found := stream.batch()) is not None:
        sizes.append(len(found))
        assert {letter for letter, _ in found} == {"a", "b"}
    assert sizes == [30, 30, 20]


def test_available_now_ignores_messages_published_later(topics):
    stream = Stream(topics, maxOffsetsPerTrigger="50")
    stream.reader.prepareForTriggerAvailableNow()
    topics.publish(A, 100)
    found = (stream.batch() or []) + (stream.batch() or [])
    assert sorted(found) == expected("a", 0, 40) + expected("b", 0, 40)
    assert stream.batch() is None
    assert stream.waits == []


def test_range_is_read_again_after_a_restart_and_sealing(topics):
    stream = Stream(topics)
    start, end = stream.at, stream.reader.latestOffset(stream.at, ReadAllAvailable())
    topics.seal(A)
    topics.publish(A, 50)
    restarted = Stream(topics, checkpoint=json.loads(json.dumps(start)))
    found = read_all(restarted.reader, restarted.reader.partitions(start, end))
    assert found == expected("a", 0, 40) + expected("b", 0, 40)


def test_a_topic_that_matches_later_is_read_from_its_beginning(topics):
    stream = Stream(topics, subscribePattern="/default/.", startingOffsets="latest")
    topics.create("/default/c", 3)
    topics.publish("/default/c", 4)
    assert stream.batch() == expected("c", 0, 4)


def test_new_topic_without_its_beginning_is_read(topics):
    stream = Stream(topics, subscribePattern="/default/.", startingOffsets="latest")
    topics.create("/default/c", 3)
    topics.publish("/default/c", 4)
    topics.seal("/default/c")
    topics.publish("/default/c", 4)
    topics.drop_below("/default/c", 4)
    assert stream.batch() == expected("c", 4, 8)


def test_stream_behind_retention_fails(topics):
    stream = Stream(topics)
    topics.drop_below(A, 30)
    with pytest.raises(OffsetDropped, match="messages 0 … 30"):
        stream.batch()


def test_stream_continues_after_a_loss_if_allowed(topics):
    stream = Stream(topics, failOnDataLoss="false")
    topics.drop_below(A, 30)
    assert stream.batch() == expected("a", 30, 40) + expected("b", 0, 40)
    topics.delete(B)
    topics.publish(A, 1)
    assert stream.batch() == expected("a", 40, 41)
    topics.create(B, 7)
    topics.publish(B, 2)
    assert stream.batch() == expected("b", 0, 2)


def test_deleted_topic_fails_a_strict_stream(topics):
    stream = Stream(topics)
    topics.delete(B)
    with pytest.raises(TopicNotFound, match=B):
        stream.batch()


def test_lag_is_reported_to_spark_and_progress_to_the_broker(topics):
    stream = Stream(topics, subscription="query", maxOffsetsPerTrigger="20")
    assert stream.reader.reportLatestOffset()[A] == {"id": 1, "offset": 40}
    while stream.batch() is not None:
        pass
    # The last batch is reported too, although Spark never commits it.
    assert topics.progress == {(A, "query"): 40, (B, "query"): 40}


def test_commit_reports_progress_only_where_a_subscription_is_named(topics):
    quiet, loud = Stream(topics), Stream(topics, subscription="query")
    end = quiet.reader.latestOffset(quiet.at, ReadAllAvailable())
    quiet.reader.commit(end)
    assert topics.progress == {}
    loud.reader.commit(end)
    assert topics.progress == {(A, "query"): 40, (B, "query"): 40}


def test_limit_of_spark_overrides_the_option(topics):
    reader = Stream(topics, maxOffsetsPerTrigger="20").reader
    assert reader.getDefaultReadLimit() == ReadMaxRows(20)
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadAllAvailable())[A]["offset"] == 40


PARTED = "/default/orders"
PARTS = [f"{PARTED}-part-{number}" for number in range(3)]


@pytest.fixture
def parted(topics):
    """A topic with two partitions of ten messages each."""
    for number, name in enumerate(PARTS[:2]):
        topics.create(name, 10 + number)
        topics.publish(name, 10)
    return topics


def partitions_of(stream):
    """One micro-batch, as the number of messages from each partition."""
    schema = pa.schema({"topic": pa.string(), "partition": pa.int32()})
    stream.reader._schema = schema
    end = stream.reader.latestOffset(stream.at, stream.limit)
    planned = stream.reader.partitions(stream.at, end)
    stream.at = end
    batches = [batch for each in planned for batch in stream.reader.read(each)]
    rows = pa.Table.from_batches(batches, schema).to_pylist()
    assert {row["topic"] for row in rows} <= {PARTED}
    return dict(Counter(row["partition"] for row in rows))


def test_partitioned_topic_is_selected_by_its_name(parted):
    stream = Stream(parted, subscribe=PARTED)
    assert sorted(from_json(stream.at)) == PARTS[:2]
    assert partitions_of(stream) == {0: 10, 1: 10}


def test_a_new_partition_is_read_from_its_first_message(parted):
    stream = Stream(parted, subscribe=PARTED, startingOffsets="latest")
    assert partitions_of(stream) == {}
    parted.create(PARTS[2], 12)
    parted.publish(PARTS[2], 4)
    parted.publish(PARTS[0], 1)
    stream.now += NAMES_AGE_MAX_S
    assert partitions_of(stream) == {0: 1, 2: 4}


def test_only_assigned_partitions_are_read(parted):
    assigned = {"subscribePattern": None, "assign": json.dumps({PARTED: [1]})}
    stream = Stream(parted, **assigned)
    assert partitions_of(stream) == {1: 10}
    with pytest.raises(TopicNotFound, match=f"{PARTED} partition 7"):
        Stream(parted, **assigned | {"assign": json.dumps({PARTED: [1, 7]})})


def test_partitions_are_filtered_by_their_number(parted):
    options = {"subscribePattern": "/default/.*", "filter.partitions": "1"}
    assert partitions_of(Stream(parted, **options)) == {1: 10}


def test_unselected_topics_keep_their_positions(topics):
    stream = Stream(topics)
    assert stream.batch() == expected("a", 0, 40) + expected("b", 0, 40)
    topics.publish(A, 5)
    topics.publish(B, 5)
    fewer = Stream(topics, checkpoint=stream.at, subscribe=A)
    assert fewer.batch() == expected("a", 40, 45)
    assert fewer.batch() is None
    again = Stream(topics, checkpoint=fewer.at)
    assert again.batch() == expected("b", 40, 45)


def test_a_stream_starts_at_a_time(topics):
    time = (FIRST_TIME_US + 7_000) // 1000
    topics.publish(A, 10_000)
    strict = {"subscribe": A, "startingTimestamp": str(time)}
    assert Stream(topics, startingOffsets=None, **strict).at[A]["offset"] == 7_000
    late = {"startingOffsets": None, "startingTimestamp": str(time + 10**6)}
    with pytest.raises(InvalidConfig, match=r"startingTimestamp: .* has no message"):
        Stream(topics, **late)
    late["startingOffsetsByTimestampStrategy"] = "latest"
    assert Stream(topics, **late).at[B]["offset"] == 40


def test_bytes_of_a_micro_batch_are_limited(topics):
    stream = Stream(topics, subscribe=A, maxBytesPerTrigger="500")
    assert stream.limit == ReadMaxBytes(500)
    found = []
    while (batch := stream.batch()) is not None:
        found.append(len(batch))
    assert sum(found) == 40
    assert len(found) > 3
    # A message of the tail counts as 100 bytes if its size is unknown.
    assert found[-2:] == [5, 5]


def test_both_limits_of_a_micro_batch_apply(topics):
    few = {"maxOffsetsPerTrigger": "3", "maxBytesPerTrigger": "1g"}
    stream = Stream(topics, **few)
    assert stream.limit == ReadMaxRows(3)
    assert len(stream.batch()) == 3
    small = {"maxOffsetsPerTrigger": "1000", "maxBytesPerTrigger": "1"}
    assert len(Stream(topics, **small).batch()) == 1
    everything = Stream(topics, **small)
    end = everything.reader.latestOffset(everything.at, ReadAllAvailable())
    assert (end[A]["offset"], end[B]["offset"]) == (40, 40)


def test_stream_waits_for_enough_messages_or_the_delay(topics):
    patient = {"minOffsetsPerTrigger": "10", "maxTriggerDelay": "30s"}
    stream = Stream(topics, startingOffsets="latest", **patient)
    assert stream.limit == ReadMinRows(10)
    topics.publish(A, 1)
    # The first micro-batch of a run does not wait.
    assert stream.batch() == expected("a", 40, 41)
    topics.publish(A, 9)
    assert stream.batch() is None
    topics.publish(B, 1)
    assert stream.batch() == expected("a", 41, 50) + expected("b", 40, 41)
    topics.publish(A, 1)
    stream.now = 29.9
    assert stream.batch() is None
    stream.now = 30.0
    assert stream.batch() == expected("a", 50, 51)
    stream.now = 59.0
    assert stream.batch() is None


def test_available_now_does_not_wait_for_more(topics):
    stream = Stream(topics, minOffsetsPerTrigger="1000", maxOffsetsPerTrigger="1000")
    stream.reader.prepareForTriggerAvailableNow()
    assert len(stream.batch()) == 80
    topics.publish(A, 1)
    stream.reader.prepareForTriggerAvailableNow()
    assert stream.batch() == expected("a", 40, 41)


def test_without_the_tail_only_segments_are_read(topics):
    stream = Stream(topics, tail="none")
    assert stream.batch() == expected("a", 0, 30) + expected("b", 0, 30)
    assert stream.batch() is None
    # Lag counts all messages.
    assert stream.reader.reportLatestOffset()[A]["offset"] == 40
    topics.seal(A)
    assert stream.batch() == expected("a", 30, 40)


def test_stream_that_stops_reading_the_tail_has_no_loss(topics):
    stream = Stream(topics)
    assert len(stream.batch()) == 80
    without = Stream(topics, checkpoint=stream.at, tail="none")
    assert without.batch() is None
    topics.publish(A, 5)
    topics.seal(A)
    assert without.batch() == expected("a", 40, 45)


def test_stream_advances_over_a_segment_with_gaps(topics):
    topics.thin_out(A, lambda offset: offset % 2 == 0)
    stream = Stream(topics, subscribe=A, maxOffsetsPerTrigger="10")
    found = [len(batch) for batch in iter(stream.batch, None)]
    # The limit counts offsets, so it is never exceeded.
    assert found == [5, 5, 5, 10]


VALUES_SCHEMA = pa.schema({"offset": pa.int64(), "_error": pa.string()})
DECODE = {"decode": "true", "onUndecodable": "null", "startingOffsets": "earliest"}


@pytest.fixture
def bound(topics):
    """Both topics, bound to a subject with one version."""
    topics.bound |= {A: "orders", B: "orders"}
    topics.register("orders", ORDER)
    return topics


ORDER = json.dumps({"type": "object", "properties": {"id": {"type": "integer"}}})


def decoding_stream(topics, **options):
    options = {"subscribe": f"{A},{B}"} | DECODE | options
    return StreamReader(
        parse_read_options(options, Mode.STREAM),
        VALUES_SCHEMA,
        lambda _: topics,
        wait=lambda _: None,
    )


def test_repeated_micro_batch_has_the_same_reader_schema(bound):
    reader = decoding_stream(bound)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(10))
    bound.register("orders", ORDER, ORDER)
    moved = decoding_stream(bound, schemaVersion="latest")
    for again in (reader, moved):
        versions = {
            each.decoding.reader_schema.version for each in again.partitions(start, end)
        }
        assert versions == {1}
    later = moved.latestOffset(end, ReadMaxRows(10))
    assert [each["values"]["version"] for each in (start, end, later)] == [1, 1, 2]


def test_micro_batch_that_ended_at_new_columns_is_repeated_with_them(bound):
    reader = decoding_stream(bound, onNewVersion="fail")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(10))
    bound.register("orders", ORDER, ORDER)
    again = decoding_stream(bound, onNewVersion="fail")
    [decoding] = {
        id(e.decoding): e.decoding for e in again.partitions(start, end)
    }.values()
    assert (decoding.reader_schema.version, decoding.fails_on_new) == (2, True)
    later = again.latestOffset(end, ReadMaxRows(10))
    assert later["values"]["version"] == 2


def test_new_schema_version_alone_starts_no_micro_batch(bound):
    reader = decoding_stream(bound)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    bound.register("orders", ORDER, ORDER)
    moved = decoding_stream(bound, schemaVersion="latest")
    assert moved.latestOffset(end, ReadAllAvailable()) == end
