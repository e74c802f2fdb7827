"""A broker in a process of its own, for benchmarks and demonstrations."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pydanube.model.errors import BrokerError
from pydanube.model.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

START_WAIT_S = 60.0
STOP_WAIT_S = 60.0

COMMAND = (
    sys.executable,
    "-m",
    "pydanube_cli",
    "broker",
    "--stream-port",
    "0",
    "--http-port",
    "0",
    "--grpc-port",
    "0",
    "--admin-port",
    "0",
    "--data-dir",
)
"""Starts a broker on free ports of the loopback interface; its directory follows."""


class ProcessFailed(BrokerError):
    """A process of a benchmark did not start, or ended; the message says what to do."""

    code = "process_failed"


@dataclass(frozen=True, slots=True)
class BrokerProcess:
    """A running broker."""

    pid: int
    log_file: Path

    def url(self, listener: str = "stream") -> str:
        """Return the URL of one of its listeners."""
        found = printed_url(self.log_file, listener)
        assert found is not None, f"the broker has not printed {listener}"
        return found


@contextmanager
def running_broker(
    data: Path, log_file: Path, settings: Mapping[str, str]
) -> Iterator[BrokerProcess]:
    """
    Run a broker with its data in *data* while the body runs.

    It writes its output to *log_file*; *settings* are environment variables.

    Raises:
        ProcessFailed: It did not start.
    """
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("DANUBE_")
    }
    with log_file.open("wb") as log:
        # A new session, so that Ctrl-C does not reach the broker.
        process = subprocess.Popen(  # noqa: S603  # Our own program.
            [*COMMAND, str(data)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=inherited | dict(settings),
            start_new_session=True,
        )
    try:
        _wait_until_ready(process, log_file)
        yield BrokerProcess(process.pid, log_file)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_WAIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def printed_url(log_file: Path, listener: str) -> str | None:
    """Return the URL of a listener; None if the broker has not printed it yet."""
    printed = log_file.read_text(errors="replace")
    found = re.search(rf"^ +{listener} +(\S+)\n", printed, re.MULTILINE)
    return found and found[1]


def _wait_until_ready(process: subprocess.Popen[bytes], log_file: Path) -> None:
    give_up_at = time.monotonic() + START_WAIT_S
    # It is the last address that the broker prints.
    while printed_url(log_file, "http") is None:
        if process.poll() is not None:
            printed = log_file.read_text(errors="replace").strip()
            raise ProcessFailed(
                f"The broker ended with exit code {process.returncode} before it was "
                f"ready. Its output:\n{printed[-2_000:] or '(nothing)'}"
            )
        if time.monotonic() > give_up_at:
            raise ProcessFailed(
                f"The broker was not ready after {START_WAIT_S:.0f} s; its output is "
                f"in {log_file}. Check that the disk is not full."
            )
        time.sleep(0.02)
