"""Tests of the work that is timed."""

import asyncio

from pydanube_cli.bench.workloads import Arrivals, Clock, publish, publish_each


async def nothing(*_):
    await asyncio.sleep(0)


def test_publishing_sends_every_message_in_chunks_and_flushes():
    sent = []

    async def send(first, count):
        sent.append((first, count))

    async def flush():
        sent.append("flush")

    assert asyncio.run(publish(send, flush, messages=10, chunk=4)) == 10
    assert sent == [(0, 4), (4, 4), (8, 2), "flush"]


def test_publishing_ends_at_a_time():
    assert asyncio.run(publish(nothing, nothing, messages=10, chunk=4, end_ns=1)) == 0


def test_each_call_is_measured():
    times = asyncio.run(publish_each(nothing, [b"x"] * 10, in_flight=3))

    assert len(times) == 10
    assert min(times) > 0


def test_receiving_ends_when_all_messages_came_to_all_consumers():
    acknowledged = []

    async def receive(timeout_s):
        await asyncio.sleep(0)
        return "abc"

    async def ack(messages):
        acknowledged.append(messages)

    async def two_consumers():
        arrivals, kept = Arrivals(10), []
        async with asyncio.TaskGroup() as tasks:
            for _ in range(2):
                keep = lambda messages, _: kept.append(messages)  # noqa: E731
                tasks.create_task(arrivals.receive(receive, keep, ack))
        return arrivals, kept

    arrivals, kept = asyncio.run(two_consumers())
    assert arrivals.count >= 10
    assert kept == acknowledged
    assert arrivals.last_ns >= arrivals.first_ns > 0


def test_receiving_ends_when_nothing_comes():
    async def receive(timeout_s):
        await asyncio.sleep(0.001)
        return ""

    arrivals = Arrivals(1, stall_s=0.01)
    asyncio.run(arrivals.receive(receive, nothing, nothing))
    assert arrivals.count == 0


def test_clock_returns_the_start_that_it_was_given():
    assert Clock(17).end(42).items() >= {"began_ns": 17, "ended_ns": 42}.items()
