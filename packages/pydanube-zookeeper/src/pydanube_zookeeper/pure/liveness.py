"""The decision that a member of ZooKeeper does not answer any more."""

from __future__ import annotations

from collections import deque

SILENCE_S = 0.7
"""How long a member may be silent until it is asked, and then until it answers."""

LIMIT_S_MAX = 16.0
"""How long a member that answers slowly may take at most."""


class Liveness:
    """
    Measures the silence of the member that a client is connected to.

    A member gets a short time at first, because it may hang.  When all members were
    left one after the other, ZooKeeper is slow, and each gets twice the time.
    """

    def __init__(self, member_count: int) -> None:
        self.limit_s = SILENCE_S
        """How long a member may take to answer."""
        self._member_count = member_count
        self._left_count = 0
        self._heard_at = 0.0
        self._waiting: deque[float] = deque()
        """When the requests without an answer were sent; answers have their order."""

    def on_request(self, now: float) -> None:
        """Note that a request was sent."""
        self._waiting.append(now)

    def on_answer(self, now: float) -> None:
        """Note that the oldest request was answered."""
        sent_at = self._waiting.popleft()
        self._heard_at = now
        if now - sent_at <= SILENCE_S:
            self.limit_s = SILENCE_S
            self._left_count = 0

    def on_failure(self) -> None:
        """Note that the oldest request failed with its connection."""
        self._waiting.popleft()

    def on_left(self, now: float) -> None:
        """Note that the member is left."""
        self._heard_at = now
        self._left_count += 1
        if self._left_count % self._member_count == 0:
            self.limit_s = min(2 * self.limit_s, LIMIT_S_MAX)

    def wants_ping(self, now: float) -> bool:
        """Return whether the member is silent because nobody has asked it anything."""
        return not self._waiting and now - self._heard_at >= SILENCE_S

    def is_hung(self, now: float, *, opened_at: float, is_connected: bool) -> bool:
        """
        Return whether the member should be left.

        *opened_at* is when connecting to it began; until it *is_connected*, it has not
        even answered that.
        """
        since = opened_at
        if is_connected:
            if not self._waiting:
                return False
            since = max(since, self._heard_at, self._waiting[0])
        return now - since > self.limit_s
