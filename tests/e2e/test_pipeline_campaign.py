"""
Fifty kills of a pipeline, of Spark's processes and of the broker, at random moments.

One pipeline writes to a topic, and to tables of Delta, Iceberg and PostgreSQL, with a
query for each sink or with one for all of them.  It adds up windows, which it appends
to a topic and upserts into a table, and joins two topics.  The tables are compacted as
they grow.  It runs on this machine, or on a standalone cluster of Spark with two
workers that reads from a cluster of brokers; there the executors, the workers and
PostgreSQL are killed, too, for example while they write what is committed next.
Other engines than those that write read what came of it: every row once, the last one
of each key, and every window and pair.

The cluster has fifty kills, or DANUBE_TEST_KILLS of the environment, and the others a
quarter of them.  Another number is another choice of moments and victims.
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack
from functools import partial

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
from support.servers.cluster_processes import cluster_broker, cluster_settings
from support.servers.etcd import etcd_member
from support.servers.postgres import PostgresProcess
from support.servers.processes import BrokerProcess
from support.servers.spark_processes import executors_in, spark_master, spark_worker

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.soak,
    pytest.mark.timeout(14400),
]

KILLS = int(os.environ.get("DANUBE_TEST_KILLS", "50"))
SOURCE, COPY = "/default/changes", "/default/copy"
MARKS, WINDOWS = "/default/marks", "/default/windows"
KEYS = 499
BATCH = 50
CHANGES_MIN = 10_000
"""The number of changes after which some windows are complete."""
BEGIN = 1_700_000_000
"""The second of the first change; Spark takes those of 1970 as late."""
WINDOW = 1000
"""The changes of a window; there is one in each second of the time of the events."""
DELAY = 5000
"""How many changes the watermark is behind the last one."""
JOINED = 1000
"""How many changes later a mark may come."""
DEADLINE_S = 3600
PATIENCE_S = 60
"""How long a kill waits for all queries; then one of them is enough."""
WORKERS = 2
SESSION_TTL_S = 3

PIPELINE = """
name: campaign
fan_out: {fan_out}
broker: {url}
trigger: {trigger}
spark:
  master: "{master}"
  # A busy machine may need many.
  slow_starts: {{count: 10000, backoff: 1s, backoff_max: 20s}}
  settings:
    spark.cores.max: 2
    spark.executor.memory: 512m
    spark.sql.shuffle.partitions: 2
retries: {{count: 10000, backoff: 100ms, backoff_max: 1s}}
sources:
  changes:
    topic: {source}
    start: earliest
    options: {{maxOffsetsPerTrigger: 20000}}
  marks: {{topic: {marks}, start: earliest}}
steps:
  rows:
    sql: >
      SELECT row.* FROM (SELECT from_json(CAST(payload AS STRING),
      'n BIGINT, id BIGINT, op STRING') AS row FROM changes)
  timed:
    sql: SELECT n, timestamp_seconds({begin} + n) AS at FROM rows
    watermark: {{column: at, delay: {delay} seconds}}
  marked:
    sql: >
      SELECT mark, timestamp_seconds({begin} + mark) AS at
      FROM (SELECT CAST(CAST(payload AS STRING) AS BIGINT) AS mark FROM marks)
    watermark: {{column: at, delay: {delay} seconds}}
  sums:
    sql: >
      SELECT unix_seconds(window.start) - {begin} AS id, sum(n) AS n, count(*) AS count
      FROM timed GROUP BY window(at, '{window} seconds')
  joined:
    sql: >
      SELECT timed.n, mark FROM timed LEFT JOIN marked
      ON mark = n AND marked.at BETWEEN timed.at
      AND timed.at + INTERVAL {joined} SECONDS
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
  windows: {{input: sums, topic: {windows}}}
  sums:
    input: sums
    mode: update
    format: danube-delta
    path: sums
    table: {{key: id}}
  joined:
    input: joined
    format: danube-postgres
    options: {{uri: "{postgres}", table: joined, createTable: true}}
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


def windows_of(count):
    """The number of each window with the sum and the number of its changes."""
    found = {}
    for number in range(count):
        begin = number - number % WINDOW
        total, rows = found.get(begin, (0, 0))
        found[begin] = total + number, rows + 1
    return found


def is_marked(number):
    return number % 3 == 0


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
            client.producer(MARKS, name="marks") as marks,
        ):
            while not self._stop_now.wait(0.5) or self.count < CHANGES_MIN:
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
                numbers = [each["n"] for each in found]
                marks.send_batch([b"%d" % n for n in numbers if is_marked(n)])
                self.count += BATCH

    def stop(self):
        self._stop_now.set()
        self.join()
        return self.count


