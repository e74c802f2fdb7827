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
from typing import Any

SECONDS_MAX = 10
"""The maximum duration of one piece of work."""
MEMORY_KIB_MAX = 1024 * 1024
"""The maximum address space of a process that does such work."""
PROCESSES_MAX = 2
"""The maximum number of processes for one kind of work."""


class LimitExceeded(Exception):
    """The work exceeded a limit; the text says which."""


def limited_command(*arguments: str, memory_kib_max: int = MEMORY_KIB_MAX) -> list[str]:
    """Return a command that runs Python with *arguments* and limited memory."""
    return [
        "/bin/sh",
        "-c",
        f'ulimit -v {memory_kib_max}; exec "$@"',
        "sh",
        sys.executable,
        *arguments,
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

        Bounds: The work takes at most *seconds_max* and *memory_kib_max*; a call
            waits while ``PROCESSES_MAX`` others are running.

        Raises:
            LimitExceeded: The work exceeded a limit.
        """
        if self._pid != os.getpid():
            # After a fork, the idle processes belong to the parent.
            self._begin()
        with self._slots:
            process = self._idle.pop() if self._idle else self._started()
            try:
                answer = process.call(request)
            except BaseException:
                process.close()
                raise
            self._idle.append(process)
            return answer

    def _started(self) -> _Process:
        return _Process(self._seconds_max, self._memory_kib_max)


class _Process:
    """A process that answers one request at a time."""

    def __init__(self, seconds_max: float, memory_kib_max: int) -> None:
        self._seconds_max = seconds_max
        self._memory_kib_max = memory_kib_max
        # Most programs start no worker.
        from multiprocessing import Pipe  # noqa: PLC0415

        self._parent = os.getpid()
        self._connection, theirs = Pipe()
        # The command is our own interpreter, without any input of the client.
        self._process = subprocess.Popen(  # noqa: S603
            limited_command(
                "-m",
                "pydanube.schemas.worker",
                str(theirs.fileno()),
                str(seconds_max),
                memory_kib_max=memory_kib_max,
            ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            # Signals of the terminal are for this process only.
            start_new_session=True,
        )
        theirs.close()

    def call(self, request: Any) -> Any:
        """Return the answer to *request*; raises LimitExceeded if the process ends."""
        # It comes with the extra that schema languages need.
        from msgspec import msgpack  # noqa: PLC0415

        try:
            self._connection.send_bytes(msgpack.encode(request))
            return msgpack.decode(self._connection.recv_bytes())
        except (EOFError, ConnectionError) as error:
            limit = f"{self._memory_kib_max // 1024} MiB of memory"
            if self._process.wait() == -signal.SIGALRM:
                limit = f"{self._seconds_max:g} s"
            raise LimitExceeded(f"it takes more than {limit}") from error

    def close(self) -> None:
        """Kill the process if it is a child of this one, and wait for its end."""
        if self._parent == os.getpid():
            self._connection.close()
            self._process.kill()
            self._process.wait()


def _close_all(processes: list[_Process]) -> None:
    while processes:
        processes.pop().close()
