"""
The work that one connection may cause in one turn of the event loop.

Every connection has its own budget, in units of about 10 µs of work.  The server does
not read from a connection that has spent it until the next turn of the event loop, so
one busy connection delays the others by at most its budget.
"""

from __future__ import annotations

UNITS_PER_TURN = 128
"""About a millisecond."""
BYTES_PER_UNIT = 16 * 1024
"""Received bytes that cost as much as one small frame."""


class TurnBudget:
    """
    Deficit round robin for one connection.

    A connection may overdraw its budget once; it pays off the debt in the following
    turns.
    """

    __slots__ = ("_left", "_units_per_turn")

    def __init__(self, units_per_turn: int = UNITS_PER_TURN) -> None:
        assert units_per_turn > 0
        self._units_per_turn = units_per_turn
        self._left = units_per_turn

    @property
    def left(self) -> int:
        """The number of units that the connection may still spend in this turn."""
        return max(0, self._left)

    @property
    def is_spent(self) -> bool:
        """Whether the connection must wait for its next turn."""
        return self._left <= 0

    def spend(self, units: int) -> bool:
        """Subtract the cost of work that was done; return ``is_spent``."""
        self._left -= units
        return self._left <= 0

    def refill(self) -> None:
        """Begin a new turn; units left over from the last one are lost."""
        self._left = min(self._units_per_turn, self._left + self._units_per_turn)
