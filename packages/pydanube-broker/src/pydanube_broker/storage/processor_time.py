"""
The processor time that a process has used or waited for.

A process that gets little processor time on a busy machine, or by the quota of a
container, uses little although it is busy.
"""

from __future__ import annotations

import time
from pathlib import Path

SCHEDSTAT = Path("/proc/self/schedstat")
"""Linux: the times in which the main thread has run and has waited, in nanoseconds."""

_NS_PER_S = 1_000_000_000


def wanted_processor_time(schedstat: Path = SCHEDSTAT) -> float:
    """
    Return the seconds that all threads have used, and the main one has waited for.

    Without *schedstat*, as on other systems, these are only the used ones.
    """
    try:
        waited_ns = int(schedstat.read_bytes().split()[1])
    except (OSError, IndexError, ValueError):
        waited_ns = 0
    return time.process_time() + waited_ns / _NS_PER_S
