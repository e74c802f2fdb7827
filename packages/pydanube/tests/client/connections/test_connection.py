"""How the connection of a client detects a broker that is gone."""

import asyncio
from functools import partial

import pytest

from pydanube.client.connections.connection import (
    CHECKS_PER_PING,
    CHECKS_PER_TIMEOUT,
    BrokerConnection,
)
from pydanube.model.errors import ConnectionLost
from pydanube.wire.native.kinds import Kind
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.servers.settings.config import ListenConfig
from support.drivers.running import using
from support.fakes.scripted_broker import ScriptedBroker
from support.fakes.storages import until

TURNS = 20


async def turns():
    for _ in range(TURNS):
        await asyncio.sleep(0)


async def test_client_pings_when_it_has_nothing_else_to_send(client):
    connection = await client.requester.connection()
    for _ in range(3 * CHECKS_PER_PING):
        connection._check_alive()
        await turns()
    assert connection.pings == 3
    assert not connection.is_lost


@using(broker_options={"listen": ListenConfig(idle_timeout_s=24.0)})
async def test_client_gives_up_on_a_broker_that_answers_nothing(broker, client):
    connection = await client.requester.connection()
    connection._check_alive()
    await turns()
    [peer] = broker.server.connections
    peer._transport.pause_reading()
    for _ in range(CHECKS_PER_TIMEOUT - 1):
        connection._check_alive()
        await turns()
    assert not connection.is_lost
    # Frames from before the first check may have counted for it.
    for _ in range(2):
        if not connection.is_lost:
            connection._check_alive()
    with pytest.raises(ConnectionLost, match="silent for 24 s"):
        await connection.request(pb.Ping())
    # The client connects again.
    assert await client.requester.connection() is not connection


async def test_memory_of_long_frames_is_used_again_and_freed_when_idle(client):
    # Each of these does not fit into one delivery with others.
    payloads = [bytes([number]) * 600_000 for number in range(16)]
    async with client.producer("/default/long") as producer:
        for payload in payloads:
            await producer.send(payload)
    connection = await client.requester.connection()
    memory = connection._protocol.body_memory
    # Only the test checks.
    connection._next_check.cancel()
    columns, received = [], []
    async with client.consumer(
        "/default/long", subscription="s", start="earliest"
    ) as consumer:
        while len(received) < len(payloads):
            batch = await consumer.receive_batch()
            received += batch.payloads
            columns.append(batch.to_arrow().column("payload"))
            await consumer.ack(batch)
            del batch
        assert received == payloads
        # The columns refer to what was received, which later frames left alone.
        assert [each for column in columns for each in column.to_pylist()] == payloads
        columns.clear()
        await until(lambda: memory.free_bytes >= 600_000)
    connection._check_alive()
    assert memory.free_bytes >= 600_000
    connection._check_alive()
    assert memory.free_bytes == 0


async def test_a_slow_answer_is_awaited_while_the_broker_answers_pings():
    broker = ScriptedBroker()
    broker.answers[Kind.PING] = lambda _: (Kind.PONG, pb.Pong())
    async with broker.connect() as client:
        connection = await client.requester.connection()
        asking = client.requester.tasks.start(
            connection.request_unless_silent(pb.DescribeStorage(), 0.02)
        )
        await until(lambda: connection.pings > 3)
        assert not asking.done()
        del broker.answers[Kind.PING]
        with pytest.raises(ConnectionLost, match=r"not answered for 0\.02 s"):
            await asking
        assert not connection.is_lost


async def test_only_a_connection_that_was_open_is_reported_as_lost():
    lost, reason = [], ConnectionLost("on purpose")
    factory = partial(BrokerConnection, lambda *found: lost.append(found))
    broker = ScriptedBroker()
    unopened = await broker._dial(factory)
    unopened.abort(reason)
    assert lost == []
    connection = await broker._dial(factory)
    await connection.handshake("test", "", 5.0)
    connection.abort(reason)
    assert lost == [(connection, reason)]


async def test_broker_that_is_silent_after_a_request_gets_a_ping_and_is_reported():
    silent = []
    factory = partial(BrokerConnection, on_silent=silent.append)
    connection = await ScriptedBroker()._dial(factory)
    await connection.handshake("test", "", 5.0)
    connection._check_alive()
    connection.request(pb.DescribeStorage())
    connection._check_alive()
    assert (connection.pings, silent) == (1, [])
    connection._check_alive()
    assert (connection.pings, silent) == (1, [connection])
    connection.abort(ConnectionLost("on purpose"))


async def test_client_ignores_an_unexpected_pong(broker, client):
    connection = await client.requester.connection()
    [peer] = broker.server.connections
    peer._write(peer._protocol.send(Kind.PONG, pb.Pong()))
    await turns()
    assert not connection.is_lost


@pytest.mark.parametrize("idle_timeout_s", [0.0, -1.0, float("nan"), float("inf")])
async def test_client_ignores_invalid_idle_timeouts(client, idle_timeout_s):
    connection = await client.requester.connection()
    connection._set_idle_timeout(idle_timeout_s)
    assert connection._idle_timeout_s == 30.0


class FailingChannel:
    def _on_frame(self, frame):
        raise RuntimeError("a mistake of our own")

    def _on_closed(self, reason):
        self.reason = reason


async def test_failure_of_a_channel_ends_only_its_connection(broker, client):
    connection = await client.requester.connection()
    failing = FailingChannel()
    channel = connection.new_channel(failing)
    [peer] = broker.server.connections
    receipt = pb.Receipt(base_sequence=[5], base_offset=[5])
    peer._write(peer._protocol.send(Kind.RECEIPT, receipt, channel))
    await turns()
    assert connection.is_lost
    assert isinstance(failing.reason, ConnectionLost)
    await client.cluster.describe_broker()
