"""The topic sink outlasts restarts of the broker in every phase of a batch."""

import threading
from contextlib import contextmanager

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

import pydanube.sync
from pydanube_spark.pure.sink import BatchKey, TaskKey
from pydanube_spark.pure.write_options import parse_write_options
from pydanube_spark.topic_sink import TopicSink
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

TOPIC = "/default/orders"


@contextmanager
def restarting(broker):
    """The broker is down at first, and starts while the body runs."""
    broker.kill()
    thread = threading.Thread(target=broker.start, name="start the broker")
    thread.start()
    try:
        yield
    finally:
        thread.join()


def key(number):
    return BatchKey(app="query", number=number, query="query")


def rows():
    return iter([pa.record_batch({"payload": [b"1", b"2"]})])


@pytest.mark.soak
def test_write_commit_and_abort_wait_for_a_broker_that_restarts(tmp_path):
    with BrokerProcess(tmp_path) as broker:
        with pydanube.sync.connect(broker.url) as client:
            client.topics.create(TOPIC)
        sink = TopicSink(parse_write_options({"url": broker.url, "topic": TOPIC}))
        with restarting(broker):
            # This process has no connection yet.
            staged = sink.write(TaskKey(key(0), 0, 0), rows())
        with restarting(broker):
            sink.commit(key(0), [staged])
        aborted = sink.write(TaskKey(key(1), 0, 0), rows())
        with restarting(broker):
            sink.abort(key(1), [aborted])
        with pydanube.sync.connect(broker.url) as client:
            payloads = [each.payload for found in client.read(TOPIC) for each in found]
            assert payloads == [b"1", b"2"]
            assert client.staging("query", 1).describe().part_count == 0
