"""Rings keep an hour in steps of 10 s and two days in steps of 5 minutes."""

import pytest

from pydanube.model.activity_history import LONG_STEP_S, SHORT_STEP_S
from pydanube.model.ids import TopicId
from pydanube_broker.broker.pure.activity_rings import BROKER, ActivityRings

TOPIC, SUBSCRIPTION = ("/default/t", ""), ("/default/t", "s")


def record(rings, now_s, topics, elapsed_s=SHORT_STEP_S):
    """Add a measurement; *topics* has the id, counts and lag of topics by their key."""
    measured = rings.begin()
    for key, (number, published, delivered, *lag) in topics.items():
        add(measured, key, number, published, delivered, *lag)
    rings.end(measured, now_s, elapsed_s)


def add(measured, key, number, published, delivered, *lag):
    new = measured.count(TopicId(number), key[1], published, delivered)
    if any((*new, *lag)):
        measured.add(key, TopicId(number), new, *lag)


def rates(rings, key, step_s=SHORT_STEP_S):
    points = rings.history(key, step_s).points
    return [(each.begins_at_s, each.published_per_s, each.lag) for each in points]


def test_rates_are_those_between_two_measurements():
    rings = ActivityRings(1000)
    record(rings, 1010, {TOPIC: (1, 50, 0)})
    record(rings, 1020, {TOPIC: (1, 70, 20), SUBSCRIPTION: (1, 0, 20, 50, 7.0)})
    assert rates(rings, TOPIC) == [(1000, 5, 0), (1010, 2, 50)]
    [*_, last] = rings.history(SUBSCRIPTION, SHORT_STEP_S).points
    assert (last.delivered_per_s, last.lag, last.age_s) == (2, 50, 7)
    assert rates(rings, BROKER) == [(1000, 5, 0), (1010, 2, 50)]


def test_partitions_are_added_up_and_topics_have_the_largest_lag_of_a_subscription():
    rings = ActivityRings(1000)
    measured = rings.begin()
    for number in (1, 2):
        add(measured, TOPIC, number, 10, 0)
        add(measured, SUBSCRIPTION, number, 0, 0, 3, 1.0)
        add(measured, ("/default/t", "other"), number, 0, 0, 1, 9.0)
    rings.end(measured, 1010, SHORT_STEP_S)
    [topic] = rings.history(TOPIC, SHORT_STEP_S).points
    [all_topics] = rings.history(BROKER, SHORT_STEP_S).points
    assert (topic.published_per_s, topic.lag, topic.age_s) == (2, 6, 9)
    assert (all_topics.published_per_s, all_topics.lag) == (2, 8)


def test_topic_that_was_opened_again_counts_from_zero():
    rings = ActivityRings(1000)
    record(rings, 1010, {TOPIC: (1, 1000, 0)})
    record(rings, 1020, {TOPIC: (1, 30, 0)})
    assert rates(rings, TOPIC)[-1] == (1010, 3, 0)


def test_five_minutes_have_the_mean_of_rates_and_the_largest_lag():
    rings = ActivityRings(0)
    for step in range(1, 62):
        lag = 9 if step == 5 else 0
        record(
            rings, 10 * step, {TOPIC: (1, 20 * step, 0), SUBSCRIPTION: (1, 0, 0, lag)}
        )
    # The last one is not over.
    assert rates(rings, TOPIC, LONG_STEP_S) == [(0, 2, 9), (300, 2, 0), (600, 2, 0)]


def test_late_measurement_fills_its_steps_and_a_long_pause_is_a_gap():
    rings = ActivityRings(1000)
    record(rings, 1010, {TOPIC: (1, 10, 0)})
    record(rings, 1040, {TOPIC: (1, 40, 0)}, elapsed_s=30)
    record(rings, 3000, {TOPIC: (1, 50, 0)})
    steps = [at for at, *_ in rates(rings, TOPIC)]
    assert steps == [1000, 1010, 1020, 1030, 2990]


def test_points_go_on_when_the_clock_is_set_back():
    rings = ActivityRings(1000)
    for number in range(1, 4):
        record(rings, 1000 + 10 * number, {TOPIC: (1, 10 * number, 0)})
    record(rings, 1022, {TOPIC: (1, 90, 0)})
    record(rings, 1031, {TOPIC: (1, 110, 0)})
    # The point of 1010 is one of the time after the change, as is that of 1020.
    assert rates(rings, TOPIC) == [(1000, 1, 0), (1010, 6, 0), (1020, 2, 0)]
    assert rates(rings, BROKER) == rates(rings, TOPIC)


@pytest.mark.parametrize("jump_s", [500, 1500, 5000, 86_400, 40_000_000])
def test_clock_that_jumps_ahead_and_back_leaves_no_points_of_the_future(jump_s):
    rings = ActivityRings(1000)
    record(rings, 1010, {TOPIC: (1, 10, 0)})
    record(rings, 1020 + jump_s, {TOPIC: (1, 20, 0)})
    for now in (1030, 1040):
        record(rings, now, {TOPIC: (1, 10 + now, 0)})
    for key in (TOPIC, BROKER):
        assert [at for at, *_ in rates(rings, key)][-2:] == [1020, 1030]
        assert {at for at, *_ in rates(rings, key)} <= {1000, 1020, 1030}
        assert {at for at, *_ in rates(rings, key, LONG_STEP_S)} == {900}


def test_topic_that_moves_to_another_broker_has_no_points_here_until_it_is_back():
    rings = ActivityRings(1000)
    record(rings, 1010, {TOPIC: (1, 10, 0), SUBSCRIPTION: (1, 0, 5)})
    record(rings, 1020, {TOPIC: (1, 10, 0), SUBSCRIPTION: (1, 0, 5)})
    record(rings, 1030, {})
    record(rings, 1040, {TOPIC: (1, 20, 0)})
    assert rates(rings, TOPIC) == [(1000, 1, 0), (1010, 0, 0), (1030, 2, 0)]
    assert [at for at, *_ in rates(rings, SUBSCRIPTION)] == [1000, 1010, 1030]
    assert [at for at, *_ in rates(rings, BROKER)] == [1000, 1010, 1020, 1030]
    for number in range(400):
        record(rings, 1050 + 10 * number, {})
    assert rates(rings, TOPIC) == []
    assert rates(rings, TOPIC, LONG_STEP_S) == [(900, 1, 0)]


def test_rings_are_bounded_in_time_and_number():
    rings = ActivityRings(0, rings_max=2)
    names = [(f"/default/{number}", "") for number in range(3)]
    record(rings, 10, {names[0]: (1, 1, 0), names[1]: (2, 1, 0)})
    record(rings, 20, {names[0]: (1, 2, 0), names[1]: (2, 1, 0), names[2]: (3, 1, 0)})
    # The one that was idle is forgotten; two that are active stay.
    assert [bool(rates(rings, each)) for each in names] == [True, False, True]
    for step in range(3, 500):
        record(rings, 10 * step, {names[0]: (1, step, 0)})
    assert len(rates(rings, names[0])) == 360
    record(rings, 3 * 24 * 3600, {names[0]: (1, 500, 0)})
    assert rates(rings, names[2]) == []
