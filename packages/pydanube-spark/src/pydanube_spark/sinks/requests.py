"""
HTTP requests with retries.

Messages contain only the origin of a request's URL, never its path or headers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from pydanube.model.errors import InvalidConfig, Unavailable
from pydanube.model.extras import require
from pydanube.model.retry import RetryPolicy
from pydanube_spark.sinks import secrets
from pydanube_spark.sinks.retrying import RetryLater, persist

if TYPE_CHECKING:
    import httpx  # An extra.

RETRYABLE_STATUSES = frozenset({408, 425, 429})
"""Statuses below 500 after which the same request may succeed."""

SHOWN_CHARACTERS_MAX = 500


def is_retryable_status(response: httpx.Response) -> bool:
    """Return whether the same request may succeed a little later."""
    return response.status_code >= 500 or response.status_code in RETRYABLE_STATUSES


class Requests:
    """An HTTP client for one server, with persistent connections."""

    def __init__(
        self,
        *,
        timeout_s: float,
        retries: RetryPolicy,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        """
        Create the client; it does not connect yet.

        Raises:
            MissingExtra: The HTTP client library is not installed.
        """
        require("clickhouse", "the ClickHouse sink")
        import httpx  # noqa: PLC0415

        self._errors = httpx.TransportError
        self._wrong_address = (httpx.UnsupportedProtocol, httpx.InvalidURL)
        self._client = httpx.Client(timeout=timeout_s)
        self._retries = retries
        self._wait = wait

    def close(self) -> None:
        self._client.close()

    def send(
        self,
        method: str,
        url: str,
        *,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        content: bytes = b"",
        is_retryable: Callable[[httpx.Response], bool] = is_retryable_status,
    ) -> httpx.Response:
        """
        Send the request, with retries, and return its final response.

        *is_retryable* tells which responses to retry; by default the statuses that HTTP
        declares temporary.

        Raises:
            Unavailable: Every attempt failed.
            InvalidConfig: *url* is malformed.
        """
        shown = f"{method} {secrets.url_origin(url)}"

        def attempt() -> httpx.Response:
            try:
                response = self._client.request(
                    method, url, params=params, headers=headers, content=content
                )
            except self._wrong_address as error:
                raise InvalidConfig(f"url: {shown}: {type(error).__name__}") from None
            except self._errors as error:
                what = type(error).__name__
                reason = secrets.redact(str(error), secrets.in_url(url))
                message = f"{shown}: {what}: {reason or 'no answer'}"
                raise Unavailable(message) from None
            if is_retryable(response):
                found = response.headers
                delay_s = requested_delay_s(found.get("retry-after"), found.get("date"))
                raise RetryLater(f"{shown}: {summarize(response)}", delay_s)
            return response

        return persist(attempt, self._retries, self._wait)


def summarize(response: Any) -> str:
    """Return the status of *response* and the beginning of its body."""
    text = " ".join(response.text.split())
    if len(text) > SHOWN_CHARACTERS_MAX:
        text = text[:SHOWN_CHARACTERS_MAX] + " …"
    return f"{response.status_code} {response.reason_phrase}: {text or 'no body'}"


def requested_delay_s(text: str | None, date: str | None) -> float:
    """
    Return the seconds in the HTTP header ``Retry-After``; 0 if it is malformed.

    A date is compared with the header ``Date`` of the same response, because the clock
    of the server may differ.
    """
    if text is not None and text.strip().isdecimal():
        return float(text)
    at, now = _instant(text), _instant(date)
    return 0.0 if at is None or now is None else max(0.0, (at - now).total_seconds())


def _instant(text: str | None) -> datetime | None:
    try:
        found = parsedate_to_datetime(text or "")
    except ValueError:
        return None
    return found if found.tzinfo is not None else None
