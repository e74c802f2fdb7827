"""
How many messages a consumer is sent before it has acknowledged the last ones.

Clients of Danube give no credit: they take whatever comes and work it off one by one.
Too little ahead wastes a round trip for each message; too much lies with one consumer
while others are idle, and runs into the acknowledgement timeout.  So a consumer is
sent what it works off in a few seconds, which only it can show.
"""

from __future__ import annotations

WINDOW_MIN = 4
WINDOW_FIRST = 16
QUICK_S = 1.0
"""Who works off a whole window in less gets a larger one."""
SLOW_S = 5.0
"""Who needs longer gets a smaller one; far below any acknowledgement timeout."""


class AdaptiveWindow:
    """
    One consumer's window; times are the caller's, in seconds.

    It grows and shrinks by halves: a consumer of a thousand messages a second is at
    its window of a thousand after a few seconds.
    """

    def __init__(self, window_max: int) -> None:
        self._window_max = window_max
        self.window = min(WINDOW_FIRST, window_max)
        """So many messages may be with the consumer."""
        # When the consumer began to work off its window, and what it had done then.
        self._since: float | None = None
        self._done_before = 0

    def on_progress(self, done: int, in_flight: int, now: float) -> None:
        """
        The consumer has *done* messages since it came; *in_flight* are with it.

        What became of them does not matter: they are not with it any more.
        """
        if self._since is None or not in_flight:
            # Who has nothing to do is neither quick nor slow.
            self._start(done, now if in_flight else None)
            return
        if done - self._done_before < self.window:
            return
        took_s = now - self._since
        if took_s < QUICK_S:
            self.window = min(self.window * 2, self._window_max)
        elif took_s > SLOW_S:
            self.window = max(self.window // 2, min(WINDOW_MIN, self._window_max))
        self._start(done, now)

    def _start(self, done: int, now: float | None) -> None:
        self._since, self._done_before = now, done
