"""
Fifty kills of a pipeline, of Spark's processes and of the broker, at random moments.

One pipeline writes to a topic, and to tables of Delta, Iceberg and PostgreSQL, with a
query for each sink or with one for all of them, on this machine or on a cluster whose
executors are killed, too, for example while they write what is committed next.  The
tables are compacted as they grow.  Other engines than those that write
read what came of it: every row once, and the last one of each key.  With
DANUBE_TEST_KILLS in the environment it is that many kills.
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

import duckdb
import pyarrow as pa

from pydanube import sync
from pydanube_spark.pipelines.pure.run_records import FINAL_EXITS
from pydanube_spark.pipelines.state import StateDirectory
from support.drivers.duckdb_iceberg import connect_duckdb
from support.drivers.lake_tables import catalog_of
from support.servers.postgres import PostgresProcess
from support.servers.processes import BrokerProcess
from support.servers.spark_processes import standalone_cluster

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.soak,
    pytest.mark.timeout(7200),
]

KILLS = int(os.environ.get("DANUBE_TEST_KILLS", "50"))
SOURCE, COPY = "/default/changes", "/default/copy"
KEYS = 499
BATCH = 100
DEADLINE_S = 900

PIPELINE = """
name: campaign
fan_out: {fan_out}
broker: {url}
trigger: continuous
spark:
  master: "{master}"
  settings: {{spark.cores.max: 2, spark.executor.memory: 512m}}
retries: {{count: 10000, backoff: 100ms, backoff_max: 1s}}
sources:
  changes:
    topic: {source}
    start: earliest
    options: {{maxOffsetsPerTrigger: 20000}}
steps:
  rows:
    sql: >
      SELECT row.* FROM (SELECT from_json(CAST(payload AS STRING),
      'n BIGINT, id BIGINT, op STRING') AS row FROM changes)
sinks:
  copy: {{input: rows, topic: {copy}}}
  appended:
    input: rows
    format: danube-delta
    path: appended
    options: {{compactFiles: 8}}
  delta:
    input: rows
    format: danube-delta
    path: current
    table: {{key: id, order: n, delete: "op = 'd'"}}
  iceberg:
    input: rows
    format: danube-iceberg
    options:
      compactFiles: 4
      table: db.current
{catalog}
    table: {{key: id, order: n, delete: "op = 'd'"}}
  postgres:
    input: rows
    format: danube-postgres
    options: {{uri: "{postgres}", table: appended, createTable: true}}
"""


def change(number):
    """A change of a key; each seventh deletes it."""
    op = "d" if number % 7 == 0 else "u"
    return {"n": number, "id": number % KEYS, "op": op}


def current(count):
    """The last row of each key that is not deleted, as (key, number)."""
    found = {}
    for number in range(count):
        each = change(number)
        found.pop(each["id"], None)
        if each["op"] != "d":
            found[each["id"]] = number
    return sorted(found.items())


class Publisher(threading.Thread):
    """Publishes changes until it is told to stop."""

    def __init__(self, url):
        super().__init__(daemon=True)
        self._url = url
        self._stop_now = threading.Event()
        self.count = 0

    def run(self):
        with (
            sync.connect(self._url) as client,
            client.producer(SOURCE, name="changes") as producer,
        ):
            while not self._stop_now.wait(0.5):
                found = [change(self.count + each) for each in range(BATCH)]
                # All changes of a key go to the same partition.
                producer.send_batch(
                    pa.record_batch(
                        {
                            "payload": [json.dumps(each).encode() for each in found],
                            "key": [b"%d" % each["id"] for each in found],
                        }
                    )
                )
                self.count += BATCH

    def stop(self):
        self._stop_now.set()
        self.join()
        return self.count


class Sinks:
    """The sinks, as engines see them that did not write them."""

    def __init__(self, directory, broker, postgres):
        self._directory = directory
        self._broker = broker
        self._postgres = postgres
        (directory / "duckdb").mkdir()
        self._duckdb = connect_duckdb(directory / "duckdb")

    def copied(self):
        with sync.connect(self._broker.url) as client:
            return sorted(
                json.loads(payload)["n"]
                for batch in client.read(COPY)
                for payload in batch.payloads
            )

    def delta(self, name):
        """The rows of a Delta table: its log, replayed here, and its Parquet files."""
        files = set()
        for log in sorted((self._directory / name / "_delta_log").glob("*.json")):
            for line in log.read_text().splitlines():
                action = json.loads(line)
                if "add" in action:
                    assert "deletionVector" not in action["add"]
                    files.add(action["add"]["path"])
                if "remove" in action:
                    files.discard(action["remove"]["path"])
        if not files:
            return []
        paths = [str(self._directory / name / each) for each in files]
        return self._rows("read_parquet(?)", [paths])

    def iceberg(self):
        tables = self._directory / "warehouse/db/current/metadata"
        newest = max(tables.glob("*.metadata.json"), default=None)
        return [] if newest is None else self._rows(f"iceberg_scan('{newest}')", [])

    def _rows(self, source, given):
        try:
            found = self._duckdb.execute(f"SELECT id, n FROM {source}", given)
        except duckdb.IOException:
            return []  # A file has been replaced meanwhile.
        return sorted(found.fetchall())

    def postgres(self):
        exists = self._postgres.query("SELECT to_regclass('appended') IS NOT NULL")
        if exists != [(True,)]:
            return []
        return [
            each[0]
            for each in self._postgres.query("SELECT n FROM appended ORDER BY n")
        ]


def wait_until(is_done, shown):
    give_up_at = time.monotonic() + DEADLINE_S
    while not is_done():
        assert time.monotonic() < give_up_at, shown()
        time.sleep(0.2)


def executors(directory):
    """The processes of the executors of a cluster in *directory*."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            home = str((process / "cwd").readlink())
            words = (process / "cmdline").read_bytes()
            is_executor = b"CoarseGrainedExecutorBackend" in words
            if is_executor and home.startswith(f"{directory}/worker-"):
                found.append(int(process.name))
    return found


