"""The demo, with a part of its input."""

import os
import signal
import subprocess
import time

import psutil
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from support.commands import DANUBE, danube

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.spark]


def start(output, seconds):
    options = ["--small", "--seconds", str(seconds), "--output", str(output)]
    return subprocess.Popen(
        [*DANUBE, "demo", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=output.parent,
        env=os.environ | {"COLUMNS": "120"},
    )


def has_ended(process):
    """Whether it runs no more, even if nobody has asked for its exit code."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.soak
@pytest.mark.smoke
def test_demo_proves_exactly_once(tmp_path):
    output = tmp_path / "output"
    process = start(output, 4)
    printed, _ = process.communicate(timeout=240)
    assert process.returncode == 0, printed
    assert "nothing lost, nothing duplicated" in printed
    assert "✗" not in printed
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
        give_up_at = time.monotonic() + 120
        while not (output / "spark.log").is_file():
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
    while not all(map(has_ended, family)):
        assert time.monotonic() < give_up_at, family
        time.sleep(0.05)


def test_non_empty_directory_is_refused(tmp_path):
    (tmp_path / "something").write_text("x")
    done = danube("demo", "--directory", str(tmp_path), "--output", str(tmp_path))
    assert done.returncode == 2
    assert "is not empty" in done.stderr
