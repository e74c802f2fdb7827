"""The redaction of secrets in texts."""

from __future__ import annotations

from collections.abc import Iterable

MASK = "***"


def mask(text: str, secrets: Iterable[str]) -> str:
    """Return *text* with each of *secrets* replaced by ``***``."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, MASK)
    return text
