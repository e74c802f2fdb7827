"""Requests end when their client has gone."""

from __future__ import annotations

import asyncio

import pytest

from pydanube.aio.tasks import task_scope
from pydanube_broker.servers.http.disconnects import (
    READING_REQUEST,
    DisconnectMiddleware,
    ReadingRequest,
)


class Application:
    """Takes as long as the test wants, and records how it ends."""

    def __init__(self):
        self.begun, self.may_end = asyncio.Event(), asyncio.Event()
        self.outcome = ""

    async def __call__(self, scope, receive, send):
        self.begun.set()
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.outcome = "cancelled"
            raise
        self.outcome = "done"
        await send({"type": "http.response.start", "status": 200, "headers": []})


async def send(_):
    """Receive the start of a response."""


async def run(method, reading):
    """Carry out a request of a connection in which *reading* is the last one."""
    application = Application()
    scope = {"type": "http", "method": method, "state": {READING_REQUEST: reading}}
    return application, DisconnectMiddleware(application)(scope, None, send)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_request_that_reads_is_cancelled_when_its_client_leaves(method):
    application, handled = await run(method, reading := ReadingRequest())
    async with task_scope() as tasks:
        ended = tasks.start(handled)
        await application.begun.wait()
        reading.lose()
        await ended
    assert application.outcome == "cancelled"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
async def test_request_that_changes_something_is_finished(method):
    application, handled = await run(method, reading := ReadingRequest())
    async with task_scope() as tasks:
        ended = tasks.start(handled)
        await application.begun.wait()
        reading.lose()
        application.may_end.set()
        await ended
    assert application.outcome == "done"


async def test_request_of_a_client_that_stays_is_answered():
    application, handled = await run("GET", reading := ReadingRequest())
    application.may_end.set()
    await handled
    reading.lose()
    assert application.outcome == "done"


async def test_cancellation_by_the_server_is_not_taken_for_a_client_that_left():
    application, handled = await run("GET", ReadingRequest())
    async with asyncio.TaskGroup() as group:
        task = group.create_task(handled)
        await application.begun.wait()
        task.cancel()
    assert task.cancelled()
