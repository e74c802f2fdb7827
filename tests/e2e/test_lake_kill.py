"""Tables have every message once, whichever process is killed and when."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from deltalake import DeltaTable

from pydanube import sync
from support.drivers.lake_tables import KINDS, read, table_in
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.spark, pytest.mark.soak]

TESTS = Path(__file__).parents[1]
TOPIC = "/default/orders"
COUNT = 6000
TIMEOUT_S = 400


@pytest.fixture
def broker(tmp_path):
    settings = tmp_path / "broker.yaml"
    settings.write_text("storage: {seal_bytes: 65536, seal_interval_s: 0.05}\n")
    with BrokerProcess(tmp_path / "data", "--config", str(settings)) as process:
        yield process


@pytest.fixture
def published(broker):
    with sync.connect(broker.url) as client, client.producer(TOPIC) as producer:
        for first in range(0, COUNT, 1000):
            producer.send_batch([f"{n:0100}" for n in range(first, first + 1000)])


@contextmanager
def driver(script, *words):
    """A driver in a process group of its own, all of which is gone at the end."""
    process = subprocess.Popen(
        [sys.executable, str(TESTS / "support" / "drivers" / script), *map(str, words)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def run(*words):
    """The exit code of a driver."""
    with driver(*words) as process:
        return process.wait(TIMEOUT_S)


def offsets(table):
    return sorted(read(table).column("offset").to_pylist())


@pytest.mark.parametrize("keys", [0, 700])
@pytest.mark.timeout(1200)
def test_stream_resumes_after_every_kill(broker, published, keys, tmp_path):
    points = ["before the write", "after the write", "after the commit"]
    for batch, point in enumerate(points):
        code = run("lake_driver.py", tmp_path, broker.url, TOPIC, point, batch, keys)
        assert code == -signal.SIGKILL
    words = (tmp_path, broker.url, TOPIC, "wait", 4, keys)
    with driver("lake_driver.py", *words) as going:
        waiting = [tmp_path / f"{kind}-wait" for kind in KINDS]
        while not all(path.exists() for path in waiting):
            assert going.poll() is None
            time.sleep(0.05)
        broker.kill()
        (tmp_path / "go").touch()
        broker.start()
        assert going.wait(TIMEOUT_S) == 0
    kept = keys or COUNT
    for kind in KINDS:
        assert offsets(table_in(tmp_path, kind)) == list(range(COUNT - kept, COUNT))
    if keys:
        # Each micro-batch was merged once.
        history = DeltaTable(table_in(tmp_path, "delta").name).history()
        merges = [each for each in history if each["operation"] == "MERGE"]
        assert len(merges) == COUNT // 1000


@pytest.mark.parametrize("kind", KINDS)
def test_export_resumes_after_every_kill(broker, published, kind, tmp_path):
    points = ["before the write", "after the write", "after the commit"]
    for point in points:
        code = run("export_driver.py", kind, tmp_path, broker.url, TOPIC, point)
        assert code == -signal.SIGKILL
    broker.kill()
    broker.start()
    assert run("export_driver.py", kind, tmp_path, broker.url, TOPIC, "never") == 0
    assert offsets(table_in(tmp_path, kind)) == list(range(COUNT))
