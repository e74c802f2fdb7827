"""The simulated loop, network and disk behave as real ones may."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from simulation.disk import MachineDisk
from simulation.loop import HOST, BusyLoop, Deadlock, Host, SimulatedLoop
from simulation.network import Network, NetworkConditions


@pytest.fixture
def loop():
    loop = SimulatedLoop(Random(0))
    yield loop
    loop.close()


class RecordingProtocol(asyncio.BufferedProtocol):
    """Records received bytes and the end of the connection."""

    def __init__(self):
        self.received = b""
        self.lost = []
        self.pauses = 0
        self._buffer = bytearray(8)

    def connection_made(self, transport):
        self.transport = transport

    def get_buffer(self, sizehint):
        return self._buffer

    def buffer_updated(self, nbytes):
        self.received += self._buffer[:nbytes]

    def pause_writing(self):
        self.pauses += 1

    def connection_lost(self, exc):
        self.lost.append(exc)


class Broker:
    """A process that accepts connections."""

    def __init__(self):
        self.host = Host("broker")
        self.protocol = RecordingProtocol()

    def new_protocol(self):
        return self.protocol


class NullTap:
    """A tap that ignores everything."""

    def on_received(self, data): ...

    def on_written(self, data): ...

    def on_lost(self): ...


async def connected(loop, **conditions):
    """Connect; return the client's protocol, the broker and their link."""
    network = Network(
        loop,
        Random(1),
        NetworkConditions(**conditions),
        lambda _: None,
        lambda _: NullTap(),
    )
    broker = network.listener = Broker()
    client = await network.dial_from(Host("client"))(RecordingProtocol)
    return client, broker, network.links[1]


def test_time_passes_only_when_no_task_is_ready(loop):
    async def sleep_for_a_year():
        await asyncio.sleep(365 * 86400)
        return loop.time()

    assert loop.run_until_complete(sleep_for_a_year()) == 365 * 86400


def test_waiting_for_ever_is_detected(loop):
    with pytest.raises(Deadlock):
        loop.run_until_complete(loop.create_future())


def test_busy_loop_is_detected(loop):
    def again():
        loop.call_soon(again)

    again()
    with pytest.raises(BusyLoop):
        loop.run_until_complete(loop.create_future())


def test_jobs_of_one_thread_run_in_order(loop):
    done = []

    async def work():
        thread = object()
        async with asyncio.TaskGroup() as tasks:
            for number in range(20):
                tasks.create_task(in_thread(thread, number))

    async def in_thread(thread, number):
        await loop.run_in_executor(thread, done.append, number)

    loop.run_until_complete(work())
    assert done == list(range(20))


def test_dead_process_does_nothing(loop):
    host, done = Host("one"), []

    async def work():
        HOST.set(host)
        await loop.run_in_executor(None, done.append, "job")

    task = loop.create_task(work())
    loop.call_soon(setattr, host, "is_alive", False)
    with pytest.raises(OSError, match="dead"):
        loop.run_until_complete(task)
    assert done == []


def test_bytes_arrive_in_order_in_any_pieces(loop):
    async def talk():
        client, broker, _ = await connected(loop, cut_share=1.0, jitter_s=0.1)
        for number in range(50):
            client.transport.write(b"%03d|" % number)
        await asyncio.sleep(1)
        return broker.protocol.received

    expected = b"".join(b"%03d|" % number for number in range(50))
    assert loop.run_until_complete(talk()) == expected


def test_reset_notifies_both_sides_and_may_lose_bytes_on_the_way(loop):
    async def talk():
        client, broker, link = await connected(loop)
        client.transport.write(b"x" * 100)
        link.reset()
        await asyncio.sleep(1)
        return client, broker.protocol

    client, broker = loop.run_until_complete(talk())
    assert isinstance(client.lost[0], ConnectionResetError)
    assert isinstance(broker.lost[0], ConnectionResetError)
    assert broker.received in (b"x" * count for count in range(101))


def test_silent_link_notifies_no_side(loop):
    async def talk():
        client, broker, link = await connected(loop)
        link.go_silent()
        client.transport.write(b"hello")
        await asyncio.sleep(60)
        return client, broker.protocol

    client, broker = loop.run_until_complete(talk())
    assert (client.lost, broker.lost, broker.received) == ([], [], b"")


def test_fast_writer_is_paused(loop):
    async def talk():
        client, broker, _ = await connected(loop, window_bytes=10)
        broker.protocol.transport.pause_reading()
        client.transport.set_write_buffer_limits(high=10)
        client.transport.write(b"x" * 100)
        return client

    assert loop.run_until_complete(talk()).pauses == 1


def test_power_loss_loses_only_unsynced_data():
    contents = set()
    for seed in range(50):
        disk = MachineDisk(Random(seed), lambda _: None)
        files = disk.opened_by(Host("broker"))
        file = files.create("a")
        files.sync_directory()
        file.write([b"synced"])
        file.sync()
        file.write([b"lost"])
        disk.lose_power()
        contents.add(bytes(disk.opened_by(Host("next")).map("a")))
    assert all(content.startswith(b"synced") for content in contents)
    assert {b"synced", b"syncedlost"} <= contents
