"""The limits of HTTP connections: time, memory and number."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest
import uvicorn
from uvicorn.server import ServerState

from pydanube_broker.broker.serving.open_connections import OpenConnections
from pydanube_broker.servers.connections.connections import ConnectionCounts
from pydanube_broker.servers.http.app import make_app
from pydanube_broker.servers.http.connection import (
    HEAD_BYTES_MAX,
    PARSED_BYTES_PER_TURN,
    HttpConnection,
)
from pydanube_broker.servers.http.disconnects import DisconnectMiddleware
from support.drivers.running import using
from support.fakes.http_api import State
from support.fakes.transports import RecordingTransport

GET = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


class World:
    """Connections without sockets."""

    def __init__(self, connections_max: int) -> None:
        self.connections = OpenConnections(lambda: 7)
        self.counts = ConnectionCounts(listener="http", connections_max=connections_max)
        self._config = uvicorn.Config(
            make_app(State()),
            log_config=None,
            lifespan="off",
            ws="none",
            h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        )
        self.server_state = ServerState()

    def connect(self) -> tuple[HttpConnection, RecordingTransport]:
        connection = HttpConnection(
            self.counts,
            lambda: self.connections,
            config=self._config,
            server_state=self.server_state,
            app_state={},
        )
        transport = RecordingTransport()
        connection.connection_made(transport)
        return connection, transport

    async def until(self, condition) -> None:
        for _ in range(10_000):
            if condition():
                return
            await asyncio.sleep(0)
        raise AssertionError("it did not come about")


@pytest.fixture
def connections_max():
    return 10


@pytest.fixture
async def world(connections_max):
    return World(connections_max)


async def test_request_that_is_not_complete_in_time_ends_its_connection(world):
    for part in (b"G", b"GET / HTT", GET[:-2], b"POST / HTTP/1.1\r\n"):
        connection, transport = world.connect()
        connection.data_received(part)
        connection.expect_answer()
        assert transport.is_aborted
        connection.connection_lost(None)
    assert world.counts.silent_total == 4
    assert world.counts.open_count == 0


async def test_connection_with_answers_stays_open(world):
    connection, transport = world.connect()
    for _ in range(3):
        transport.written.clear()
        connection.data_received(GET)
        await world.until(lambda: b"200 OK" in transport.written)
        connection.expect_answer()
        assert not transport.is_aborted
    connection.expect_answer()
    assert transport.is_aborted
    connection.connection_lost(None)


@using(connections_max=2)
async def test_connections_beyond_the_maximum_are_closed(world):
    kept = [world.connect() for _ in range(2)]
    more, transport = world.connect()
    assert transport.is_aborted
    more.connection_lost(None)
    assert world.counts.refused_total == 1
    kept.pop()[0].connection_lost(None)
    _, transport = world.connect()
    assert not transport.is_aborted


async def test_long_header_is_refused_in_json(world):
    connection, transport = world.connect()
    connection.data_received(b"GET / HTTP/1.1\r\nx: " + b"y" * HEAD_BYTES_MAX)
    await world.until(lambda: transport.is_closed)
    assert transport.written.startswith(b"HTTP/1.1 400 ")
    assert b'{"code":"invalid_request"' in transport.written
    assert world.counts.abusive_total == 1


async def test_client_of_the_native_protocol_is_answered_at_once(world):
    connection, transport = world.connect()
    # The beginning of a HELLO frame, which has no end of a line.
    connection.data_received(b"'\0\0\0\1\0\0\0\1\0\0\0\x08\1\x10\1")
    assert transport.written.startswith(b"HTTP/1.1 400 ")
    assert transport.is_closed


async def test_garbage_after_an_answer_closes_the_connection(world):
    connection, transport = world.connect()
    connection.data_received(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    connection.data_received(b"\0\1\2\r\n\r\n")
    await world.until(lambda: transport.is_closed)


async def test_truncated_body_is_not_logged_as_a_failure(world, caplog):
    connection, transport = world.connect()
    head = b"POST /api/v1/create_namespace HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n"
    connection.data_received(head + b"Content-Type: application/json\r\n\r\n{")
    await asyncio.sleep(0)
    connection.connection_lost(None)
    await world.until(lambda: not connection.tasks)
    assert not transport.written
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


async def test_bytes_that_are_parsed_in_a_turn_are_bounded(world):
    connection, transport = world.connect()
    chunks = b"1\r\nx\r\n" * PARSED_BYTES_PER_TURN
    head = b"POST /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    connection.data_received(head + chunks + b"0\r\n\r\n")
    turns = 0
    while not transport.is_reading_now:
        await asyncio.sleep(0)
        turns += 1
    assert turns >= len(chunks) // PARSED_BYTES_PER_TURN
    await world.until(lambda: b"405" in transport.written)


async def test_request_ends_when_its_connection_is_lost(world):
    outcomes = []

    async def wait_for_ever(*_):
        try:
            await asyncio.Event().wait()
        finally:
            outcomes.append("ended")

    connection, _ = world.connect()
    connection.app = DisconnectMiddleware(wait_for_ever)
    connection.data_received(GET)
    await asyncio.sleep(0)
    assert outcomes == []
    connection.connection_lost(None)
    await world.until(lambda: not world.server_state.tasks)
    assert outcomes == ["ended"]


async def test_connections_are_listed_and_closed(world):
    connection, transport = world.connect()
    connection.data_received(GET.replace(b"Host", b"User-Agent: curl/8\r\nHost"))
    await world.until(lambda: b"200 OK" in transport.written)
    [(number, listed)] = world.connections.page(0, 10)
    facts = listed.facts(None)
    assert (number, facts.listener, facts.client) == (7, "http", "curl/8")
    world.connections.close(number, "enough")
    assert transport.is_closing()
    connection.connection_lost(None)
    assert len(world.connections) == 0


async def test_closed_connection_is_freed_without_the_garbage_collector(world):
    async def ask(world):
        connection, transport = world.connect()
        connection.data_received(GET)
        await world.until(lambda: b"200 OK" in transport.written)
        connection.connection_lost(None)
        return weakref.ref(connection)

    gc.disable()
    try:
        found = await ask(world)
        await asyncio.sleep(0)
        assert found() is None
    finally:
        gc.enable()
