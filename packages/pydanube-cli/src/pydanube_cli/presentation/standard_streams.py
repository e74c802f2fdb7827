"""
Standard input and output, and files, without blocking the event loop.

A pipe may be empty or full for hours.  The descriptors are shared with other
processes and therefore stay in blocking mode; instead, reads and writes wait until
the descriptor is ready, and are never larger than it can take.
"""

from __future__ import annotations

import asyncio
import os
import select
import stat
from collections.abc import AsyncIterator, Callable

from pydanube.model.errors import MessageTooLarge

READ_BYTES = 1024 * 1024
LINE_BYTES_MAX = 64 * 1024 * 1024
"""A longer line is refused before it fills the memory."""


class InputStream:
    """A file descriptor to read from."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    async def read(self) -> bytes:
        """Return the available bytes, at least one; b"" at the end."""
        if not select.select([self._descriptor], [], [], 0)[0]:
            loop = asyncio.get_running_loop()
            await _ready(self._descriptor, loop.add_reader, loop.remove_reader)
        return os.read(self._descriptor, READ_BYTES)

    async def read_lines(
        self, *, line_bytes_max: int = LINE_BYTES_MAX
    ) -> AsyncIterator[list[bytes]]:
        """
        Yield the lines, in groups that arrived together.

        Only ``\\n`` ends a line; all other bytes are kept as they are.

        Raises:
            MessageTooLarge: A line exceeds *line_bytes_max*.
        """
        # The beginning of an incomplete line.
        pieces: list[bytes] = []
        byte_count = 0
        while data := await self.read():
            head, *lines = data.split(b"\n")
            pieces.append(head)
            byte_count += len(head)
            if byte_count > line_bytes_max:
                raise MessageTooLarge(
                    f"a line is longer than {line_bytes_max} bytes; --whole-file "
                    "publishes a file as one message"
                )
            if lines:
                *rest, tail = lines
                yield [b"".join(pieces), *rest]
                pieces, byte_count = [tail], len(tail)
        if last := b"".join(pieces):
            yield [last]


class OutputStream:
    """A file descriptor to write to."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.byte_count = 0
        """
        The number of bytes written, including those of writes that were cancelled.
        """
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        # A pipe that is ready takes this many bytes without blocking.
        self._step_bytes = READ_BYTES if is_file else select.PIPE_BUF

    async def write(self, data: bytes) -> None:
        """
        Write *data*.

        Cancellation: ``byte_count`` says how much of it was written.

        Raises:
            BrokenPipeError: The reader has closed the pipe.
        """
        rest = memoryview(data)
        while rest:
            if not select.select([], [self._descriptor], [], 0)[1]:
                loop = asyncio.get_running_loop()
                await _ready(self._descriptor, loop.add_writer, loop.remove_writer)
            count = os.write(self._descriptor, rest[: self._step_bytes])
            self.byte_count += count
            rest = rest[count:]

    async def wait_for_broken_pipe(self) -> None:
        """
        Wait until the reader of a pipe closes it; for other outputs, without end.

        A program that rarely writes would notice it late.

        Raises:
            BrokenPipeError: The reader has closed the pipe.
        """
        if not stat.S_ISFIFO(os.fstat(self._descriptor).st_mode):
            await asyncio.Event().wait()
        # The writing end of a pipe becomes readable only by this error.
        loop = asyncio.get_running_loop()
        await _ready(self._descriptor, loop.add_reader, loop.remove_reader)
        raise BrokenPipeError


async def _ready(
    descriptor: int,
    add: Callable[[int, Callable[[], None]], object],
    remove: Callable[[int], object],
) -> None:
    event = asyncio.Event()
    add(descriptor, event.set)
    try:
        await event.wait()
    finally:
        remove(descriptor)
