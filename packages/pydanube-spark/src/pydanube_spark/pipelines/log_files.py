"""
Log files with a bound, and the reading of them.

Spark and its workers keep a log file open and append to it, so a file that is too large
is copied and then truncated, as ``logrotate`` does with ``copytruncate``.  Lines that
are written between both steps are lost.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

LOG_BYTES_MAX = 16 * 1024 * 1024
"""The size at which a log file is rotated."""
LOG_FILES_KEPT = 3
"""How many older files are kept, as ``run.log.1`` (the latest) to ``run.log.3``."""
_BLOCK_BYTES = 64 * 1024


def rotate(
    path: Path, *, bytes_max: int = LOG_BYTES_MAX, kept: int = LOG_FILES_KEPT
) -> bool:
    """Rotate the file *path* if it is too large; return whether it was."""
    try:
        if path.stat().st_size < bytes_max:
            return False
    except FileNotFoundError:
        return False
    for number in range(kept, 1, -1):
        older = _numbered(path, number - 1)
        if older.exists():
            older.replace(_numbered(path, number))
    shutil.copyfile(path, _numbered(path, 1))
    os.truncate(path, 0)
    return True


def last_lines(path: Path, count: int) -> tuple[list[str], int]:
    """Return the last *count* lines of *path*, and the position after them."""
    try:
        with path.open("rb") as file:
            end = at = file.seek(0, os.SEEK_END)
            tail = b""
            while at and tail.count(b"\n") <= count:
                begin = max(0, at - _BLOCK_BYTES)
                file.seek(begin)
                tail = file.read(at - begin) + tail
                at = begin
    except FileNotFoundError:
        return [], 0
    # The last line may not be complete yet.
    whole = tail[: tail.rfind(b"\n") + 1]
    lines = whole.decode("utf-8", "replace").splitlines()
    return lines[-count:] if count else [], end - (len(tail) - len(whole))


def follow(
    path: Path,
    position: int,
    *,
    is_over: Callable[[], bool],
    wait: Callable[[], None],
) -> Iterator[str]:
    """Yield the lines after *position* as they are written, until *is_over*."""
    rest = b""
    while True:
        was_over = is_over()
        try:
            with path.open("rb") as file:
                if os.fstat(file.fileno()).st_size < position:
                    # It was rotated.
                    position, rest = 0, b""
                file.seek(position)
                while block := file.read(_BLOCK_BYTES):
                    position += len(block)
                    *lines, rest = (rest + block).split(b"\n")
                    yield from (line.decode("utf-8", "replace") for line in lines)
        except FileNotFoundError:
            position, rest = 0, b""
        if was_over:
            if rest:
                yield rest.decode("utf-8", "replace")
            return
        wait()


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")
