"""A broker's topics, asked for through the client."""

import pickle
import socket

import pytest

from pydanube.model.descriptions import TopicOffsets
from pydanube.model.errors import ConnectionLost, InvalidRequest, TopicNotFound
from pydanube_spark.reader.catalog import Catalog, process_client
from pydanube_spark.reader.pure.query_positions import Head
from pydanube_spark.reader.pure.read_options import BROKER_RETRY_S, ReadOptions
from support.fakes.topic_directory import messages


class Batch:
    def __init__(self, base, end):
        self.offsets = range(base, end)

    def to_arrow(self):
        return messages(self.offsets.start, self.offsets.stop)


class BreakingClient:
    """Its connection breaks before the answer, or after the first batch of one."""

    def __init__(self, breaks):
        self.breaks = breaks
        self.asked = []

    @property
    def topics(self):
        return self

    def list(self):
        self._break()
        return ["/default/b", "/default/a"]

    def list_offsets(self, topics):
        return {
            topic: TopicOffsets(
                topic_id=1,
                base_offset=0,
                end_offset=10,
                sealed_offset=5,
                tail_bytes=100,
                is_reliable=topic != "/default/direct",
            )
            for topic in topics
        }

    @property
    def schemas(self):
        return self

    def topic_schema(self, topic):
        self.asked.append(topic)
        raise TopicNotFound(topic)

    def read(self, topic, *, start, end):
        self.asked.append(start)
        yield Batch(start, min(start + 10, end))
        self._break()
        for at in range(start + 10, end, 10):
            yield Batch(at, min(at + 10, end))

    def _break(self):
        if self.breaks:
            self.breaks -= 1
            raise ConnectionLost("it broke")


def catalog(client, retries=2):
    waits = []
    found = Catalog(
        ReadOptions(url="danube://b", retries=retries, retry_interval_s=0.5),
        connect=lambda _: client,
        wait=waits.append,
    )
    return found, waits


def test_request_is_retried_while_the_broker_cannot_be_reached():
    found, waits = catalog(BreakingClient(breaks=2))
    assert found.topics() == ["/default/a", "/default/b"]
    assert waits == [0.5, 0.5]


def test_request_is_retried_only_as_often_as_allowed():
    found, waits = catalog(BreakingClient(breaks=3))
    with pytest.raises(ConnectionLost):
        found.topics()
    assert len(waits) == 2


def test_request_is_retried_for_two_minutes_however_long_an_attempt_takes():
    client, now = BreakingClient(breaks=100), [0.0]
    found = Catalog(
        ReadOptions(url="danube://b"),
        connect=lambda _: client,
        wait=lambda seconds: now.__setitem__(0, now[0] + seconds + 30),
        clock=lambda: now[0],
    )
    with pytest.raises(ConnectionLost):
        found.topics()
    assert 120 <= now[0] < 180


def test_refused_request_is_not_retried():
    client = BreakingClient(breaks=0)
    found, waits = catalog(client)
    with pytest.raises(TopicNotFound):
        found.subject_of("/default/a")
    assert (client.asked, waits) == (["/default/a"], [])


def test_non_reliable_topics_are_refused_or_skipped():
    found, _ = catalog(BreakingClient(breaks=0))
    names = ["/default/a", "/default/direct"]
    with pytest.raises(InvalidRequest, match="/default/direct is non-reliable"):
        found.heads(names)
    assert found.heads(names, skips_non_reliable=True) == {
        "/default/a": Head(1, 0, 10, 5, 20)
    }


def test_failed_read_continues_after_its_last_batch():
    client = BreakingClient(breaks=2)
    found, _ = catalog(client)
    batches = list(found.read("/default/a", 5, 48))
    offsets = [each for batch in batches for each in batch.column("offset").to_pylist()]
    assert offsets == list(range(5, 48))
    assert client.asked == [5, 15, 25]


def test_read_without_progress_fails():
    class Broken(BreakingClient):
        def read(self, topic, *, start, end):
            self.asked.append(start)
            raise ConnectionLost("it broke")
            yield

    client = Broken(0)
    found, _ = catalog(client)
    with pytest.raises(ConnectionLost):
        list(found.read("/default/a", 0, 10))
    assert client.asked == [0, 0, 0]


def test_catalog_is_pickled_without_a_connection():
    found = pickle.loads(pickle.dumps(Catalog(ReadOptions(url="danube://b:1"))))
    assert isinstance(found, Catalog)


def test_reads_wait_for_a_broker_as_long_as_writes_do():
    options = ReadOptions(url="danube://b")
    waits = []
    client = BreakingClient(breaks=options.retries)
    found = Catalog(options, connect=lambda _: client, wait=waits.append)
    assert found.topics() == ["/default/a", "/default/b"]
    assert sum(waits) == BROKER_RETRY_S


def test_error_about_credentials_names_the_host_of_an_executor(tmp_path, monkeypatch):
    pyspark = pytest.importorskip("pyspark")
    url = f"danube://127.0.0.1:1?api_key_file={tmp_path}/missing"
    with pytest.raises(
        InvalidRequest, match="cannot be read: No such file or dir"
    ) as e:
        process_client(url)
    assert "executor" not in str(e.value)
    monkeypatch.setattr(pyspark.TaskContext, "_taskContext", pyspark.TaskContext())
    host = socket.gethostname()
    with pytest.raises(InvalidRequest, match=f"No such .*on the executor of {host}"):
        process_client(url)
