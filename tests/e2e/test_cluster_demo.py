"""The cluster demo, with one kill."""

import signal

import pytest

pytest.importorskip("matplotlib")

from support.drivers.demos import CLUSTER_DEMO, interrupt_demo, refused_demo, start_demo

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.mark.soak
def test_a_killed_broker_loses_nothing(tmp_path):
    output = tmp_path / "output"
    process = start_demo(CLUSTER_DEMO, output, "--kills", "1", "--topics", "6")
    printed, _ = process.communicate(timeout=240)
    assert process.returncode == 0, printed
    assert "All 6 checks hold" in printed
    assert "✗" not in printed
    assert "\nbrokers, topics " in printed
    assert "Traceback" not in printed
    chart = output / "danube-cluster-demo.png"
    assert str(chart) in printed
    assert chart.read_bytes().startswith(b"\x89PNG")


def test_interrupted_demo_leaves_no_process(tmp_path):
    output = tmp_path / "output"
    process = start_demo(CLUSTER_DEMO, output, "--kills", "1000")
    printed = interrupt_demo(process, signal.SIGINT, after=output / "broker-3.log")
    assert "Traceback" not in printed


def test_missing_etcd_is_an_error_with_instructions(tmp_path):
    options = ("--etcd", "/missing/etcd", "--output", str(tmp_path))
    printed = refused_demo(CLUSTER_DEMO, *options)
    assert "apt-get install etcd-server" in printed
    assert "--etcd" in printed
