"""The window of a consumer holds what it processes in a few seconds."""

from __future__ import annotations

from pydanube_broker.servers.grpc.pure.window import (
    WINDOW_FIRST,
    WINDOW_MIN,
    AdaptiveWindow,
)


def work(
    window: AdaptiveWindow, message_s: float, total_s: float, *, at_once: int = 1
) -> None:
    """A consumer with a backlog that needs *message_s* for each of its messages."""
    now = done = 0
    while now < total_s:
        window.on_progress(done, window.size, now)
        now += message_s
        done += at_once


def test_window_of_a_quick_consumer_grows_to_the_limit():
    window = AdaptiveWindow(1000)
    work(window, 0.0001, 5)
    assert window.size == 1000


def test_window_holds_a_few_seconds_of_work():
    for message_s in (0.002, 0.02, 0.1, 0.5):
        window = AdaptiveWindow(10_000)
        work(window, message_s, 120)
        assert window.size <= max(WINDOW_MIN, 5 / message_s)
        assert window.size >= min(WINDOW_FIRST, 0.5 / message_s) / 2


def test_window_of_a_slow_consumer_is_small():
    window = AdaptiveWindow(1000)
    work(window, 10, 1000)
    assert window.size == WINDOW_MIN


def test_window_shrinks_when_a_consumer_becomes_slow():
    window = AdaptiveWindow(1000)
    work(window, 0.0001, 5)
    for done in range(100_000, 120_000, 1000):
        window.on_progress(done, 1000, done / 100)
    assert window.size < 1000


def test_idle_time_does_not_shrink_the_window():
    window = AdaptiveWindow(1000)
    for second in range(100):
        window.on_progress(second, 1, float(second))
        window.on_progress(second + 1, 0, second + 0.001)
    assert window.size == WINDOW_FIRST


def test_small_limit_applies_from_the_first_message():
    window = AdaptiveWindow(1)
    assert window.size == 1
    work(window, 10, 100)
    work(window, 0.001, 100)
    assert window.size == 1
