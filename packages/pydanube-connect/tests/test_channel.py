"""Tests of the queue between a source and the publisher."""

import asyncio

import pytest

from pydanube.aio.tasks import task_scope
from pydanube_connect.channel import Channel, Inbox, take_arrived
from pydanube_connect.pure.failures import Transient
from pydanube_connect.pure.records import Record


def test_items_leave_in_their_order_until_the_channel_is_closed():
    async def run():
        channel = Channel(10, 10)
        for each in (1, 2, 3):
            await channel.put(each)
        assert await channel.get() == 1
        channel.close()
        assert await channel.take() == [2, 3]
        assert (await channel.get(), await channel.take()) == (None, [])
        with pytest.raises(Transient):
            await channel.put(3)

    asyncio.run(run())


@pytest.mark.parametrize("sizes", [(3, 1), (2, 8)])
@pytest.mark.parametrize("wait_s", [0, 60])
def test_full_channel_lets_its_source_wait(sizes, wait_s):
    async def run():
        channel = Channel(4, 10)
        await channel.put(1, 2, 5)
        await channel.put(2, *sizes)
        async with task_scope() as tasks:
            putting = tasks.start(channel.put(3))
            await asyncio.sleep(0)
            assert not putting.done()
            assert await channel.take(wait_s) == [1, 2]
            await putting
        assert await channel.take() == [3]
        assert channel.take_nowait() == []

    asyncio.run(run())


def test_what_has_arrived_is_taken_together():
    async def run():
        channel = Channel(100, 100)
        queue = asyncio.Queue()

        async def deliver():
            for number in range(10):
                await channel.put(number)
                queue.put_nowait(number)
                await asyncio.sleep(0)

        async with task_scope() as tasks:
            tasks.run(deliver())
            assert await channel.take() == list(range(10))
            tasks.run(deliver())
            assert await take_arrived(queue, 15) == [*range(10), *range(5)]

    asyncio.run(run())


def test_delivery_ends_when_its_batch_is_stored():
    async def run():
        inbox = Inbox()
        async with task_scope() as tasks:
            delivering = tasks.start(inbox.deliver([Record(value=b"a")]))
            batch = await anext(inbox.batches())
            assert not delivering.done()
            batch.on_stored({0: "too large"})
            assert await delivering == {0: "too large"}

    asyncio.run(run())


def test_closed_inbox_fails_what_waits_and_what_comes():
    async def run():
        inbox = Inbox()
        async with task_scope() as tasks:
            delivering = tasks.start(inbox.deliver([Record(value=b"a")]))
            await asyncio.sleep(0)
            inbox.close()
            with pytest.raises(Transient, match="stopping"):
                await delivering
        with pytest.raises(Transient, match="stopping"):
            await inbox.deliver([Record(value=b"b")])

    asyncio.run(run())
