"""A replicator and both brokers are killed at any moment: each message exactly once."""

from __future__ import annotations

import json
import random
import signal
from contextlib import suppress

import pytest

import pydanube
from support.drivers.commands import danube, end, start_danube
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.soak]

TOPIC, COPY = "/default/numbers", "/mirror/numbers"
COUNT = 20_000
BATCH = 100
KILLS = 3


class ReplicateProcess:
    """``danube replicate run``, which can be killed and started again."""

    def __init__(self, source: str, target: str) -> None:
        self.brokers = ("--from", source, "--to", target)
        self._process = None

    def start(self) -> None:
        """Start it, slowly enough for some kills to hit a commit."""
        self._process = start_danube(
            *("replicate", "run", "edge", *self.brokers, "--topic", "/default/*"),
            *("--rename", "/default/=/mirror/", "--bandwidth", "250KB"),
            *("--interval", "500ms", "--format", "json"),
        )

    def wait_until_idle(self):
        """Wait until everything is replicated."""
        for line in self._process.stdout:
            status = json.loads(line)
            if (status["state"], status["lag"]) == ("running", 0):
                return

    def end(self, number=signal.SIGKILL):
        """End it; return its exit code, output and errors."""
        process, self._process = self._process, None
        return end(process, number)


async def publish(url):
    async with pydanube.connect(url) as client:
        await client.topics.create(TOPIC)
        await client.subscriptions.create(TOPIC, "billing", start=0)
        async with client.producer(TOPIC) as producer:
            for first in range(0, COUNT, BATCH):
                numbers = range(first, first + BATCH)
                await producer.send_batch([b"%d" % each for each in numbers])
        await client.subscriptions.skip(TOPIC, "billing", COUNT // 2)


async def follow(url, kills, kill):
    """Read the copy to its end; kill something at each of *kills*."""
    numbers = []
    while len(numbers) < COUNT:
        # Neither the topic nor its broker may be there.
        with suppress(pydanube.Unavailable, pydanube.NotFound):
            async with pydanube.connect(url, wait_s=60) as client:
                batches = client.read(COPY, start=len(numbers), end=COUNT, follow=True)
                async for batch in batches:
                    numbers += map(int, batch.payloads)
                    while kills and len(numbers) >= kills[0]:
                        kills.pop(0)
                        kill(len(kills))
    return numbers


def test_each_message_arrives_once_although_all_are_killed(tmp_path):
    chance = random.Random(7)
    kills = sorted(chance.sample(range(1, COUNT - 5000), KILLS))
    with (
        BrokerProcess(tmp_path / "source") as source,
        BrokerProcess(tmp_path / "target") as target,
    ):
        pydanube.run(publish(source.url))
        replicator = ReplicateProcess(source.url, target.url)
        replicator.start()

        def kill(number):
            if number % 3 == 0:
                replicator.end()
                replicator.start()
            else:
                broker = source if number % 3 == 1 else target
                broker.kill()
                broker.start()

        numbers = pydanube.run(follow(target.url, kills, kill))
        assert kills == []
        assert numbers == list(range(COUNT))
        replicator.wait_until_idle()
        code, out, err = replicator.end(signal.SIGTERM)
        assert (code, "Traceback" in err) == (143, False), err
        last = json.loads(out.splitlines()[-1])
        assert (last["state"], last["lag"]) == ("stopped", 0)

        done = danube(
            *("replicate", "cut-over", "edge", *replicator.brokers, "--yes"),
            *("--format", "json"),
        )
        assert done.returncode == 0, done.stderr
        [moved] = json.loads(done.stdout)
        assert (moved["subscription"], moved["cursor"]) == ("billing", COUNT // 2)

        async def count():
            async with pydanube.connect(target.url) as client:
                return (await client.topics.describe(COPY)).message_count

        assert pydanube.run(count()) == COUNT
