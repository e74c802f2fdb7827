"""The data source as Spark calls it, without Spark."""

import json
import pickle
import subprocess
import sys

import pyarrow as pa
import pytest
from pyspark.sql import datasource as spark
from pyspark.sql.datasource import DataSourceReader, InputPartition

import pyspark_danube
from pydanube.model.errors import (
    InvalidConfig,
    InvalidRequest,
    OffsetDropped,
    TopicNotFound,
)
from pydanube_spark.reader.pure.read_options import Mode, parse_read_options
from pydanube_spark.reader.scan_reader import SCHEMA
from pydanube_spark.source import (
    BatchReader,
    DanubeDataSource,
    schema_of,
)
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
    reader = BatchReader(
        parse_read_options(options, Mode.BATCH), SCHEMA, lambda _: topics
    )
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


def test_batch_that_starts_before_retention_names_the_missing_messages(topics):
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
    options = parse_read_options({"subscribePattern": pattern}, Mode.BATCH)
    reader = BatchReader(options, SCHEMA, lambda _: topics)
    return read_all(reader, reader.partitions())


def test_min_partitions_cuts(topics):
    options = parse_read_options({"subscribe": A, "minPartitions": "8"}, Mode.BATCH)
    reader = BatchReader(options, SCHEMA, lambda _: topics)
    assert len(reader.partitions()) == 8
    assert read_all(reader, reader.partitions()) == expected("a", 0, 40)


@pytest.mark.parametrize(("text", "count"), [("3", 3), ("", 1)])
def test_batch_uses_the_parallelism_of_the_session(topics, monkeypatch, text, count):
    monkeypatch.setenv("PYDANUBE_PARALLELISM", text)
    monkeypatch.setattr("pydanube_spark.reader.pure.scans.TASK_BYTES_MIN", 640)
    topics.create("/default/c", 3)
    topics.publish("/default/c", 40)
    topics.seal("/default/c")
    options = parse_read_options({"subscribe": "/default/c"}, Mode.BATCH)
    reader = BatchReader(options, SCHEMA, lambda _: topics)
    assert len(reader.partitions()) == count
    assert read_all(reader, reader.partitions()) == expected("c", 0, 40)


def test_partition_without_a_scan_is_empty(topics):
    reader = BatchReader(
        parse_read_options({"subscribe": A}, Mode.BATCH), SCHEMA, lambda _: topics
    )
    assert list(reader.read(InputPartition(None))) == []


def test_a_batch_reads_between_two_times(topics):
    time = (FIRST_TIME_US + 2_000) // 1000
    topics.publish(A, 10_000)
    found = batch_of(
        topics,
        subscribe=A,
        startingTimestamp=str(time),
        endingOffsetsByTimestamp=json.dumps({A: time + 1}),
    )
    assert found == expected("a", 2_000, 3_000)
    # Topics without such late messages are read to the end.
    late = str(time + 10**6)
    assert len(batch_of(topics, subscribe=A, endingTimestamp=late)) == 10_040


def test_batch_without_the_tail_ends_with_the_segments(topics):
    found = batch_of(topics, tail="none")
    assert found == expected("a", 0, 30) + expected("b", 0, 30)


def test_no_spark_partition_has_more_messages_than_the_limit(topics):
    options = parse_read_options(
        {"subscribe": A, "maxRecordsPerPartition": "7"}, Mode.BATCH
    )
    reader = BatchReader(options, SCHEMA, lambda _: topics)
    found = reader.partitions()
    assert max(scan.count for each in found for scan in each.scans) <= 7
    assert read_all(reader, found) == expected("a", 0, 40)


def pushed(topics, *conditions, **options):
    """What comes, how many scans were planned, and what is left to Spark."""
    options = {"subscribe": f"{A},{B}", "pushFilters": "true"} | options
    reader = BatchReader(
        parse_read_options(options, Mode.BATCH), SCHEMA, lambda _: topics
    )
    left = list(reader.pushFilters(conditions))
    planned = reader.partitions()
    there = pickle.loads(pickle.dumps(reader))
    return read_all(there, planned), len(planned), left


