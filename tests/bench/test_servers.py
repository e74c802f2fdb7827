"""Tests of the server processes."""

import os
import sys

import psutil
import pytest

from bench.servers import accepts, clean_environ, free_port, running
from bench.systems.system import BenchFailed

LISTEN = """\
import socket, sys, time
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
time.sleep(600)
"""


@pytest.mark.slow
def test_server_is_ready_in_the_body_and_ends_after_it(tmp_path):
    port = free_port()
    command = [sys.executable, "-c", LISTEN, str(port)]

    with running(command, tmp_path / "log", is_ready=lambda: accepts(port)) as pid:
        assert accepts(port)

    assert not psutil.pid_exists(pid)
    assert not accepts(port)


@pytest.mark.slow
def test_failing_server_is_reported_with_its_output(tmp_path):
    command = [sys.executable, "-c", "print('no such file'); raise SystemExit(3)"]

    with (
        pytest.raises(BenchFailed, match=r"(?s)exit code 3.*no such file"),
        running(command, tmp_path / "log", is_ready=lambda: False),
    ):
        pass


def test_servers_do_not_inherit_settings(monkeypatch):
    monkeypatch.setenv("DANUBE_DATA_DIR", "elsewhere")
    monkeypatch.setenv("RABBITMQ_NODENAME", "another")

    inherited = clean_environ()

    assert not {"DANUBE_DATA_DIR", "RABBITMQ_NODENAME"} & set(inherited)
    assert inherited["PATH"] == os.environ["PATH"]
