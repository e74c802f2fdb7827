"""A pipeline in the background: killed, restarted, measured, followed and stopped."""

import json
import os
import signal
import sys
import time
import urllib.request

import pytest

pytest.importorskip("pyspark")

from pydanube.pipelines.state import StateDirectory
from support.commands import danube
from support.http_server import Answer, LocalServer
from support.pipelines import read_json, send, unique_topic
from support.spark_processes import standalone_cluster

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.timeout(600),
]

COPY = """\
name: copy
parameters: {topic: "", out: ""}
trigger: continuous
restart: {backoff: 100ms}
metrics: {listen: "127.0.0.1:0"}
sources: {messages: {topic: "${topic}"}}
steps: {copies: {sql: "SELECT payload FROM messages"}}
sinks: {copies: {input: copies, topic: "${out}"}}
"""
WAIT_S = 180

SMALL = (
    "spark.driver.host=127.0.0.1",
    "spark.driver.bindAddress=127.0.0.1",
    "spark.executor.memory=512m",
)
"""Settings for the workers of the test."""


def eventually(question, shown):
    give_up_at = time.monotonic() + WAIT_S
    while not question():
        assert time.monotonic() < give_up_at, shown()
        time.sleep(0.1)


@pytest.mark.soak
def test_a_killed_process_is_restarted_and_loses_nothing(client, broker_url, tmp_path):
    topic, out = unique_topic(client), unique_topic(client)
    file = tmp_path / "copy.yaml"
    file.write_text(COPY)
    state = StateDirectory(tmp_path / ".danube/pipelines/copy")

    def pipeline(*arguments):
        own = {"XDG_STATE_HOME": str(tmp_path)}
        return danube("pipeline", *arguments, url=broker_url, **own)

    def log():
        return pipeline("logs", "copy").stdout

    def has_copied(count):
        return client.describe_topic(out).end_offset >= count

    def lag_at_broker():
        for each in client.describe_topic(topic).subscriptions:
            if each.subscription == "pipeline-copy":
                return each.backlog
        return None

    send(client, topic, *range(5))
    where = ["--set", f"topic={topic}", "--set", f"out={out}", "--master", "local[2]"]
    started = pipeline("run", str(file), *where, "--detach")
    assert started.returncode == 0, started.stderr
    try:
        eventually(lambda: has_copied(5), log)
        os.kill(state.read_status().pid, signal.SIGKILL)
        send(client, topic, *range(5, 10))
        eventually(lambda: has_copied(10), log)
        eventually(lambda: lag_at_broker() == 0, log)
        [run] = json.loads(pipeline("list", "--format", "json").stdout)
        assert (run["state"], run["restarts"], run["exit_code"]) == ("running", 1, -9)
        lines = log().splitlines()
        [url] = [each.rpartition(" ")[2] for each in lines if "metrics are at" in each]
        labels = f'{{pipeline="copy",query="copies",topic="{topic}"}}'
        eventually(lambda: f"danube_pipeline_lag_messages{labels} 0.0" in get(url), log)
        metrics = get(url)
        assert 'danube_pipeline_restarts_total{pipeline="copy"} 1.0' in metrics
        assert 'danube_pipeline_up{pipeline="copy"} 1.0' in metrics
    finally:
        stopped = pipeline("stop", "copy", "--timeout", "2m")
    assert stopped.stdout == "copy has stopped\n", stopped.stderr
    assert read_json(client, out) == [*range(10)]
    [run] = json.loads(pipeline("list", "--format", "json").stdout)
    assert (run["state"], run["starts"], run["exit_code"]) == ("stopped", 2, 0)
    assert "was killed by SIGKILL" in log()


@pytest.mark.soak
def test_a_submitted_pipeline_runs_on_a_standalone_cluster(
    client, broker_url, tmp_path
):
    topic, out = unique_topic(client), unique_topic(client)
    file = tmp_path / "copy.yaml"
    file.write_text(COPY.replace("trigger: continuous\n", ""))
    send(client, topic, *range(5))
    own = {"XDG_STATE_HOME": str(tmp_path), "PYSPARK_PYTHON": sys.executable}
    with standalone_cluster(tmp_path, workers=1) as master:
        where = ["--master", master, "--set", f"topic={topic}", "--set", f"out={out}"]
        for setting in SMALL:
            where += ["--conf", setting]
        done = danube("pipeline", "submit", str(file), *where, url=broker_url, **own)
        assert done.returncode == 0, done.stderr
        try:
            log = danube("pipeline", "logs", "copy", "--follow", **own).stdout
        finally:
            danube("pipeline", "stop", "copy", "--timeout", "5s", **own)
    assert read_json(client, out) == [*range(5)], log
    [run] = json.loads(danube("pipeline", "list", "--format", "json", **own).stdout)
    assert (run["state"], run["exit_code"]) == ("done", 0), log


def test_a_failure_is_reported_to_a_web_server(broker_url, tmp_path):
    file = tmp_path / "copy.yaml"
    with LocalServer(lambda _: Answer(204)) as server:
        file.write_text(COPY + f'alerts: {{url: "{server.url}"}}\n')
        given = ["--set", "topic=/default/none", "--set", "out=/default/none"]
        done = danube("pipeline", "run", str(file), *given, url=broker_url)
        assert done.returncode != 0
        [request] = server.requests
    notice = json.loads(request.body)
    assert (notice["alert"], notice["state"]) == ("failed", "firing")
    assert notice["text"].startswith("pipeline copy, alert failed: it failed with exit")


def get(url):
    with urllib.request.urlopen(url) as response:
        return response.read().decode()
