"""
One event loop in a thread of its own, for programs that wait in threads.

Files of remote objects are read in threads, in processes with and without an event
loop.  OpenDAL's synchronous calls would do, but they cannot be interrupted, they read a
large range in one piece, and some of them keep the interpreter lock while they wait.
Its asynchronous calls need a running event loop, which is here.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from pydanube.aio.loops import new_loop

T = TypeVar("T")

EXIT_PAUSE_S = 0.05
"""
How long a process that has used an object store pauses before it ends.

OpenDAL's threads still release Python objects after an answer.  If they do so while the
interpreter ends, the process is aborted.
"""


class LoopThread:
    """
    A thread that runs an event loop until the process ends.

    The process has one, like the thread pool of OpenDAL itself: files may outlive the
    store that they were opened with, and a thread for each file would cost too much.
    """

    def __init__(self) -> None:
        self._loop = new_loop()
        # A daemon, because threads that are not are awaited before they are told to
        # stop.
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="pydanube-objects", daemon=True
        )
        self._thread.start()
        atexit.register(self._stop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run *work* in the loop, and wait for it in the calling thread."""
        running = self.start(work)
        try:
            return running.result()
        except BaseException:
            # An interrupt of the waiting thread ends the work, too.
            running.cancel()
            raise

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run *work* in the loop; the future has its outcome."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class _Process:
    """The state of this process: its loop thread, and whether it was forked."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.loop_thread: LoopThread | None = None
        self.user: int | None = None
        """The process that first used an object store."""


_process = _Process()


def loop_thread() -> LoopThread:
    """Return the loop thread of this process; start it if necessary."""
    check_not_forked()
    with _process.lock:
        if _process.loop_thread is None:
            _process.loop_thread = LoopThread()
        return _process.loop_thread


def check_not_forked() -> None:
    """
    Raise if a parent process used an object store before it forked this process.

    The threads of OpenDAL do not exist in this process, so it would wait for ever.
    """
    if _process.user is None:
        _process.user = os.getpid()
        atexit.register(time.sleep, EXIT_PAUSE_S)
    elif _process.user != os.getpid():
        raise ChildProcessError(
            "this process was forked from one that had already used an object store, "
            "whose connections do not survive that; start processes with the method "
            "'spawn' or 'forkserver'"
        )
