"""What runs together ends together, and errors come out as they are."""

import asyncio
from inspect import CORO_CLOSED, getcoroutinestate

import pytest

import pydanube
from pydanube.aio.tasks import gather, run_all, task_scope


async def give(value, failure=None):
    await asyncio.sleep(0)
    if failure is not None:
        raise failure
    return value


async def test_together_returns_results_in_order():
    assert await gather(give(n) for n in range(5)) == [0, 1, 2, 3, 4]
    assert await gather([]) == []


async def test_together_raises_the_first_failure_and_cancels_the_others():
    async def forever():
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    ended = []
    with pytest.raises(pydanube.TopicNotFound):
        await gather([forever(), give(1, pydanube.TopicNotFound("gone"))])
    assert ended == [True]


async def test_cancellation_is_not_lost_if_a_work_fails_at_the_same_moment():
    async def fail_when_cancelled():
        try:
            await asyncio.Event().wait()
        finally:
            raise pydanube.TopicNotFound("gone")

    async def fail_before_the_cancellation_arrives():
        running.cancel()
        raise pydanube.TopicNotFound("gone")

    for work in (fail_when_cancelled, fail_before_the_cancellation_arrives):
        async with asyncio.TaskGroup() as group:
            running = group.create_task(gather([work()]))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            running.cancel()
        assert running.cancelled()


async def test_failure_leaves_no_cancellation_counted():
    with pytest.raises(pydanube.TopicNotFound):
        await gather([give(1, pydanube.TopicNotFound("gone"))])
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_works_that_begin_together_with_a_failing_one_are_awaited():
    async def fail():
        raise pydanube.TopicNotFound("gone")

    async def do(work):
        await work

    # Otherwise there would be a warning, which is an error here.
    with pytest.raises(pydanube.TopicNotFound):
        await gather([fail(), do(give(1))])


async def test_all_done_finishes_all_before_it_raises():
    done = []

    async def slow():
        await asyncio.sleep(0)
        done.append(True)

    with pytest.raises(pydanube.TopicNotFound):
        await run_all([give(None, pydanube.TopicNotFound("gone")), slow()])
    assert done == [True]


async def test_started_work_gives_its_result_or_its_failure():
    async with task_scope() as tasks:
        assert await tasks.start(give(1)) == 1
        with pytest.raises(pydanube.TopicNotFound):
            await tasks.start(give(1, pydanube.TopicNotFound("gone")))
        # Nobody awaits it, and nothing complains.
        tasks.start(give(1, pydanube.TopicNotFound("gone")))
        await asyncio.sleep(0)


async def test_started_work_ends_with_its_future_and_with_the_scope():
    async def forever():
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)
            one_ended.set()

    ended, one_ended = [], asyncio.Event()
    async with task_scope() as tasks:
        first, second = tasks.start(forever()), tasks.start(forever())
        await asyncio.sleep(0)
        first.cancel()
        await one_ended.wait()
    assert ended == [True, True]
    assert second.cancelled()


async def test_work_that_is_cancelled_before_it_begins_is_closed():
    works = [give(None) for _ in range(5)]
    async with task_scope() as tasks:
        tasks.start(works[0])
    async with task_scope() as tasks:
        tasks.run(gather(works[1:3]))
        tasks.run(run_all(works[3:]))
        await asyncio.sleep(0)
    assert {getcoroutinestate(each) for each in works} == {CORO_CLOSED}
