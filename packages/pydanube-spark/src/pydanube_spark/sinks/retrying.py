"""Retries of requests to the systems that sinks write to."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from pydanube.model.errors import Unavailable
from pydanube.model.retry import RetryPolicy
from pydanube_spark.reader.pure.option_parsing import Option, ParsedOptions

T = TypeVar("T")

RETRY_OPTIONS = (
    Option("retries", "5", "How often a temporary failure is retried."),
    Option(
        "retryIntervalMs",
        "500",
        "The delay before the first retry; it doubles with each further retry, up to "
        "30 s.",
    ),
)

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


class RetryLater(Unavailable):
    """The server requests a delay before the next attempt."""

    code = "retry_later"

    def __init__(self, message: str, delay_s: float) -> None:
        super().__init__(message)
        self.delay_s = delay_s


def persist(
    attempt: Callable[[], T],
    policy: RetryPolicy,
    wait: Callable[[float], None] = time.sleep,
) -> T:
    """
    Return the result of *attempt*, which is repeated while it raises ``Unavailable``.

    Delays are never shorter than the server requests.

    Raises:
        Unavailable: *policy* allows no more retries; the last error is raised.
    """
    failures = 0
    while True:
        try:
            return attempt()
        except Unavailable as error:
            failures += 1
            requested_s = error.delay_s if isinstance(error, RetryLater) else 0.0
            if not policy.allows(failures) or requested_s > REQUESTED_DELAY_MAX_S:
                raise
        wait(max(policy.delay_s(failures), requested_s))
