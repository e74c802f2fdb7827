"""The benchmark beside peers: it starts servers, measures, checks, and ends cleanly."""

import json
import os
import signal
import subprocess
import sys

import psutil
import pytest

from bench.systems import find_system
from support.project import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

PEERS = ("redis", "nats")


def bench(*words, output):
    return subprocess.Popen(
        [sys.executable, "-m", "bench", *words, "--output", str(output)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def installed_peer():
    return [name for name in PEERS if find_system(name).missing() is None][:1]


@pytest.mark.soak
def test_pydanube_is_measured_beside_a_peer(tmp_path):
    systems = ["danube", *installed_peer()]
    data = tmp_path / "data"
    data.mkdir()
    process = bench(
        *("--quick", "--seconds", "0.2", "--durability", "page-cache"),
        *("--systems", ",".join(systems), "--workloads", "both,steady-1k"),
        *("--data-dir", str(data), "--format", "markdown"),
        output=tmp_path / "out",
    )
    page, said = process.communicate(timeout=200)

    assert process.returncode == 0, said
    told = json.loads((tmp_path / "out" / "results.json").read_text())
    assert told["is_complete"]
    assert {row["line"].partition("/")[0] for row in told["rows"]} == set(systems)
    for row in told["rows"]:
        assert row["failures"] == []
        assert row["figures"]["per_second"]["median"] > 0
        assert row["figures"]["server_peak_mb"]["median"] > 0
    assert "danube/written" in page
    assert (tmp_path / "out" / "results.md").read_text() == page.removesuffix("\n")
    assert (tmp_path / "out" / "both-page.png").stat().st_size > 1000
    assert list(data.iterdir()) == []


@pytest.mark.soak
def test_ctrl_c_ends_every_process_and_writes_results(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    process = bench(
        *("--systems", "danube", "--durability", "synced", "--workloads", "latency"),
        *("--seconds", "0.1", "--rounds", "1000", "--data-dir", str(data)),
        output=tmp_path / "out",
    )
    for line in process.stderr:
        if "p50" in line:
            break
    children = psutil.Process(process.pid).children(recursive=True)
    os.kill(process.pid, signal.SIGINT)
    process.communicate(timeout=100)

    assert process.returncode == 130
    told = json.loads((tmp_path / "out" / "results.json").read_text())
    assert not told["is_complete"]
    assert told["rows"][0]["line"] == "danube/durable"
    _, alive = psutil.wait_procs(children, timeout=60)
    assert alive == []
    assert list(data.iterdir()) == []
