"""Shards that change their owner together are counted together."""

import pytest

from pydanube_broker.cluster.shard_tally import ShardTally, steps_text


class Groups:
    def __init__(self):
        self.now = 10.0
        self.ended = []
        self.tally = ShardTally(
            lambda: self.now, lambda *ended: self.ended.append(ended)
        )


@pytest.fixture
def groups():
    return Groups()


def test_a_group_ends_with_its_last_shard(groups):
    for shard in (1, 2, 2):
        groups.tally.begin(shard)
    groups.now = 11.0
    groups.tally.begin(3)
    for shard in (1, 3):
        groups.tally.end(shard, is_changed=True)
    assert groups.ended == []
    groups.now = 12.5
    groups.tally.end(2, is_changed=True)
    assert groups.ended == [(3, 2.5, {})]


def test_the_next_group_is_counted_anew(groups):
    for now in (10.0, 20.0):
        groups.now = now
        groups.tally.begin(1)
        groups.tally.end(1, is_changed=True)
    assert groups.ended == [(1, 0.0, {}), (1, 0.0, {})]


def test_shards_that_did_not_change_are_not_counted(groups):
    groups.tally.begin(1)
    groups.tally.begin(2)
    groups.tally.end(1, is_changed=False)
    groups.tally.end(2, is_changed=True)
    groups.tally.begin(1)
    groups.tally.end(1, is_changed=False)
    assert groups.ended == [(1, 0.0, {})]


def test_a_shard_that_was_not_in_the_change_ends_nothing(groups):
    groups.tally.end(1, is_changed=True)
    assert groups.ended == []


def test_the_longest_time_of_each_step_is_kept(groups):
    for shard, taken_s in ((1, 0.25), (2, 0.5), (3, 9.0)):
        if shard < 3:
            groups.tally.begin(shard)
        groups.tally.note(shard, "read", taken_s)
    groups.tally.note(1, "open", 0.001)
    for shard in (1, 2):
        groups.tally.end(shard, is_changed=True)
    [(_, _, steps)] = groups.ended
    assert steps_text(steps) == "read 500 ms, open 1 ms"
