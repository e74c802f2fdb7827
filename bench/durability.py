"""The durability classes; only rows of the same class are compared."""

from __future__ import annotations

from enum import StrEnum


class Durability(StrEnum):
    """Where a message is stored when it is acknowledged."""

    MEMORY = "memory"
    """In the server's memory: lost when its process ends."""
    PAGE_CACHE = "page cache"
    """In the page cache: lost when the machine loses power."""
    SYNCED = "synced before acknowledgement"
    """On the disk."""
