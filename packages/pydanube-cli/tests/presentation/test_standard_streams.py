"""Lines and bytes pass through pipes whole, in order, and without blocking."""

import asyncio
import os
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.model.errors import MessageTooLarge
from pydanube_cli.presentation.standard_streams import InputStream, OutputStream


@pytest.fixture
def pipe():
    read, write = os.pipe()
    yield read, write
    for descriptor in (read, write):
        with suppress(OSError):
            os.close(descriptor)


class Pieces(InputStream):
    """An input that arrives in pieces."""

    def __init__(self, pieces):
        self.pieces = [piece for piece in pieces if piece]

    async def read(self):
        return self.pieces.pop(0) if self.pieces else b""


async def lines_of(source, **bound):
    return [line async for some in source.read_lines(**bound) for line in some]


def split(*pieces, **bound):
    return asyncio.run(lines_of(Pieces(pieces), **bound))


@given(st.lists(st.binary(max_size=20).map(lambda b: b.replace(b"a", b"\n"))))
def test_lines_do_not_depend_on_how_the_input_is_split(pieces):
    whole = b"".join(pieces)
    lines = whole.split(b"\n")
    assert split(*pieces) == (lines[:-1] if not lines[-1] else lines)


def test_only_a_newline_ends_a_line():
    assert split(b"a\r\nb\x0b\x85\n") == [b"a\r", b"b\x0b\x85"]


def test_empty_lines_are_lines():
    assert split(b"\n\na\n") == [b"", b"", b"a"]


def test_endless_line_is_refused():
    with pytest.raises(MessageTooLarge, match="--whole-file"):
        split(b"12345", b"678901", line_bytes_max=10)


async def test_lines_are_read_from_a_file_to_its_end(tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(b"one\ntwo\nlast")

    with path.open("rb") as file:
        assert await lines_of(InputStream(file.fileno())) == [b"one", b"two", b"last"]


async def test_reading_an_empty_pipe_does_not_block_the_loop(pipe):
    read, write = pipe

    async def both():
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(InputStream(read).read())
            while not reading.done():
                os.write(write, b"x")
                await asyncio.sleep(0)
        return reading.result()

    assert set(await both()) == {ord("x")}


async def test_reading_an_empty_pipe_can_be_cancelled(pipe):
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await InputStream(pipe[0]).read()


async def test_write_to_a_full_pipe_waits_for_the_reader(pipe):
    read, write = pipe
    data = os.urandom(1_000_000)
    output = OutputStream(write)

    async def both():
        got = bytearray()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(output.write(data))
            while len(got) < len(data):
                got += await InputStream(read).read()
        return bytes(got)

    assert await both() == data
    assert output.byte_count == len(data)


async def test_cancelled_write_counts_the_written_bytes(pipe):
    read, write = pipe
    data = os.urandom(1_000_000)
    output = OutputStream(write)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await output.write(data)
    os.close(write)
    with os.fdopen(read, "rb", closefd=False) as rest:
        assert rest.read() == data[: output.byte_count]


async def test_closed_pipe_raises_broken_pipe_error(pipe):
    read, write = pipe
    os.close(read)
    with pytest.raises(BrokenPipeError):
        await OutputStream(write).write(b"x")


async def test_output_notices_that_the_reader_of_a_pipe_is_gone(pipe):
    read, write = pipe
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(_reader_is_gone(OutputStream(write)))
        await asyncio.sleep(0)
        await OutputStream(write).write(b"x")
        assert not waiting.done()
        os.close(read)
    assert waiting.result()


async def _reader_is_gone(output):
    try:
        await output.wait_for_broken_pipe()
    except BrokenPipeError:
        return True
