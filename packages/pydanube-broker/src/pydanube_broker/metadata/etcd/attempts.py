"""The attempts to execute one request: how long each may take, and the pauses."""

from __future__ import annotations

from pydanube.model.retry import RetryPolicy

ATTEMPT_S = 1.0
"""How long the first attempt at each member may take."""

_DURATIONS = RetryPolicy(first_s=ATTEMPT_S, max_s=1024.0)
_PAUSES = RetryPolicy(first_s=0.05, max_s=0.5)


class Attempts:
    """
    The attempts to execute one request at any of the members.

    Each member gets one short attempt at once, because one of them may hang.  Further
    rounds have longer attempts, because a slow etcd must get a chance, and pauses.
    """

    def __init__(self, now: float, timeout_s: float, member_count: int) -> None:
        self.deadline = now + timeout_s
        self._member_count = member_count
        self._failures = 0

    def attempt_s(self, now: float) -> float:
        """Return how long the next attempt may take; 0: there is no further one."""
        longest = _DURATIONS.delay_s(self._round + 1)
        return max(0.0, min(longest, self.deadline - now))

    def on_failure(self) -> None:
        """Count a failed attempt."""
        self._failures += 1

    def pause_s(self) -> float:
        """Return how long to wait before the next attempt."""
        if self._round == 0 or self._failures % self._member_count:
            return 0.0
        return _PAUSES.delay_s(self._round)

    @property
    def _round(self) -> int:
        return self._failures // self._member_count
