"""`danube pipeline run` as a process: killed, stopped, and started again."""

import json
import signal
import time

import pytest

pyspark = pytest.importorskip("pyspark")

from pydanube_spark.pipelines.state import StateDirectory  # noqa: E402
from pydanube_spark.pipelines.templates import write_template  # noqa: E402
from support.drivers.commands import danube, start_danube  # noqa: E402
from support.drivers.evolving_feeds import (  # noqa: E402
    assert_evolved,
    write_evolving,
)
from support.drivers.pipelines import read_json, send, unique_topic  # noqa: E402
from support.servers.spark_processes import connect_server  # noqa: E402

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.soak,
    pytest.mark.timeout(900),
]

COPY = """\
name: copy
parameters: {topic: "", out: ""}
trigger: continuous
retries: {count: 10, backoff: 100ms}
sources: {messages: {topic: "${topic}"}}
steps: {copies: {sql: "SELECT payload FROM messages"}}
sinks: {copies: {input: copies, topic: "${out}"}}
"""
WAIT_S = 180


def eventually(question, process):
    give_up_at = time.monotonic() + WAIT_S
    while not question():
        assert process.poll() is None, process.stderr.read().decode()
        assert time.monotonic() < give_up_at, "it did not come true"
        time.sleep(0.1)


def close(process):
    out, err = process.stdout.read().decode(), process.stderr.read().decode()
    code = process.wait(timeout=WAIT_S)
    for stream in (process.stdin, process.stdout, process.stderr):
        stream.close()
    return code, out, err


def test_killed_run_continues_without_duplicates(client, broker_url, tmp_path):
    topic, out = unique_topic(client), unique_topic(client)
    file = tmp_path / "copy.yaml"
    file.write_text(COPY)
    where = [str(file), "--set", f"topic={topic}", "--set", f"out={out}"]
    run = ["pipeline", "run", *where, "--format", "json", "--master", "local[2]"]

    def has_copied(count):
        return client.topics.describe(out).end_offset >= count

    def status():
        done = danube("pipeline", "status", *where, "--format", "json")
        return json.loads(done.stdout)

    send(client, topic, *range(5))
    first = start_danube(*run, url=broker_url)
    eventually(lambda: has_copied(5), first)
    assert status()["state"] == "running"
    second = danube(*run, url=broker_url)
    assert second.returncode == 4
    assert f"copy is already running, as process {first.pid}" in second.stderr
    send(client, topic, *range(5, 1000))
    first.kill()
    close(first)
    dead = status()
    assert (dead["state"], dead["is_running"]) == ("died", False)

    send(client, topic, *range(1000, 1005))
    third = start_danube(*run, url=broker_url)
    eventually(lambda: has_copied(1005), third)
    third.send_signal(signal.SIGTERM)
    code, lines, errors = close(third)
    assert code == 128 + signal.SIGTERM, errors
    assert read_json(client, out) == [*range(1005)]
    events = [json.loads(line) for line in lines.splitlines()]
    assert {event["event"] for event in events} == {"message", "query"}
    assert events[-1]["state"] == "stopped"
    assert status()["state"] == "stopped"
    graph = StateDirectory(tmp_path / ".danube/pipelines/copy").read_graph()
    assert [node.id for node in graph.nodes][-1].startswith("sink.")


def test_pipeline_runs_on_spark_connect(client, broker_url, tmp_path):
    from deltalake import DeltaTable

    topic = unique_topic(client)
    send(client, topic, *({"number": number} for number in range(3)))
    write_template("topic-to-delta", tmp_path)
    file = tmp_path / "pipeline.yaml"
    with connect_server(tmp_path) as server:
        where = ["--set", f"topic={topic}", "--remote", server]
        process = start_danube("pipeline", "run", str(file), *where, url=broker_url)
        code, lines, errors = close(process)
        evolving = write_evolving(client, tmp_path)
        where = ["--remote", server]
        process = start_danube("pipeline", "run", str(evolving), *where, url=broker_url)
        evolved = close(process)
    assert code == 0, errors
    assert evolved[0] == 0, evolved[2]
    assert_evolved(tmp_path, evolved[1])
    rows = DeltaTable(str(tmp_path / "tables/orders")).to_pyarrow_table()
    assert sorted(rows["number"].to_pylist()) == [0, 1, 2]
    assert "table: done, batch 0" in lines
