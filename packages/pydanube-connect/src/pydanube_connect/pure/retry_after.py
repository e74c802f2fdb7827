"""How long servers ask their clients to wait.  Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

RETRY_AFTER_MAX_S = 600.0
"""Connectors wait no longer, whatever a server asks for."""


def wait_asked_s(headers: Mapping[str, str], now_s: float) -> float:
    """
    Return how long the header ``Retry-After`` says to wait, 0 if it does not say.

    It has seconds or a time; *now_s* is the time in seconds since 1970.
    """
    text = headers.get("retry-after", "")
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - now_s
        except (ValueError, OverflowError):
            return 0.0
    return max(seconds, 0.0) if math.isfinite(seconds) else 0.0


def delay_asked_s(error: Exception) -> float:
    """Return how long *error* says to wait, as far as connectors do."""
    return min(getattr(error, "retry_after_s", 0.0), RETRY_AFTER_MAX_S)
