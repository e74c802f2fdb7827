"""The demos as a user runs them, and their end after a signal."""

import os
import subprocess
import time

import psutil

from support.commands import DANUBE


def start_demo(output, *arguments):
    """Start a demo, which writes to the directory *output*."""
    return subprocess.Popen(
        [*DANUBE, *arguments, "--output", str(output)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=output.parent,
        env=os.environ | {"COLUMNS": "120"},
    )


def interrupt_demo(process, number, *, after):
    """
    Send the signal *number* when the file *after* exists; return what was printed.

    Fails if the demo does not end as interrupted, or leaves a process.
    """
    try:
        give_up_at = time.monotonic() + 120
        while not after.is_file():
            assert time.monotonic() < give_up_at
            time.sleep(0.05)
        family = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        printed, _ = process.communicate(timeout=240)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130, printed
    assert "Interrupted" in printed
    give_up_at = time.monotonic() + 60
    while not all(map(_has_ended, family)):
        assert time.monotonic() < give_up_at, family
        time.sleep(0.05)
    return printed


def _has_ended(process):
    """Whether it runs no more, even if nobody has asked for its exit code."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
