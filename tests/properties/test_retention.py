"""What retention drops, for any segments, cursors and rules."""

from hypothesis import given
from hypothesis import strategies as st

from pydanube.model.policy import Retention
from pydanube.model.segments import SegmentEntry
from pydanube_broker.storage.segments.retention import plan_drops

US = 1_000_000

retentions = st.builds(
    Retention,
    age_s=st.none() | st.integers(1, 50).map(float),
    bytes_max=st.none() | st.integers(1, 500),
    drops_acknowledged=st.booleans(),
)


@st.composite
def topics(draw):
    """Return adjacent segments, which need not be in the order of their times."""
    segments, base = [], draw(st.integers(0, 5))
    for _ in range(draw(st.integers(0, 6))):
        end = base + draw(st.integers(1, 10))
        time = draw(st.integers(0, 60)) * US
        segments.append(
            SegmentEntry(
                base=base,
                end=end,
                epoch=1,
                count=end - base,
                byte_count=draw(st.integers(1, 200)),
                object_name=f"{base}",
                first_publish_time=0,
                last_publish_time=time,
                sealed_at=0,
            )
        )
        base = end
    return segments


everything = {
    "segments": topics(),
    "retention": retentions,
    "tail_bytes": st.integers(0, 300),
    "now": st.integers(0, 60).map(lambda s: s * US),
    "cursors": st.lists(st.integers(0, 60), max_size=3),
}


def reasons(segment, segments, retention, tail_bytes, now, cursors):
    """Return why *segment* may be dropped, from the description of the rules."""
    later = sum(each.byte_count for each in segments if each.base >= segment.end)
    if retention.age_s is not None:
        age_s = (now - segment.last_publish_time) / US
        if age_s > retention.age_s:
            yield "age"
    if retention.bytes_max is not None and later + tail_bytes >= retention.bytes_max:
        yield "size"
    has_acked = bool(cursors) and all(cursor >= segment.end for cursor in cursors)
    if retention.drops_acknowledged and has_acked:
        yield "acknowledged"


@given(**everything)
def test_each_dropped_segment_has_a_reason_and_the_next_one_has_none(
    segments, retention, tail_bytes, now, cursors
):
    drops = plan_drops(
        segments, retention, tail_bytes=tail_bytes, now=now, cursors=cursors
    )
    assert list(drops) == segments[: len(drops)]
    facts = (segments, retention, tail_bytes, now, cursors)
    assert all(any(reasons(each, *facts)) for each in drops)
    kept = segments[len(drops) :]
    assert bool(kept) == bool(segments)
    if len(kept) > 1:
        assert not any(reasons(kept[0], *facts))


@given(**everything)
def test_held_topic_keeps_all_segments(segments, retention, tail_bytes, now, cursors):
    facts = {"tail_bytes": tail_bytes, "now": now, "cursors": cursors}
    assert plan_drops(segments, retention, is_held=True, **facts) == ()


@given(**everything, more=st.integers(0, 60))
def test_another_subscription_never_makes_more_drop_unless_it_is_the_first(
    segments, retention, tail_bytes, now, cursors, more
):
    facts = {"tail_bytes": tail_bytes, "now": now}
    before = plan_drops(segments, retention, cursors=cursors, **facts)
    after = plan_drops(segments, retention, cursors=[*cursors, more], **facts)
    assert len(after) <= len(before) or not cursors


@given(**everything)
def test_second_pass_drops_nothing(segments, retention, tail_bytes, now, cursors):
    facts = {"tail_bytes": tail_bytes, "now": now, "cursors": cursors}
    drops = plan_drops(segments, retention, **facts)
    assert plan_drops(segments[len(drops) :], retention, **facts) == ()
