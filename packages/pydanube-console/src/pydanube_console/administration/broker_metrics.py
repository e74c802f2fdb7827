"""The metrics of a broker, from its HTTP port."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

from pydanube.client.connections.urls import options_of
from pydanube.model.errors import InvalidRequest, Unavailable

HTTP_TIMEOUT_S = 10.0
METRICS_BYTES_MAX = 64 * 1024 * 1024
"""The rest of a longer answer of the broker is not read."""
HTTP_PORT = 8080
"""Where the HTTP port is if the broker does not say."""


async def fetch_metrics(
    http_url: str, topic: str | None, credentials: str, *, broker_url: str
) -> list[str]:
    """
    Return the lines of ``/metrics``; of topics, only those that match *topic*.

    Raises:
        Unavailable: The port does not answer as a broker.
        InvalidRequest: The broker refuses the request.
    """
    query = "" if topic is None else f"?topic={quote(topic)}"
    request = Request(f"{http_url.rstrip('/')}/metrics{query}")  # noqa: S310  # As the user says.
    if credentials:
        request.add_header("authorization", f"Bearer {credentials}")
    ca_file = options_of(broker_url).ca_file
    return await asyncio.to_thread(_fetch, request, ca_file)


def _fetch(request: Request, ca_file: str | None) -> list[str]:
    context = None
    if request.type == "https":
        context = ssl.create_default_context(cafile=ca_file)
    try:
        with urlopen(request, timeout=HTTP_TIMEOUT_S, context=context) as answer:  # noqa: S310
            return answer.read(METRICS_BYTES_MAX).decode().splitlines()  # type: ignore[no-any-return]
    except HTTPError as error:
        with error:
            reason = error.read(1000).decode(errors="replace")
        raise InvalidRequest(f"the broker answers {error.code}: {reason}") from None
    except (OSError, HTTPException, ValueError) as error:
        raise Unavailable(
            f"{request.full_url} does not answer as a broker: "
            f"{getattr(error, 'reason', error)}; start the server with --http-url"
        ) from None


def select_metrics(lines: Iterable[str], text: str) -> list[str]:
    """Return the samples whose name or labels contain *text*, without comments."""
    return [each for each in lines if text in each and not each.startswith("#")]
