"""How much a micro-batch takes, and how long it waits for more."""

from pydanube_spark.pure.batch_limits import (
    BatchThresholds,
    count_between,
    within_bytes,
)
from pydanube_spark.reader.pure.query_positions import Position
from pydanube_spark.reader.pure.scans import TopicRange
from support.fakes.topic_directory import segment

A, B = "/default/a", "/default/b"


def test_micro_batch_waits_for_enough_messages_or_the_delay():
    patience = BatchThresholds(rows_min=10, delay_s=60.0)
    # It is unknown how long the first messages have been waiting.
    assert patience.is_due(1, now=100.0)
    assert not patience.is_due(9, now=159.0)
    assert patience.is_due(1, now=160.0)
    assert patience.is_due(10, now=161.0)
    assert not patience.is_due(1, now=220.0)


def test_count_between_ignores_positions_that_move_backwards():
    start = {A: Position(1, 5), B: Position(2, 7)}
    end = {A: Position(1, 9), B: Position(3, 2), "/default/c": Position(4, 5)}
    assert count_between(start, end) == 4


def stored(topic, base, end, sealed, message_bytes):
    """A topic whose sealed messages have ten bytes."""
    segments = (segment(0, sealed, sealed * 10, "file:///0"),) if sealed else ()
    return TopicRange(topic, 1, base, end, segments, message_bytes)


def reached(bytes_max, *ranges):
    start = {each.topic: Position(1, each.base) for each in ranges}
    end = {each.topic: Position(1, each.end) for each in ranges}
    found = within_bytes(start, end, {each.topic: each for each in ranges}, bytes_max)
    return [at.offset for at in found.values()]


def test_bytes_are_counted_as_they_are_stored():
    # 50 messages of ten bytes in a segment, then 50 of a hundred in the tail.
    assert reached(200, stored(A, 0, 100, 50, 100)) == [20]
    assert reached(1_000, stored(A, 0, 100, 50, 100)) == [55]
    assert reached(10**9, stored(A, 0, 100, 50, 100)) == [100]
    assert reached(200, stored(A, 45, 100, 50, 100)) == [51]


def test_bytes_are_divided_in_proportion_to_what_each_topic_has_waiting():
    assert reached(600, stored(A, 0, 100, 100, 1), stored(B, 0, 50, 50, 1)) == [40, 20]


def test_micro_batch_has_at_least_one_message():
    assert reached(5, stored(A, 0, 10, 0, 1000)) == [1]
    assert reached(5, stored(A, 0, 10, 0, 1000), stored(B, 3, 90, 0, 1000)) == [0, 4]
