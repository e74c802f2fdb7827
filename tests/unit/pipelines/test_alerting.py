"""Alerts of a run reach a web server; one that does not answer never fails the run."""

import json
import threading

import pytest

pytest.importorskip("httpx")

from pydanube.model.retry import RetryPolicy
from pydanube.pipelines.alerting import sending_alerts
from pydanube.pipelines.loading import load
from pydanube.pipelines.run_records import Phase, RunRecord
from support.http_server import Answer, LocalServer
from support.ports import free_port

FILE = """\
name: p
sources: {{a: {{topic: /default/a}}}}
sinks: {{o: {{input: a, topic: /default/o}}}}
alerts: {{url: "{url}/${{env:KEY}}", headers: {{X-Team: shop}}}}
"""


def pipeline(tmp_path, url):
    path = tmp_path / "p.yaml"
    path.write_text(FILE.format(url=url))
    return load(path, environment={"KEY": "hidden"})


def write(found, phase, code):
    found.state.path.mkdir(parents=True, exist_ok=True)
    found.state.write_record(
        RunRecord(
            pipeline="p",
            file="f",
            pid=1,
            mark="m",
            host="h",
            since="s",
            log_file="l",
            phase=phase,
            exit_code=code,
        )
    )


def test_a_failure_is_sent_and_its_end_and_the_end_of_the_run(tmp_path):
    arrived = threading.Semaphore(0)

    def answer(_):
        arrived.release()
        return Answer(204)

    with LocalServer(answer) as server:
        found = pipeline(tmp_path, server.url)
        with sending_alerts(found, interval_s=0.01):
            write(found, Phase.RESTARTING, 1)
            assert arrived.acquire(timeout=30)
            write(found, Phase.RUNNING, 1)
            assert arrived.acquire(timeout=30)
            write(found, Phase.ENDED, 4)
        sent = [json.loads(each.body) for each in server.requests]
        [request, *_] = server.requests
    assert [(each["alert"], each["state"]) for each in sent] == [
        ("failed", "firing"),
        ("failed", "resolved"),
        ("failed", "firing"),
    ]
    assert "exit code 4" in sent[2]["text"]
    assert request.path == "/hidden"
    assert request.headers["x-team"] == "shop"


@pytest.mark.parametrize("is_there", [True, False])
def test_a_server_that_refuses_is_logged_without_secrets(tmp_path, caplog, is_there):
    with LocalServer(lambda _: Answer(400, b"no such hook: hidden")) as server:
        url = server.url if is_there else f"http://127.0.0.1:{free_port()}"
        found = pipeline(tmp_path, url)
        write(found, Phase.ENDED, 1)
        with sending_alerts(found, retries=RetryPolicy(0, 0, retries_max=1)):
            pass
    assert "the alert failed was not sent" in caplog.text
    assert "hidden" not in caplog.text


def test_without_alerts_nothing_happens(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text(FILE.partition("alerts")[0].replace("{{", "{").replace("}}", "}"))
    with sending_alerts(load(path)):
        assert "alerts" not in [each.name for each in threading.enumerate()]
