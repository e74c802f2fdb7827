"""Merging and compaction against a dictionary, for any history of a topic."""

from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pydanube.model.descriptions import Segment
from pydanube_spark.jobs import ThreadRunner
from pydanube_spark.tables.maintenance.pure import planning
from pydanube_spark.tables.maintenance.pure.planning import (
    SegmentKeyCounts,
    plan_compaction,
    plan_merge,
)
from pydanube_spark.tables.maintenance.run import MaintenanceOptions, maintain
from support.fakes.batches import A_TIME
from support.fakes.segment_files import TOPIC, FileBroker, Row, read_rows, write_topic

HOUR_US = 3600 * 1_000_000
NOW_US = A_TIME + 100 * HOUR_US

rows = st.builds(
    Row,
    st.sampled_from([None, b"", b"a", b"b", b"c", b"d"]),
    st.sampled_from([b"", b"", b"1", b"22"]),
    st.integers(0, 100).map(lambda hours: A_TIME + hours * HOUR_US),
)
histories = st.lists(st.lists(rows, min_size=1, max_size=12), min_size=1, max_size=5)


@contextmanager
def topic_of(groups, batch):
    with TemporaryDirectory() as directory:
        root = Path(directory)
        yield FileBroker(root, write_topic(root, groups, batch=batch))


def compacted(rows, grace_hours):
    """The model: a dictionary of the last messages, and tombstones that are too old."""
    last = {row.key: at for at, row in rows.items() if row.key is not None}
    newest = max(rows)
    left = {}
    for at, row in rows.items():
        is_tombstone = row.key is not None and not row.payload
        is_old = row.time < NOW_US - grace_hours * HOUR_US
        if row.key is not None and last[row.key] != at:
            continue
        if is_tombstone and is_old and at != newest:
            continue
        left[at] = row
    return left


@pytest.mark.slow
@settings(max_examples=settings.default.max_examples // 3)
@given(histories, st.integers(1, 5), st.integers(0, 101), st.booleans(), st.booleans())
def test_compaction_keeps_what_a_dictionary_keeps(
    groups, batch, grace_hours, is_merging, has_many_buckets
):
    with topic_of(groups, batch) as broker:
        before = read_rows(broker.found.segments)
        work = MaintenanceOptions(
            is_compacting=True,
            is_merging=is_merging,
            is_verifying=True,
            grace_s=grace_hours * 3600,
            target_bytes=8000,
        )
        bucket_bytes = planning.BUCKET_BYTES
        planning.BUCKET_BYTES = 100 if has_many_buckets else bucket_bytes
        try:
            report = keep(broker, work)
        finally:
            planning.BUCKET_BYTES = bucket_bytes
        assert report.error is None
        after = read_rows(broker.found.segments)
        assert after == compacted(before, grace_hours)
        assert report.messages_removed == len(before) - len(after)
        check_borders(broker, groups)
        check_files(broker)
        # A second compaction changes nothing.
        swaps = len(broker.swaps)
        assert keep(broker, work).messages_removed == 0
        assert is_merging or len(broker.swaps) == swaps
        assert read_rows(broker.found.segments) == after


@settings(max_examples=15, deadline=None)
@given(histories, st.integers(1, 5), st.integers(1, 20_000))
def test_merging_keeps_every_message(groups, batch, target_bytes):
    with topic_of(groups, batch) as broker:
        before = read_rows(broker.found.segments)
        report = keep(
            broker, MaintenanceOptions(is_merging=True, target_bytes=target_bytes)
        )
        assert (report.error, report.messages_removed) == (None, 0)
        assert read_rows(broker.found.segments) == before
        check_borders(broker, groups)
        check_files(broker)


def keep(broker, work):
    return maintain(
        broker, TOPIC, work, ThreadRunner(2), tell=lambda _: None, now_us=NOW_US
    )


def check_borders(broker, groups):
    borders = [(each.base, each.end) for each in broker.found.segments]
    assert [base for base, _ in borders] == [0, *(end for _, end in borders[:-1])]
    assert borders[-1][1] == sum(map(len, groups))


def check_files(broker):
    """Check that only the segments and those that they replaced are left."""
    assert not list((broker.root / ".parts").iterdir())
    old = {name for names, _ in broker.swaps for name in names}
    present = {
        path.relative_to(broker.root).as_posix()
        for path in broker.root.rglob("*.parquet")
    }
    assert present == old | {each.object_name for each in broker.found.segments}


def segments_of(sizes):
    segments, base = [], 0
    for at, (size, count, gaps) in enumerate(sizes):
        end = base + count + gaps
        segments.append(
            Segment(
                base=base,
                end=end,
                epoch=1,
                count=count,
                byte_count=size,
                url="",
                object_name=f"{at}",
                first_publish_time=0,
                last_publish_time=0,
                sealed_at=0,
            )
        )
        base = end
    return segments


sizes = st.lists(
    st.tuples(st.integers(1, 1000), st.integers(0, 5), st.integers(1, 3)), max_size=150
)


@given(sizes, st.integers(2, 3000), st.data())
def test_groups_have_neighbours_and_do_not_overlap(sizes_, target_bytes, data):
    segments = segments_of(sizes_)
    facts = {
        each.object_name: SegmentKeyCounts(
            without_key=0,
            live=data.draw(st.integers(0, each.count)),
            oldest_tombstone=data.draw(st.sampled_from([None, 1, 99])),
        )
        for each in segments
    }
    changed = {
        each.object_name
        for each in segments
        if facts[each.object_name].live < each.count
        or facts[each.object_name].oldest_tombstone == 1
    }
    for is_merging in (True, False):
        groups = plan_compaction(
            segments, facts, target_bytes, is_merging=is_merging, tombstones_before=50
        )
        chosen = [each for group in groups for each in group.segments]
        assert [each for each in segments if each in chosen] == chosen
        assert changed <= {each.object_name for each in chosen}
        for group in groups:
            at = segments.index(group.segments[0])
            assert segments[at : at + len(group.segments)] == list(group.segments)
            assert len(group.segments) <= planning.GROUP_SEGMENTS_MAX
            assert is_merging or len(group.segments) == 1
    for group in plan_merge(segments, target_bytes):
        assert len(group.segments) > 1
        assert group.byte_count - group.segments[-1].byte_count < target_bytes
