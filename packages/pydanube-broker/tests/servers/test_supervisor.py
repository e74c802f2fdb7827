"""The supervisor of a broker's processes, with processes that only report."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

# Runs of processes, in the order in which they begin: each writes its process id.
PROGRAM = """
import os, signal, sys, time
from pathlib import Path
from pydanube_broker.servers.settings.config import load_config
from pydanube_broker.servers.supervisor import supervising

directory = Path(sys.argv[1])
flags = {"processes.count": 2, "data_dir": str(directory / "data")}
flags |= {f"listen.{each}_port": 0 for each in ("stream", "grpc", "admin", "http")}
with supervising(load_config(None, {}, flags)) as part:
    if part is not None:
        number = len(list(directory.glob("run-*")))
        run = directory / f"run-{os.getpid()}"
        if number == 2:
            # It was started again, and cannot start while the broker stops.
            signal.signal(signal.SIGTERM, lambda *_: os._exit(2))
        else:
            os.write(part.pipe, b"r")
        run.touch()
        while True:
            signal.pause()
"""


def runs(directory: Path, count: int) -> set[int]:
    """Wait until so many processes have run; their process ids."""
    while len(found := list(directory.glob("run-*"))) < count:
        time.sleep(0.01)
    return {int(each.name.removeprefix("run-")) for each in found}


@pytest.mark.timeout(60)
def test_process_that_fails_to_start_again_does_not_fail_the_stop(
    tmp_path: Path,
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
    ) as broker:
        try:
            assert broker.stdout is not None
            # The addresses are written when all processes are ready.
            assert broker.stdout.readline()
            victim = min(runs(tmp_path, 2))
            os.kill(victim, signal.SIGKILL)
            runs(tmp_path, 3)
            broker.send_signal(signal.SIGTERM)
            assert broker.wait() == 0
        finally:
            broker.kill()
