"""
How often, and after what pause, something that failed is tried again.
"""

from __future__ import annotations

from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from pydanube.model.errors import Unavailable
    from pydanube.spark.sink_options import ParsedOptions

T = TypeVar("T")

WAIT_MAX_S = 30.0
"""No pause is longer, unless the server asks for it."""

ASKED_WAIT_MAX_S = 300.0
"""A server that asks for more is not waited for: Spark's own retry is the better."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that double."""

    retries: int = 5
    first_s: float = 0.5

    @classmethod
    def parse(cls, given: ParsedOptions) -> Backoff:
        """
        What ``retries`` and ``retryIntervalMs`` say.

        Raises:
            InvalidConfig: They are no numbers.
        """
        return cls(
            retries=given.count("retries", 5, smallest=0),
            first_s=given.count("retryIntervalMs", 500, smallest=0) / 1000,
        )

    def wait_s(self, tried: int, asked_s: float | None = None) -> float | None:
        """
        The pause after failure number *tried*, from 1; None to give up.

        *asked_s* is what the server wants, which is never undercut.
        """
        if tried > self.retries or (asked_s or 0) > ASKED_WAIT_MAX_S:
            return None
        # Doubling stops long before it could overflow.
        own = min(self.first_s * 2.0 ** min(tried - 1, 30), WAIT_MAX_S)
        return max(own, asked_s or 0.0)


@dataclass(frozen=True, slots=True)
class Failed:
    """One try that failed for a passing reason."""

    error: Unavailable
    retry_after_s: float | None = None


def persist(
    attempt: Callable[[], T | Failed], backoff: Backoff, wait: Callable[[float], None]
) -> T:
    """
    What *attempt* gives once it does not fail.

    Raises:
        Unavailable: It has failed as often as it may; the last error is raised.
    """
    tried = 0
    while True:
        outcome = attempt()
        if not isinstance(outcome, Failed):
            return outcome
        tried += 1
        pause_s = backoff.wait_s(tried, outcome.retry_after_s)
        if pause_s is None:
            raise outcome.error
        wait(pause_s)


def parse_retry_after(text: str | None, date: str | None) -> float | None:
    """
    The seconds that an HTTP header ``Retry-After`` asks for, if it can be read.

    It may name a time, which is compared with the header ``Date`` of the same answer:
    the clock of the server need not be ours.
    """
    if text is None:
        return None
    if text.strip().isdecimal():
        return float(text)
    at, now = _instant(text), _instant(date)
    if at is None or now is None:
        return None
    return max(0.0, (at - now).total_seconds())


def _instant(text: str | None) -> datetime | None:
    try:
        found = parsedate_to_datetime(text or "")
    except ValueError:
        return None
    return found if found.tzinfo is not None else None
