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
from typing import TYPE_CHECKING

from pydanube.model.errors import MessageTooLarge

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

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


async def read_lines(source: InputStream) -> AsyncIterator[list[bytes]]:
    """Yield the lines of *source*, in groups that arrived together."""
    splitter = LineSplitter()
    while data := await source.read():
        if lines := splitter.feed(data):
            yield lines
    if lines := splitter.end():
        yield lines


class LineSplitter:
    """
    A splitter of a byte stream into lines.

    Only ``\\n`` ends a line; all other bytes are kept as they are.
    """

    def __init__(self) -> None:
        # The beginning of an incomplete line.
        self._pieces: list[bytes] = []
        self._byte_count = 0

    def feed(self, data: bytes) -> list[bytes]:
        """
        Return the lines that *data* completes.

        Raises:
            MessageTooLarge: A line exceeds ``LINE_BYTES_MAX``.
        """
        head, *lines = data.split(b"\n")
        self._pieces.append(head)
        self._byte_count += len(head)
        if self._byte_count > LINE_BYTES_MAX:
            raise MessageTooLarge(
                f"a line is longer than {LINE_BYTES_MAX} bytes; --whole-file "
                "publishes a file as one message"
            )
        if not lines:
            return []
        *rest, tail = lines
        whole = [b"".join(self._pieces), *rest]
        self._pieces, self._byte_count = [tail], len(tail)
        return whole

    def end(self) -> list[bytes]:
        """Return the last line if it has no newline."""
        last = b"".join(self._pieces)
        self._pieces, self._byte_count = [], 0
        return [last] if last else []


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
