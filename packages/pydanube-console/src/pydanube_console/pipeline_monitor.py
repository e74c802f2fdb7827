"""The pipelines whose state directories a console was given, read while it is open."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pydanube_console.polling import Poller
from pydanube_console.pure.history import POINTS_MAX
from pydanube_spark.pipelines.pure.progress import QueryProgress
from pydanube_spark.pipelines.runs import Run

FindPipelines = Callable[[], Sequence[Run]]
"""Returns the runs of pipelines; it may block."""


@dataclass(slots=True)
class WatchedPipeline:
    """The current or last run of a pipeline, and its latest rates and lags."""

    run: Run
    rates: deque[float] = field(default_factory=lambda: deque(maxlen=POINTS_MAX))
    """Rows per second between two readings."""
    lags: deque[float] = field(default_factory=lambda: deque(maxlen=POINTS_MAX))

    @property
    def id(self) -> str:
        """A short name of its state directory."""
        return hashlib.sha256(str(self.run.state.path).encode()).hexdigest()[:12]

    @property
    def queries(self) -> list[QueryProgress]:
        """The progress of its queries."""
        return [] if self.run.status is None else self.run.status.queries

    @property
    def rows(self) -> int:
        """The rows that all queries have read in this run."""
        return sum(each.rows for each in self.queries)

    @property
    def lag(self) -> int | None:
        """The unread messages of all queries; None: unknown."""
        known = [each.lag for each in self.queries if each.lag is not None]
        return sum(known) if known else None

    def update(self, run: Run, elapsed_s: float) -> None:
        """Replace the run with a later reading of it."""
        before, self.run = self.rows, run
        # A process that was started again counts from 0.
        self.rates.append(max(0, self.rows - before) / max(elapsed_s, 1e-3))
        self.lags.append(self.lag or 0)


class PipelineMonitor(Poller):
    """The pipelines that a console was given."""

    def __init__(
        self,
        find: FindPipelines | None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self.is_given = find is not None
        """Whether the console was told where pipelines are."""
        self.pipelines: dict[str, WatchedPipeline] = {}
        """By id."""
        self._find: FindPipelines = find or list
        self._clock = clock
        self._times: deque[float] = deque(maxlen=POINTS_MAX)

    @property
    def interval_s(self) -> float:
        """The time between two readings, on average."""
        if len(self._times) < 2:
            return 0.0
        return (self._times[-1] - self._times[0]) / (len(self._times) - 1)

    async def take(self) -> None:
        """Read the state of each pipeline."""
        found = await asyncio.to_thread(self._find)
        now = self._clock()
        elapsed_s = now - self._times[-1] if self._times else 0.0
        self._times.append(now)
        known, self.pipelines = self.pipelines, {}
        for each in found:
            watched = WatchedPipeline(each)
            if (old := known.get(watched.id)) is not None:
                watched = old
                watched.update(each, elapsed_s)
            self.pipelines[watched.id] = watched
