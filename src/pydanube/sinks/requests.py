"""
HTTP requests with retries.

Messages contain only the origin of a request's URL, never its path or headers.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from pydanube.model.errors import InvalidConfig, Unavailable
from pydanube.sinks import secrets
from pydanube.sinks.retrying import Failed, parse_retry_after, persist

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import httpx

    from pydanube.model.retry import RetryPolicy

RETRYABLE_STATUSES = frozenset({408, 425, 429})
"""Statuses below 500 after which the same request may succeed."""

SHOWN_CHARACTERS_MAX = 500


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
            InvalidConfig: The HTTP client library is not installed.
        """
        try:
            import httpx  # noqa: PLC0415  # An extra.
        except ImportError as error:
            raise InvalidConfig(
                "sinks over HTTP need httpx: pip install 'pydanube[http]'"
            ) from error
        self._errors = httpx.TransportError
        self._wrong_address = (httpx.UnsupportedProtocol, httpx.InvalidURL)
        self._client = httpx.Client(timeout=timeout_s)
        self._retries = retries
        self._wait = wait

    def __enter__(self) -> Requests:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def send(
        self,
        method: str,
        url: str,
        *,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        content: bytes = b"",
        is_retryable: Callable[[httpx.Response], bool] | None = None,
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
        is_retryable = is_retryable or is_retryable_status

        def attempt() -> httpx.Response | Failed:
            try:
                response = self._client.request(
                    method, url, params=params, headers=headers, content=content
                )
            except self._wrong_address as error:
                raise InvalidConfig(f"url: {shown}: {type(error).__name__}") from None
            except self._errors as error:
                what = type(error).__name__
                reason = secrets.redact(str(error), secrets.in_url(url))
                return Failed(Unavailable(f"{shown}: {what}: {reason or 'no answer'}"))
            if is_retryable(response):
                after_s = parse_retry_after(
                    response.headers.get("retry-after"), response.headers.get("date")
                )
                return Failed(Unavailable(f"{shown}: {summarize(response)}"), after_s)
            return response

        return persist(attempt, self._retries, self._wait)


def is_retryable_status(response: httpx.Response) -> bool:
    """Return whether the same request may succeed a little later."""
    return response.status_code >= 500 or response.status_code in RETRYABLE_STATUSES


def summarize(response: Any) -> str:
    """Return the status of *response* and the beginning of its body."""
    text = " ".join(response.text.split())
    if len(text) > SHOWN_CHARACTERS_MAX:
        text = text[:SHOWN_CHARACTERS_MAX] + " …"
    return f"{response.status_code} {response.reason_phrase}: {text or 'no body'}"
