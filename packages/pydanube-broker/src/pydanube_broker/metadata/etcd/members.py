"""The choice of the member that gets the next calls."""

from __future__ import annotations

AVOID_S = 5.0
"""How long a silent member gets no calls, if there is another member."""


class Members:
    """
    The members of etcd, by number, and the one that gets the next calls.

    A member that refuses calls costs no time, for example while it knows no leader.  A
    silent one costs a whole deadline, so it is not tried again soon.
    """

    def __init__(self, count: int) -> None:
        self.present = 0
        """The member that gets the next calls."""
        self.is_known = True
        """Whether it has answered since calls go to it, or no member has failed."""
        self._count = count
        self._avoided_until: dict[int, float] = {}

    def leave(self, member: int, now: float, *, is_silent: bool) -> bool:
        """Note that a member did not answer; return whether calls now go to another."""
        if is_silent:
            self._avoided_until[member] = now + AVOID_S
        if member != self.present:
            return False
        others = [(member + step) % self._count for step in range(1, self._count + 1)]
        self.present = next(
            (each for each in others if self._may_use(each, now)), others[0]
        )
        self.is_known = False
        return True

    def on_answer(self, member: int) -> None:
        """Note that a member has answered."""
        self._avoided_until.pop(member, None)
        self.is_known |= member == self.present

    def _may_use(self, member: int, now: float) -> bool:
        return self._avoided_until.get(member, now) <= now
