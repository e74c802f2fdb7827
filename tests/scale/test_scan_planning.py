"""What Spark's driver does costs as much for each of many things as for few."""

import pytest

from pydanube_spark.reader.catalog import ChangedHeads
from pydanube_spark.reader.pure.query_positions import Head
from pydanube_spark.reader.pure.read_options import Mode, parse_read_options
from pydanube_spark.reader.pure.scans import (
    TopicRange,
    byte_count,
    group_scans,
    offset_within,
    plan_scans,
    tasks_for,
)
from pydanube_spark.reader.scan_reader import SCHEMA_DEFAULT
from pydanube_spark.stream import StreamReader
from support.fakes.steps import assert_constant, assert_linear, counting_steps
from support.fakes.topic_directory import segment

SMALL, LARGE = 500, 2000
MIB = 1 << 20


def topic_of(count):
    """A topic with *count* segments of 20 messages."""
    segments = (
        segment(at * 20, at * 20 + 20, 4000, f"file:///{at}", 20) for at in range(count)
    )
    return TopicRange("/default/t", 1, 0, count * 20, tuple(segments))


PLANS = {
    "merged": lambda each: plan_scans([each], scan_bytes_max=64 * MIB),
    "split by size": lambda each: plan_scans([each], scan_bytes_max=10_000),
    "split for tasks": lambda each: plan_scans(
        [each], scans_min=len(each.segments) // 10, scan_bytes_max=64 * MIB
    ),
    "split by rows": lambda each: plan_scans(
        [each], scan_bytes_max=64 * MIB, scan_rows_max=7
    ),
    "tasks": lambda each: tasks_for([each], 100),
    "bytes": byte_count,
    "offset": lambda each: offset_within(each, 10**9),
}


def test_cost_of_sharing_tasks_is_linear_in_the_number_of_partitions():
    counts = []
    for count in (SMALL, LARGE):
        ranges = [TopicRange(f"/default/{n}", n, 0, 10) for n in range(count)]
        with counting_steps() as steps:
            scans = plan_scans(ranges, scan_bytes_max=64 * MIB)
            group_scans(scans, task_bytes_max=64 * MIB)
        counts.append(steps.count)
    assert_linear(*counts)


class UnchangedTopics:
    """A catalog of partitions in which nothing changes."""

    def __init__(self, count):
        self._heads = {
            f"/default/t-part-{number}": Head(number, 0, 10, 10)
            for number in range(count)
        }

    def partitions(self, topic):
        return list(self._heads)

    def heads(self, topics, *, skips_non_reliable=False):
        return dict(self._heads)

    def offset_at_time(self, topic, time_us):
        raise AssertionError("the offsets are given")

    def changed_heads(self, topics, since=None, *, skips_non_reliable):
        heads = {} if since else dict(self._heads)
        return ChangedHeads(heads, {"a": ("b", 1)}, is_complete=not since)


def test_cost_of_an_idle_poll_does_not_depend_on_the_number_of_partitions():
    counts = []
    for count in (SMALL, LARGE):
        topics = UnchangedTopics(count)
        stream = StreamReader(
            parse_read_options({"subscribe": "/default/t"}, Mode.STREAM),
            SCHEMA_DEFAULT,
            lambda _, topics=topics: topics,
            wait=lambda _: None,
            clock=lambda: 0.0,
        )
        start = stream.initialOffset()
        limit = stream.getDefaultReadLimit()
        assert stream.latestOffset(start, limit) == start
        with counting_steps() as steps:
            stream.latestOffset(start, limit)
        counts.append(steps.count)
    assert_constant(*counts)


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_cost_of_planning_is_linear_in_the_number_of_segments(plan):
    counts = []
    for count in (SMALL, LARGE):
        wanted = topic_of(count)
        with counting_steps() as steps:
            plan(wanted)
        counts.append(steps.count)
    assert_linear(*counts)
