"""A stream between topics of a cluster whose brokers are killed: every message once."""

import os
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from pydanube import sync

pytest.importorskip("pyspark")

from support.servers.cluster_processes import cluster_broker, cluster_settings
from support.servers.etcd import etcd_member

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.soak,
    pytest.mark.timeout(600),
]

DRIVER = Path(__file__).parents[1] / "support" / "drivers" / "spark_sink_driver.py"
SOURCE, TARGET = "/default/from", "/default/to"
PARTITIONS = 4
MESSAGES = 400
KEYS = 7
TIMEOUT_S = 400


def fill(url):
    with sync.connect(url) as client:
        client.topics.create(SOURCE, partitions=PARTITIONS)
        client.topics.create(TARGET, partitions=PARTITIONS)
        with client.producer(SOURCE) as producer:
            for number in range(MESSAGES):
                producer.send_nowait(b"%d" % number, key=b"k%d" % (number % KEYS))
            producer.flush()


def owners(*brokers):
    """The brokers that serve partitions of the target."""
    found = set()
    for number in range(PARTITIONS):
        for broker in brokers:
            url = f"{broker.http_url}/api/v1/describe_topic"
            topic = {"topic": f"{TARGET}-part-{number}"}
            if httpx.get(url, params=topic).status_code == 200:
                found.add(broker)
    return found


@contextmanager
def killed_in_turn(first, second, victim_file):
    """Name *first* as the one to kill, then *second*; start both again."""

    def watch():
        for broker in (first, second):
            victim_file.write_text(str(broker.pid))
            assert broker.wait() == -signal.SIGKILL
            broker.start()

    thread = threading.Thread(target=watch, name="restart")
    thread.start()
    yield
    thread.join(TIMEOUT_S)
    assert not thread.is_alive()


def received(url):
    """The numbers in the target by key, as a consumer receives them."""
    found, count = defaultdict(list), 0
    with (
        sync.connect(url) as client,
        client.consumer(TARGET, subscription="count", start="earliest") as consumer,
    ):
        while count < MESSAGES:
            for message in consumer.receive_batch(timeout_s=60):
                found[message.key].append(int(message.payload))
                count += 1
        ends = [client.topics.describe(each).end_offset for each in partitions(client)]
        assert sum(ends) == MESSAGES
    return found


def partitions(client):
    return client.topics.partitions(TARGET)


def test_killed_brokers_of_a_cluster_lose_and_duplicate_nothing(python, tmp_path):
    victim_file = tmp_path / "victim"
    with etcd_member(tmp_path / "etcd") as etcd:
        settings = cluster_settings(etcd.url, tmp_path)
        with (
            cluster_broker(tmp_path, settings, "a") as first,
            cluster_broker(tmp_path, settings, "b") as second,
            cluster_broker(tmp_path, settings, "c") as third,
        ):
            fill(first.url)
            # It has all shards.  The others share them when it is gone.
            assert first.stop() == 0
            url = f"{second.url},{third.url}"
            while owners(second, third) != {second, third}:
                continue
            with killed_in_turn(second, third, victim_file):
                done = subprocess.run(
                    [
                        *(sys.executable, str(DRIVER), url, SOURCE, TARGET),
                        str(tmp_path / "checkpoint"),
                    ],
                    env=os.environ
                    | {
                        "WORKER_PYTHON": str(python),
                        "DIE_AT": "after-write-0,before-commit-2",
                        "VICTIM_FILE": str(victim_file),
                    },
                    capture_output=True,
                    text=True,
                    timeout=TIMEOUT_S,
                    check=False,
                )
            assert done.returncode == 0, done.stdout + done.stderr
            assert received(url) == {
                f"k{key}": list(range(key, MESSAGES, KEYS)) for key in range(KEYS)
            }
