"""Maintenance and brokers are killed at every step, and topics stay intact."""

import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

import support
from pydanube import sync
from support.drivers.maintenance_driver import Steps, keep
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.soak]

TOPIC = "/default/killed"
STEPS_MIN = 8
"""Two passes over keys, and two segments that are written and swapped in."""
OPTIONS = "storage: {seal_bytes: 40000, seal_interval_s: 0.02}\n"
DRIVER = Path(support.__path__[0]) / "maintenance_driver.py"


@pytest.fixture
def broker(tmp_path):
    options = tmp_path / "broker.yaml"
    options.write_text(OPTIONS)
    with BrokerProcess(tmp_path / "data", "--config", str(options)) as process:
        yield process


def fill(client, topic=TOPIC):
    """A topic that compaction halves, with tombstones in every segment."""
    rng = Random(5)
    with client.producer(topic) as producer:
        for _ in range(2):
            for _ in range(120):
                key = f"k{rng.randrange(60)}"
                payload = b"" if rng.random() < 0.1 else rng.randbytes(500)
                producer.send_nowait(payload, key=key)
            producer.flush()
            while client.topics.describe(topic).tail_bytes >= 40_000:
                time.sleep(0.01)
    assert len(client.storage.segments(topic).segments) >= 2
    return stored(client, topic)


def stored(client, topic=TOPIC):
    return {
        message.offset: (message.key, message.payload)
        for batch in client.read(topic)
        for message in batch
    }


def final_of(before, sealed):
    """The messages that maintenance keeps."""
    last = {key: at for at, (key, _) in before.items() if at < sealed}
    return {
        at: (key, payload)
        for at, (key, payload) in before.items()
        if at >= sealed or (last[key] == at and (payload or at == sealed - 1))
    }


def values(rows, sealed):
    """The last value of each key, without deleted keys."""
    latest = {
        key: payload for at, (key, payload) in sorted(rows.items()) if at < sealed
    }
    return {key: payload for key, payload in latest.items() if payload}


def check(now, before, sealed):
    """Check that no message is invented, lost or replaced by an older value."""
    assert now.items() <= before.items()
    assert final_of(before, sealed).items() <= now.items()
    assert values(now, sealed) == values(before, sealed)


def test_a_run_may_be_killed_at_every_step(broker, tmp_path):
    with sync.connect(broker.url) as client:
        before = fill(client)
        sealed = client.storage.segments(TOPIC).sealed_offset
        step, code = 0, -9
        while code == -9:
            step += 1
            command = [sys.executable, str(DRIVER), broker.url, TOPIC, str(step)]
            code = subprocess.run(command, check=False).returncode
            check(stored(client), before, sealed)
        assert code == 0
        # Segments that were replaced before are not replaced again: fewer steps.
        assert step > 5
        assert stored(client) == final_of(before, sealed)
    broker.kill()
    # What the runs left behind is collected from now on, rather than in a week.
    options = OPTIONS.replace("}", ", orphan_keep_s: 0}")
    (tmp_path / "broker.yaml").write_text(options)
    broker.start()
    with sync.connect(broker.url) as client:
        assert stored(client) == final_of(before, sealed)
        present = {each.object_name for each in client.storage.segments(TOPIC).segments}
        while files_of(broker) != present:
            time.sleep(0.01)


def files_of(broker):
    root = next(broker.data_dir.rglob(".parts")).parent
    return {path.relative_to(root).as_posix() for path in root.rglob("*.parquet")}


def test_the_broker_may_be_killed_at_every_step(broker):
    def die():
        broker.kill()
        broker.start()

    step, is_over = 0, False
    while not is_over:
        step += 1
        topic = f"{TOPIC}-{step}"
        steps = Steps(step, die)
        with sync.connect(broker.url) as client:
            before = fill(client, topic)
            sealed = client.storage.segments(topic).sealed_offset
            report = keep(client, topic, steps)
            is_over = steps.count < step
            check(stored(client, topic), before, sealed)
            if report.error is not None:
                # The run failed because the broker restarted; the next run succeeds.
                assert keep(client, topic, Steps(0, die)).error is None
            assert stored(client, topic) == final_of(before, sealed)
    assert step > STEPS_MIN
