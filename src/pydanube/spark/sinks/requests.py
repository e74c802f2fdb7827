"""
HTTP requests that are repeated until they are answered for good.

Whatever is shown of a request is the server that it goes to; headers, and all the rest
of its address, are never shown.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from pydanube.model.errors import InvalidConfig, Unavailable
from pydanube.spark.sinks import secrets
from pydanube.spark.sinks.retrying import Failed, parse_retry_after, persist

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import httpx

    from pydanube.spark.sinks.retrying import Backoff

PASSING = frozenset({408, 425, 429})
"""Answers after which the same request may succeed, besides those from 500 up."""

SHOWN_CHARACTERS_MAX = 500


class Requests:
    """Requests to one server, over connections that are kept."""

    def __init__(
        self,
        *,
        timeout_s: float,
        backoff: Backoff,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        """
        Prepare; nobody is called yet.

        Raises:
            InvalidConfig: What speaks HTTP is not installed.
        """
        try:
            import httpx  # noqa: PLC0415  # An extra.
        except ImportError as error:
            raise InvalidConfig(
                "sinks over HTTP need its client: pip install 'pydanube[http]'"
            ) from error
        self._errors = httpx.TransportError
        self._wrong_address = (httpx.UnsupportedProtocol, httpx.InvalidURL)
        self._client = httpx.Client(timeout=timeout_s)
        self._backoff = backoff
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
        is_passing: Callable[[httpx.Response], bool] | None = None,
    ) -> httpx.Response:
        """
        The final answer: one for which repeating makes no difference.

        *is_passing* tells which answers are worth another try; by default those that
        HTTP says so of.

        Raises:
            Unavailable: There was none, as often as it was tried.
            InvalidConfig: The address is malformed.
        """
        shown = f"{method} {secrets.shown_url(url)}"
        is_passing = is_passing or passes

        def attempt() -> httpx.Response | Failed:
            try:
                answer = self._client.request(
                    method, url, params=params, headers=headers, content=content
                )
            except self._wrong_address as error:
                raise InvalidConfig(f"url: {shown}: {type(error).__name__}") from None
            except self._errors as error:
                what = type(error).__name__
                reason = secrets.hide(str(error), secrets.of_url(url))
                return Failed(Unavailable(f"{shown}: {what}: {reason or 'no answer'}"))
            if is_passing(answer):
                after_s = parse_retry_after(
                    answer.headers.get("retry-after"), answer.headers.get("date")
                )
                return Failed(Unavailable(f"{shown}: {outline(answer)}"), after_s)
            return answer

        return persist(attempt, self._backoff, self._wait)


def passes(answer: httpx.Response) -> bool:
    """Whether the same request may be answered otherwise a little later."""
    return answer.status_code >= 500 or answer.status_code in PASSING


def outline(answer: Any) -> str:
    """The status of *answer*, and how its body begins."""
    text = " ".join(answer.text.split())
    if len(text) > SHOWN_CHARACTERS_MAX:
        text = text[:SHOWN_CHARACTERS_MAX] + " …"
    return f"{answer.status_code} {answer.reason_phrase}: {text or 'without a body'}"
