"""
The sockets by which the processes of one broker reach each other.

Each process has a directory beside those of the others, and in it a Unix socket for
each purpose.  Only the user of the broker can reach them, so they need neither
credentials nor TLS.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydanube.model.lazy_dataclasses import dataclass

PATH_BYTES_MAX = 100
"""Systems limit the paths of sockets to 104 or 108 bytes."""
_BACKLOG = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessGroup:
    """The processes of one broker, as one of them sees them."""

    directory: Path
    """It has a directory for each process, whose name is its number."""
    number: int
    """The number of this process; the first is 1."""
    count: int

    def listen(self, name: str) -> socket.socket:
        """Return a socket that accepts connections of the other processes."""
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.setblocking(False)
        with self._path(self.number, name) as path:
            # The process before has left it.
            Path(path).unlink(missing_ok=True)
            listening.bind(path)
        listening.listen(_BACKLOG)
        return listening

    async def connect(self, number: int, name: str) -> socket.socket:
        """
        Return a connection to the socket *name* of another process.

        Raises:
            OSError: It does not run, or does not listen yet.
        """
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.setblocking(False)
            with self._path(number, name) as path:
                await asyncio.get_running_loop().sock_connect(connection, path)
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def _path(self, number: int, name: str) -> Iterator[str]:
        """Yield the path of a socket, even if its directory has a long name."""
        directory = self.directory / str(number)
        path = str(directory / name)
        if len(os.fsencode(path)) <= PATH_BYTES_MAX:
            yield path
            return
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            yield f"/proc/self/fd/{descriptor}/{name}"
        finally:
            os.close(descriptor)
