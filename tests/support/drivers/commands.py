"""`danube` commands, in this process or in a separate one."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pydanube_cli.main import app

if TYPE_CHECKING:
    from collections.abc import Iterator

DANUBE = (sys.executable, "-m", "pydanube_cli.main")
TIMEOUT_S = 240

STARTING_OTHERS = frozenset({"demo", "bench", "pipeline", "--master"})
"""The words of commands that start brokers or Spark."""


def environment(url: str = "", **variables: str) -> dict[str, str]:
    """The environment, without variables that affect commands."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("DANUBE_")}
    return inherited | ({"DANUBE_URL": url} if url else {}) | variables


def danube(
    *arguments: str, url: str = "", stdin: str | bytes = b"", **variables: str
) -> subprocess.CompletedProcess[str]:
    """
    Run a command to its end.

    It runs in this process, which saves half a second, unless it starts others.
    """
    data = stdin.encode() if isinstance(stdin, str) else stdin
    if not STARTING_OTHERS.isdisjoint(arguments):
        done = subprocess.run(
            [*DANUBE, *arguments],
            check=False,
            input=data,
            capture_output=True,
            timeout=TIMEOUT_S,
            env=environment(url, **variables),
        )
        return subprocess.CompletedProcess(
            done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
        )
    with (
        _environment(environment(url, **variables)),
        _file(data) as given,
        _file() as out,
        _file() as err,
        _streams(given, out, err),
        logging_restored(),
    ):
        try:
            app(list(arguments), prog_name="danube")
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        sys.stdout.flush()
        sys.stderr.flush()
        printed = [_content(each) for each in (out, err)]
    return subprocess.CompletedProcess([*DANUBE, *arguments], code, *printed)


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def _file(data: bytes = b"") -> Iterator[int]:
    """Open a nameless file that contains *data*."""
    with tempfile.TemporaryFile(buffering=0) as file:
        file.write(data)
        file.seek(0)
        yield file.fileno()


def _content(descriptor: int) -> str:
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode()


@contextmanager
def _streams(*descriptors: int) -> Iterator[None]:
    """Make *descriptors* the standard input, output and error of this process."""
    names = ("stdin", "stdout", "stderr")
    before = [getattr(sys, name) for name in names]
    kept = [os.dup(number) for number in range(3)]
    try:
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
            mode = "r" if number == 0 else "w"
            stream = open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115
            setattr(sys, names[number], stream)
        yield
    finally:
        for number, descriptor in enumerate(kept):
            getattr(sys, names[number]).close()
            setattr(sys, names[number], before[number])
            os.dup2(descriptor, number)
            os.close(descriptor)


@contextmanager
def logging_restored() -> Iterator[None]:
    """Restore the root logger, which a broker replaces, at the end."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


def start_danube(
    *arguments: str, url: str = "", **variables: str
) -> subprocess.Popen[bytes]:
    """Start a command whose streams are pipes, without reading from them."""
    return subprocess.Popen(
        [*DANUBE, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        env=environment(url, **variables),
    )


def end(process: subprocess.Popen[bytes], number: int) -> tuple[int, str, str]:
    """Send a signal, and return the exit code, output and errors."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.send_signal(number)
    # Its input stays open, so only the signal can end it.
    out, err = process.stdout.read(), process.stderr.read()
    code = process.wait(timeout=TIMEOUT_S)
    for stream in (process.stdin, process.stdout, process.stderr):
        stream.close()
    return code, out.decode(), err.decode()
