"""Coroutines run in contexts of their own."""

import asyncio
from contextvars import ContextVar

import pytest

from pydanube.aio.contexts import begin_in_own_context

variable: ContextVar[str] = ContextVar("variable", default="unset")


async def in_own_context(work):
    rest = begin_in_own_context(work)
    assert rest is not None
    await rest


async def test_work_that_does_not_wait_ends_at_once():
    async def work():
        variable.set("work")
        return "result"

    async def fail():
        raise LookupError("nothing")

    assert begin_in_own_context(work()) is None
    assert variable.get() == "unset"
    with pytest.raises(LookupError, match="nothing"):
        begin_in_own_context(fail())


async def test_variables_are_not_set_for_the_caller():
    async def work():
        assert variable.get() == "caller"
        variable.set("work")
        await asyncio.sleep(0)
        assert variable.get() == "work"

    variable.set("caller")
    await in_own_context(work())
    assert variable.get() == "caller"


async def test_callbacks_of_the_work_get_its_context():
    seen = asyncio.get_running_loop().create_future()

    async def work():
        variable.set("work")
        asyncio.get_running_loop().call_soon(lambda: seen.set_result(variable.get()))
        await asyncio.sleep(0)

    await in_own_context(work())
    assert await seen == "work"


async def test_errors_reach_the_caller():
    async def work():
        await asyncio.sleep(0)
        raise LookupError("nothing")

    with pytest.raises(LookupError, match="nothing"):
        await in_own_context(work())


async def test_work_is_a_part_of_the_task_that_awaits_it():
    async def work():
        assert asyncio.current_task() is task
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        ended.append(asyncio.current_task())

    ended = []
    task = asyncio.current_task()
    await in_own_context(work())
    assert ended == [task]


async def test_cancelling_the_task_cancels_the_work():
    ended = []

    async def work():
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(variable.get())

    async def await_work():
        variable.set("task")
        await in_own_context(work())

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(await_work())
        await asyncio.sleep(0)
        task.cancel()
    assert task.cancelled()
    assert ended == ["task"]
