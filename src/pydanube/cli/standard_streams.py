"""
Standard input and output, and files, without holding up the event loop.

A pipe may be empty or full for hours.  The descriptors stay in blocking mode,
because they are shared with other processes; what is done instead is never to
read or write more than is possible without waiting.
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
    """A descriptor that is read from."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    async def read(self) -> bytes:
        """What is there, waiting for at least a byte; nothing at the end."""
        if not select.select([self._descriptor], [], [], 0)[0]:
            loop = asyncio.get_running_loop()
            await _ready(self._descriptor, loop.add_reader, loop.remove_reader)
        return os.read(self._descriptor, READ_BYTES)


class OutputStream:
    """A descriptor that is written to."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.byte_count = 0
        """How much was written, of a write that was cut off too."""
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        # What a pipe takes without waiting, when it says that it takes anything.
        self._step_bytes = READ_BYTES if is_file else select.PIPE_BUF

    async def write(self, data: bytes) -> None:
        """
        Write *data*.

        Cancellation: ``byte_count`` says how much of it was written.

        Raises:
            BrokenPipeError: Nobody reads any more.
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
    """The lines of *source*, as many at a time as came together."""
    splitter = LineSplitter()
    while data := await source.read():
        if lines := splitter.feed(data):
            yield lines
    if lines := splitter.end():
        yield lines


class LineSplitter:
    """
    Cuts bytes into lines, whatever pieces they come in.

    Only ``\\n`` ends a line, so that every other byte arrives as it was.
    """

    def __init__(self) -> None:
        # The beginning of a line whose end has not come.
        self._pieces: list[bytes] = []
        self._byte_count = 0

    def feed(self, data: bytes) -> list[bytes]:
        """
        The lines that *data* completes.

        Raises:
            MessageTooLarge: A line is longer than any message may be.
        """
        head, *lines = data.split(b"\n")
        self._pieces.append(head)
        self._byte_count += len(head)
        if self._byte_count > LINE_BYTES_MAX:
            raise MessageTooLarge(
                f"a line of more than {LINE_BYTES_MAX} bytes; --whole-file publishes "
                "a file as one message"
            )
        if not lines:
            return []
        *rest, tail = lines
        whole = [b"".join(self._pieces), *rest]
        self._pieces, self._byte_count = [tail], len(tail)
        return whole

    def end(self) -> list[bytes]:
        """The last line, if it was not ended."""
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
