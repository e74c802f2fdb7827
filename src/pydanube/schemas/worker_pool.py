"""
Worker processes with limited time and memory.

Parsing, comparing or validating a client's input must neither block this process nor
exhaust its memory.  Such work runs in a process whose address space is limited, and
which the kernel ends after a deadline.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

# ruff: noqa: PLC0415  # msgspec comes with the extra that schema languages need.

SECONDS_MAX = 10
"""The maximum duration of one piece of work."""
MEMORY_KIB_MAX = 1024 * 1024
"""The maximum address space of a process that does such work."""
PROCESSES_MAX = 2
"""The maximum number of processes for one kind of work."""

_LENGTH_BYTES = 4


class LimitExceeded(Exception):
    """The work exceeded a limit; the text says which."""


def limited_command(*arguments: str, memory_kib_max: int = MEMORY_KIB_MAX) -> list[str]:
    """Return a command that runs Python with *arguments* and limited memory."""
    return [
        *("/bin/sh", "-c", f'ulimit -v {memory_kib_max}; exec "$@"', "sh"),
        *(sys.executable, *arguments),
    ]


class WorkerPool:
    """
    A pool of processes for one kind of work; they run ``worker.py``.

    Processes start on demand, are reused, and end with this process.  The pool may be
    called from any thread.
    """

    def __init__(
        self, *, seconds_max: float = SECONDS_MAX, memory_kib_max: int = MEMORY_KIB_MAX
    ) -> None:
        self._seconds_max = seconds_max
        self._memory_kib_max = memory_kib_max
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._slots = threading.BoundedSemaphore(PROCESSES_MAX)
        self._idle: list[_Process] = []
        # This runs at interpreter exit at the latest.
        weakref.finalize(self, _close_all, self._idle)

    def call(self, request: Any) -> Any:
        """
        Return the answer to *request*.

        Bounds: The work takes at most *seconds_max* and *memory_kib_max*; a call waits
            while ``PROCESSES_MAX`` others are running.

        Raises:
            LimitExceeded: The work exceeded a limit.
        """
        with self._process() as process:
            return process.call(request)

    @contextmanager
    def _process(self) -> Iterator[_Process]:
        if self._pid != os.getpid():
            # After a fork, the idle processes belong to the parent.
            self._begin()
        with self._slots:
            process = self._idle.pop() if self._idle else self._start()
            try:
                yield process
            except BaseException:
                process.close()
                raise
            self._idle.append(process)

    def _start(self) -> _Process:
        return _Process(self._seconds_max, self._memory_kib_max)


class _Process:
    """A process that answers one request at a time."""

    def __init__(self, seconds_max: float, memory_kib_max: int) -> None:
        self._seconds_max = seconds_max
        self._memory_kib_max = memory_kib_max
        self._parent = os.getpid()
        # The command is our own interpreter, without any input of the client.
        self._process = subprocess.Popen(  # noqa: S603
            limited_command(
                *("-m", "pydanube.schemas.worker", str(seconds_max)),
                memory_kib_max=memory_kib_max,
            ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # Signals of the terminal are for this process only.
            start_new_session=True,
        )

    def call(self, request: Any) -> Any:
        """Return the answer to *request*; raises LimitExceeded if the process ends."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            write_message(self._process.stdin, request)
            return read_message(self._process.stdout)
        except (EOFError, BrokenPipeError) as error:
            if self._process.wait() == -signal.SIGALRM:
                limit = self._seconds_max
                raise LimitExceeded(f"it takes more than {limit:g} s") from error
            limit = self._memory_kib_max // 1024
            raise LimitExceeded(f"it takes more than {limit} MiB of memory") from error

    def close(self) -> None:
        """Kill the process if it is a child of this one, and wait for its end."""
        if self._parent != os.getpid():
            return
        self._process.kill()
        with self._process:
            pass


def _close_all(processes: list[_Process]) -> None:
    while processes:
        processes.pop().close()


def write_message(sink: IO[bytes], message: Any) -> None:
    """Write *message* in MessagePack, after its length."""
    from msgspec import msgpack

    body = msgpack.encode(message)
    sink.write(len(body).to_bytes(_LENGTH_BYTES, "big"))
    sink.write(body)
    sink.flush()


def read_message(source: IO[bytes]) -> Any:
    """
    Read a message that ``write_message`` wrote.

    Raises:
        EOFError: The other side has closed the stream.
    """
    from msgspec import msgpack

    length = int.from_bytes(_read(source, _LENGTH_BYTES), "big")
    return msgpack.decode(_read(source, length))


def _read(source: IO[bytes], count: int) -> bytes:
    data = source.read(count)
    if len(data) < count:
        raise EOFError
    return data
