"""Retries of requests to the systems that sinks write to."""

from __future__ import annotations

from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, TypeVar

from pydanube.model.retry import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from pydanube.model.errors import Unavailable
    from pydanube.reader.option_parsing import ParsedOptions

T = TypeVar("T")

DELAY_MAX_S = 30.0
"""The longest delay, unless the server requests a longer one."""

REQUESTED_DELAY_MAX_S = 300.0
"""If the server requests a longer delay, the task fails, and Spark retries it."""


def parse_retry_policy(given: ParsedOptions) -> RetryPolicy:
    """
    Return the policy that the options ``retries`` and ``retryIntervalMs`` set.

    Raises:
        InvalidConfig: An option is not a number.
    """
    return RetryPolicy(
        first_s=given.count("retryIntervalMs", 500, smallest=0) / 1000,
        max_s=DELAY_MAX_S,
        retries_max=given.count("retries", 5, smallest=0),
    )


@dataclass(frozen=True, slots=True)
class Failed:
    """An attempt that failed for a temporary reason."""

    error: Unavailable
    retry_after_s: float | None = None


def persist(
    attempt: Callable[[], T | Failed],
    policy: RetryPolicy,
    wait: Callable[[float], None],
) -> T:
    """
    Return the result of *attempt*, which is repeated while it fails.

    Delays are never shorter than the server requests.

    Raises:
        Unavailable: *policy* allows no more retries; the last error is raised.
    """
    failures = 0
    while True:
        outcome = attempt()
        if not isinstance(outcome, Failed):
            return outcome
        failures += 1
        requested_s = outcome.retry_after_s or 0.0
        if not policy.allows(failures) or requested_s > REQUESTED_DELAY_MAX_S:
            raise outcome.error
        wait(max(policy.delay_s(failures), requested_s))


def parse_retry_after(text: str | None, date: str | None) -> float | None:
    """
    Return the seconds in the HTTP header ``Retry-After``; None if it is malformed.

    A date is compared with the header ``Date`` of the same response, because the clock
    of the server may differ.
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
