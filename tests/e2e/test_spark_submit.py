"""A pipeline that ``spark-submit`` runs, whose executors come, go and are lost."""

import os
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from deltalake import DeltaTable

import pydanube_cli.__main__ as program
from pydanube_spark.pipelines.state import StateDirectory
from support.drivers.commands import environment
from support.drivers.pipelines import forget_commit, read_json, send, unique_topic
from support.servers.spark_processes import HOME, executors_in, standalone_cluster

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.soak,
    pytest.mark.timeout(1800),
]

WAIT_S = 600
KEYS = 7
LOST_AT = (20, 120)
"""The rows after which a task ends its executor: of the first and a later batch."""

PIPELINE = """
name: submitted
fan_out: {fan_out}
trigger: continuous
# Slow machines start Python processes slowly.
spark:
  slow_starts: {{count: 1000, backoff: 1s, backoff_max: 10s}}
sources:
  messages: {{topic: {topic}, start: earliest}}
steps:
  rows:
    sql: SELECT CAST(CAST(payload AS STRING) AS BIGINT) AS n FROM messages
  passed: {{python: functions.py:lose_executors, inputs: [rows]}}
  sums:
    sql: SELECT n % {keys} AS id, sum(n) AS total FROM passed GROUP BY n % {keys}
sinks:
  copy: {{input: passed, topic: {out}}}
  table: {{input: passed, format: danube-delta, path: {directory}/table}}
  sums:
    input: sums
    mode: update
    format: danube-delta
    path: {directory}/sums
    table: {{key: id}}
"""

FUNCTIONS = """
import os
import signal
from pathlib import Path


def lose_executors(rows):
    return rows.mapInArrow(pass_on, rows.schema)


def pass_on(batches):
    # The task of the write has read its rows, and has not ended.
    for batch in batches:
        yield batch
        for number in batch.column("n").to_pylist():
            if number in {numbers}:
                lose_executor(number)


def lose_executor(number):
    from pyspark import TaskContext

    # Each query loses one.
    query = TaskContext.get().getLocalProperty("sql.streaming.queryId")
    try:
        Path({directory!r}, f"lost-{{number}}-{{query}}").touch(exist_ok=False)
    except FileExistsError:
        return
    process = os.getpid()
    while b"CoarseGrainedExecutorBackend" not in words_of(process):
        # The parent follows the name of the program, which is in parentheses.
        stat = Path(f"/proc/{{process}}/stat").read_text()
        process = int(stat.rpartition(")")[2].split()[1])
    os.kill(process, signal.SIGKILL)
    # This attempt must not end before its executor does.
    signal.pause()


def words_of(process):
    return Path(f"/proc/{{process}}/cmdline").read_bytes()
"""

SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    # Short jobs end before the optimizing compiler is worth its time.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    # As for the session of other tests: the machine may be busy.
    "spark.python.authenticate.socketTimeout": "120s",
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.timeout": "2s",
    "spark.dynamicAllocation.executorIdleTimeout": "2s",
    "spark.dynamicAllocation.cachedExecutorIdleTimeout": "2s",
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.maxExecutors": "2",
}


def start_pipeline(file, master, url):
    """Start the pipeline in *file* by ``spark-submit``, as the guide does."""
    directory = file.parent
    words = [HOME / "bin" / "spark-submit", "--master", master]
    for name, value in SETTINGS.items():
        words += ["--conf", f"{name}={value}"]
    words += [program.__file__, "pipeline", "run", file]
    variables = {
        "SPARK_HOME": str(HOME),
        "PYSPARK_PYTHON": sys.executable,
        "XDG_STATE_HOME": str(directory / "home"),
    }
    with (directory / "log").open("ab") as log:
        return subprocess.Popen(
            list(map(str, words)),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment(url, **variables),
            start_new_session=True,
        )


def rows_of(path):
    if not DeltaTable.is_deltatable(str(path)):
        return []
    return DeltaTable(path).to_pyarrow_table().to_pylist()


@pytest.mark.parametrize("fan_out", ["false", "true"])
def test_executors_come_and_go_in_a_stream_of_spark_submit(
    broker_url, client, tmp_path, fan_out
):
    """Afterwards each query repeats its last micro-batch, as after a crash."""
    topic, out = unique_topic(client), unique_topic(client)
    names = {"topic": topic, "out": out, "directory": tmp_path, "keys": KEYS}
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE.format(**names, fan_out=fan_out))
    (tmp_path / "functions.py").write_text(
        FUNCTIONS.format(numbers=set(LOST_AT), directory=str(tmp_path))
    )
    state = StateDirectory(tmp_path / ".danube/pipelines/submitted")

    def shown():
        return (tmp_path / "log").read_text(errors="replace")[-6000:]

    def wait_until(question):
        give_up_at = time.monotonic() + WAIT_S
        while not question():
            assert process.poll() is None, shown()
            assert time.monotonic() < give_up_at, shown()
            time.sleep(0.2)

    def has_written(count):
        sums = [0] * KEYS
        for number in range(count):
            sums[number % KEYS] += number
        return (
            len(read_json(client, out)) >= count
            and len(rows_of(tmp_path / "table")) >= count
            and {row["id"]: row["total"] for row in rows_of(tmp_path / "sums")}
            == dict(enumerate(sums))
        )

    def stop():
        status = state.read_status()
        os.kill(status.pid, signal.SIGTERM)
        process.wait(WAIT_S)
        return status

    with standalone_cluster(tmp_path) as master:
        send(client, topic, *range(100))
        process = start_pipeline(file, master, broker_url)
        try:
            wait_until(lambda: has_written(100))
            # The stream is idle, so its executors go.
            wait_until(lambda: not executors_in(tmp_path))
            send(client, topic, *range(100, 200))
            wait_until(lambda: has_written(200))
            wait_until(lambda: not executors_in(tmp_path))
            status = stop()
            commits = [forget_commit(each) for each in state.checkpoints.iterdir()]
            process = start_pipeline(file, master, broker_url)
            wait_until(lambda: all(each.exists() for each in commits))
            stop()
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    assert len(status.queries) == len(commits) == (2 if fan_out == "true" else 3)
    every = list(range(200))
    assert sorted(row["n"] for row in read_json(client, out)) == every
    assert sorted(row["n"] for row in rows_of(tmp_path / "table")) == every
    assert has_written(200)
    for number in LOST_AT:
        lost = list(tmp_path.glob(f"lost-{number}-*"))
        assert len(lost) == len(status.queries), "an executor was not lost"
    found = [each.failures for each in status.queries]
    assert found == [0] * len(found), "Spark did not repeat the task itself"
