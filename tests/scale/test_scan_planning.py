"""Planning a scan costs as much for each of many small segments as for few."""

import pytest

from pydanube_spark.reader.pure.scans import (
    TopicRange,
    byte_count,
    offset_within,
    plan_scans,
    tasks_for,
)
from support.fakes.steps import assert_linear, counting_steps
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


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_cost_of_planning_is_linear_in_the_number_of_segments(plan):
    counts = []
    for count in (SMALL, LARGE):
        wanted = topic_of(count)
        with counting_steps() as steps:
            plan(wanted)
        counts.append(steps.count)
    assert_linear(*counts)
