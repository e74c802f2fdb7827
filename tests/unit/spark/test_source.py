"""The data source as Spark calls it, without Spark."""

import json
import pickle
import re
import subprocess
import sys

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import pyspark_danube
from pydanube.model.errors import InvalidRequest, OffsetDropped, TopicNotFound
from pydanube.spark.options import Mode, parse_options
from pydanube.spark.read import SCHEMA
from pydanube.spark.source import (
    BatchReader,
    DanubeDataSource,
    StreamReader,
    schema_of,
)
from support.topic_directory import TopicDirectory

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
        if "subscribePattern" not in options:
            options = {"subscribe": f"{A},{B}"} | options
        self.waits = []
        self.reader = StreamReader(
            parse_options(options, Mode.STREAM), SCHEMA, lambda _: topics, self._wait
        )
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


def batch_of(topics, **options):
    options = {"subscribe": f"{A},{B}"} | options
    reader = BatchReader(parse_options(options, Mode.BATCH), SCHEMA, lambda _: topics)
    return read_all(reader, reader.partitions())


def test_a_batch_reads_everything_by_default(topics):
    assert batch_of(topics) == expected("a", 0, 40) + expected("b", 0, 40)


def test_a_batch_reads_between_its_offsets(topics):
    found = batch_of(
        topics,
        startingOffsets=json.dumps({A: 35, B: -2}),
        endingOffsets=json.dumps({A: -1, B: 3}),
    )
    assert found == expected("a", 35, 40) + expected("b", 0, 3)


def test_a_batch_that_starts_before_what_is_kept_says_what_is_missing(topics):
    topics.drop_below(A, 30)
    start = json.dumps({A: 5, B: 40})
    with pytest.raises(OffsetDropped, match=f"{A}: messages 5 … 30"):
        batch_of(topics, startingOffsets=start)
    found = batch_of(topics, startingOffsets=start, failOnDataLoss="false")
    assert found == expected("a", 30, 40)


def test_a_batch_of_a_missing_topic_is_refused(topics):
    with pytest.raises(TopicNotFound, match="/default/c"):
        batch_of(topics, subscribe="/default/c")


def test_a_pattern_selects_whole_names(topics):
    assert batch_of_pattern(topics, "/default/.") == batch_of(topics)
    assert batch_of_pattern(topics, "/default") == []


def batch_of_pattern(topics, pattern):
    options = parse_options({"subscribePattern": pattern}, Mode.BATCH)
    reader = BatchReader(options, SCHEMA, lambda _: topics)
    return read_all(reader, reader.partitions())


def test_min_partitions_cuts(topics):
    options = parse_options({"subscribe": A, "minPartitions": "8"}, Mode.BATCH)
    reader = BatchReader(options, SCHEMA, lambda _: topics)
    assert len(reader.partitions()) == 8
    assert read_all(reader, reader.partitions()) == expected("a", 0, 40)


def test_a_partition_that_spark_made_up_is_empty(topics):
    reader = BatchReader(
        parse_options({"subscribe": A}, Mode.BATCH), SCHEMA, lambda _: topics
    )
    assert list(reader.read(InputPartition(None))) == []


def test_a_stream_reads_what_comes_and_nothing_twice(topics):
    stream = Stream(topics)
    assert stream.batch() == expected("a", 0, 40) + expected("b", 0, 40)
    assert stream.batch() is None
    topics.publish(B, 5)
    assert stream.batch() == expected("b", 40, 45)


def test_a_stream_that_starts_at_latest_reads_only_what_comes(topics):
    stream = Stream(topics, startingOffsets="latest")
    assert stream.batch() is None
    topics.publish(A, 1)
    assert stream.batch() == expected("a", 40, 41)


def test_a_stream_without_news_looks_again_after_a_short_wait(topics):
    stream = Stream(topics, startingOffsets="latest")
    stream.while_waiting = lambda: topics.publish(A, 1)
    assert stream.batch() == expected("a", 40, 41)
    assert len(stream.waits) == 1


def test_a_limit_is_kept_and_every_topic_gets_its_share(topics):
    stream = Stream(topics, maxOffsetsPerTrigger="30")
    sizes = []
    while (found := stream.batch()) is not None:
        sizes.append(len(found))
        assert {letter for letter, _ in found} == {"a", "b"}
    assert sizes == [30, 30, 20]


def test_available_now_ends_where_it_began_whatever_comes_meanwhile(topics):
    stream = Stream(topics, maxOffsetsPerTrigger="50")
    stream.reader.prepareForTriggerAvailableNow()
    topics.publish(A, 100)
    found = (stream.batch() or []) + (stream.batch() or [])
    assert sorted(found) == expected("a", 0, 40) + expected("b", 0, 40)
    assert stream.batch() is None
    assert stream.waits == []


def test_the_same_range_is_read_again_after_a_restart_even_if_it_was_sealed(topics):
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


