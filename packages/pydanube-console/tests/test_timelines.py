"""Charts of hours end now, and have gaps where brokers remember nothing."""

from pydanube.model.activity_history import ActivityHistory, ActivityPoint
from pydanube_console.pure.timelines import (
    HOUR,
    NOTHING,
    lag_charts,
    rate_charts,
    remembered,
    span_buttons,
)


def test_points_are_placed_by_their_time():
    points = (
        ActivityPoint(begins_at_s=9_970, published_per_s=2),
        ActivityPoint(begins_at_s=9_990, published_per_s=4, lag=3, age_s=8),
    )
    shown = remembered(ActivityHistory(step_s=10, points=points), 10_004)
    assert (len(shown.published), shown.count) == (360, 360)
    assert list(shown.published[-4:]) == [None, 2, None, 4]
    assert (shown.lag[-1], shown.age_s[-1], shown.note) == (3, 8, "")
    assert "published 4, delivered 0" in rate_charts(shown)
    assert "waits 8.0s" in lag_charts(shown)


def test_last_step_that_is_not_measured_yet_is_no_gap():
    points = (ActivityPoint(begins_at_s=9_980, published_per_s=2),)
    shown = remembered(ActivityHistory(step_s=10, points=points), 10_004)
    assert shown.published[-1] == 2


def test_history_without_points_says_why():
    shown = remembered(ActivityHistory(step_s=300), 10_000)
    assert NOTHING in rate_charts(shown)


def test_chosen_span_is_pressed():
    assert 'data-value="hour" class="act" aria-pressed="true"' in span_buttons(HOUR)
