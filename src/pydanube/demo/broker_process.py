"""The broker process of the demo."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

START_WAIT_S = 30.0
STOP_WAIT_S = 20.0


class DemoFailed(Exception):
    """The demo cannot continue; the message says why and what to do."""


@contextmanager
def running_broker(
    data: Path, log_file: Path, settings: Mapping[str, str]
) -> Iterator[str]:
    """
    Run a broker while the body runs, and yield its URL.

    It listens on free ports of the loopback interface and writes its output to
    *log_file*; *settings* are environment variables.

    Raises:
        DemoFailed: It did not start.
    """
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("DANUBE_")
    }
    command = [
        *(sys.executable, "-m", "pydanube.cli.main", "broker"),
        *("--data-dir", str(data), "--stream-port", "0", "--http-port", "0"),
        *("--grpc-port", "0", "--admin-port", "0"),
    ]
    with log_file.open("wb") as log:
        # A new session, so that Ctrl-C does not reach the broker.
        process = subprocess.Popen(  # noqa: S603  # Our own program.
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=inherited | dict(settings),
            start_new_session=True,
        )
    try:
        yield _wait_for_url(process, log_file)
    finally:
        _end(process)


def printed_url(log_file: Path, listener: str) -> str:
    """Return the URL of one listener, as printed by a broker that is ready."""
    printed = log_file.read_text(errors="replace")
    found = re.search(rf"^ +{listener} +(\S+)$", printed, re.MULTILINE)
    assert found is not None, f"the broker has not printed {listener}"
    return found[1]


def _wait_for_url(process: subprocess.Popen[bytes], log_file: Path) -> str:
    give_up_at = time.monotonic() + START_WAIT_S
    while time.monotonic() < give_up_at:
        printed = log_file.read_text(errors="replace")
        found = re.search(r"danube://[\w.:\[\]-]+:\d+", printed)
        if found is not None:
            return found.group()
        if process.poll() is not None:
            raise DemoFailed(
                f"The broker ended with exit code {process.returncode} before it was "
                f"ready. Its output:\n{printed.strip()[-2_000:] or '(nothing)'}"
            )
        time.sleep(0.02)
    raise DemoFailed(
        f"The broker was not ready after {START_WAIT_S:.0f} s; its output is in "
        f"{log_file}. Check that the disk is not full."
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_WAIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
