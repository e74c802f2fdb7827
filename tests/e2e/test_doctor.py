"""`danube doctor` with a real broker, and without one."""

import json
import os
import signal
from contextlib import contextmanager

import pytest

from support.drivers.commands import danube
from support.servers.ports import free_port
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def found(*options, exit_code):
    done = danube("doctor", "--format", "json", *options)
    assert done.returncode == exit_code, done.stderr
    return {each["check"]: each for each in json.loads(done.stdout)}


def test_a_healthy_broker_has_no_problem(tmp_path):
    with BrokerProcess(tmp_path / "data") as broker:
        checks = found(
            # The broker says where its HTTP port is.
            *("--url", broker.url, "--data-dir", str(tmp_path / "data")),
            exit_code=0,
        )
    for name in ("broker", "readiness", "clock", "storage", "subscriptions"):
        assert checks[name]["verdict"] == "ok"


def test_a_broker_that_is_not_there_is_a_problem_with_advice(tmp_path):
    port = free_port()
    checks = found(
        *("--url", f"danube://127.0.0.1:{port}"),
        *("--http-url", f"http://127.0.0.1:{port}", "--data-dir", str(tmp_path)),
        exit_code=1,
    )
    for name in ("broker", "HTTP port"):
        assert checks[name]["verdict"] == "problem"
        assert checks[name]["advice"]


def test_an_address_of_another_server_is_a_problem(tmp_path):
    with BrokerProcess(tmp_path / "data") as broker:
        checks = found(
            *("--url", broker.url, "--data-dir", str(tmp_path)),
            *("--http-url", f"http://127.0.0.1:{broker.stream_port}"),
            exit_code=1,
        )
    assert "does not answer as a broker" in checks["HTTP port"]["found"]


def test_the_machine_alone_needs_no_broker(tmp_path):
    checks = found("--machine", "--data-dir", str(tmp_path), exit_code=0)
    assert "disk latency" in checks
    assert "broker" not in checks


@contextmanager
def standing_still(*processes):
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            os.kill(process, signal.SIGCONT)


def test_a_process_that_stands_still_is_a_problem_of_its_own(tmp_path):
    with BrokerProcess(tmp_path / "data", "--processes", "3") as broker:
        stuck, *_ = broker.children()
        # The supervisor would end the process after half a minute.
        with standing_still(broker.pid, stuck):
            checks = found(
                *("--url", broker.url, "--data-dir", str(tmp_path / "data")),
                exit_code=1,
            )
    assert checks["broker"]["verdict"] == checks["clock"]["verdict"] == "ok"
    silent = [each for each in checks if each.startswith("broker process-")]
    (name,) = silent
    assert checks[name]["verdict"] == "problem"
    assert checks[name]["advice"]
    others = {f"storage of process-{number}" for number in (1, 2, 3)}
    others.remove(f"storage of {name.removeprefix('broker ')}")
    assert all(checks[each]["verdict"] == "ok" for each in others)
    assert "subscriptions" in checks
    assert "it does not answer" in checks["readiness"]["found"]
