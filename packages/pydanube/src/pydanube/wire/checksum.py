"""The CRC-32C of bytes, by a library that is imported when it is first needed."""

from __future__ import annotations

from functools import cache
from typing import Any


def crc32c(data: Any, value: int = 0) -> int:
    """Return the CRC-32C of *data*, which follows bytes with the CRC *value*."""
    found: int = _library()(data, value)
    return found


@cache
def _library() -> Any:
    # It imports importlib.metadata, which takes longer than a short command.
    from crc32c import crc32c as compute  # noqa: PLC0415

    return compute
