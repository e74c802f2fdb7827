"""A held client is connected until it is released."""

from __future__ import annotations

import asyncio

import pytest

from pydanube.aio.tasks import task_scope
from pydanube.client.held_client import HeldClient
from pydanube.model.errors import ConnectionLost, Unauthenticated, Unavailable
from support.worlds.current import memory_broker


async def test_client_serves_all_who_ask_until_it_is_released():
    async with memory_broker() as broker, task_scope() as tasks:
        held = HeldClient(broker.url, "a-token")
        running = tasks.run(held.run())
        client = await held.get()
        assert await held.get() is client
        assert await client.topics.list() == []
        held.release()
        await running


async def test_failures_reach_all_who_ask():
    async with task_scope() as tasks:
        held = HeldClient("danube://127.0.0.1:1")
        tasks.run(held.run())
        for _ in range(2):
            with pytest.raises(ConnectionLost):
                await held.get()


async def test_what_the_check_raises_refuses_the_client():
    async def check(_: object) -> None:
        raise Unauthenticated("not you")

    async with memory_broker() as broker, task_scope() as tasks:
        held = HeldClient(broker.url, check=check)
        tasks.run(held.run())
        with pytest.raises(Unauthenticated, match="not you"):
            await held.get()


async def test_client_whose_task_is_cancelled_leaves_nobody_waiting():
    held = HeldClient("danube://127.0.0.1:1", wait_s=60)
    async with task_scope() as tasks:
        running = tasks.run(held.run())
        asyncio.get_running_loop().call_soon(running.cancel)
        with pytest.raises(Unavailable):
            await held.get()


async def test_cancelled_request_does_not_cancel_the_client():
    async with memory_broker() as broker, task_scope() as tasks:
        held = HeldClient(broker.url)
        request = tasks.start(held.get())
        request.cancel()
        tasks.run(held.run())
        assert await (await held.get()).topics.list() == []
