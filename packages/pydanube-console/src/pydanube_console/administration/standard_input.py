"""Standard input that a signal can end, although a thread waits for its next line."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_CHUNK_BYTES = 64 * 1024


@contextmanager
def endable_input() -> Iterator[Callable[[], None]]:
    """
    Make file descriptor 0 a pipe from the real standard input, during the body.

    The function that is yielded ends the input.  A read of the real one cannot be
    interrupted, and Python waits for its thread; that of the pipe ends with it.
    """
    original = os.dup(0)
    reading, writing = os.pipe()
    os.dup2(reading, 0)
    os.close(reading)

    def end() -> None:
        # Not closed, because the thread may write to it.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, writing)
        os.close(nowhere)

    def copy() -> None:
        while chunk := os.read(original, _CHUNK_BYTES):
            sent = 0
            while sent < len(chunk):
                sent += os.write(writing, chunk[sent:])
        end()

    # It may wait for the real input until the process ends.
    threading.Thread(target=copy, name="standard input", daemon=True).start()
    try:
        yield end
    finally:
        os.dup2(original, 0)
