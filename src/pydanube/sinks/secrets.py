"""
Secrets in options: how they stay out of messages, logs and representations.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit, urlunsplit

if TYPE_CHECKING:
    from collections.abc import Iterable

_PASSWORD = re.compile(r"(password\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s&]+)", re.IGNORECASE)

MASK = "***"


def redact(text: str, secrets: Iterable[str]) -> str:
    """*text* without *secrets*, and without what looks like a password in it."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, MASK)
    return _PASSWORD.sub(rf"\1{MASK}", text)


def in_url(url: str) -> list[str]:
    """What is secret in *url*: all of it if it has a password, and that itself."""
    try:
        password = urlsplit(url).password
    except ValueError:
        return [url]
    found = [url, password, unquote(password)] if password else []
    found += [match[2].strip("'") for match in _PASSWORD.finditer(url)]
    return found


def url_origin(url: str) -> str:
    """
    *url* as it may be shown: scheme, host and port.

    Paths are left out too: those of many webhooks are secrets.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return MASK
    host = f"[{host}]" if ":" in host else host
    return urlunsplit((parts.scheme, host + port, "", "", ""))
