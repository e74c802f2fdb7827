"""Tests of the queue between a source and the publisher."""

import asyncio

import pytest

from pydanube.aio.tasks import task_scope
from pydanube.connectors.channel import Channel, Inbox
from pydanube.connectors.failures import Transient
from pydanube.connectors.records import Record


def test_items_leave_in_their_order_until_the_channel_is_closed():
    async def run():
        channel = Channel()
        await channel.put(1)
        await channel.put(2)
        channel.close()
        assert [await channel.get() for _ in range(3)] == [1, 2, None]
        with pytest.raises(Transient):
            await channel.put(3)

    asyncio.run(run())


def test_full_channel_lets_its_source_wait():
    async def run():
        channel = Channel(items_max=1)
        await channel.put(1)
        async with task_scope() as tasks:
            putting = tasks.start(channel.put(2))
            await asyncio.sleep(0)
            assert not putting.done()
            assert channel.get_nowait() == 1
            await putting
        assert channel.get_nowait() == 2
        assert channel.get_nowait() is None

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
