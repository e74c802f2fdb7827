"""The runs of connectors are found by the names of their connectors."""

import os

import pytest

from pydanube.model.errors import Conflict, InvalidRequest, NotFound, Unavailable
from pydanube_connect.commands.connector_runs import (
    ConnectorRun,
    directory,
    find,
    registered,
    run_at,
    running,
    runs_of,
)
from pydanube_spark.pipelines.state import process_start_time
from support.servers.http_server import Answer, LocalServer
from support.servers.ports import free_port


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


def test_address_may_name_the_file_of_a_token(tmp_path):
    file = tmp_path / "token"
    file.write_text("0123456789abcdef\n")
    run = run_at(f"http://127.0.0.1:9500/?token_file={file}")
    assert (run.url, run.token) == ("http://127.0.0.1:9500", "0123456789abcdef")
    secure = run_at(f"https://far.example?token_file={file}&ca_file=ca.pem")
    assert (secure.url, secure.ca_file) == ("https://far.example", "ca.pem")
    url = f"http://far.example:1?token_file={file}&allow_plaintext_credentials=true"
    assert run_at(url).token == run.token
    with pytest.raises(InvalidRequest, match="on another machine and without TLS"):
        run_at(f"http://far.example:1?token_file={file}")


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("127.0.0.1:9500", "not the address of connectors"),
        ("ftp://a:1", "not the address of connectors"),
        ("http://user:secret@a:1", r"http://user:\*+@a:1 is not the address"),
        ("http://a:1/metrics", "not the address of connectors"),
        ("http://a:1?key_file=x", "has the option key_file"),
        ("http://a:1?token_file=/none", "the token file /none cannot be read"),
        ("http://a:1?token_file=/dev/null", "must have one line of 16 to 1024"),
    ],
)
def test_other_addresses_are_refused(url, error):
    with pytest.raises(InvalidRequest, match=error):
        run_at(url)


def test_runs_of_the_user_have_their_tokens():
    with registered(a_run("orders")):
        [own] = runs_of(["local"])
        assert own.token == "sesame"
        assert runs_of(["http://127.0.0.1:9"]) == [own]
        [one, other] = runs_of(["local", "http://127.0.0.1:10"])
        assert (one, other.token) == (own, "")


def test_address_that_does_not_answer_is_reported():
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(Unavailable, match=f"{url} does not answer"):
        run_at(url).statuses()
