import pytest

from pydanube.model.segments import SegmentEntry
from pydanube.wire.files.segment_format import object_name, parse_object_name
from pydanube_broker.storage.pure.upload_planning import (
    SegmentTiers,
    TrackedSegment,
    TransferPace,
    is_orphan,
    plan_evictions,
    plan_room,
    plan_uploads,
)


def entry(base=0, *, topic="/default/a", is_uploaded=False, size=100, sealed_at=0):
    return SegmentEntry(
        base=base,
        end=base + 10,
        epoch=2,
        count=10,
        byte_count=size,
        object_name=object_name("", topic, base, base + 10, 2),
        first_publish_time=0,
        last_publish_time=0,
        sealed_at=sealed_at,
        is_uploaded=is_uploaded,
    )


def tracked(name, sealed_at, size=100):
    return TrackedSegment(1, name, size, sealed_at)


A, B, C = tracked("a", 3), tracked("b", 1), tracked("c", 2, 50)


def names(segments):
    return [each.object_name for each in segments]


def test_the_oldest_segments_are_uploaded_first():
    assert names(plan_uploads([A, B, C], 10)) == ["b", "c", "a"]
    assert names(plan_uploads([A, B, C], 2)) == ["b", "c"]
    assert plan_uploads([], 2) == []


def test_segments_of_the_same_time_are_uploaded_in_the_order_of_their_names():
    assert names(plan_uploads([tracked("y", 1), tracked("x", 1)], 2)) == ["x", "y"]


@pytest.mark.parametrize(
    ("excess", "evicted"),
    [
        (0, []),
        (-5, []),
        (1, ["b"]),
        (100, ["b"]),
        (101, ["b", "c"]),
        (999, list("bca")),
    ],
)
def test_the_oldest_copies_are_evicted_until_the_excess_is_gone(excess, evicted):
    assert names(plan_evictions([A, B, C], excess)) == evicted


@pytest.mark.parametrize(
    ("wanted", "evicted"),
    [(1600, []), (1601, ["b", "c"]), (1650, ["b", "c"]), (1651, list("bca"))],
)
def test_room_is_made_only_if_the_budget_is_exceeded_and_then_some_more(
    wanted, evicted
):
    # A sixteenth of the budget is 100 bytes.
    assert names(plan_room([A, B, C], wanted, 1600)) == evicted


def test_room_for_more_than_the_budget_takes_all_that_there_is():
    assert names(plan_room([A, B, C], 10**12, 1600)) == list("bca")
    assert plan_room([], 10**12, 1600) == []


def test_tiers_follow_a_segment_from_its_sealing_to_its_eviction():
    tiers = SegmentTiers()
    tiers.add(1, entry(sealed_at=7), is_local=True)
    assert (tiers.backlog_bytes, tiers.cached_bytes, tiers.local_bytes) == (100, 0, 100)
    assert tiers.oldest_sealed_at == 7
    tiers.add(1, entry(is_uploaded=True), is_local=True)
    assert (tiers.backlog_bytes, tiers.cached_bytes, tiers.local_bytes) == (0, 100, 100)
    assert tiers.oldest_sealed_at is None
    name = entry().object_name
    assert tiers.find(name) is tiers.cached[name]
    tiers.remove(name)
    assert tiers.local_bytes == 0
    assert tiers.find(name) is None


def test_uploaded_segments_without_a_local_copy_are_not_tracked():
    tiers = SegmentTiers()
    tiers.add(1, entry(is_uploaded=True), is_local=False)
    assert tiers.local_bytes == 0


def test_a_segment_that_is_added_twice_counts_once():
    tiers = SegmentTiers()
    for _ in range(2):
        tiers.add(1, entry(0), is_local=True)
        tiers.add(1, entry(10, is_uploaded=True), is_local=True)
    assert (tiers.backlog_bytes, tiers.cached_bytes) == (100, 100)
    tiers.remove("unknown")
    assert tiers.local_bytes == 200


def test_a_replaced_segment_that_is_not_uploaded_counts_until_it_is_deleted():
    tiers = SegmentTiers()
    old = entry()
    tiers.add(1, old, is_local=True)
    tiers.on_obsolete(old.object_name)
    assert (tiers.backlog_bytes, tiers.local_bytes) == (0, 100)
    assert tiers.find(old.object_name) == tracked(old.object_name, 0)
    tiers.remove(old.object_name)
    assert tiers.local_bytes == 0


def test_a_replaced_segment_that_is_uploaded_may_be_evicted():
    tiers = SegmentTiers()
    old = entry(is_uploaded=True)
    tiers.add(1, old, is_local=True)
    tiers.on_obsolete(old.object_name)
    assert list(tiers.cached) == [old.object_name]
    assert tiers.local_bytes == 100


def fate(name, *, epoch=2, end_offset=20):
    parsed = parse_object_name(name)
    return is_orphan(name, parsed, [entry()], epoch=epoch, end_offset=end_offset)


def test_object_that_the_manifest_names_is_no_orphan():
    assert not fate(entry().object_name)


def test_object_of_the_past_that_no_manifest_names_is_an_orphan():
    assert fate(object_name("", "/default/a", 0, 20, 2))
    assert fate(object_name("", "/default/a", 0, 10, 1))


def test_object_of_a_newer_epoch_or_beyond_the_end_of_the_log_is_kept():
    assert not fate(object_name("", "/default/a", 0, 20, 3))
    assert not fate(object_name("", "/default/a", 10, 21, 1))


def test_uploads_keep_to_their_rate():
    pace = TransferPace(100)
    assert pace.delay_s(200, now=10.0) == 0
    assert pace.delay_s(50, now=10.0) == 2.0
    assert pace.delay_s(50, now=10.5) == 2.0
    assert pace.delay_s(50, now=20.0) == 0


def test_uploads_without_a_rate_never_wait():
    pace = TransferPace(0)
    assert [pace.delay_s(10**12, now=0.0) for _ in range(3)] == [0, 0, 0]
