"""A broker with several processes: `danube broker --processes N`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

import pydanube
from support.drivers.running import received
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

TOPICS = [f"/default/t{number}" for number in range(8)]


def processes_of(broker: BrokerProcess) -> list[int]:
    """Return the process ids of the processes that serve topics."""
    tasks = Path(f"/proc/{broker.pid}/task").iterdir()
    return [
        int(child)
        for task in tasks
        for child in (task / "children").read_text().split()
    ]


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    path = tmp_path / "settings.yaml"
    path.write_text(
        json.dumps(
            {
                "storage": {"seal_age_s": 1.0, "seal_interval_s": 0.2},
                "cluster": {"shards": 8},
            }
        )
    )
    return path


def several(tmp_path: Path, settings: Path, count: int) -> BrokerProcess:
    return BrokerProcess(
        tmp_path / "data",
        "--processes",
        str(count),
        "--config",
        str(settings),
        log_file=tmp_path / "broker.log",
    )


async def test_killed_process_loses_nothing_that_was_acknowledged(
    tmp_path: Path, settings: Path
) -> None:
    acknowledged: dict[str, list[bytes]] = {topic: [] for topic in TOPICS}
    enough = asyncio.Event()

    async def publish(client: pydanube.Client, topic: str) -> None:
        async with client.producer(topic) as producer:
            for number in range(1_000_000):
                if enough.is_set():
                    return
                payload = f"{topic} {number}".encode()
                await producer.send(payload)
                acknowledged[topic].append(payload)

    async def grown(by: int) -> None:
        """Return when each topic has acknowledged so many messages more."""
        wanted = {topic: len(sent) + by for topic, sent in acknowledged.items()}
        while any(  # noqa: ASYNC110  # The publishers only append.
            len(acknowledged[topic]) < count for topic, count in wanted.items()
        ):
            await asyncio.sleep(0.01)

    with several(tmp_path, settings, 2) as broker:
        async with pydanube.connect(broker.url) as client:
            async with asyncio.TaskGroup() as tasks:
                for topic in TOPICS:
                    tasks.create_task(publish(client, topic))
                await grown(20)
                for victim in processes_of(broker):
                    os.kill(victim, signal.SIGKILL)
                    # All topics go on, also those of the killed process.
                    await grown(20)
                enough.set()
            for topic in TOPICS:
                async with client.consumer(
                    topic, subscription="s", start="earliest"
                ) as consumer:
                    sent = acknowledged[topic]
                    assert await received(consumer, len(sent)) == sent
        assert broker.stop() == 0
