"""
The number of unacknowledged messages that a consumer may have.

Clients of Danube give no credit; they accept all messages and process them one by one.
A window that is too small costs a round trip for each message.  In a window that is
too large, messages wait at one consumer while others are idle, and run into the
acknowledgement timeout.  The window holds the messages that the consumer processes
in a few seconds, as measured by its acknowledgements.
"""

from __future__ import annotations

WINDOW_MIN = 4
WINDOW_FIRST = 16
QUICK_S = 1.0
"""The window grows if the consumer processes all of it in less time."""
SLOW_S = 5.0
"""The window shrinks if it takes longer; far below any acknowledgement timeout."""


class AdaptiveWindow:
    """
    The window of one consumer; the caller supplies times in seconds.

    It doubles or halves: for a consumer that processes 1,000 messages a second it
    reaches 1,000 after a few seconds.
    """

    def __init__(self, window_max: int) -> None:
        self._window_max = window_max
        self.size = min(WINDOW_FIRST, window_max)
        """The maximum number of unacknowledged messages."""
        # When the consumer started on this window, and its processed messages then.
        self._since: float | None = None
        self._done_before = 0

    def on_progress(self, done: int, in_flight: int, now: float) -> None:
        """
        Update the window.

        *done* counts the messages since the consumer came that left it, by ack, nack
        or timeout; *in_flight* counts those that it has.
        """
        if self._since is None or not in_flight:
            # An idle consumer is neither quick nor slow.
            self._start(done, now if in_flight else None)
            return
        if done - self._done_before < self.size:
            return
        took_s = now - self._since
        if took_s < QUICK_S:
            self.size = min(self.size * 2, self._window_max)
        elif took_s > SLOW_S:
            self.size = max(self.size // 2, min(WINDOW_MIN, self._window_max))
        self._start(done, now)

    def _start(self, done: int, now: float | None) -> None:
        self._since, self._done_before = now, done
