"""
How many shards a session takes over at the same time.

All shards of a broker that has ended come at once.  Each of them needs the processor,
and so do messages, clients that connect again, and the journal.  So a session begins
with some of them, and with more only while its event loop goes round quickly.
"""

from __future__ import annotations

FIRST_MAX = 16
"""How many shards may begin before it is known what the event loop bears."""
SHARDS_MAX = 64
"""The most shards that are taken over at the same time."""
ROUND_S_MAX = 0.25
"""If the event loop takes longer to go round once, fewer shards begin."""


class TakeoverPace:
    """The number of shards that may be taken over at the same time; one at least."""

    def __init__(self) -> None:
        self.limit = FIRST_MAX

    def on_round(self, taken_s: float) -> None:
        """Take how long the event loop took to go round once."""
        if taken_s > ROUND_S_MAX:
            self.limit = max(1, self.limit // 2)
        else:
            self.limit = min(SHARDS_MAX, self.limit + 1)
