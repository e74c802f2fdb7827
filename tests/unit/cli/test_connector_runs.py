"""The runs of connectors are found by the names of their connectors."""

import os

import pytest

from pydanube.cli.connector_runs import (
    ConnectorRun,
    directory,
    find,
    registered,
    running,
)
from pydanube.model.errors import Conflict, NotFound, Unavailable
from pydanube.pipelines.state import process_start_time
from support.http_server import Answer, LocalServer
from support.ports import free_port


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("DANUBE_STATE", str(tmp_path))


def a_run(*connectors, url="http://127.0.0.1:9", pid=None, mark=None):
    pid = pid or os.getpid()
    return ConnectorRun(
        pid=pid,
        mark=mark or process_start_time(pid),
        url=url,
        token="sesame",
        connectors=list(connectors),
    )


def test_a_run_is_found_while_it_is_registered():
    with registered(a_run("orders", "logs")):
        [file] = directory().iterdir()
        assert file.stat().st_mode & 0o777 == 0o600
        assert find(["logs"])["logs"].connectors == ["orders", "logs"]
        with pytest.raises(NotFound, match="did you mean 'orders'"):
            find(["order"])
    assert running() == []
    with pytest.raises(NotFound, match="no process runs a connector logs"):
        find(["logs"])


def test_the_file_of_a_killed_process_is_removed():
    with registered(a_run("orders", mark="another start")):
        assert running() == []
        assert list(directory().iterdir()) == []


def test_a_name_that_two_processes_run_is_ambiguous():
    parent = os.getppid()
    with (
        registered(a_run("orders")),
        registered(a_run("orders", pid=parent)),
        pytest.raises(Conflict, match=f"several processes.*{parent}"),
    ):
        find(["orders"])


def test_a_directory_that_cannot_be_written_does_not_end_a_run(tmp_path, caplog):
    (tmp_path / "connect").write_text("a file")
    with registered(a_run("orders")):
        assert "does not show this run" in caplog.text


def test_a_process_is_asked_with_its_token():
    status = b'{"connector": "a/b", "kind": "k", "topic": "t", "state": "paused"}'

    def answer(request):
        if request.method == "GET":
            return Answer(200, b"[" + status + b"]")
        return Answer(200, status)

    with LocalServer(answer) as server:
        run = a_run("a/b", url=server.url)
        assert [each.connector for each in run.statuses()] == ["a/b"]
        assert run.act("pause", "a/b").state.value == "paused"
        assert server.requests[1].path == "/connectors/a%2Fb/pause"
        assert server.requests[1].headers["authorization"] == "Bearer sesame"


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Answer(409, b'{"error": "orders has finished"}'), "orders has finished"),
        (Answer(502, b"<html>"), "does not answer"),
    ],
)
def test_errors_of_a_process_are_reported(answer, error):
    with (
        LocalServer(lambda _: answer) as server,
        pytest.raises((Conflict, Unavailable), match=error),
    ):
        a_run("orders", url=server.url).act("pause", "orders")


def test_a_process_that_is_gone_is_reported():
    run = a_run("orders", url=f"http://127.0.0.1:{free_port()}")
    with pytest.raises(Unavailable, match=f"process {os.getpid()} does not answer"):
        run.statuses()