def test_a_topic_that_matches_later_may_have_lost_its_beginning_already(topics):
    stream = Stream(topics, subscribePattern="/default/.", startingOffsets="latest")
    topics.create("/default/c", 3)
    topics.publish("/default/c", 4)
    topics.seal("/default/c")
    topics.publish("/default/c", 4)
    topics.drop_below("/default/c", 4)
    assert stream.batch() == expected("c", 4, 8)


def test_a_stream_that_was_overtaken_by_retention_says_so(topics):
    stream = Stream(topics)
    topics.drop_below(A, 30)
    with pytest.raises(OffsetDropped, match="messages 0 … 30"):
        stream.batch()


def test_a_stream_may_go_on_after_a_loss(topics):
    stream = Stream(topics, failOnDataLoss="false")
    topics.drop_below(A, 30)
    assert stream.batch() == expected("a", 30, 40) + expected("b", 0, 40)
    topics.delete(B)
    topics.publish(A, 1)
    assert stream.batch() == expected("a", 40, 41)
    topics.create(B, 7)
    topics.publish(B, 2)
    assert stream.batch() == expected("b", 0, 2)


def test_a_deleted_topic_ends_a_strict_stream(topics):
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


def test_the_engine_s_limit_wins_over_the_option(topics):
    reader = Stream(topics, maxOffsetsPerTrigger="20").reader
    assert reader.getDefaultReadLimit() == ReadMaxRows(20)
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadAllAvailable())[A]["offset"] == 40


def test_spark_finds_the_source_and_it_says_its_schema():
    source = pyspark_danube.DefaultSource({"subscribe": A})
    assert source.name() == DanubeDataSource.name() == "danube"
    assert source.schema() == DanubeDataSource({}).schema()


def test_readers_travel_to_tasks_without_a_connection():
    from pyspark.sql.types import LongType, StructField, StructType

    schema = StructType([StructField("offset", LongType())])
    source = pyspark_danube.DefaultSource({"subscribe": A})
    for reader in (source.reader(schema), source.streamReader(schema)):
        assert pickle.loads(pickle.dumps(reader))


def test_a_schema_with_an_unknown_column_is_refused_when_the_query_is_made():
    from pyspark.sql.types import LongType, StructField, StructType

    schema = StructType([StructField("ofset", LongType())])
    with pytest.raises(InvalidRequest, match="ofset"):
        pyspark_danube.DefaultSource({"subscribe": A}).reader(schema)


@pytest.mark.slow
def test_the_module_that_spark_imports_everywhere_imports_nothing_of_ours():
    code = (
        "import sys, pyspark_danube; "
        "assert not [name for name in sys.modules if name.startswith('pydanube')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


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
        parse_options(options, Mode.STREAM),
        VALUES_SCHEMA,
        lambda _: topics,
        lambda _: None,
    )


def test_the_columns_of_values_are_those_of_the_subject(bound):
    options = parse_options({"subscribe": A} | DECODE, None)
    found = schema_of(options, bound)
    assert found.names[-2:] == ["value", "_error"]
    assert found["value"].dataType.simpleString() == "struct<id:bigint>"
    assert found["value"].metadata == {
        "danube": {"subject": "orders", "schema_id": 1, "version": 1}
    }
    plain = schema_of(parse_options({"subscribe": A}, None), bound)
    assert [f"{each.name} {each.dataType.simpleString()}" for each in found][:-2] == [
        each.strip() for each in re.split(r",(?![^<]*>)", plain)
    ]


def test_a_micro_batch_that_is_run_again_is_read_as_the_same_version(bound):
    reader = decoding_stream(bound)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(10))
    bound.register("orders", ORDER, ORDER)
    moved = decoding_stream(bound, schemaVersion="latest")
    for again in (reader, moved):
        versions = {
            each.decoding.read_as.version for each in again.partitions(start, end)
        }
        assert versions == {1}
    later = moved.latestOffset(end, ReadMaxRows(10))
    assert [each["values"]["version"] for each in (start, end, later)] == [1, 1, 2]


def test_another_version_alone_is_no_micro_batch(bound):
    reader = decoding_stream(bound)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    bound.register("orders", ORDER, ORDER)
    moved = decoding_stream(bound, schemaVersion="latest")
    assert moved.latestOffset(end, ReadAllAvailable()) == end


def test_decoding_asks_for_columns_that_are_not_yielded(bound):
    options = parse_options(
        {"subscribe": A, "decode": "true"} | {"onUndecodable": "null"}, Mode.BATCH
    )
    reader = BatchReader(options, VALUES_SCHEMA, lambda _: bound)
    tables = [
        pa.Table.from_batches(reader.read(each), VALUES_SCHEMA)
        for each in reader.partitions()
    ]
    found = pa.concat_tables(tables)
    assert found["offset"].to_pylist() == list(range(40))
    assert set(found["_error"].to_pylist()) == {"it was written without a schema"}
