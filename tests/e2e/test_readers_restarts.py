"""Readers outlast a restart of the broker, as writers do, and merges of segments."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pydanube import sync
from pydanube_cli.presentation.output import print_note
from pydanube_spark.jobs import ThreadRunner
from pydanube_spark.tables.maintenance.run import MaintenanceOptions, maintain
from support.drivers.commands import end, start_danube
from support.drivers.patient_readers import (
    READERS,
    SEALED_ONLY,
    TOPIC,
    WAIT_S,
    Pauses,
    read_with_librdkafka,
    start_readers,
)
from support.servers.ports import free_port
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]

DRIVER = "support.drivers.patient_readers"
TESTS = Path(__file__).parents[1]
SETTINGS = {
    "storage": {"seal_bytes": 64 * 1024, "seal_interval_s": 0.05, "merge_bytes": 0}
}
SEGMENTS = 3


def broker_in(directory, *options, **settings):
    file = directory / "broker.yaml"
    file.write_text(json.dumps(SETTINGS | settings))
    return BrokerProcess(directory / "data", "--config", str(file), *options)


def fill(client) -> tuple[int, int]:
    """Publish several segments and a tail; returns where both end."""
    rng = random.Random(7)
    with client.producer(TOPIC) as producer:
        for count in range(1, SEGMENTS + 1):
            for _ in range(20):
                producer.send_batch([rng.randbytes(4000)])
            wait_for(lambda count=count: segment_count(client) >= count)
        sealed = client.topics.describe(TOPIC).sealed_offset
        for at in range(10):
            producer.send_batch([b"%d" % at] * 10)
    return sealed, client.topics.describe(TOPIC).end_offset


def segment_count(client) -> int:
    return client.topics.describe(TOPIC).segment_count


def wait_for(holds) -> None:
    give_up_at = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < give_up_at
        time.sleep(0.02)


def connection_count(client) -> int:
    return len(client.cluster.list_connections().connections)


@contextmanager
def danube_read(url):
    """Yield the output of a command that prints the offsets of all messages."""
    process = start_danube(
        *("read", TOPIC, "--follow", "--from", "0", "-f", "%o\\n"), url=url
    )
    try:
        yield process.stdout
    finally:
        end(process, signal.SIGINT)


def check(found, sealed, stop):
    """Make sure that all readers have read every message once."""
    for name, offsets in found.items():
        assert sorted(offsets) == [*range(len(offsets))], name
        # More may have been sealed meanwhile.
        least = sealed if name in SEALED_ONLY else stop
        assert least <= len(offsets) <= stop, name


@pytest.mark.parametrize("down_s", [0.0, pytest.param(45.0, marks=pytest.mark.soak)])
def test_readers_go_on_after_a_restart(tmp_path, down_s):
    kafka_port = str(free_port())
    pauses = Pauses()
    with (
        broker_in(tmp_path, "--kafka-port", kafka_port) as broker,
        ThreadPoolExecutor(len(READERS) + 1) as threads,
        ExitStack() as stack,
    ):
        with sync.connect(broker.url) as client:
            client.topics.create(TOPIC)
            sealed, stop = fill(client)
        following = stack.enter_context(danube_read(broker.url))
        printed = [int(following.readline()) for _ in range(stop)]
        try:
            reading = start_readers(threads, broker.url, tmp_path, pauses)
            reading["read_with_librdkafka"] = threads.submit(
                *(read_with_librdkafka, f"127.0.0.1:{kafka_port}", "orders"),
                *(pauses.pause, stop),
            )
            pauses.wait(reading.values())
            broker.kill()
        finally:
            pauses.end()
        # Readers ask meanwhile, and get no answer.
        threading.Event().wait(down_s)
        broker.start()
        found = {name: each.result(WAIT_S) for name, each in reading.items()}
        check(found, sealed, stop)
        with (
            sync.connect(broker.url) as client,
            client.producer(TOPIC) as producer,
        ):
            producer.send(b"after the restart")
        printed.append(int(following.readline()))
        assert printed == [*range(stop + 1)]


def test_readers_go_on_after_their_segments_were_merged(tmp_path):
    kafka_port = str(free_port())
    pauses = Pauses()
    storage = SETTINGS["storage"] | {"replaced_keep_s": 0.0}
    with (
        broker_in(tmp_path, "--kafka-port", kafka_port, storage=storage) as broker,
        ThreadPoolExecutor(len(READERS) + 1) as threads,
        sync.connect(broker.url) as client,
    ):
        client.topics.create(TOPIC)
        sealed, stop = fill(client)
        try:
            reading = start_readers(threads, broker.url, tmp_path, pauses)
            reading["read_with_librdkafka"] = threads.submit(
                *(read_with_librdkafka, f"127.0.0.1:{kafka_port}", "orders"),
                *(pauses.pause, stop),
            )
            pauses.wait(reading.values())
            old = paths_of(client)
            report = maintain(
                *(client, TOPIC, MaintenanceOptions(is_merging=True)),
                ThreadRunner(1),
                tell=print_note,
            )
            assert report.error is None
            assert not {*old} & {*paths_of(client)}
            wait_for(lambda: not any(path.exists() for path in old))
        finally:
            pauses.end()
        found = {name: each.result(WAIT_S) for name, each in reading.items()}
        check(found, sealed, stop)


def paths_of(client):
    segments = client.storage.segments(TOPIC).segments
    return [Path(each.url.removeprefix("file://")) for each in segments]


@pytest.mark.soak
def test_readers_go_on_after_their_process_was_suspended(tmp_path):
    with (
        broker_in(tmp_path, listen={"idle_timeout_s": 3.0}) as broker,
        sync.connect(broker.url) as client,
    ):
        client.topics.create(TOPIC)
        sealed, stop = fill(client)
        process = subprocess.Popen(
            [sys.executable, "-m", DRIVER, broker.url, str(tmp_path)],
            cwd=TESTS,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with process:
            try:
                assert process.stdout.readline() == "read\n"
                assert connection_count(client) > 1
                process.send_signal(signal.SIGSTOP)
                wait_for(lambda: connection_count(client) == 1)
                process.send_signal(signal.SIGCONT)
                process.stdin.write("\n")
                process.stdin.flush()
                check(json.loads(process.stdout.readline()), sealed, stop)
            finally:
                process.kill()
