"""Tests of runs of sinks: batches, acknowledgements, retries."""

import asyncio

import pytest

from pydanube_connect.status import State
from support.drivers.connectors import declared, running
from support.worlds.current import memory_broker

pytestmark = pytest.mark.slow

TOPIC = "/default/orders"

OWN = '''
from pydanube_connect import Sink, Transient

WRITTEN = []
FAILURES = ["first", "second"]


class Collect(Sink):
    """Keeps what it is given."""

    async def write(self, messages):
        WRITTEN.append([int(each.payload) for each in messages])
        await self.after(messages)

    async def after(self, messages):
        pass


class Unreliable(Collect):
    """Fails twice."""

    async def after(self, messages):
        if FAILURES:
            raise Transient(f"the {FAILURES.pop(0)} failure")
'''


def run(tmp_path, kind, condition, **fields):
    """Run a sink on ten messages; the batches it got, its status and the backlog."""
    (tmp_path / "own.py").write_text(OWN)
    given = "".join(f"    {name}: {value}\n" for name, value in fields.items())
    text = f"connectors:\n  out:\n    kind: own.py:{kind}\n    topic: {TOPIC}\n{given}"

    async def write():
        async with memory_broker() as broker, broker.connect() as client:
            async with client.producer(TOPIC) as producer:
                await producer.send_batch([str(number) for number in range(10)])
            [out] = declared(text, broker.url, tmp_path)
            async with running([out]) as until:
                await until(lambda all_: condition(all_["out"]))
            status = (await until(lambda _: True))["out"]
            facts = await client.subscriptions.describe(TOPIC, "out")
            module = __import__("sys").modules[out.kind.__module__]
            return module.WRITTEN, status, facts.backlog

    return asyncio.run(write())


def test_batches_have_a_maximum_and_are_acknowledged(tmp_path):
    written, status, backlog = run(
        tmp_path, "Collect", lambda each: each.messages == 10, batch="{messages: 4}"
    )
    assert written == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert (status.state, status.batches, backlog) == (State.STOPPED, 3, 0)


def test_batch_that_fails_is_written_again(tmp_path):
    written, status, backlog = run(
        *(tmp_path, "Unreliable", lambda each: each.messages == 10),
        retries="{backoff: 1ms}",
    )
    assert written == [list(range(10))] * 3
    assert (status.retries, status.error, backlog) == (2, "the second failure", 0)


def test_batch_is_not_acknowledged_if_the_retries_end(tmp_path):
    written, status, backlog = run(
        *(tmp_path, "Unreliable", lambda each: each.state.is_over),
        retries="{count: 0}",
    )
    assert len(written) == 1
    assert (status.state, status.messages, backlog) == (State.FAILED, 0, 10)


PICKY = '''
from pydanube_connect import Sink

WRITTEN = []


class Picky(Sink):
    """Fails in a way that it does not expect with some messages."""

    async def write(self, messages):
        numbers = [int(each.payload) for each in messages]
        if any(number % 4 == 3 for number in numbers):
            raise KeyError("total")
        WRITTEN.append(numbers)
'''


@pytest.mark.parametrize("batch", [1, 100])
def test_messages_that_a_sink_fails_with_are_dead_letters_and_others_are_written(
    tmp_path, batch
):
    (tmp_path / "picky.py").write_text(PICKY)
    text = f"""
connectors:
  out:
    kind: picky.py:Picky
    topic: {TOPIC}
    dead_letters: {TOPIC}-dead
    batch: {{messages: {batch}}}
"""

    async def write():
        async with memory_broker() as broker, broker.connect() as client:
            async with client.producer(TOPIC) as producer:
                await producer.send_batch([str(number) for number in range(10)])
            [out] = declared(text, broker.url, tmp_path)
            async with running([out]) as until:
                await until(
                    lambda all_: all_["out"].messages + all_["out"].dead_letters == 10
                )
            facts = await client.subscriptions.describe(TOPIC, "out")
            read = client.read(f"{TOPIC}-dead")
            dead = [each async for batch in read for each in batch]
            module = __import__("sys").modules[out.kind.__module__]
            return module.WRITTEN, dead, facts.backlog

    written, dead, backlog = asyncio.run(write())
    numbers = [number for batch in written for number in batch]
    assert (numbers, backlog) == ([0, 1, 2, 4, 5, 6, 8, 9], 0)
    assert [each.payload for each in dead] == [b"3", b"7"]
    assert dead[0].attributes["x-failure-reason"] == "KeyError: 'total'"


def test_sink_that_fails_with_a_message_names_it_without_dead_letters(tmp_path):
    (tmp_path / "picky.py").write_text(PICKY)
    text = f"connectors:\n  out: {{kind: 'picky.py:Picky', topic: {TOPIC}}}\n"

    async def write():
        async with memory_broker() as broker, broker.connect() as client:
            async with client.producer(TOPIC) as producer:
                await producer.send_batch([str(number) for number in range(10)])
            [out] = declared(text, broker.url, tmp_path)
            async with running([out]) as until:
                found = await until(lambda all_: all_["out"].state.is_over)
            return found["out"]

    status = asyncio.run(write())
    assert status.state is State.FAILED
    assert f"message 3 of {TOPIC}: KeyError: 'total'" in status.error
    assert "dead_letters" in status.error
