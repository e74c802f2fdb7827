"""Forgotten ``with`` and ``async with``."""

import asyncio
import warnings

import pytest

from pydanube import connect, sync
from support.drivers.running import TOPIC

HOW = r"write `async with client\.producer\('/default/orders'\) as producer:`"
SYNC_HOW = r"write `with pydanube\.sync\.connect\(\) as client:`"


async def test_a_producer_that_was_not_entered_says_how_to_enter_it(client):
    scope = client.producer(TOPIC)
    with pytest.raises(
        AttributeError, match=rf"not open yet, so it has no 'send': {HOW}"
    ):
        await scope.send(b"x")


async def test_statements_other_than_async_with_are_refused(client):
    async def by_await():
        await client.producer(TOPIC)

    async def by_with():
        with client.producer(TOPIC):
            pass

    async def by_async_for():
        async for _ in client.producer(TOPIC):
            pass

    async def by_for():
        for _ in client.producer(TOPIC):
            pass

    for mistake in (by_await, by_with, by_async_for, by_for):
        with pytest.raises(TypeError, match=HOW):
            await mistake()


async def test_a_scope_that_was_never_entered_warns(client):
    with pytest.warns(RuntimeWarning, match=rf"never entered: {HOW}"):
        client.producer(TOPIC)
    with pytest.warns(RuntimeWarning, match=r"client\.consumer\('/default/orders'\)"):
        client.consumer(TOPIC, subscription="me")
    with pytest.warns(RuntimeWarning, match=r"write `async with pydanube\.connect\(\)"):
        connect()


async def test_a_scope_that_was_entered_or_refused_does_not_warn(client):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        async with client.producer(TOPIC):
            pass
        with pytest.raises(AttributeError):
            client.producer(TOPIC).send  # noqa: B018  # Looking it up is enough.


async def test_a_scope_can_be_entered_once(client):
    scope = client.producer(TOPIC)
    async with scope:
        pass
    with pytest.raises(RuntimeError, match="call it again for another producer"):
        async with scope:
            pass


def test_scopes_for_threads_explain_themselves():
    with pytest.raises(AttributeError, match=SYNC_HOW):
        sync.connect().topics.list()
    with pytest.raises(TypeError, match=SYNC_HOW):
        list(sync.connect())

    async def by_async_with():
        async with sync.connect():
            pass

    with pytest.raises(TypeError, match=SYNC_HOW):
        asyncio.run(by_async_with())
    with pytest.warns(RuntimeWarning, match=SYNC_HOW) as warned:
        sync.connect()
    assert len(warned) == 1


def test_python_can_inspect_a_scope():
    scope = sync.connect()
    assert not hasattr(scope, "__len__")
    assert "pydanube.sync.connect()" in repr(scope)
    assert not hasattr(scope, "topics")
