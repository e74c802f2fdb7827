"""Tests of starting offsets that must be the same for all queries of a source."""

import json
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from pydanube_spark.pipelines.loading import load
from pydanube_spark.pipelines.starting_offsets import (
    fix_starting_offsets,
    may_move,
    read_starting_offsets,
)
from pydanube_spark.reader import catalog
from pydanube_spark.reader.pure.bounds import EARLIEST, LATEST, Bound
from support.drivers.memory_clients import memory_client

TOPIC = "/default/orders"
TIMES = [datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3)]


@pytest.fixture
def client(monkeypatch):
    with memory_client() as client:
        # A default argument of Catalog holds the function that connects.
        monkeypatch.setattr(
            catalog.Catalog.__init__, "__kwdefaults__", _defaults(client)
        )
        client.topics.create(TOPIC)
        with client.producer(TOPIC) as producer:
            times = pa.array(TIMES, pa.timestamp("us", tz="UTC"))
            producer.send_batch(
                pa.table({"payload": [b"1", b"2", b"3"], "publish_time": times})
            )
        yield client


def _defaults(client):
    return catalog.Catalog.__init__.__kwdefaults__ | {"connect": lambda _: client}


def pipeline(tmp_path, **source):
    path = tmp_path / "p.yaml"
    tree = {
        "name": "p",
        "sources": {"a": {"topic": TOPIC} | source},
        "sinks": {"out": {"input": "a", "format": "noop"}},
    }
    path.write_text(json.dumps(tree))
    return load(path)


@pytest.mark.parametrize(
    ("source", "offset"),
    [
        ({"start": "latest"}, 3),
        ({"start": "2026-01-02T00:00:00Z"}, 1),
        ({"start": "2026-01-02T00:00:00.000001Z"}, 2),
        ({"start": "1s"}, 3),
        ({"start": "100000d"}, 0),
        ({"start": "2999-01-01T00:00:00Z"}, 3),
        ({"options": {"startingTimestamp": "2026-01-03T00:00:00Z"}}, 2),
    ],
)
def test_start_is_resolved_once(client, tmp_path, source, offset):
    given = pipeline(tmp_path, **source)
    starts = fix_starting_offsets(given)
    assert json.loads(starts["a"]) == {TOPIC: offset}
    with client.producer(TOPIC) as producer:
        producer.send(b"later")
    assert fix_starting_offsets(given) == starts
    assert read_starting_offsets(given.state.checkpoints) == starts


@pytest.mark.parametrize("source", [{}, {"start": 1}, {"read": "table"}])
def test_start_that_cannot_move_is_not_stored(tmp_path, source):
    given = pipeline(tmp_path, **source)
    assert fix_starting_offsets(given) == {}
    assert not given.state.checkpoints.exists()


@pytest.mark.parametrize(
    ("bound", "moves"),
    [
        (Bound(option="x", value=EARLIEST), False),
        (Bound(option="x", value=LATEST), True),
        (Bound(option="x", by_name={("/default/a", 0): 7}), False),
        (Bound(option="x", by_name={("/default/a", 0): LATEST}), True),
        (Bound(option="x", value=7, is_time=True), True),
    ],
)
def test_latest_and_times_may_move(bound, moves):
    assert may_move(bound) is moves
