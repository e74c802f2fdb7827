"""Counting shards that change their owner at about the same time, for one log line."""

from __future__ import annotations

from collections.abc import Callable, Mapping


class ShardTally:
    """
    The shards that are in the same change, such as a takeover.

    A group of shards begins with the first one that is in the change, and ends when
    none is left in it.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        on_end: Callable[[int, float, Mapping[str, float]], None],
    ) -> None:
        """
        *on_end* gets the number of changed shards, the seconds that the group took, and
        the longest time that each step took for one shard.

        It is not called for a group without a changed shard.
        """
        self._clock = clock
        self._on_end = on_end
        self._pending: set[int] = set()
        self._steps: dict[str, float] = {}
        self._count = 0
        self._began_at = 0.0

    def begin(self, shard: int) -> None:
        """Note that *shard* is in the change; it may have begun before."""
        if not self._pending:
            self._count, self._began_at, self._steps = 0, self._clock(), {}
        self._pending.add(shard)

    def note(self, shard: int, step: str, taken_s: float) -> None:
        """Note how long a step took for *shard*, if it is in the change."""
        if shard in self._pending:
            self._steps[step] = max(taken_s, self._steps.get(step, 0.0))

    def end(self, shard: int, *, is_changed: bool) -> None:
        """Note that *shard* is not in the change any more, if it was."""
        if shard in self._pending:
            self._pending.discard(shard)
            self._count += is_changed
            if self._count and not self._pending:
                taken_s = self._clock() - self._began_at
                self._on_end(self._count, taken_s, self._steps)


def steps_text(steps: Mapping[str, float]) -> str:
    """Return the longest times of steps in milliseconds, as a log line shows them."""
    return ", ".join(
        f"{step} {taken_s * 1000:.0f} ms" for step, taken_s in steps.items()
    )
