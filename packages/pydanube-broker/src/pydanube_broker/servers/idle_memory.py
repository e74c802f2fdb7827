"""
Memory upkeep while the broker is idle.

Reference counting frees nearly all memory.  Reference cycles, such as a broken
connection or an exception with its traceback, wait for Python's garbage collector.
A full collection stops the event loop: 50 ms for the modules of a broker alone, and
much more with many batches in memory.  Objects that exist at the start are never
collected, and full collections run while the broker is idle.

Allocators keep freed memory for the next batch.  After a burst of large batches that
can be hundreds of megabytes, which the broker returns to the system once it is idle.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pyarrow as pa

from pydanube.aio.tasks import task_scope
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.wire.files.segment_checksums import release_row_group_memory
from pydanube_broker.storage.processor_time import wanted_processor_time

YOUNG_OBJECTS = 2_000
"""The number of new objects that starts a collection of the youngest generation."""
YOUNG_ROUNDS = 2
"""
The number of those after which the second generation is collected, too.

A pause grows with it: a collection takes about 1 ms for 6,000 objects, and 5 ms for
20,000.  Each object is looked at twice anyway.
"""
NEVER = 2**31 - 1
IDLE_LOAD = 0.05
"""An idle process uses, or waits for, at most this share of one processor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The intervals of the upkeep."""

    check_s: float = 1.0
    collect_s: float = 600.0
    """The interval of full collections while the process is idle."""
    collect_s_max: float = 6 * 3600.0
    """The interval of full collections while it is busy."""
    release_s: float = 5.0
    """The idle time after which the process returns memory."""

    def is_collection_due(self, passed_s: float, load: float) -> bool:
        """Return whether a full collection is due *passed_s* after the last one."""
        return passed_s >= (self.collect_s if load <= IDLE_LOAD else self.collect_s_max)


@asynccontextmanager
async def memory_upkeep(schedule: Schedule | None = None) -> AsyncIterator[None]:
    """Collect garbage and return free memory at idle moments while the body runs."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, YOUNG_ROUNDS, NEVER)
    try:
        async with task_scope() as tasks:
            tasks.run(_run(schedule or Schedule()))
            yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


async def _run(schedule: Schedule) -> None:
    collected_at = busy_at = time.monotonic()
    is_released = False
    while True:
        used_s = wanted_processor_time()
        await asyncio.sleep(schedule.check_s)
        load = (wanted_processor_time() - used_s) / schedule.check_s
        now = time.monotonic()
        if schedule.is_collection_due(now - collected_at, load):
            gc.collect()
            collected_at = now
        if load > IDLE_LOAD:
            busy_at, is_released = now, False
        elif now - busy_at >= schedule.release_s:
            # Somebody may read a row group now and then without making it busy.
            release_row_group_memory()
            if not is_released:
                await asyncio.to_thread(release_free_memory)
                is_released = True


def release_free_memory() -> None:
    """Return the memory that allocators and readers of segments hold in reserve."""
    release_row_group_memory()
    pa.default_memory_pool().release_unused()
    # Only glibc has it; other C libraries return memory by themselves.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
