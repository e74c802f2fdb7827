"""Locks that are shared, and locks of names."""

import asyncio
import gc

from pydanube.aio.locks import NamedLocks, SharedLock


async def turns():
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_lock_is_shared_until_somebody_wants_it_alone():
    lock, events = SharedLock(), []
    end = asyncio.Event()

    async def share(name):
        async with lock.shared():
            events.append(f"{name} begins")
            await end.wait()
        events.append(f"{name} ends")

    async def alone():
        async with lock:
            events.append("alone")

    async with asyncio.TaskGroup() as tasks:
        for work in (share("a"), share("b"), alone(), share("c")):
            tasks.create_task(work)
            await turns()
        assert events == ["a begins", "b begins"]
        end.set()
    order = ["a begins", "b begins", "a ends", "b ends", "alone", "c begins", "c ends"]
    assert events == order


async def test_a_task_that_is_cancelled_while_it_waits_leaves_the_lock():
    lock = SharedLock()

    async def alone():
        async with lock:
            pass

    async with lock.shared():
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(alone())
            await turns()
            waiting.cancel()
        assert waiting.cancelled()
        async with lock.shared():
            pass
    async with lock:
        pass


async def test_names_have_locks_while_somebody_uses_them():
    locks = NamedLocks()
    async with locks.of("a"):
        assert "a" in locks
        assert locks.of("a").locked()
        assert not locks.of("b").locked()
    gc.collect()
    assert "a" not in locks
