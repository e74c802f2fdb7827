"""
The values of charts: the last minutes as this console has seen them, or the last hour
or two days as the brokers remember them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pydanube.model.activity_history import (
    LONG_STEP_S,
    POINTS_MAX,
    SHORT_STEP_S,
    ActivityHistory,
)
from pydanube_console.pure.charts import (
    Line,
    chart,
    charts_in_panels,
    short_age,
    short_number,
)
from pydanube_console.pure.history import POINTS_MAX as LIVE_POINTS_MAX
from pydanube_console.pure.history import LagPoint, Point
from pydanube_console.pure.markup import Html, button, element, join

NOW, HOUR, DAYS = "now", "hour", "days"
SPANS = {NOW: "Live", HOUR: "1 hour", DAYS: "48 hours"}
"""The spans of time, and their names."""
STEPS_S = {HOUR: SHORT_STEP_S, DAYS: LONG_STEP_S}
"""The step of what the brokers remember of a span."""
NOTHING = (
    "The brokers remember no messages of this time. They remember from their start on, "
    "and the topics and subscriptions that were used most recently."
)

Values = Sequence[float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Values at equal distances in time, the last one of now; None: unknown."""

    interval_s: float
    count: int
    """How many there may be."""
    published: Values = ()
    delivered: Values = ()
    lag: Values = ()
    age_s: Values = ()
    note: str = ""


def live(points: Sequence[Point], interval_s: float) -> Timeline:
    """Return the rates and the lag that this console has seen."""
    return Timeline(
        interval_s=interval_s,
        count=LIVE_POINTS_MAX,
        published=[each.published_per_s for each in points],
        delivered=[each.delivered_per_s for each in points],
        lag=[each.lag for each in points],
    )


def live_lag(points: Sequence[LagPoint], interval_s: float) -> Timeline:
    """Return the lag of a subscription that this console has seen."""
    return Timeline(
        interval_s=interval_s,
        count=LIVE_POINTS_MAX,
        lag=[each.lag for each in points],
        age_s=[each.age_s for each in points],
    )


def remembered(history: ActivityHistory, now_s: float) -> Timeline:
    """Return what brokers remember, until the last step that is over."""
    step_s = history.step_s
    count = POINTS_MAX[step_s]
    end = int(now_s // step_s) * step_s
    known = {each.begins_at_s: each for each in history.points}
    points = [known.get(end - step_s * number) for number in range(count, 0, -1)]
    # The broker has not measured it yet, or its clock is behind.
    while points and points[-1] is None and len(points) > count - 2:
        points.pop()
    return Timeline(
        interval_s=step_s,
        count=count,
        published=[None if each is None else each.published_per_s for each in points],
        delivered=[None if each is None else each.delivered_per_s for each in points],
        lag=[None if each is None else each.lag for each in points],
        age_s=[None if each is None else each.age_s for each in points],
        note="" if any(points) else NOTHING,
    )


def span_buttons(chosen: str) -> Html:
    """Return the buttons that choose a span of time."""
    buttons = [
        button(name, "span", span, is_pressed=span == chosen)
        for span, name in SPANS.items()
    ]
    return element("div", *buttons, class_="spans", role="group", aria_label="Time")


def rate_charts(shown: Timeline) -> Html:
    """Return the charts of rates and lag of a topic, or of all."""
    rates = [Line("published", shown.published), Line("delivered", shown.delivered)]
    lag = [Line("messages", shown.lag)]
    return _charts(
        shown,
        [("Messages per second", rates, short_number), ("Lag", lag, short_number)],
    )


def lag_charts(shown: Timeline) -> Html:
    """Return the charts of the lag of a subscription."""
    waiting = [Line("not acknowledged", shown.lag)]
    ages = [Line("waits", shown.age_s)]
    return _charts(
        shown,
        [
            ("Lag in messages", waiting, short_number),
            ("Oldest message", ages, short_age),
        ],
    )


def _charts(
    shown: Timeline, charts: list[tuple[str, list[Line], Callable[[float], str]]]
) -> Html:
    note = element("p", shown.note, class_="muted") if shown.note else Html("")
    panels = charts_in_panels(
        chart(title, lines, interval_s=shown.interval_s, count=shown.count, show=show)
        for title, lines, show in charts
    )
    return join([note, panels])
