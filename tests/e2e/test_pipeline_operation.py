"""A pipeline as a service: killed, restarted, measured and stopped."""

import json
import socket
import sys
import time
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pydanube.security.api_keys import make_key
from support.drivers.commands import danube, start_danube
from support.drivers.pipelines import read_json, send, unique_topic
from support.servers.spark_processes import standalone_cluster

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
def test_a_run_after_a_killed_one_loses_nothing_and_counts_it(
    client, broker_url, tmp_path
):
    topic, out = unique_topic(client), unique_topic(client)
    file = tmp_path / "copy.yaml"
    file.write_text(COPY)
    own = {"XDG_STATE_HOME": str(tmp_path)}
    where = ["--set", f"topic={topic}", "--set", f"out={out}", "--master", "local[2]"]

    def start():
        return start_danube("pipeline", "run", str(file), *where, url=broker_url, **own)

    def pipeline(*arguments):
        return danube("pipeline", *arguments, url=broker_url, **own)

    def log():
        return pipeline("logs", "copy").stdout

    def has_copied(count):
        return client.topics.describe(out).end_offset >= count

    def lag_at_broker():
        for each in client.topics.describe(topic).subscriptions:
            if each.subscription == "pipeline-copy":
                return each.backlog
        return None

    send(client, topic, *range(5))
    with start() as first:
        eventually(lambda: has_copied(5), log)
        first.kill()
    [run] = json.loads(pipeline("list", "--format", "json").stdout)
    assert run["state"] == "died"
    send(client, topic, *range(5, 10))
    with start() as second:
        try:
            url = second.stderr.readline().decode().split()[-1]
            eventually(lambda: has_copied(10), log)
            eventually(lambda: lag_at_broker() == 0, log)
            [run] = json.loads(pipeline("list", "--format", "json").stdout)
            assert (run["state"], run["restarts"]) == ("running", 1)
            assert run["exit_code"] == -9
            labels = f'{{pipeline="copy",query="copies",topic="{topic}"}}'
            lag = f"danube_pipeline_lag_messages{labels} 0.0"
            eventually(lambda: lag in get(url), log)
            metrics = get(url)
            assert 'danube_pipeline_restarts_total{pipeline="copy"} 1.0' in metrics
            assert 'danube_pipeline_last_run_failed{pipeline="copy"} 1.0' in metrics
            assert 'danube_pipeline_up{pipeline="copy"} 1.0' in metrics
        finally:
            stopped = pipeline("stop", "copy", "--timeout", "2m")
    assert stopped.stdout == "copy has stopped\n", stopped.stderr
    assert read_json(client, out) == [*range(10)]
    [run] = json.loads(pipeline("list", "--format", "json").stdout)
    assert (run["state"], run["exit_code"]) == ("stopped", 0)


@pytest.mark.soak
def test_a_pipeline_runs_on_a_standalone_cluster(
    client, broker_url, tmp_path, monkeypatch
):
    topic, out = unique_topic(client), unique_topic(client)
    file, wrong = tmp_path / "copy.yaml", tmp_path / "wrong.yaml"
    text = COPY.replace("trigger: continuous\n", "")
    file.write_text(text)
    # Executors have working directories of their own, so they do not have this file.
    monkeypatch.chdir(tmp_path)
    Path("own.key").write_text(make_key(b"x" * 40).text)
    option = "options: {auth.apiKeyFile: own.key}"
    wrong.write_text(
        text.replace("copy", "wrong").replace('"${out}"', f'"${{out}}", {option}')
    )
    send(client, topic, *range(5))
    own = {"XDG_STATE_HOME": str(tmp_path), "PYSPARK_PYTHON": sys.executable}
    with standalone_cluster(tmp_path, workers=1) as master:
        where = ["--master", master, "--set", f"topic={topic}", "--set", f"out={out}"]
        for setting in SMALL:
            where += ["--conf", setting]
        done = danube("pipeline", "run", str(file), *where, url=broker_url, **own)
        failed = danube("pipeline", "run", str(wrong), *where, url=broker_url, **own)
    assert done.returncode == 0, done.stderr
    assert read_json(client, out) == [*range(5)]
    assert failed.returncode == 1
    expected = (
        "api_key_file: the file own.key cannot be read: No such file or directory "
    )
    assert f"{expected}(on the executor of {socket.gethostname()})" in failed.stderr


def get(url):
    with urllib.request.urlopen(url) as response:
        return response.read().decode()
