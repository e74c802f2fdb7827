"""The plan of merges: neighbours, of which none is rewritten too often."""

from hypothesis import given
from hypothesis import strategies as st

from pydanube.model.policy import KEEP_ALL, Retention
from pydanube.model.segments import SegmentEntry
from pydanube_broker.storage.pure.merge_planning import (
    GROUP_SEGMENTS_MAX,
    GROUP_SEGMENTS_MIN,
    SPAN_US_MAX,
    plan_merges,
)

MIB = 1024 * 1024


def segments_of(sizes, step_us=1):
    """Segments of one message each, published *step_us* apart."""
    return tuple(
        SegmentEntry(
            base=at,
            end=at + 1,
            epoch=1,
            count=1,
            byte_count=size,
            object_name=f"default/t/{at}",
            first_publish_time=at * step_us,
            last_publish_time=at * step_us,
            sealed_at=0,
            checksum=None,
        )
        for at, size in enumerate(sizes)
    )


def plan(segments, retention=KEEP_ALL, **arguments):
    groups = plan_merges(segments, retention, bytes_max=16 * MIB, **arguments)
    return [(group[0].base, group[-1].end) for group in groups]


def test_few_neighbours_stay():
    assert plan(segments_of([100] * 7)) == []
    assert plan(segments_of([100] * 8)) == [(0, 8)]


def test_groups_have_limits_of_segments_and_bytes():
    assert plan(segments_of([100] * 150)) == [(0, 100), (100, 150)]
    assert plan(segments_of([MIB] * 20)) == [(0, 16)]


def test_large_segments_and_those_that_may_not_be_merged_end_a_group():
    assert plan(segments_of([100] * 8 + [9 * MIB] + [100] * 8)) == [(0, 8), (9, 17)]
    assert plan(segments_of([100] * 17), may_merge=lambda each: each.base != 8) == [
        (0, 8),
        (9, 17),
    ]


def test_a_few_messages_do_not_rewrite_a_larger_segment():
    assert plan(segments_of([1000] + [100] * 9)) == [(1, 10)]
    assert plan(segments_of([1000] + [100] * 10)) == [(0, 11)]


def test_groups_cover_a_share_of_the_retention():
    hour_us = SPAN_US_MAX // 24
    segments = segments_of([100] * 60, hour_us)
    assert plan(segments) == [(0, 25), (25, 50), (50, 60)]
    assert plan(segments, Retention(age_s=100 * 3600)) == [
        (at, at + 11) for at in range(0, 55, 11)
    ]
    assert plan(segments, Retention(age_s=24 * 3600)) == []
    assert plan(segments, Retention(bytes_max=10_000))[0] == (0, 10)
    assert plan(segments, Retention(bytes_max=1)) == []


@given(st.lists(st.integers(1, 12 * MIB) | st.integers(1, 1000), max_size=300))
def test_a_trickle_is_rewritten_a_logarithmic_number_of_times(sizes):
    groups = plan_merges(segments_of(sizes), KEEP_ALL, bytes_max=16 * MIB)
    ends = 0
    for group in groups:
        total = sum(each.byte_count for each in group)
        assert GROUP_SEGMENTS_MIN <= len(group) <= GROUP_SEGMENTS_MAX
        assert total <= 16 * MIB
        assert max(each.byte_count for each in group) * 2 <= total
        assert [each.base for each in group] == list(
            range(group[0].base, group[-1].end)
        )
        assert group[0].base >= ends
        ends = group[-1].end


def test_planning_again_after_each_segment_rewrites_little():
    segments, written = [], 0
    for at in range(1000):
        segments += [
            SegmentEntry(
                base=at,
                end=at + 1,
                epoch=1,
                count=1,
                byte_count=100,
                object_name=f"default/t/{at}",
                first_publish_time=at,
                last_publish_time=at,
                sealed_at=0,
                checksum=None,
            )
        ]
        for group in plan_merges(segments, KEEP_ALL, bytes_max=16 * MIB):
            first = segments.index(group[0])
            total = sum(each.byte_count for each in group)
            merged = segments_of([total])[0]
            segments[first : first + len(group)] = [merged]
            written += total
    assert sum(each.byte_count for each in segments) == 100_000
    assert len(segments) < 30
    assert written < 100_000 * 10
