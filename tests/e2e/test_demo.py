"""The demo, with a part of its input."""

import io
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from rich.console import Console

from pydanube import demo

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.spark]

SCRIPT = """
import sys
from pathlib import Path
from pydanube import demo
sys.exit(demo.run(small=True, seconds=float(sys.argv[2]), output=Path(sys.argv[1])))
"""


def start(output, seconds):
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(output), str(seconds)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=output.parent,
        env=os.environ | {"COLUMNS": "120"},
    )


@pytest.mark.soak
@pytest.mark.smoke
def test_demo_proves_exactly_once(tmp_path):
    output = tmp_path / "output"
    process = start(output, 4)
    printed, _ = process.communicate(timeout=240)
    assert process.returncode == 0, printed
    assert "nothing lost, nothing duplicated" in printed
    assert str(output / "danube-demo.png") in printed
    assert (output / "danube-demo.png").read_bytes().startswith(b"\x89PNG")
    assert "Traceback" not in printed


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.soak)]
)
def test_interrupted_demo_leaves_no_process(tmp_path, number):
    output = tmp_path / "output"
    process = start(output, 600)
    try:
        give_up_at = time.monotonic() + 60
        while not (output / "spark.log").is_file():
            assert time.monotonic() < give_up_at
            time.sleep(0.05)
        family = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        printed, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130, printed
    assert "Interrupted" in printed
    _, alive = psutil.wait_procs(family, timeout=20)
    assert alive == []


def test_non_empty_directory_is_refused(tmp_path):
    (tmp_path / "something").write_text("x")
    console = Console(file=io.StringIO(), width=200)
    assert demo.run(directory=tmp_path, output=tmp_path, console=console) == 2
    assert "is not empty" in console.file.getvalue()