class Sinks:
    """The sinks, as engines see them that did not write them."""

    def __init__(self, directory, url, postgres):
        self._directory = directory
        self._url = url
        self._postgres = postgres
        (directory / "duckdb").mkdir()
        self._duckdb = connect_duckdb(directory / "duckdb")

    def copied(self):
        return sorted(row["n"] for row in self._messages(COPY))

    def windows(self):
        return [
            (row["id"], (row["n"], row["count"])) for row in self._messages(WINDOWS)
        ]

    def _messages(self, topic):
        with sync.connect(self._url) as client:
            return [
                json.loads(payload)
                for batch in client.read(topic)
                for payload in batch.payloads
            ]

    def delta(self, name, columns="id, n"):
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
        return self._rows("read_parquet(?)", [paths], columns)

    def iceberg(self):
        tables = self._directory / "warehouse/db/current/metadata"
        newest = max(tables.glob("*.metadata.json"), default=None)
        return [] if newest is None else self._rows(f"iceberg_scan('{newest}')", [])

    def _rows(self, source, given, columns="id, n"):
        try:
            found = self._duckdb.execute(f"SELECT {columns} FROM {source}", given)
        except duckdb.IOException:
            return []  # A file has been replaced meanwhile.
        return sorted(found.fetchall())

    def postgres(self):
        return [each[0] for each in self._of_postgres("appended", "n")]

    def joined(self):
        return self._of_postgres("joined", "n, mark")

    def _of_postgres(self, table, columns):
        exists = self._postgres.query(f"SELECT to_regclass('{table}') IS NOT NULL")
        if exists != [(True,)]:
            return []
        return self._postgres.query(f"SELECT {columns} FROM {table} ORDER BY n")


def report(text):
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def wait_until(is_done, shown):
    give_up_at = time.monotonic() + DEADLINE_S
    while not is_done():
        assert time.monotonic() < give_up_at, shown()
        time.sleep(0.2)


class Cluster:
    """A standalone cluster of Spark whose workers and executors are killed."""

    def __init__(self, directory, stack):
        self._directory = directory
        self._stack = stack
        self._master = stack.enter_context(spark_master(directory))
        self.url = self._master.url
        self._started = 0
        self._workers = [self._start(number) for number in range(WORKERS)]
        self._master.wait_for_workers(WORKERS)

    def kill_worker(self, chance):
        """Kill a worker, or its whole machine; another one comes in its place."""
        number = chance.randrange(WORKERS)
        worker = self._workers[number]
        kill = chance.choice((os.kill, os.killpg))
        kill(worker.pid, signal.SIGKILL)
        worker.wait()
        self._workers[number] = self._start(number)
        self._master.wait_for_workers(self._started)

    def _start(self, number):
        self._started += 1
        return self._stack.enter_context(
            spark_worker(self._directory, number, self.url)
        )

    def executors(self):
        """The processes of the executors."""
        return executors_in(self._directory)


def start_brokers(directory, stack, *, is_cluster):
    """Start one broker, or a cluster of them."""
    if not is_cluster:
        return [stack.enter_context(BrokerProcess(directory / "data"))]
    etcd = stack.enter_context(etcd_member(directory / "etcd"))
    settings = cluster_settings(etcd.url, directory, ttl_s=SESSION_TTL_S)
    return [
        stack.enter_context(cluster_broker(directory, settings, name)) for name in "ab"
    ]


class Run:
    """The pipeline, which is started again whenever it fails, as systemd does."""

    def __init__(self, directory):
        self._command = [
            *(sys.executable, "-m", "pydanube_cli.main"),
            *("pipeline", "run", str(directory / "pipeline.yaml")),
        ]
        self._state = StateDirectory(directory / ".danube/pipelines/campaign")
        self._log = directory / "log"
        self._environment = {
            **os.environ,
            "XDG_STATE_HOME": str(directory / "home"),
            # Executors use the Python of the driver.
            "PYSPARK_PYTHON": sys.executable,
        }
        self._processes = []
        self._waits_until = None
        self._since = 0

    def keep(self):
        """Start it again if it has ended."""
        if self._processes and self._processes[-1].poll() in {None, *FINAL_EXITS}:
            return
        with self._log.open("a") as log:
            self._processes.append(
                subprocess.Popen(
                    self._command, stdout=log, stderr=log, env=self._environment
                )
            )

    def status(self, last=None):
        """The status when a query runs, in another process than *last*."""
        self.keep()
        found = self._state.read_status()
        if found is None or found.pid == last or not found.jvm:
            return None
        return found if any(each.batches for each in found.queries) else None

    def is_running(self, last):
        """Whether every query has done something since the last kill."""
        found = self.status(last)
        if found is None:
            self._waits_until = None
            return False
        if self._waits_until is None:
            self._waits_until = time.monotonic() + PATIENCE_S
        done = [(each.last_batch_time or 0) > self._since for each in found.queries]
        is_late = time.monotonic() > self._waits_until
        if not (all(done) or (is_late and any(done))):
            return False
        self._waits_until = None
        return True

    def wait_for_more(self):
        """Count only what its queries do from now on."""
        self._since = time.time_ns() // 1000

    def stop(self):
        self._processes[-1].send_signal(signal.SIGTERM)
        assert self._processes[-1].wait(120) == 128 + signal.SIGTERM, self.shown()

    def kill(self):
        for each in self._processes:
            each.kill()
            each.wait()

    def shown(self):
        return "\n".join(self._log.read_text().splitlines()[-30:])


