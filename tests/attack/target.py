"""The broker under attack, and the checks that it has to pass after each round."""

from __future__ import annotations

import asyncio
import json
import tempfile
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

import pydanube
from support.servers.processes import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

CHECK_TOPIC = "/default/attack-check"
CHECK_TIMEOUT_S = 60.0
WARM_UP_BATCHES = 200
WARM_UP_BATCH_MESSAGES = 1000
SETTINGS = """\
# Seal early, so that rounds of a second reach all parts of the storage.
storage: {seal_bytes: 4000000, seal_age_s: 2, seal_interval_s: 0.2}
"""


class Target:
    """A broker process, its log, and a directory for the files of one round."""

    def __init__(self, broker: BrokerProcess, directory: Path) -> None:
        self.broker = broker
        self._directory = directory
        self._log_position = 0
        self._checks = 0

    @property
    def directory(self) -> Path:
        """A new directory for files of rounds; the runner removes it at the end."""
        return Path(tempfile.mkdtemp(dir=self._directory, prefix="round-"))

    async def check(self) -> None:
        """
        Raise AssertionError unless the broker serves a well-behaved client.

        The client publishes and receives, the broker says that it is ready, and its log
        contains no new traceback.
        """
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_S):
                await self._publish_and_receive()
                await asyncio.to_thread(self._check_readiness)
        except (TimeoutError, pydanube.BrokerError, OSError) as error:
            text = f"a well-behaved client is not served: {error!r}\n{self.log_tail()}"
            raise AssertionError(text) from error
        self._check_log()

    async def warm_up(self) -> None:
        """Publish and receive, so that caches reach their usual size."""
        async with (
            pydanube.connect(self.broker.url) as client,
            client.producer(CHECK_TOPIC) as producer,
            client.consumer(CHECK_TOPIC, subscription="warm-up") as consumer,
        ):
            payloads = [bytes(100)] * WARM_UP_BATCH_MESSAGES
            for _ in range(WARM_UP_BATCHES):
                await producer.send_batch(payloads)
                left = len(payloads)
                while left:
                    batch = await consumer.receive_batch(timeout_s=CHECK_TIMEOUT_S)
                    await consumer.ack(batch)
                    left -= len(batch)

    def memory_bytes(self) -> int:
        """Return the resident memory of the broker's process."""
        return int(psutil.Process(self.broker.pid).memory_info().rss)

    def log_tail(self, byte_count: int = 4000) -> str:
        """Return the end of the broker's log."""
        assert self.broker.log_file is not None
        return self.broker.log_file.read_bytes()[-byte_count:].decode(errors="replace")

    async def _publish_and_receive(self) -> None:
        self._checks += 1
        payload = f"check {self._checks}".encode()
        async with (
            pydanube.connect(self.broker.url) as client,
            client.producer(CHECK_TOPIC) as producer,
            client.consumer(
                CHECK_TOPIC, subscription=f"check-{self._checks}", start="latest"
            ) as consumer,
        ):
            await producer.send(payload)
            message = await consumer.receive(timeout_s=CHECK_TIMEOUT_S)
            assert message.payload == payload, message
            await consumer.ack(message)
            await consumer.flush()

    def _check_readiness(self) -> None:
        url = f"{self.broker.http_url}/readyz"
        try:
            with urllib.request.urlopen(url, timeout=CHECK_TIMEOUT_S) as answer:
                assert json.load(answer)["ready"] is True
        except urllib.error.HTTPError as error:
            raise AssertionError(f"not ready: {error.read()!r}") from error

    def _check_log(self) -> None:
        assert self.broker.log_file is not None
        with self.broker.log_file.open("rb") as log:
            log.seek(self._log_position)
            new = log.read()
            self._log_position = log.tell()
        text = new.decode(errors="replace")
        assert "Traceback (most recent call last)" not in text, text[-8000:]


@contextmanager
def running_target(directory: Path) -> Iterator[Target]:
    """Start a broker below *directory* and kill it at the end."""
    settings = directory / "broker.yaml"
    settings.write_text(SETTINGS)
    rounds = directory / "rounds"
    rounds.mkdir()
    with BrokerProcess(
        directory / "data",
        *("--config", str(settings), "--mqtt-port", "0", "--kafka-port", "0"),
        log_file=directory / "broker.log",
    ) as broker:
        yield Target(broker, rounds)
