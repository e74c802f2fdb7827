"""The step with a state of the guide, between two topics, while all is killed."""

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
ACCOUNTS = 7
BATCH = 100
DEADLINE_S = 600


def guide():
    """The pipeline file and the functions of the guide."""
    text = (ROOT / "docs/guide/pipelines.md").read_text("utf-8")
    section = text.partition("#### Steps with a state")[2].partition("\n### ")[0]
    return re.findall(r"```(?:yaml|python)\n(.*?)```", section, re.DOTALL)


def payments(base):
    """Payments of 1, 2, … in turns to the accounts."""
    numbers = range(base, base + BATCH)
    return pa.record_batch(
        {
            "key": [b"%d" % (number % ACCOUNTS) for number in numbers],
            "payload": [b"%d" % (number + 1) for number in numbers],
        }
    )


def expected(count):
    """The total after each payment."""
    numbers, totals = Counter(), Counter()
    for number in range(count):
        account = str(number % ACCOUNTS)
        numbers[account] += 1
        totals[account] += number + 1
        yield account, numbers[account], totals[account]


def totals(url):
    with sync.connect(url) as client:
        rows = [
            json.loads(each) for batch in client.read(TOTALS) for each in batch.payloads
        ]
    return sorted((row["account"], row["number"], row["total"]) for row in rows)


def wait_until(is_done, shown):
    give_up_at = time.monotonic() + DEADLINE_S
    while not is_done():
        assert time.monotonic() < give_up_at, shown()
        time.sleep(0.2)


def test_a_state_counts_each_message_once_although_everything_is_killed(tmp_path):
    chance = random.Random(4)
    file, functions = guide()
    (tmp_path / "functions.py").write_text(functions)
    state = StateDirectory(tmp_path / ".danube/pipelines/totals")
    run = [sys.executable, "-m", "pydanube_cli.main", "pipeline", "run"]
    own = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "home")}
    processes = []
    with (
        BrokerProcess(tmp_path / "data") as broker,
        (tmp_path / "log").open("w") as log,
        sync.connect(broker.url) as client,
    ):
        for topic in (SOURCE, TOTALS):
            client.topics.create(topic)
        more = f"name: totals\nbroker: {broker.url}\n"
        more += "retries: {count: 1000, backoff: 100ms}\n"
        local = "spark:\n  master: local[2]\n"
        path = tmp_path / "pipeline.yaml"
        path.write_text(more + file.replace("spark:\n", local))

        def keep_running():
            if not processes or processes[-1].poll() not in {None, *FINAL_EXITS}:
                command = [*run, str(path)]
                processes.append(
                    subprocess.Popen(command, stdout=log, stderr=log, env=own)
                )

        def shown():
            return "\n".join((tmp_path / "log").read_text().splitlines()[-30:])

        def running(last):
            keep_running()
            found = state.read_status()
            is_up = found is not None and all(each.batches for each in found.queries)
            is_new = is_up and found.queries and found.jvm and found.pid != last
            return found if is_new else None

        count, last = 0, None

        def publish():
            nonlocal count
            with client.producer(SOURCE) as producer:
                for _ in range(3):
                    producer.send_batch(payments(count))
                    count += BATCH

        try:
            for _ in range(KILLS):
                publish()
                wait_until(partial(running, last), shown)
                time.sleep(chance.uniform(0, 2))
                victim = chance.choice(("driver", "jvm", "broker"))
                if victim == "broker":
                    broker.kill()
                    broker.start()
                    continue
                status = state.read_status()
                last = status.pid
                os.kill(last if victim == "driver" else status.jvm[0], signal.SIGKILL)
            # What is published now, only a run after the last kill can process.
            publish()
            wait_until(
                lambda: keep_running() is None and len(totals(broker.url)) >= count,
                shown,
            )
            processes[-1].send_signal(signal.SIGTERM)
            assert processes[-1].wait(120) == 128 + signal.SIGTERM, shown()
        finally:
            for each in processes:
                each.kill()
                each.wait()
        assert totals(broker.url) == sorted(expected(count))
