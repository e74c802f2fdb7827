"""What runs together ends together, and errors come out as they are."""

import asyncio

import pytest

import pydanube
from pydanube.aio.tasks import gather, run_all


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


async def test_all_done_finishes_all_before_it_raises():
    done = []

    async def slow():
        await asyncio.sleep(0.01)
        done.append(True)

    with pytest.raises(pydanube.TopicNotFound):
        await run_all([give(None, pydanube.TopicNotFound("gone")), slow()])
    assert done == [True]
