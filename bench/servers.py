"""The server processes of the benchmark."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from bench.systems.system import BenchFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

HOST = "127.0.0.1"
START_WAIT_S = 60.0
STOP_WAIT_S = 20.0
LOOK_INTERVAL_S = 0.05


def free_port() -> int:
    """Return a free port of this machine."""
    with socket.socket() as asked:
        asked.bind((HOST, 0))
        port: int = asked.getsockname()[1]
        return port


@contextmanager
def running(
    command: Sequence[str | Path],
    log: Path,
    *,
    is_ready: Callable[[], object],
    environ: Mapping[str, str] | None = None,
    stop_with: signal.Signals = signal.SIGTERM,
) -> Iterator[int]:
    """
    Run a server while the body runs, and yield its pid.

    It has its own process group, so that it does not receive Ctrl-C; at the end the
    whole group is ended.

    Raises:
        BenchFailed: The server ended by itself, or was not ready in time.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603  # Servers that we name.
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=clean_environ() | dict(environ or {}),
            cwd=log.parent,
            start_new_session=True,
            preexec_fn=end_with_parent,  # noqa: PLW1509  # It takes no lock.
        )
    try:
        _wait(process, str(command[0]), log, is_ready)
        yield process.pid
    finally:
        _end(process, stop_with)


def clean_environ() -> dict[str, str]:
    """Return the environment without settings of the harness and of brokers."""
    prefixes = ("DANUBE_", "RABBITMQ_", "KAFKA_")
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(prefixes)
    }


def accepts(port: int) -> bool:
    """Return whether a process listens on *port*."""
    try:
        with socket.create_connection((HOST, port), timeout=1):
            return True
    except OSError:
        return False


def _load_prctl() -> Callable[..., int] | None:
    if sys.platform != "linux":
        return None
    prctl: Callable[..., int] = ctypes.CDLL(None).prctl
    return prctl


_PRCTL = _load_prctl()
_SET_DEATH_SIGNAL = 1


def end_with_parent() -> None:
    """Let the system kill this new process if its parent is killed."""
    if _PRCTL is not None:
        _PRCTL(_SET_DEATH_SIGNAL, signal.SIGKILL)


def _wait(
    process: subprocess.Popen[bytes],
    program: str,
    log: Path,
    is_ready: Callable[[], object],
) -> None:
    give_up_at = time.monotonic() + START_WAIT_S
    while time.monotonic() < give_up_at:
        if process.poll() is not None:
            raise BenchFailed(
                f"{program} ended with exit code {process.returncode} before "
                f"it was ready. Its output:\n{log_tail(log)}"
            )
        if is_ready():
            return
        time.sleep(LOOK_INTERVAL_S)
    raise BenchFailed(
        f"{program} was not ready after {START_WAIT_S:.0f} s. Its output:\n"
        f"{log_tail(log)}"
    )


def log_tail(log: Path) -> str:
    return log.read_text(errors="replace").strip()[-2_000:] or "(nothing)"


def _end(process: subprocess.Popen[bytes], stop_with: signal.Signals) -> None:
    process.send_signal(stop_with)
    try:
        process.wait(STOP_WAIT_S)
    except subprocess.TimeoutExpired:
        pass
    finally:
        # The rest of its group, whose id is not reused while a member exists.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
