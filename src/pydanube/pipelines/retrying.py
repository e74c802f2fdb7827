"""When a query that failed is started again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydanube.pipelines.spec import parse_duration

if TYPE_CHECKING:
    from pydanube.pipelines.spec import Retries


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often, and how long to wait before each time."""

    count: int
    backoff_s: float
    backoff_max_s: float

    @classmethod
    def of(cls, words: Retries) -> RetryPolicy:
        """What a file says."""
        return cls(
            words.count,
            parse_duration(words.backoff),
            parse_duration(words.backoff_max),
        )

    def delay_s(self, failures: int) -> float | None:
        """How long to wait after so many failures in a row; None: give up."""
        if failures > self.count:
            return None
        # More doublings than this are beyond any limit, and beyond a float.
        doubled = self.backoff_s * 2.0 ** min(failures - 1, 64)
        return float(min(doubled, self.backoff_max_s))
