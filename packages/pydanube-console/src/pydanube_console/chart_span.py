"""The span of time that the charts of a page show."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable

from nicegui import ui

from pydanube.model.activity_history import POINTS_MAX, SHORT_STEP_S
from pydanube.model.errors import PermissionDenied
from pydanube.model.subscription_lag import SubscriptionLag
from pydanube_console.frame import Page
from pydanube_console.pure.history import History
from pydanube_console.pure.markup import Html, join
from pydanube_console.pure.timelines import (
    NOW,
    SPANS,
    STEPS_S,
    Timeline,
    lag_charts,
    live,
    live_lag,
    rate_charts,
    remembered,
    span_buttons,
)


class ChartSpan:
    """The span that the user of a page has chosen, and what brokers remember of it."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._chosen = NOW
        # What the brokers were asked last, when, and what they answered.
        self._asked: tuple[str | None, str | None, str] = (None, None, NOW)
        self._asked_at = 0.0
        self._answer = Timeline(interval_s=SHORT_STEP_S, count=1)

    def on_choice(
        self, blocks: Iterable[ui.html], update: Callable[[], Awaitable[None]]
    ) -> None:
        """Call *update* when the user presses one of the buttons in *blocks*."""

        async def press(action: str, value: str) -> None:
            if action == "span" and value in SPANS:
                self._chosen = value
                await self._page.attempt(update)

        for each in blocks:
            self._page.on_press(each, press)

    async def rates(self, history: History, topic: str | None = None) -> Html:
        """Return the buttons, and the charts of a topic or of all topics together."""
        points = [*history.totals] if topic is None else history.of_topic(topic)
        shown = await self._timeline(live(points, history.interval_s), topic)
        return join([span_buttons(self._chosen), rate_charts(shown)])

    async def lag(self, history: History, lag: SubscriptionLag) -> Html:
        """Return the buttons, and the charts of a subscription."""
        topic, name = lag.topic, lag.subscription
        points = history.of_subscription(topic, name)
        shown = await self._timeline(live_lag(points, history.interval_s), topic, name)
        return join([span_buttons(self._chosen), lag_charts(shown)])

    async def _timeline(
        self, seen: Timeline, topic: str | None, subscription: str | None = None
    ) -> Timeline:
        """
        Return what this console has *seen*, or what brokers remember.

        Bounds: The brokers are asked every 10 s.
        """
        if self._chosen == NOW:
            return seen
        asked, now = (topic, subscription, self._chosen), time.monotonic()
        if asked == self._asked and now - self._asked_at < SHORT_STEP_S:
            return self._answer
        step_s = STEPS_S[self._chosen]
        try:
            found = await self._page.client.cluster.describe_activity(
                topic, subscription, step_s=step_s
            )
        except PermissionDenied as error:
            self._answer = Timeline(
                interval_s=step_s, count=POINTS_MAX[step_s], note=str(error)
            )
        else:
            self._answer = remembered(found, time.time_ns() / 1e9)
        self._asked, self._asked_at = asked, now
        return self._answer
