"""What is written in one turn of the loop leaves in order, and mostly together."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.aio.write_buffer import GATHERED_BYTES_MAX, WriteBuffer


class Wire:
    """A transport that keeps what it is given, call by call."""

    def __init__(self):
        self.calls = []
        self.is_closed = False

    def write(self, data):
        self.calls.append(bytes(data))

    def writelines(self, parts):
        self.calls.append(b"".join(parts))

    def is_closing(self):
        return self.is_closed

    def close(self):
        self.is_closed = True


@pytest.fixture
def wire():
    return Wire()


@pytest.fixture
async def buffer(wire):
    return WriteBuffer(wire, asyncio.get_running_loop())


async def test_first_write_is_sent_at_once_and_the_rest_together(buffer, wire):
    buffer.write(b"a")
    assert wire.calls == [b"a"]
    buffer.write(b"b")
    buffer.writelines([b"c", b"d"])
    assert wire.calls == [b"a"]
    await asyncio.sleep(0)
    assert wire.calls == [b"a", b"bcd"]
    buffer.writelines([b"e", b"f"])
    assert wire.calls[-1] == b"ef"


async def test_full_buffer_is_sent_before_the_end_of_the_turn(buffer, wire):
    buffer.write(b"a")
    buffer.write(bytes(GATHERED_BYTES_MAX - 1))
    assert len(wire.calls) == 1
    buffer.writelines([b"b"])
    assert len(wire.calls) == 2


async def test_close_sends_buffered_data(buffer, wire):
    buffer.write(b"a")
    buffer.write(b"b")
    buffer.close()
    buffer.close()
    assert wire.calls == [b"a", b"b"]
    assert wire.is_closed


async def test_nothing_is_written_to_a_closed_transport(buffer, wire):
    buffer.write(b"a")
    buffer.write(b"b")
    wire.is_closed = True
    await asyncio.sleep(0)
    assert wire.calls == [b"a"]


@given(st.lists(st.lists(st.binary(max_size=9), max_size=4), max_size=5))
async def test_bytes_are_sent_in_order(turns):
    wire = Wire()
    buffer = WriteBuffer(wire, asyncio.get_running_loop())
    for parts in turns:
        for number, part in enumerate(parts):
            if number % 2:
                buffer.write(part)
            else:
                buffer.writelines([part, b"/"])
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    expected = b"".join(
        part if number % 2 else part + b"/"
        for parts in turns
        for number, part in enumerate(parts)
    )
    assert b"".join(wire.calls) == expected
