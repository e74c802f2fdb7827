"""The simulated world does what a real one may do."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from simulation.disk import MachineDisk
from simulation.loop import HOST, Host, SimulatedLoop, Spinning, Stuck
from simulation.network import Climate, Network


@pytest.fixture
def loop():
    loop = SimulatedLoop(Random(0))
    yield loop
    loop.close()


class Listening(asyncio.BufferedProtocol):
    """Keeps what comes, and how the connection ended."""

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
    """Something to connect to."""

    def __init__(self):
        self.host = Host("broker")
        self.protocol = Listening()

    def new_protocol(self):
        return self.protocol


class Deaf:
    """A tap that does not listen."""

    def on_received(self, data): ...

    def on_written(self, data): ...

    def on_lost(self): ...


async def connected(loop, **climate):
    """A client and a broker's protocol, and the link between them."""
    network = Network(
        loop, Random(1), Climate(**climate), lambda _: None, lambda _: Deaf()
    )
    broker = network.listener = Broker()
    client = await network.dial_from(Host("client"))(Listening)
    return client, broker, network.links[1]


def test_time_passes_only_when_nothing_else_happens(loop):
    async def sleep_for_a_year():
        await asyncio.sleep(365 * 86400)
        return loop.time()

    assert loop.run_until_complete(sleep_for_a_year()) == 365 * 86400


def test_who_waits_for_nothing_is_noticed(loop):
    with pytest.raises(Stuck):
        loop.run_until_complete(loop.create_future())


def test_who_never_waits_is_noticed(loop):
    def again():
        loop.call_soon(again)

    again()
    with pytest.raises(Spinning):
        loop.run_until_complete(loop.create_future())


def test_jobs_of_one_thread_are_done_in_order(loop):
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


def test_a_dead_process_does_nothing_more(loop):
    host, done = Host("one"), []

    async def work():
        HOST.set(host)
        await loop.run_in_executor(None, done.append, "job")

    task = loop.create_task(work())
    loop.call_soon(setattr, host, "is_alive", False)
    with pytest.raises(OSError, match="dead"):
        loop.run_until_complete(task)
    assert done == []


def test_bytes_arrive_in_order_whatever_they_are_cut_into(loop):
    async def talk():
        client, broker, _ = await connected(loop, cut_share=1.0, jitter_s=0.1)
        for number in range(50):
            client.transport.write(b"%03d|" % number)
        await asyncio.sleep(1)
        return broker.protocol.received

    expected = b"".join(b"%03d|" % number for number in range(50))
    assert loop.run_until_complete(talk()) == expected


def test_a_reset_is_told_to_both_sides_and_may_cut_what_was_on_its_way(loop):
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


def test_a_silent_link_tells_nobody(loop):
    async def talk():
        client, broker, link = await connected(loop)
        link.go_silent()
        client.transport.write(b"hello")
        await asyncio.sleep(60)
        return client, broker.protocol

    client, broker = loop.run_until_complete(talk())
    assert (client.lost, broker.lost, broker.received) == ([], [], b"")


def test_who_writes_faster_than_the_other_reads_is_stopped(loop):
    async def talk():
        client, broker, _ = await connected(loop, window_bytes=10)
        broker.protocol.transport.pause_reading()
        client.transport.set_write_buffer_limits(high=10)
        client.transport.write(b"x" * 100)
        return client

    assert loop.run_until_complete(talk()).pauses == 1


def test_a_power_loss_takes_only_what_was_not_synced():
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
