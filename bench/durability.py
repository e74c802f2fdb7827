"""What an acknowledgement means; only rows of one class are compared."""

from __future__ import annotations

from enum import StrEnum


class Durability(StrEnum):
    """Where a message is when its producer is told that it was taken."""

    MEMORY = "memory"
    """In the server's memory: gone when its process ends."""
    PAGE_CACHE = "page cache"
    """With the operating system: gone when the machine loses its power."""
    SYNCED = "synced before acknowledgement"
    """On the disk."""