@pytest.mark.parametrize("place", ["queries", "fan-out", "cluster"])
def test_every_row_arrives_once_although_everything_is_killed(tmp_path, place):
    fan_out = place != "queries"
    chance = random.Random(19 + len(place))
    victims = ["driver", "jvm", "broker", "broker"]
    spark = nullcontext("local[2]")
    if place == "cluster":
        spark = standalone_cluster(tmp_path)
        victims += ["executor"] * 4
    state = StateDirectory(tmp_path / ".danube/pipelines/campaign")
    file = tmp_path / "pipeline.yaml"
    catalog = "\n".join(
        f'      catalog.{name}: "{value}"'
        for name, value in catalog_of(tmp_path).items()
    )
    with (
        PostgresProcess() as postgres,
        BrokerProcess(tmp_path / "data") as broker,
        (tmp_path / "log").open("w") as log,
        spark as master,
    ):
        with sync.connect(broker.url) as client:
            client.topics.create(SOURCE, partitions=2)
            client.topics.create(COPY)
        file.write_text(
            PIPELINE.format(
                fan_out=str(fan_out).lower(),
                master=master,
                url=broker.url,
                source=SOURCE,
                copy=COPY,
                postgres=postgres.uri,
                catalog=catalog,
            )
        )
        sinks = Sinks(tmp_path, broker, postgres)
        publisher = Publisher(broker.url)
        run = [sys.executable, "-m", "pydanube_cli.main", "pipeline", "run", file]
        own = {
            **os.environ,
            "XDG_STATE_HOME": str(tmp_path / "home"),
            # Executors use the Python of the driver.
            "PYSPARK_PYTHON": sys.executable,
        }
        processes = []

        def keep_running():
            """Start the pipeline again after a failure, as systemd does."""
            if not processes or processes[-1].poll() not in {None, *FINAL_EXITS}:
                processes.append(subprocess.Popen(run, stdout=log, stderr=log, env=own))

        def shown():
            return "\n".join((tmp_path / "log").read_text().splitlines()[-30:])

        def running(last=None):
            """The status when the queries run, in another process than *last*."""
            keep_running()
            found = state.read_status()
            is_up = found is not None and all(each.batches for each in found.queries)
            is_new = is_up and found.queries and found.jvm and found.pid != last
            return found if is_new else None

        killed = dict.fromkeys(victims, 0)
        try:
            publisher.start()
            last = None
            for _ in range(KILLS // 3):
                wait_until(partial(running, last), shown)
                time.sleep(chance.uniform(0, 3))
                victim = chance.choice(victims)
                killed[victim] += 1
                if victim == "executor":
                    wait_until(partial(executors, tmp_path), shown)
                    os.kill(chance.choice(executors(tmp_path)), signal.SIGKILL)
                    continue
                if victim == "broker":
                    broker.kill()
                    time.sleep(chance.uniform(0, 1))
                    broker.start()
                    continue
                status = running()
                last = status.pid
                os.kill(last if victim == "driver" else status.jvm[0], signal.SIGKILL)
            count = publisher.stop()
            wait_until(
                lambda: (
                    keep_running() is None
                    and len(sinks.copied()) >= count
                    and len(sinks.postgres()) >= count
                    and len(sinks.delta("appended")) >= count
                    and sinks.delta("current") == current(count)
                    and sinks.iceberg() == current(count)
                ),
                shown,
            )
            processes[-1].send_signal(signal.SIGTERM)
            assert processes[-1].wait(120) == 128 + signal.SIGTERM, shown()
        finally:
            for each in processes:
                each.kill()
                each.wait()
        log.write(f"{count} changes, killed: {killed}\n")
        every = [*range(count)]
        assert sinks.copied() == every
        assert sinks.postgres() == every
        assert [
            n for _, n in sorted(sinks.delta("appended"), key=lambda each: each[1])
        ] == every
        assert sinks.delta("current") == current(count)
        assert sinks.iceberg() == current(count)
