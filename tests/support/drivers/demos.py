"""The demos as a user runs them, and their end after a signal."""

import os
import subprocess
import sys
import time

import psutil

from support.project import ROOT

DEMO = "examples.demo"
CLUSTER_DEMO = "examples.demo.cluster"
ENVIRONMENT = os.environ | {"COLUMNS": "120", "PYTHONPATH": str(ROOT)}


def start_demo(module, output, *arguments):
    """Start the demo *module*, which writes to the directory *output*."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments, "--output", str(output)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=output.parent,
        env=ENVIRONMENT,
    )


def refused_demo(module, *arguments):
    """Run the demo *module*, which does not start; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        check=False,
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
    )
    assert done.returncode == 2
    return done.stderr


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
