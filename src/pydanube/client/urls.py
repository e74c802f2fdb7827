"""The URLs of brokers."""

from __future__ import annotations

from urllib.parse import urlsplit

from pydanube.model.errors import InvalidRequest
from pydanube.model.redaction import without_password

DEFAULT_PORT = 6651


def parse_url(url: str) -> tuple[str, int]:
    """
    Return the host and port of a broker's URL.

    Raises:
        InvalidRequest: *url* is not of the form ``danube://host[:port]``.
    """
    parts = urlsplit(url)
    try:
        port = parts.port or DEFAULT_PORT
    except ValueError:
        port = 0
    if parts.scheme != "danube" or not parts.hostname or not port:
        shown = without_password(url)
        raise InvalidRequest(f"{shown!r} is not a URL like danube://127.0.0.1:6651")
    return parts.hostname, port
