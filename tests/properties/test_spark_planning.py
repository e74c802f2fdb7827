"""Every offset is read exactly once, whatever the segments and limits are."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pydanube_spark.reader.pure.query_positions import (
    Head,
    Position,
    advance,
    share,
    within_rows,
)
from pydanube_spark.reader.pure.scans import (
    MESSAGE_BYTES_MIN,
    TASK_BYTES_MIN,
    TASK_SCANS_MAX,
    TopicRange,
    group_scans,
    plan_scans,
    split,
    tasks_for,
)
from support.fakes.topic_directory import segment


@st.composite
def topic_ranges(draw, topic="/default/a", topic_id=1):
    """A range of a topic over segments with holes, overlaps, gaps and any sizes."""
    segments = []
    at = draw(st.integers(0, 50))
    for index in range(draw(st.integers(0, 8))):
        base = max(0, at + draw(st.integers(-5, 5)))
        end = base + draw(st.integers(1, 200))
        size = draw(st.integers(1, 5_000))
        count = draw(st.none() | st.integers(0, end - base))
        url = f"file:///{topic_id}/{index}"
        segments.append(segment(base, end, size, url, count))
        at = end
    base = draw(st.integers(0, at + 20))
    end = base + draw(st.integers(1, at + 50))
    order = draw(st.permutations(segments))
    size = draw(st.integers(1, 500))
    return TopicRange(topic, topic_id, base, end, tuple(order), size)


@st.composite
def reads(draw):
    count = draw(st.integers(0, 3))
    return [draw(topic_ranges(f"/default/t{index}", index)) for index in range(count)]


@given(
    reads(), st.integers(1, 40), st.integers(1, 10_000), st.none() | st.integers(1, 50)
)
def test_tasks_have_all_scans_in_order(ranges, tasks_min, bytes_max, rows_max):
    scans = plan_scans(
        ranges, scans_min=tasks_min, scan_bytes_max=bytes_max, scan_rows_max=rows_max
    )
    tasks = group_scans(
        scans, tasks_min=tasks_min, task_bytes_max=bytes_max, task_rows_max=rows_max
    )
    assert [scan for task in tasks for scan in task] == scans
    assert len(tasks) >= min(tasks_min, len(scans))
    for shared in (task for task in tasks if len(task) > 1):
        assert len(shared) <= TASK_SCANS_MAX
        assert sum(scan.byte_count for scan in shared) <= bytes_max
        assert rows_max is None or sum(scan.count for scan in shared) <= rows_max


def test_many_small_topics_share_tasks():
    ranges = [
        TopicRange(f"/default/t-part-{number}", number, 0, 10) for number in range(1000)
    ]
    scans = plan_scans(ranges, scan_bytes_max=1 << 25)
    tasks = group_scans(scans, task_bytes_max=1 << 25)
    assert len(tasks) == -(-1000 // TASK_SCANS_MAX)


@given(reads(), st.integers(1, 40), st.integers(1, 10_000))
def test_every_offset_is_read_exactly_once(ranges, scans_min, scan_bytes_max):
    scans = plan_scans(ranges, scans_min=scans_min, scan_bytes_max=scan_bytes_max)
    for wanted in ranges:
        mine = [scan for scan in scans if scan.topic == wanted.topic]
        assert mine[0].base == wanted.base
        assert mine[-1].end == wanted.end
        assert all(one.end == other.base for one, other in pairwise(mine))
    assert len(scans) >= min(scans_min, sum(r.end - r.base for r in ranges))


@given(reads(), st.integers(1, 40), st.integers(1, 10_000), st.integers(1, 60))
def test_no_scan_has_more_messages_than_the_limit(ranges, scans_min, bytes_max, rows):
    scans = plan_scans(
        ranges, scans_min=scans_min, scan_bytes_max=bytes_max, scan_rows_max=rows
    )
    assert all(scan.count <= rows for scan in scans)
    for wanted in ranges:
        mine = [scan for scan in scans if scan.topic == wanted.topic]
        assert (mine[0].base, mine[-1].end) == (wanted.base, wanted.end)
        assert all(one.end == other.base for one, other in pairwise(mine))


@given(topic_ranges(), st.integers(1, 10_000))
def test_tail_is_split_by_the_bytes_of_its_messages(wanted, scan_bytes_max):
    for scan in plan_scans([wanted], scan_bytes_max=scan_bytes_max):
        if not scan.segments and scan.count > 1:
            # Parts are equal up to one message.
            assert scan.byte_count <= scan_bytes_max + wanted.message_bytes


@given(reads(), st.integers(1, 40), st.integers(1, 10_000))
def test_segment_range_is_within_its_segment(ranges, scans_min, scan_bytes_max):
    scans = plan_scans(ranges, scans_min=scans_min, scan_bytes_max=scan_bytes_max)
    for piece in (piece for scan in scans for piece in scan.segments):
        assert piece.segment.base <= piece.base < piece.end <= piece.segment.end


@given(reads(), st.integers(1, 40), st.integers(1, 10_000))
def test_broker_is_asked_only_for_messages_outside_segments(
    ranges, scans_min, scan_bytes_max
):
    held = {
        (each.topic, offset)
        for each in ranges
        for segment in each.segments
        for offset in range(segment.base, segment.end)
    }
    scans = plan_scans(ranges, scans_min=scans_min, scan_bytes_max=scan_bytes_max)
    asked = {
        (scan.topic, offset)
        for scan in scans
        if not scan.segments
        for offset in range(scan.base, scan.end)
    }
    assert not asked & held


@given(reads(), st.integers(1, 40), st.integers(1, 10_000))
def test_plan_is_deterministic(ranges, scans_min, scan_bytes_max):
    first = plan_scans(ranges, scans_min=scans_min, scan_bytes_max=scan_bytes_max)
    again = plan_scans(ranges, scans_min=scans_min, scan_bytes_max=scan_bytes_max)
    assert first == again


@given(topic_ranges(), st.integers(1, 30))
def test_split_returns_the_requested_number_of_parts(wanted, parts):
    for scan in plan_scans([wanted], scan_bytes_max=1_000_000_000):
        count = min(parts, scan.count)
        pieces = split(scan, count)
        assert len(pieces) == count
        assert (pieces[0].base, pieces[-1].end) == (scan.base, scan.end)
        assert all(one.end == other.base for one, other in pairwise(pieces))


def test_small_neighbours_are_merged_and_large_segments_are_split():
    segments = tuple(
        segment(index * 10, index * 10 + 10, 100, f"file:///{index}")
        for index in range(6)
    )
    joined = plan_scans(
        [TopicRange("/default/a", 1, 0, 70, segments, message_bytes=30)],
        scan_bytes_max=300,
    )
    assert [(scan.base, scan.end, len(scan.segments)) for scan in joined] == [
        (0, 30, 3),
        (30, 60, 3),
        (60, 70, 0),
    ]
    cut = plan_scans([TopicRange("/default/a", 1, 0, 10, segments)], scan_bytes_max=50)
    assert [(scan.base, scan.end) for scan in cut] == [(0, 5), (5, 10)]


@given(reads(), st.integers(1, 10_000), st.integers(0, 500))
def test_scan_has_at_most_about_the_weight_of_the_limit(ranges, bytes_max, least):
    scans = plan_scans(ranges, scan_bytes_max=bytes_max, message_bytes_min=least)
    for wanted in ranges:
        mine = [scan for scan in scans if scan.topic == wanted.topic]
        assert (mine[0].base, mine[-1].end) == (wanted.base, wanted.end)
        assert all(one.end == other.base for one, other in pairwise(mine))
    # Parts are equal up to two messages of the densest segment or of the tail.
    segments = [each for wanted in ranges for each in wanted.segments]
    densest = max(
        [-(-each.byte_count // (each.end - each.base)) for each in segments]
        + [each.message_bytes for each in ranges]
        + [least, 1]
    )
    assert all(
        scan.count == 1 or scan.weight(least) <= bytes_max + 2 * densest
        for scan in scans
    )


MILLIONS = TopicRange(
    "/default/a",
    1,
    0,
    2_000_000,
    (segment(0, 2_000_000, 6_400_000, "file:///0", 2_000_000),),
)
"""Two million messages that compress to 3 bytes each."""

COMPACTED = TopicRange(
    "/default/a",
    1,
    0,
    1_000_000_000,
    (segment(0, 1_000_000_000, 10_000, "file:///0", 100),),
)
"""A hundred messages that are left of a billion."""


def test_messages_that_compress_well_are_divided_by_their_number():
    limit = 32 * 1024 * 1024
    assert len(plan_scans([MILLIONS], scan_bytes_max=limit)) == 1
    scans = plan_scans(
        [MILLIONS], scan_bytes_max=limit, message_bytes_min=MESSAGE_BYTES_MIN
    )
    assert [scan.count for scan in scans] == [500_000] * 4
    assert len(plan_scans([COMPACTED], scan_bytes_max=limit, message_bytes_min=64)) == 1


def test_small_neighbours_are_not_merged_beyond_the_number_of_messages():
    segments = tuple(
        segment(at * 1000, at * 1000 + 1000, 100, f"file:///{at}", 1000)
        for at in range(4)
    )
    scans = plan_scans(
        [TopicRange("/default/a", 1, 0, 4000, segments)],
        scan_bytes_max=128_000,
        message_bytes_min=64,
    )
    assert [(scan.base, scan.end) for scan in scans] == [(0, 2000), (2000, 4000)]


def test_tasks_use_the_parallelism_unless_they_are_tiny():
    assert tasks_for([MILLIONS], 8) == 8
    assert (
        tasks_for([MILLIONS], 1000) == 2_000_000 * MESSAGE_BYTES_MIN // TASK_BYTES_MIN
    )
    assert tasks_for([COMPACTED], 8) == 1
    assert tasks_for([TopicRange("/default/a", 1, 0, 10)], 8) == 1
    assert tasks_for([], 8) == 1


topics_waiting = st.dictionaries(
    st.sampled_from(["/default/a", "/default/b", "/default/c", "/default/d"]),
    st.integers(0, 10**12),
)


@given(topics_waiting, st.integers(1, 10**9))
def test_limit_is_divided_in_proportion_and_used_up(waiting, rows_max):
    shares = share(waiting, rows_max)
    assert sum(shares.values()) == min(rows_max, sum(waiting.values()))
    for topic, count in waiting.items():
        assert 0 <= shares[topic] <= count
        fair = min(1.0, rows_max / max(1, sum(waiting.values()))) * count
        assert abs(shares[topic] - fair) <= 1 + fair * 1e-9


@given(topics_waiting, st.integers(10, 1000))
def test_limited_batches_reach_the_end_without_a_gap(waiting, rows_max):
    heads = {topic: Head(1, 0, count % 500) for topic, count in waiting.items()}
    position = {topic: Position(1, 0) for topic in heads}
    total = sum(head.end for head in heads.values())
    for _ in range(total // rows_max + 1):
        position = within_rows(position, advance(position, heads), rows_max)
    assert {topic: at.offset for topic, at in position.items()} == {
        topic: head.end for topic, head in heads.items()
    }
