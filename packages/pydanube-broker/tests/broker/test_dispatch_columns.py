"""Delivery windows and ordering keys of batches."""

from dataclasses import replace

import pyarrow as pa
import pytest

from pydanube.model.batch import Column, schema_of
from pydanube.model.envelope import FIELDS
from pydanube.wire.batches import Codec, encode_rows
from pydanube_broker.broker.pure.dispatch_columns import delivery_windows, ordering_keys
from support.fakes.batches import A_TIME, frame_of

EPOCH_S = 1000.0 - A_TIME / 1e6
"""The clock shows 1000 at A_TIME."""


def stamped(frame, base=10):
    frame.stamp(base, 1)
    return frame


def windows(frame, base=None, ttl_s=None):
    found = delivery_windows(frame, base or frame.base, ttl_s=ttl_s, epoch_s=EPOCH_S)
    return [(each.base, each.end, each.due, each.expires) for each in found]


def keys(frame, base=None):
    found = ordering_keys(frame, base or frame.base)
    return [found.unique[code] for code in found.codes]


def at(seconds):
    return A_TIME + round(seconds * 1e6)


def test_batch_without_times_may_be_delivered_at_any_time():
    assert windows(stamped(frame_of([b"a", b"b"]))) == []


def test_adjacent_messages_with_equal_times_share_a_window():
    frame = frame_of(
        [b"a", b"b", b"c", b"d", b"e"],
        deliver_at=[None, at(5), at(5), at(7), None],
        expires_at=[None, None, None, at(9), at(9)],
        codec=Codec.LZ4,
    )
    assert windows(stamped(frame)) == [
        (11, 13, 1005.0, None),
        (13, 14, 1007.0, 1009.0),
        (14, 15, None, 1009.0),
    ]


def test_latest_publish_time_counts_anywhere_in_the_batch():
    """Producers whose messages share a batch need not have the same clock."""
    frame = stamped(frame_of([b"a", b"b", b"c"], publish_times=[at(0), at(0.7), at(0)]))
    assert windows(frame, ttl_s=60.0) == [(10, 13, None, pytest.approx(1060.7))]
    frame = stamped(frame_of([b"a", b"b", b"c"], publish_times=[at(0), at(9), at(0)]))
    assert [each[:2] for each in windows(frame, ttl_s=60.0)] == [
        (10, 11),
        (11, 12),
        (12, 13),
    ]


def test_messages_below_base_are_left_out():
    frame = stamped(frame_of([b"a", b"b", b"c"], deliver_at=[at(1), at(1), at(2)]))
    assert windows(frame, 11) == [(11, 12, 1001.0, None), (12, 13, 1002.0, None)]


@pytest.mark.parametrize("times", [None, [at(0), at(0.3), at(0.9)]])
def test_topic_ttl_gives_a_batch_one_window(times):
    frame = stamped(frame_of([b"a", b"b", b"c"], publish_times=times))
    last = 0 if times is None else 0.9
    assert windows(frame, ttl_s=60.0) == [
        (10, 13, None, pytest.approx(1060.0 + last)),
    ]


def test_batch_over_a_long_time_expires_in_steps():
    times = [at(0.2), at(0.5), at(100), at(100), at(7000)]
    frame = stamped(frame_of([b"x"] * 5, publish_times=times))
    found = windows(frame, ttl_s=60.0)
    assert [(base, end) for base, end, _, _ in found] == [(10, 12), (12, 14), (14, 15)]
    for (_, end, due, expires), time in zip(found, (0.5, 100, 7000), strict=True):
        assert due is None
        assert 1060.0 + time <= expires <= 1061.0 + time, end


def test_message_expires_at_the_earlier_of_own_time_and_ttl():
    frame = stamped(frame_of([b"a", b"b", b"c"], expires_at=[at(5), at(500), None]))
    first, second = windows(frame, ttl_s=60.0)
    assert first == (10, 11, None, 1005.0)
    assert second[:3] == (11, 13, None)
    assert second[3] == pytest.approx(1060.5, abs=0.51)


def test_very_long_ttl_never_expires():
    frame = stamped(frame_of([b"a", b"b"], publish_times=[at(0), at(50)]))
    assert all(each[3] > 1e12 for each in windows(frame, ttl_s=1e30))


def test_ordering_key_defaults_to_the_producer():
    frame = frame_of([b"x"] * 4, keys=[b"k", None, b"l", b"k"], producer="web-1")
    assert keys(stamped(frame)) == [b"k", b"web-1", b"l", b"k"]
    assert keys(stamped(frame_of([b"x"] * 2, producer="web-1"))) == [b"web-1"] * 2
    assert keys(stamped(frame_of([b"x"]))) == [b""]


def test_producers_may_differ_within_a_batch():
    frame = frame_of(
        [b"x"] * 3, keys=[None, b"k", None], producers=["web-1", "web-2", None]
    )
    assert keys(stamped(frame)) == [b"web-1", b"k", b""]
    frame = stamped(frame_of([b"x"] * 2, producers=["web-1", "web-2"]))
    assert keys(frame, 11) == [b"web-2"]


def test_equal_keys_are_encoded_once():
    frame = stamped(frame_of([b"x"] * 1000, keys=[b"a", b"b"] * 500))
    found = ordering_keys(frame, 11)
    assert sorted(found.unique) == [b"a", b"b"]
    assert len(found.codes) == 999
    assert found.unique[found.codes[0]] == b"b"


def with_gaps(frame, offsets):
    rows = frame.arrow().filter(
        pa.array([at in offsets for at in range(frame.base, frame.end)])
    )
    rows = rows.append_column(FIELDS[Column.OFFSET], pa.array(offsets, pa.int64()))
    columns = schema_of(frame.header.columns | Column.OFFSET).names
    return encode_rows(rows.select(columns), replace(frame.header))


def test_missing_offsets_have_arbitrary_keys():
    frame = stamped(
        frame_of(
            [b"a", b"b", b"c", b"d", b"e", b"f"],
            keys=[b"x", b"y", b"x", None, b"y", b"z"],
            deliver_at=[at(5), at(6), at(5), None, at(7), at(7)],
            producer="p",
        )
    )
    gappy = with_gaps(frame, [10, 12, 13, 15])
    assert windows(gappy) == [(10, 13, 1005.0, None), (15, 16, 1007.0, None)]
    assert windows(gappy, base=11) == [(12, 13, 1005.0, None), (15, 16, 1007.0, None)]
    found = keys(gappy)
    assert [found[each - 10] for each in (10, 12, 13, 15)] == [b"x", b"x", b"p", b"z"]
    assert len(found) == 6
    found = keys(gappy, base=13)
    assert (found[0], found[2], len(found)) == (b"p", b"z", 3)
