"""How much memory Arrow takes while something runs."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

# Arrow's buffers may outlive a test, and must not outlive their pool.
_POOLS: list[pa.MemoryPool] = []


@dataclass(slots=True)
class ArrowMemory:
    """What was measured; valid after the body."""

    peak_bytes: int = 0


@contextmanager
def arrow_memory():
    """Measure the peak of Arrow's allocations in the body."""
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    _POOLS.append(pool)
    measured = ArrowMemory()
    pa.set_memory_pool(pool)
    try:
        yield measured
    finally:
        pa.set_memory_pool(before)
        measured.peak_bytes = pool.max_memory()
