"""
How much freed memory glibc keeps for the next answers of a store.

OpenDAL allocates megabytes for each answer, which are freed soon.  By default glibc
returns most of them to the system, and the kernel clears the pages of the next answer,
partly while OpenDAL keeps the interpreter lock.
"""

from __future__ import annotations

import ctypes
import os

MIB = 1024 * 1024

KEPT_BYTES_MAX = 32 * MIB
"""glibc keeps so much free memory at the end of each of its arenas."""

MAPPED_BYTES_MIN = 16 * MIB
"""glibc takes larger blocks from the system, and returns them when they are freed."""

_LIMITS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")
"""Variables of the environment by which people set these limits themselves."""

# From malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3


def keep_free_memory() -> None:
    """
    Let glibc keep freed memory, in all of this process.

    Does nothing if the environment has limits, or with another C library.
    """
    if any(name in os.environ for name in _LIMITS):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES_MIN)
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES_MAX)
