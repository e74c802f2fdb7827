"""The redaction of secrets in texts."""

from __future__ import annotations

import re
from collections.abc import Iterable

MASK = "***"

_SCHEME = re.compile(r"([a-z0-9+.-]+://)?", re.IGNORECASE)


def mask(text: str, secrets: Iterable[str]) -> str:
    """Return *text* with each of *secrets* replaced by ``***``."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, MASK)
    return text


def without_password(url: str) -> str:
    """Return *url* with its password, if it has one, replaced by ``***``."""
    # A password may contain any character, and the URL need not be valid.
    scheme = _SCHEME.match(url)[0]  # type: ignore[index]
    user, at, host = url[len(scheme) :].rpartition("@")
    name, colon, _ = user.partition(":")
    return f"{scheme}{name}:{MASK}@{host}" if at and colon else url
