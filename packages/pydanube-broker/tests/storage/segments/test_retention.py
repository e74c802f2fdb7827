from pydanube.model.policy import Deduplication, Retention
from pydanube.model.segments import SegmentEntry
from pydanube_broker.storage.segments.retention import plan_drops

HOUR_US = 3600 * 1_000_000


def segments(count):
    return [
        SegmentEntry(
            base=10 * at,
            end=10 * at + 10,
            epoch=1,
            count=10,
            byte_count=100,
            object_name=f"{at}",
            first_publish_time=at * HOUR_US,
            last_publish_time=(at + 1) * HOUR_US,
            sealed_at=0,
        )
        for at in range(count)
    ]


def dropped(
    count,
    now=0,
    tail_bytes=0,
    cursors=(),
    start_offset=0,
    is_held=False,
    deduplication=None,
    **retention,
):
    drops = plan_drops(
        segments(count),
        Retention(**retention),
        tail_bytes=tail_bytes,
        now=now,
        cursors=cursors,
        start_offset=start_offset,
        is_held=is_held,
        deduplication=deduplication,
    )
    assert [drop.base for drop in drops] == [10 * at for at in range(len(drops))]
    return len(drops)


def test_without_a_limit_everything_is_kept():
    assert dropped(5, now=10**18) == 0


def test_a_segment_is_too_old_when_its_last_message_is():
    assert dropped(5, now=3 * HOUR_US, age_s=3600) == 1
    assert dropped(5, now=3 * HOUR_US + 1, age_s=3600) == 2


def test_retention_keeps_at_least_the_limit_of_bytes():
    assert dropped(5, bytes_max=300) == 2
    assert dropped(5, bytes_max=299) == 2
    assert dropped(5, bytes_max=301) == 1
    assert dropped(5, bytes_max=300, tail_bytes=100) == 3


def test_either_limit_is_enough():
    assert dropped(5, now=3 * HOUR_US, age_s=3600, bytes_max=300) == 2


def test_the_newest_segment_stays():
    assert dropped(5, now=10**18, age_s=0) == 4
    assert dropped(1, bytes_max=0) == 0
    assert dropped(0, bytes_max=0) == 0


def test_segments_that_all_subscriptions_have_acknowledged_are_dropped():
    acknowledged = {"drops_acknowledged": True}
    assert dropped(5, cursors=[30], **acknowledged) == 3
    assert dropped(5, cursors=[30, 29], **acknowledged) == 2
    assert dropped(5, cursors=[30, 9], **acknowledged) == 0
    assert dropped(5, cursors=[50], **acknowledged) == 4
    assert dropped(5, cursors=[30]) == 0


def test_without_subscriptions_nothing_is_acknowledged():
    assert dropped(5, drops_acknowledged=True) == 0
    assert dropped(5, drops_acknowledged=True, bytes_max=300) == 2


def test_limits_drop_what_is_not_acknowledged():
    assert dropped(5, cursors=[10], drops_acknowledged=True, bytes_max=300) == 2
    assert dropped(5, cursors=[40], drops_acknowledged=True, bytes_max=300) == 4


def test_held_topic_keeps_everything():
    every = {"age_s": 1, "bytes_max": 1, "drops_acknowledged": True}
    assert dropped(5, now=10**18, cursors=[50], **every) == 4
    assert dropped(5, now=10**18, cursors=[50], is_held=True, **every) == 0


def test_messages_of_the_deduplication_window_are_kept():
    now = 5 * HOUR_US
    for window, count in (
        (Deduplication(age_s=2 * 3600), 2),
        (Deduplication(age_s=2 * 3600 - 1), 3),
        (Deduplication(age_s=9 * 3600, messages_max=20), 3),
        (Deduplication(age_s=9 * 3600, messages_max=21), 2),
    ):
        assert dropped(5, now=now, bytes_max=1, deduplication=window) == count


def test_trimmed_segments_are_dropped_unless_they_are_held():
    assert dropped(5, start_offset=29) == 2
    assert dropped(5, start_offset=30) == 3
    assert dropped(5, start_offset=50) == 4
    assert dropped(5, start_offset=50, is_held=True) == 0
    window = Deduplication(messages_max=1000, age_s=10**6)
    assert dropped(5, start_offset=30, deduplication=window) == 3
