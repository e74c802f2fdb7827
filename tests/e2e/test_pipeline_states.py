"""The steps with states of the guide, between topics, while everything is killed."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import partial

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pydanube import sync
from pydanube_spark.pipelines.pure.run_records import FINAL_EXITS
from pydanube_spark.pipelines.state import StateDirectory
from support.project import ROOT
from support.servers.processes import BrokerProcess

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.soak,
    pytest.mark.timeout(3600),
]

KILLS = int(os.environ.get("DANUBE_TEST_KILLS", "12"))
SOURCE, TOTALS = "/default/payments", "/default/totals"
ORDERS, PAID = "/default/orders", "/default/paid"
MINUTES, SETTLED = "/default/minutes", "/default/settled"
ACCOUNTS = 7
BATCH = 100
DEADLINE_S = 600
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
STEP = timedelta(seconds=5)
"""The time between two orders."""
DELAY = timedelta(seconds=30)
PAYABLE = timedelta(minutes=10)


def blocks_of(heading):
    """The pipeline file and the functions of a section of the guide."""
    text = (ROOT / "docs/guide/pipelines.md").read_text("utf-8")
    section = re.split(r"\n###", text.partition(f"#### {heading}\n")[2])[0]
    return re.findall(r"```(?:yaml|python)\n(.*?)```", section, re.DOTALL)


def rows_in(url, topic):
    with sync.connect(url) as client:
        return [
            json.loads(each) for batch in client.read(topic) for each in batch.payloads
        ]


class KilledPipeline:
    """A pipeline of the guide, which is started again whatever is killed."""

    def __init__(self, directory, broker, file):
        self._broker = broker
        self._log = directory / "log"
        self._state = StateDirectory(directory / ".danube/pipelines/killed")
        self._home = directory / "home"
        self._path = directory / "pipeline.yaml"
        self._processes = []
        head = f"name: killed\nbroker: {broker.url}\n"
        head += "retries: {count: 1000, backoff: 100ms}\n"
        if "spark:\n" not in file:
            head += "spark:\n"
        file = head + file
        self._path.write_text(file.replace("spark:\n", "spark:\n  master: local[2]\n"))

    def kill_at_random(self, chance, publish):
        """Kill a process of Spark or the broker KILLS times, and publish before."""
        last = None
        for _ in range(KILLS):
            publish()
            self.wait_until(partial(self._running, last))
            time.sleep(chance.uniform(0, 2))
            victim = chance.choice(("driver", "jvm", "broker"))
            if victim == "broker":
                self._broker.kill()
                self._broker.start()
                continue
            status = self._state.read_status()
            last = status.pid
            os.kill(last if victim == "driver" else status.jvm[0], signal.SIGKILL)
        # What is published now, only a run after the last kill can process.
        publish()

    def wait_until(self, is_done):
        give_up_at = time.monotonic() + DEADLINE_S
        while not is_done():
            assert time.monotonic() < give_up_at, self._shown()
            self._keep_running()
            time.sleep(0.2)

    def stop(self):
        self._processes[-1].send_signal(signal.SIGTERM)
        ended = self._processes[-1].wait(120)
        assert ended == 128 + signal.SIGTERM, self._shown()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for each in self._processes:
            each.kill()
            each.wait()

    def _keep_running(self):
        if self._processes and self._processes[-1].poll() in {None, *FINAL_EXITS}:
            return
        with self._log.open("a") as log:
            self._processes.append(
                subprocess.Popen(
                    [
                        *(sys.executable, "-m", "pydanube_cli.main"),
                        *("pipeline", "run", str(self._path)),
                    ],
                    stdout=log,
                    stderr=log,
                    env={**os.environ, "XDG_STATE_HOME": str(self._home)},
                )
            )

    def _running(self, last):
        """The status when the queries run, in another process than *last*."""
        self._keep_running()
        found = self._state.read_status()
        is_up = found is not None and all(each.batches for each in found.queries)
        is_new = is_up and found.queries and found.jvm and found.pid != last
        return found if is_new else None

    def _shown(self):
        return "\n".join(self._log.read_text().splitlines()[-30:])


def payments(base):
    """Payments of 1, 2, … in turns to the accounts."""
    numbers = range(base, base + BATCH)
    return pa.record_batch(
        {
            "key": [b"%d" % (number % ACCOUNTS) for number in numbers],
            "payload": [b"%d" % (number + 1) for number in numbers],
        }
    )


def expected_totals(count):
    """The total after each payment."""
    numbers, totals = Counter(), Counter()
    for number in range(count):
        account = str(number % ACCOUNTS)
        numbers[account] += 1
        totals[account] += number + 1
        yield account, numbers[account], totals[account]


def totals(url):
    rows = rows_in(url, TOTALS)
    return sorted((row["account"], row["number"], row["total"]) for row in rows)


def test_a_state_counts_each_message_once_although_everything_is_killed(tmp_path):
    file, functions = blocks_of("Steps with a state of their own")
    (tmp_path / "functions.py").write_text(functions)
    count = 0
    with (
        BrokerProcess(tmp_path / "data") as broker,
        sync.connect(broker.url) as client,
        KilledPipeline(tmp_path, broker, file) as pipeline,
    ):
        for topic in (SOURCE, TOTALS):
            client.topics.create(topic)

        def publish():
            nonlocal count
            with client.producer(SOURCE) as producer:
                for _ in range(3):
                    producer.send_batch(payments(count))
                    count += BATCH

        pipeline.kill_at_random(random.Random(4), publish)
        pipeline.wait_until(lambda: len(totals(broker.url)) >= count)
        pipeline.stop()
        assert totals(broker.url) == sorted(expected_totals(count))


def at(number):
    return BEGIN + number * STEP


def is_paid(number):
    return number % 3 != 0


def minutes_of(count):
    """The sums of the windows that end before the watermark, by their first second."""
    found = Counter()
    for number in range(count):
        found[at(number).replace(second=0)] += number
    watermark = at(count - 1) - DELAY
    return {
        begin: amount
        for begin, amount in found.items()
        if begin + timedelta(minutes=1) <= watermark
    }


def test_windows_and_joins_have_each_row_once_although_everything_is_killed(tmp_path):
    [file] = blocks_of("Windows, and joins of streams")
    count = 0
    with (
        BrokerProcess(tmp_path / "data") as broker,
        sync.connect(broker.url) as client,
        KilledPipeline(tmp_path, broker, file) as pipeline,
    ):
        for topic in (ORDERS, PAID, MINUTES, SETTLED):
            client.topics.create(topic)

        def publish():
            nonlocal count
            numbers = range(count, count + BATCH)
            orders = [
                json.dumps({"number": n, "amount": n, "at": at(n).isoformat()})
                for n in numbers
            ]
            paid = [
                json.dumps({"number": n, "at": (at(n) + STEP).isoformat()})
                for n in numbers
                if is_paid(n)
            ]
            with client.producer(ORDERS) as one, client.producer(PAID) as other:
                one.send_batch([each.encode() for each in orders])
                other.send_batch([each.encode() for each in paid])
            count += BATCH

        def minutes():
            return {
                datetime.fromisoformat(row["minute"]["start"]): row["amount"]
                for row in rows_in(broker.url, MINUTES)
            }

        def settled():
            return rows_in(broker.url, SETTLED)

        def must_be_settled():
            """All that are paid, and those that nobody can pay any more."""
            end = at(count - 1) - DELAY - PAYABLE - STEP
            return {n for n in range(count) if is_paid(n) or at(n) < end}

        pipeline.kill_at_random(random.Random(5), publish)
        pipeline.wait_until(
            lambda: (
                len(minutes()) >= len(minutes_of(count))
                and {row["number"] for row in settled()} >= must_be_settled()
            )
        )
        pipeline.stop()
        assert minutes() == minutes_of(count)
        assert len(rows_in(broker.url, MINUTES)) == len(minutes_of(count))
        rows = {row["number"]: row for row in settled()}
        assert len(settled()) == len(rows)
        for number, row in rows.items():
            assert row["amount"] == number
            paid_at = row.get("paid_at")
            assert (paid_at is not None) == is_paid(number)
