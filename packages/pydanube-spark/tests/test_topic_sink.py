"""What the tasks of a batch write and the driver commits; the broker is in memory."""

import pickle

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    BinaryType,
    CalendarIntervalType,
    LongType,
    StringType,
    StructField,
    StructType,
)

import pyspark_danube
from pydanube.client.messages.schema import Schema
from pydanube.model.errors import InvalidConfig, InvalidRequest, TopicNotFound
from pydanube.model.schemas import SchemaPolicy, TopicSchema
from pydanube_spark.pure.sink import BatchKey, TaskKey
from pydanube_spark.pure.write_options import parse_write_options
from pydanube_spark.topic_sink import SEND_BYTES, DanubeSink, TopicSink
from support.drivers.memory_clients import memory_client

TOPIC = "/default/orders"
MESSAGES = StructType([StructField("payload", BinaryType())])


@pytest.fixture
def client():
    with memory_client() as client:
        client.topics.create(TOPIC)
        yield client


def sink(client, **options):
    parsed = parse_write_options({"topic": TOPIC} | options)
    return TopicSink(parsed, lambda _: client)


def batch(base, end):
    payloads = pa.array([b"%d" % number for number in range(base, end)])
    return pa.record_batch({"payload": payloads})


def batch_key(number, app="query"):
    return BatchKey(app=app, number=number, query=app)


def piece(number, partition=0, attempt=0):
    return TaskKey(batch_key(number), partition, attempt)


def numbers(client, topic=TOPIC):
    return [int(each.payload) for found in client.read(topic) for each in found]


def test_staged_messages_are_invisible_before_the_commit(client):
    writer = sink(client)
    second = writer.write(piece(0, 1), iter([batch(5, 8), batch(8, 10)]))
    first = writer.write(piece(0, 0), iter([batch(0, 5)]))
    assert numbers(client) == []
    writer.commit(batch_key(0), [first, second])
    assert numbers(client) == list(range(10))


def test_committed_batch_is_not_written_again(client):
    writer = sink(client)
    parts = [writer.write(piece(0), iter([batch(0, 5)]))]
    late = writer.write(piece(0, 1, 7), iter([batch(0, 5)]))
    writer.commit(batch_key(0), parts)

    def unread():
        raise AssertionError("the rows are not needed")
        yield

    assert writer.write(piece(0, 0, 1), unread()) is None
    writer.commit(batch_key(0), [late])
    assert numbers(client) == list(range(5))


def test_uncommitted_attempt_is_dropped(client):
    writer = sink(client)
    writer.write(piece(0, 0, 1), iter([batch(0, 5)]))
    second = writer.write(piece(0, 0, 2), iter([batch(0, 5)]))
    writer.commit(batch_key(0), [second])
    assert numbers(client) == list(range(5))


def test_aborted_batch_may_be_repeated(client):
    writer = sink(client)
    writer.abort(batch_key(0), [writer.write(piece(0), iter([batch(0, 5)]))])
    writer.commit(batch_key(0), [writer.write(piece(0), iter([batch(0, 5)]))])
    assert numbers(client) == list(range(5))


def test_batches_of_two_queries_are_independent(client):
    writer = sink(client)
    for app in "ab":
        key = batch_key(0, app)
        part = writer.write(TaskKey(key, 0, 0), iter([batch(0, 2)]))
        writer.commit(key, [part])
    assert numbers(client) == [0, 1, 0, 1]


def test_a_task_that_fails_leaves_nothing_behind(client):
    writer = sink(client)

    def rows():
        yield batch(0, 5)
        raise RuntimeError("the rows have ended too early")

    with pytest.raises(RuntimeError, match="too early"):
        writer.write(piece(0), rows())
    assert client.staging("query", 0).describe().part_count == 0


def test_a_topic_that_does_not_exist_is_named(client):
    for delivery in ("exactly-once", "at-least-once"):
        writer = sink(client, topic="/default/nowhere", delivery=delivery)
        with pytest.raises(TopicNotFound, match="/default/nowhere"):
            writer.write(piece(0), iter([batch(0, 1)]))
    assert client.topics.list() == [TOPIC]


def test_at_least_once_publishes_immediately_in_order(client):
    writer = sink(client, delivery="at-least-once")
    large = pa.record_batch({"payload": [bytes(SEND_BYTES)]})
    rows = [batch(0, 3), large, batch(3, 5)]
    assert writer.write(piece(0), iter(rows)) is None
    found = [bytes(each.payload) for got in client.read(TOPIC) for each in got]
    assert [int(each) for each in found if len(each) < 9] == list(range(5))
    assert len(found[3]) == SEND_BYTES


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_messages_name_their_schema(client, delivery):
    client.schemas.register("orders", Schema.of(int))
    client.topics.configure(
        TOPIC, schema=TopicSchema(subject="orders", policy=SchemaPolicy.ENFORCE)
    )
    writer = sink(client, delivery=delivery)
    rows = pa.record_batch({"value": pa.array([4, 7])})
    part = writer.write(piece(0), iter([rows]))
    if part is not None:
        writer.commit(batch_key(0), [part])
    found = [each.value for got in client.read(TOPIC) for each in got]
    assert found == [4, 7]


def test_writer_and_commit_message_can_be_pickled():
    made = DanubeSink({"topic": TOPIC}).streamWriter(schema=MESSAGES, overwrite=False)
    assert pickle.loads(pickle.dumps(made)) is not None


def test_wrong_columns_fail_the_planning_of_a_stream():
    wrong = StructType([StructField("payload", LongType())])
    with pytest.raises(InvalidConfig, match="payload must be binary or string"):
        DanubeSink({"topic": TOPIC}).streamWriter(schema=wrong, overwrite=False)


def test_topics_are_not_overwritten():
    with pytest.raises(InvalidConfig, match="a topic is a log"):
        DanubeSink({"topic": TOPIC}).streamWriter(schema=MESSAGES, overwrite=True)


def test_spark_finds_the_sink_by_its_name():
    source = pyspark_danube.DefaultSource({"topic": TOPIC})
    made = source.streamWriter(schema=MESSAGES, overwrite=False)
    assert type(made) is type(
        DanubeSink({"topic": TOPIC}).streamWriter(schema=MESSAGES, overwrite=False)
    )
    assert DanubeSink.name() == pyspark_danube.DefaultSource.name() == "danube"


def test_check_lists_all_problems(client):
    from pydanube_spark.formats import check_sink
    from pydanube_spark.topic_sink import check_topic

    [problem] = check_sink("danube", {"topc": TOPIC}, MESSAGES)
    assert "did you mean 'topic'" in problem
    text = StructType([StructField("text", StringType())])
    assert len(check_sink("danube", {"topic": TOPIC}, text)) == 2
    interval = StructType([StructField("value", CalendarIntervalType())])
    assert "Arrow" in check_sink("danube", {"topic": TOPIC}, interval)[0]
    options = parse_write_options({"topic": TOPIC})
    check_topic(client, options, pa.schema({"payload": pa.binary()}))
    client.schemas.register("orders", Schema.of(int))
    client.topics.configure(TOPIC, schema=TopicSchema(subject="orders"))
    with pytest.raises(InvalidRequest, match="value is string"):
        check_topic(client, options, pa.schema({"value": pa.string()}))
