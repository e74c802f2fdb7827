"""A stream from topic to topic, killed at each point: every message once, in order."""

import os
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from contextlib import contextmanager
from pathlib import Path

import pytest

from pydanube import sync
from support.servers.processes import BrokerProcess

pytest.importorskip("pyspark")

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.soak,
    pytest.mark.timeout(900),
]

DRIVER = Path(__file__).parents[1] / "support" / "drivers" / "spark_sink_driver.py"
SOURCE, TARGET = "/default/from", "/default/to"
MESSAGES = 400
KEYS = 7
TIMEOUT_S = 200

# One after the other over one checkpoint: a driver that comes back finds what the one
# before has left, and is killed a point further; then in a later batch.
POINTS = ["before-write-0", "after-write-0", "before-commit-1", "after-commit-1"]


def command(broker, checkpoint):
    return [sys.executable, str(DRIVER), broker.url, SOURCE, TARGET, str(checkpoint)]


def environment(**variables):
    return os.environ | {name: str(value) for name, value in variables.items()}


def run_driver(python, broker, checkpoint, **variables):
    return subprocess.run(
        command(broker, checkpoint),
        env=environment(WORKER_PYTHON=python, **variables),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def fill(broker):
    with sync.connect(broker.url) as client:
        client.topics.create(SOURCE)
        client.topics.create(TARGET, partitions=2)
        with client.producer(SOURCE) as producer:
            for base in range(0, MESSAGES, 50):
                for number in range(base, base + 50):
                    producer.send_nowait(b"%d" % number, key=b"k%d" % (number % KEYS))
                producer.flush()


def stored(broker):
    """The numbers in the target by key, in the order of its partitions."""
    found = defaultdict(list)
    with sync.connect(broker.url) as client:
        for partition in client.topics.partitions(TARGET):
            for batch in client.read(partition):
                for message in batch:
                    found[message.key].append(int(message.payload))
    return found


def assert_every_message_once_and_in_order(broker):
    assert stored(broker) == {
        f"k{key}": list(range(key, MESSAGES, KEYS)) for key in range(KEYS)
    }


def commits(checkpoint):
    return {each.name for each in (checkpoint / "commits").glob("[0-9]*")}


def test_killed_driver_loses_and_duplicates_nothing(python, tmp_path):
    checkpoint = tmp_path / "checkpoint"
    with BrokerProcess(tmp_path / "data") as broker:
        fill(broker)
        for point in POINTS:
            done = run_driver(python, broker, checkpoint, DIE_AT=point)
            assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr
            # Spark does not know that the batch is committed, even if it is.
            assert point[-1] not in commits(checkpoint)
        done = run_driver(python, broker, checkpoint)
        assert done.returncode == 0, done.stdout + done.stderr
        assert_every_message_once_and_in_order(broker)


@contextmanager
def restarted_when_it_dies(broker, times, victim_file):
    """Keep the broker's process id in *victim_file* over so many deaths."""

    def watch():
        for _ in range(times):
            assert broker.wait() == -signal.SIGKILL
            broker.start()
            victim_file.write_text(str(broker.pid))

    victim_file.write_text(str(broker.pid))
    thread = threading.Thread(target=watch, name="restart")
    thread.start()
    yield
    thread.join(TIMEOUT_S)
    assert not thread.is_alive()


def test_killed_broker_loses_and_duplicates_nothing(python, tmp_path):
    checkpoint, victim_file = tmp_path / "checkpoint", tmp_path / "victim"
    points = ["after-write-0", "before-commit-1", "before-write-2"]
    with BrokerProcess(tmp_path / "data") as broker:
        fill(broker)
        with restarted_when_it_dies(broker, len(points), victim_file):
            done = run_driver(
                python,
                broker,
                checkpoint,
                DIE_AT=",".join(points),
                VICTIM_FILE=victim_file,
            )
        assert done.returncode == 0, done.stdout + done.stderr
        assert_every_message_once_and_in_order(broker)
