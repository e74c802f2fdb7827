"""The process of a broker that has the sessions of a client.  Pure."""

from __future__ import annotations

from collections.abc import Iterable
from zlib import crc32


def home_of(client_id: str, count: int) -> int:
    """Return the number of the process, of *count*, that has a client's session."""
    return crc32(client_id.encode()) % count + 1


def id_at_home(candidates: Iterable[str], number: int, count: int) -> str:
    """Return the first of *candidates* whose home is the process *number*."""
    return next(each for each in candidates if home_of(each, count) == number)
