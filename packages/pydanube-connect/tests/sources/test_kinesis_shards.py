"""Tests of the order in which shards of Kinesis are read."""

from pydanube_connect.sources.pure.kinesis_shards import (
    BEGIN,
    END,
    at_time,
    iterator_at,
    readable,
    with_shards,
)

OPEN = {"ShardId": "a", "SequenceNumberRange": {}}
CLOSED = {"ShardId": "b", "SequenceNumberRange": {"EndingSequenceNumber": "9"}}
CHILD = {"ShardId": "c", "ParentShardId": "b", "AdjacentParentShardId": "a"}
ORPHAN = {"ShardId": "d", "ParentShardId": "gone"}
SHARDS = [OPEN, CLOSED, CHILD, ORPHAN]


def test_new_shards_begin_where_they_should_and_old_ones_are_forgotten():
    found = with_shards({"a": "5", "gone": END}, SHARDS)
    assert found == {"a": "5", "b": BEGIN, "c": BEGIN, "d": BEGIN}


def test_closed_shards_have_nothing_after_a_time():
    now = at_time(1.5)
    assert with_shards({}, [OPEN, CLOSED], first=now) == {"a": now, "b": END}


def test_a_shard_is_read_after_its_parents():
    positions = with_shards({}, SHARDS)
    assert readable(positions, SHARDS) == ["a", "b", "d"]
    assert readable({**positions, "b": END}, SHARDS) == ["a", "d"]
    assert readable({**positions, "a": END, "b": END}, SHARDS) == ["c", "d"]


def test_positions_are_iterators():
    assert iterator_at(BEGIN) == {"ShardIteratorType": "TRIM_HORIZON"}
    assert iterator_at(at_time(1.5))["Timestamp"] == 1.5
    after = iterator_at("7")
    assert after["ShardIteratorType"] == "AFTER_SEQUENCE_NUMBER"
    assert after["StartingSequenceNumber"] == "7"