def test_conditions_exclude_topics_offsets_and_messages(topics):
    found, scans, left = pushed(
        topics, spark.EqualTo(("topic",), B), spark.GreaterThan(("offset",), 27)
    )
    assert (found, scans, left) == (expected("b", 28, 40), 1, [])
    found, scans, left = pushed(topics, spark.EqualTo(("partition",), 7))
    assert (found, scans, left) == ([], 0, [])
    key = spark.EqualTo(("key",), b"k2")
    found, _, left = pushed(topics, key, subscribe=A)
    assert (found, left) == ([("a", at) for at in range(2, 40, 5)], [])


def test_conditions_on_other_columns_are_left_to_spark(topics):
    payload = spark.EqualTo(("payload",), b"m3")
    found, _, left = pushed(
        topics, payload, spark.LessThan(("offset",), 4), subscribe=A
    )
    assert left == [payload]
    assert found == expected("a", 0, 4)


def test_conditions_are_left_to_spark_by_default(topics):
    late = spark.GreaterThan(("offset",), 27)
    found, _, left = pushed(topics, late, pushFilters="false")
    assert found == expected("a", 0, 40) + expected("b", 0, 40)
    assert left == [late]


def test_lost_messages_outside_the_conditions_are_ignored(topics):
    topics.drop_below(A, 30)
    start = json.dumps({A: 0})
    with pytest.raises(OffsetDropped):
        pushed(topics, subscribe=A, startingOffsets=start)
    late = spark.GreaterThanOrEqual(("offset",), 30)
    found, _, _ = pushed(topics, late, subscribe=A, startingOffsets=start)
    assert found == expected("a", 30, 40)


def test_push_filters_passes_for_the_inherited_method(topics):
    """As Spark decides it: by the function behind the method."""
    options = parse_read_options({"subscribe": A}, Mode.BATCH)
    reader = BatchReader(options, SCHEMA, lambda _: topics)
    assert reader.pushFilters.__func__ is DataSourceReader.pushFilters


def columns_of(**options):
    return schema_of(parse_read_options({"subscribe": A} | options, None), None).names


def test_only_requested_columns_are_read():
    assert columns_of()[-3:] == ["schema_id", "schema_version", "partition"]
    assert "attributes" not in columns_of()
    assert "attributes" in columns_of(includeAttributes="true")
    assert columns_of(columns="payload, offset") == ["payload", "offset"]
    assert columns_of(columns="expires_at") == ["expires_at"]


@pytest.mark.parametrize("columns", ["ofset", "value", "offset,_error"])
def test_unknown_columns_are_refused(columns):
    with pytest.raises(InvalidConfig, match="column"):
        columns_of(columns=columns)


def test_values_are_a_column_like_others(bound):
    options = {"subscribe": A, "columns": "offset,value"} | DECODE
    found = schema_of(parse_read_options(options, None), bound)
    assert found.names == ["offset", "value"]


def test_columns_and_a_schema_must_agree():
    from pyspark.sql.types import LongType, StructField, StructType

    schema = StructType([StructField("offset", LongType())])
    source = pyspark_danube.DefaultSource({"subscribe": A, "columns": "payload"})
    with pytest.raises(InvalidConfig, match="use either columns or"):
        source.reader(schema)


def test_spark_finds_the_source_and_its_schema():
    source = pyspark_danube.DefaultSource({"subscribe": A})
    assert source.name() == DanubeDataSource.name() == "danube"
    assert source.schema() == schema_of(
        parse_read_options({"subscribe": A}, None), None
    )


def test_readers_are_pickled_without_a_connection():
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
def test_pyspark_danube_imports_nothing_of_pydanube():
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


def test_the_columns_of_values_are_those_of_the_subject(bound):
    options = parse_read_options({"subscribe": A} | DECODE, None)
    found = schema_of(options, bound)
    assert found.names[-2:] == ["value", "_error"]
    assert found["value"].dataType.simpleString() == "struct<id:bigint>"
    assert found["value"].metadata == {
        "danube": {"subject": "orders", "schema_id": 1, "version": 1}
    }
    plain = schema_of(parse_read_options({"subscribe": A}, None), bound)
    assert list(found)[:-2] == list(plain)


def test_decoding_reads_columns_that_are_not_yielded(bound):
    options = parse_read_options(
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
