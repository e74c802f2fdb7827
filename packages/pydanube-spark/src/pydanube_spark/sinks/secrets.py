"""
The redaction of secrets in messages and logs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import unquote, urlsplit, urlunsplit

from pydanube.model.redaction import MASK, mask
from pydanube.security.addresses import host_in_url

_PASSWORD = re.compile(r"(password\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s&]+)", re.IGNORECASE)


def redact(text: str, secrets: Iterable[str]) -> str:
    """Return *text* without *secrets* and without anything like ``password=…``."""
    return _PASSWORD.sub(rf"\1{MASK}", mask(text, secrets))


def in_url(url: str) -> list[str]:
    """Return the secrets in *url*: its password, and with one the URL itself."""
    try:
        password = urlsplit(url).password
    except ValueError:
        return [url]
    found = [url, password, unquote(password)] if password else []
    found += [match[2].strip("'") for match in _PASSWORD.finditer(url)]
    return found


def url_origin(url: str) -> str:
    """
    Return the scheme, host and port of *url*.

    The path is left out because the paths of many webhooks are secret.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return MASK
    return urlunsplit((parts.scheme, host_in_url(host) + port, "", "", ""))
