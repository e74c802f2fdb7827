"""A consumer is sent what it works off in a few seconds."""

from __future__ import annotations

from pydanube.servers.grpc.window import WINDOW_FIRST, WINDOW_MIN, AdaptiveWindow


def work(
    pace: AdaptiveWindow, message_s: float, total_s: float, *, at_once: int = 1
) -> None:
    """A consumer with a backlog that needs *message_s* for each of its messages."""
    now = done = 0
    while now < total_s:
        pace.on_progress(done, pace.window, now)
        now += message_s
        done += at_once


def test_a_quick_consumer_gets_more_up_to_the_limit():
    pace = AdaptiveWindow(1000)
    work(pace, 0.0001, 5)
    assert pace.window == 1000


def test_a_consumer_at_a_steady_pace_has_a_few_seconds_of_work():
    for message_s in (0.002, 0.02, 0.1, 0.5):
        pace = AdaptiveWindow(10_000)
        work(pace, message_s, 120)
        assert pace.window <= max(WINDOW_MIN, 5 / message_s)
        assert pace.window >= min(WINDOW_FIRST, 0.5 / message_s) / 2


def test_a_slow_consumer_has_only_a_few_messages():
    pace = AdaptiveWindow(1000)
    work(pace, 10, 1000)
    assert pace.window == WINDOW_MIN


def test_a_consumer_that_becomes_slow_loses_what_it_was_given():
    pace = AdaptiveWindow(1000)
    work(pace, 0.0001, 5)
    for done in range(100_000, 120_000, 1000):
        pace.on_progress(done, 1000, done / 100)
    assert pace.window < 1000


def test_waiting_for_messages_is_not_slowness():
    pace = AdaptiveWindow(1000)
    for second in range(100):
        pace.on_progress(second, 1, float(second))
        pace.on_progress(second + 1, 0, second + 0.001)
    assert pace.window == WINDOW_FIRST


def test_a_small_limit_holds_from_the_first_message():
    pace = AdaptiveWindow(1)
    assert pace.window == 1
    work(pace, 10, 100)
    work(pace, 0.001, 100)
    assert pace.window == 1
