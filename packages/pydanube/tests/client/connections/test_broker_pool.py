"""Connections to several brokers, some of which cannot be reached."""

import asyncio
from time import time_ns

import pytest

from pydanube.client.connections.broker_pool import BrokerPool
from pydanube.client.connections.credentials import NO_CREDENTIALS
from pydanube.client.connections.redirects import Redirect, redirecting
from pydanube.model.errors import ConnectionLost
from support.fakes.scripted_broker import ScriptedBroker

A, B, C = "danube://a", "danube://b", "danube://c"


class Dials:
    """Ways to connect to brokers, which can be down."""

    def __init__(self):
        self.down = set()
        self.attempts = []
        self.go = asyncio.Event()
        self.go.set()
        self._brokers = {each: ScriptedBroker() for each in (A, B, C)}

    def pool(self, **limits):
        dials = {A: self.dial_of(A), B: self.dial_of(B)}
        return BrokerPool(dials, NO_CREDENTIALS, 60.0, shown=str, **limits)

    def dial_of(self, url):
        async def dial(factory):
            self.attempts.append(url)
            await self.go.wait()
            if url in self.down:
                raise ConnectionRefusedError
            return await self._brokers[url]._dial(factory)

        return dial


@pytest.fixture
async def dials():
    return Dials()


async def test_the_first_broker_that_answers_is_used(dials):
    dials.down.add(A)
    pool = dials.pool()
    assert (await pool.any_connection()).url == B
    # It stays in use.
    dials.down.clear()
    assert (await pool.any_connection()).url == B
    assert dials.attempts == [A, B]


async def test_other_connections_are_used_when_one_breaks(dials):
    pool = dials.pool()
    first, other = await pool.any_connection(), await pool.connection(B)
    first.abort(ConnectionLost("on purpose"))
    assert await pool.any_connection() is other
    assert dials.attempts == [A, B]


async def test_brokers_that_others_have_named_are_tried_last(dials):
    pool = dials.pool()
    connections = [await pool.any_connection(), await pool.connection(B)]
    with redirecting(Redirect(("c", 6651), dials.dial_of(C), time_ns)):
        connections.append(await pool.connection(C))
        for each in connections:
            each.abort(ConnectionLost("on purpose"))
        dials.down |= {A, B}
        dials.attempts.clear()
        assert (await pool.any_connection()).url == C
    assert dials.attempts == [A, B, C]


async def test_only_some_of_the_brokers_that_others_have_named_are_remembered(dials):
    pool = dials.pool(others_max=1)
    for host in ("c", "d", "c"):
        with redirecting(Redirect((host, 6651), dials.dial_of(C), time_ns)):
            connection = await pool.connection(f"danube://{host}")
        connection.abort(ConnectionLost("on purpose"))
    assert [each.url for each in pool.connections] == ["danube://c"]


async def test_all_failures_are_reported(dials):
    dials.down |= {A, B}
    with pytest.raises(ConnectionLost, match=f"answers at {A} .*; no .* at {B} "):
        await dials.pool().any_connection()


async def test_a_doubted_broker_is_used_if_there_is_no_other(dials):
    pool = dials.pool()
    assert (await pool.any_connection()).url == A
    pool.doubt(A)
    dials.down.add(B)
    assert (await pool.any_connection()).url == A
    dials.down.clear()
    pool.doubt(A)
    assert (await pool.any_connection()).url == B


async def test_a_third_broker_is_preferred_to_two_doubted_ones(dials):
    pool = dials.pool()
    with redirecting(Redirect(("c", 6651), dials.dial_of(C), time_ns)):
        for each in (A, B, C):
            await pool.connection(each)
    for expected in (A, B, C, A):
        assert (await pool.any_connection()).url == expected
        pool.doubt(expected)


async def test_callers_that_wait_for_a_connection_share_its_failure(dials):
    dials.down.add(A)
    dials.go.clear()
    pool = dials.pool()
    async with asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(_failure_of(pool.connection(A))) for _ in "123"]
        await asyncio.sleep(0)
        dials.go.set()
    assert dials.attempts == [A]
    assert {type(each.result()) for each in waiting} == {ConnectionLost}
    assert isinstance(await _failure_of(pool.connection(A)), ConnectionLost)
    assert dials.attempts == [A, A]


async def _failure_of(work):
    try:
        await work
    except ConnectionLost as error:
        return error


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("danube://a:6651", A),
        ("danube://B", B),
        ("danube://a:6652", "danube://a:6652"),
    ],
)
async def test_one_broker_has_one_url(dials, url, expected):
    assert dials.pool().same_url(url) == expected
