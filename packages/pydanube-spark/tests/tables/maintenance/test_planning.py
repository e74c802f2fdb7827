"""Which segments go together, by examples; tests/properties has what always holds."""

from pydanube.model.descriptions import Segment
from pydanube_spark.tables.maintenance.pure.planning import (
    BUCKET_BYTES,
    CHUNK_BYTES,
    GROUP_SEGMENTS_MAX,
    SegmentKeyCounts,
    bucket_count,
    chunk_segments,
    plan_compaction,
    plan_merge,
)


def segments_of(*sizes, count=10):
    return [
        Segment(
            base=count * at,
            end=count * (at + 1),
            epoch=1,
            count=count,
            byte_count=size,
            url=f"file:///{at}",
            object_name=f"{at}",
            first_publish_time=0,
            last_publish_time=0,
            sealed_at=0,
        )
        for at, size in enumerate(sizes)
    ]


def bounds(groups):
    return [(group.base // 10, group.end // 10) for group in groups]


def compaction(segments, changed=(), tombstones=(), *, is_merging=False, target=100):
    facts = {
        each.object_name: SegmentKeyCounts(
            without_key=0,
            live=each.count // 2 if at in changed else each.count,
            oldest_tombstone=50 if at in tombstones else None,
        )
        for at, each in enumerate(segments)
    }
    return bounds(
        plan_compaction(
            segments, facts, target, is_merging=is_merging, tombstones_before=51
        )
    )


def test_small_neighbours_go_together_until_they_are_large():
    assert bounds(plan_merge(segments_of(40, 40, 40, 40, 40), 100)) == [(0, 3), (3, 5)]


def test_large_segments_are_not_merged():
    assert plan_merge(segments_of(50, 20, 90), 100) == []
    assert bounds(plan_merge(segments_of(20, 20, 50, 20, 20, 20), 100)) == [
        (0, 2),
        (3, 6),
    ]


def test_a_group_has_as_many_segments_as_a_broker_replaces():
    groups = plan_merge(segments_of(*[1] * (GROUP_SEGMENTS_MAX + 2)), 10_000)
    assert bounds(groups) == [(0, 100), (100, 102)]
    assert groups[0].byte_count == GROUP_SEGMENTS_MAX
    assert groups[0].count == 10 * GROUP_SEGMENTS_MAX


def test_compaction_writes_only_what_loses_messages():
    segments = segments_of(80, 80, 80)
    assert compaction(segments, changed={1}) == [(1, 2)]
    assert compaction(segments, tombstones={2}) == [(2, 3)]
    assert compaction(segments) == []


def test_segments_are_merged_by_their_remaining_size():
    segments = segments_of(60, 60, 60, 60, 60)
    assert compaction(segments, changed={0, 1, 2, 3}, is_merging=True) == [(0, 4)]
    assert compaction(segments, changed={0, 1, 4}, is_merging=True) == [(0, 2), (4, 5)]


def test_tombstone_within_its_grace_period_does_not_rewrite():
    segments = segments_of(80)
    facts = {"0": SegmentKeyCounts(without_key=4, live=6, oldest_tombstone=51)}
    plan = plan_compaction(segments, facts, 9, is_merging=False, tombstones_before=51)
    assert plan == []
    assert facts["0"].remaining == 10


def test_keys_are_collected_by_chunk_and_compared_by_bucket():
    segments = segments_of(CHUNK_BYTES // 2, CHUNK_BYTES // 2, 1, 1)
    assert [len(chunk) for chunk in chunk_segments(segments)] == [2, 2]
    assert bucket_count(segments, 0) == 1
    assert bucket_count(segments, 3 * BUCKET_BYTES) == 4
