"""The demo, with a part of its input."""

import signal

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from support.drivers.demos import DEMO, interrupt_demo, refused_demo, start_demo

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.spark]


@pytest.mark.soak
def test_demo_proves_exactly_once(tmp_path):
    output = tmp_path / "output"
    process = start_demo(DEMO, output, "--small", "--seconds", "4")
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
@pytest.mark.soak
def test_interrupted_demo_leaves_no_process(tmp_path, number):
    output = tmp_path / "output"
    process = start_demo(DEMO, output, "--small", "--seconds", "600")
    interrupt_demo(process, number, after=output / "spark.log")


def test_non_empty_directory_is_refused(tmp_path):
    (tmp_path / "something").write_text("x")
    options = ("--directory", str(tmp_path), "--output", str(tmp_path))
    assert "is not empty" in refused_demo(DEMO, *options)