@pytest.mark.parametrize("place", ["queries", "fan-out", "cluster"])
def test_every_row_arrives_once_although_everything_is_killed(tmp_path, place):
    is_cluster = place == "cluster"
    kills = KILLS if is_cluster else KILLS // 4
    chance = random.Random(f"{place} {kills}")
    victims = ["driver", "jvm", "broker", "broker"]
    if is_cluster:
        victims += ["executor", "executor", "worker", "worker", "postgres", "postgres"]
    with PostgresProcess() as postgres, ExitStack() as stack:
        brokers = start_brokers(tmp_path, stack, is_cluster=is_cluster)
        url = ",".join(each.url for each in brokers)
        cluster = Cluster(tmp_path, stack) if is_cluster else None
        with sync.connect(url) as client:
            client.topics.create(SOURCE, partitions=2)
            for topic in (COPY, MARKS, WINDOWS):
                client.topics.create(topic)
        catalog = "\n".join(
            f'      catalog.{name}: "{value}"'
            for name, value in catalog_of(tmp_path).items()
        )
        (tmp_path / "pipeline.yaml").write_text(
            PIPELINE.format(
                fan_out=str(place != "queries").lower(),
                # Two workers have one core each for four queries.
                trigger="{every: 2s}" if is_cluster else "continuous",
                master="local[2]" if cluster is None else cluster.url,
                url=url,
                source=SOURCE,
                copy=COPY,
                marks=MARKS,
                windows=WINDOWS,
                postgres=postgres.uri,
                catalog=catalog,
                begin=BEGIN,
                delay=DELAY,
                window=WINDOW,
                joined=JOINED,
            )
        )
        sinks = Sinks(tmp_path, url, postgres)
        run = Run(tmp_path)
        stack.callback(run.kill)

        def kill(victim):
            if victim == "executor":
                wait_until(cluster.executors, run.shown)
                os.kill(chance.choice(cluster.executors()), signal.SIGKILL)
            elif victim == "worker":
                cluster.kill_worker(chance)
            elif victim == "postgres":
                postgres.crash()
                time.sleep(chance.uniform(0, 1))
                postgres.start()
            elif victim == "broker":
                broker = chance.choice(brokers)
                broker.kill()
                time.sleep(chance.uniform(0, 1))
                broker.start()

        publisher = Publisher(url)
        publisher.start()
        last = None
        killed = []
        for _ in range(kills):
            wait_until(partial(run.is_running, last), run.shown)
            time.sleep(chance.uniform(0, 3))
            killed.append(chance.choice(victims))
            report(f"{len(killed)}: {killed[-1]} after {publisher.count} changes")
            if killed[-1] in {"driver", "jvm"}:
                wait_until(run.status, run.shown)
                status = run.status()
                last = status.pid
                is_driver = killed[-1] == "driver"
                os.kill(last if is_driver else status.jvm[0], signal.SIGKILL)
            else:
                kill(killed[-1])
            run.wait_for_more()
        count = publisher.stop()
        windows = windows_of(count)
        complete = {
            begin: each
            for begin, each in windows.items()
            if begin + WINDOW <= count - 1 - DELAY
        }
        assert complete
        # Those with a mark, and those that can get none any more.
        end = count - 1 - DELAY - JOINED - WINDOW
        decided = {n for n in range(count) if is_marked(n) or n < end}

        def is_done():
            run.keep()
            return (
                len(sinks.copied()) >= count
                and len(sinks.postgres()) >= count
                and len(sinks.windows()) >= len(complete)
                and {n for n, _ in sinks.joined()} >= decided
                and len(sinks.delta("appended")) >= count
                and sinks.delta("current") == current(count)
                and sinks.iceberg() == current(count)
                and sum(n for (n,) in sinks.delta("sums", "count")) >= count
            )

        wait_until(is_done, run.shown)
        run.stop()
        report(f"{count} changes, killed: {Counter(killed)}")
        every = [*range(count)]
        assert sinks.copied() == every
        assert sinks.postgres() == every
        assert sorted(n for _, n in sinks.delta("appended")) == every
        assert sinks.delta("current") == current(count)
        assert sinks.iceberg() == current(count)
        assert sorted(sinks.windows()) == sorted(complete.items())
        assert sinks.delta("sums", "id, n, count") == sorted(
            (begin, *each) for begin, each in windows.items()
        )
        joined = sinks.joined()
        assert len(joined) == len({n for n, _ in joined})
        assert {n for n, _ in joined} >= decided
        assert all(mark == (n if is_marked(n) else None) for n, mark in joined)
