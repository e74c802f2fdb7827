"""Workers are killed: others run their connectors, and each message comes once."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress

import pytest

import pydanube
from support.drivers.commands import danube
from support.drivers.connectors import ConnectProcess
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.soak]

TOPIC = "/default/numbers"
COUNT = 9_000
FILE = f"""
connectors:
  numbers:
    kind: generator-source
    topic: {TOPIC}
    retries: {{backoff: 100ms}}
    batch: {{messages: 500}}
    options: {{count: {COUNT}, rate: 1000, keys: 5}}
"""


@pytest.mark.parametrize("options", [(), ("--processes", "2")])
def test_killed_workers_are_replaced_and_each_message_comes_once(tmp_path, options):
    file = tmp_path / "numbers.yaml"
    file.write_text(FILE)
    names = ("a", "b")
    with BrokerProcess(tmp_path / "data", *options) as broker:
        applied = danube("connect", "apply", str(file), url=broker.url)
        assert applied.stdout == "numbers: created\n", applied.stderr
        workers = {
            each: ConnectProcess(tmp_path / each, broker.url, "work") for each in names
        }
        with workers["a"], workers["b"]:
            numbers, killed = asyncio.run(follow(broker, workers))
        assert numbers == list(range(COUNT))
        # Each was killed while it ran the connector.
        assert set(killed) == set(names)
        backup = danube("export", url=broker.url)
        assert set(json.loads(backup.stdout)["connectors"]) == {"numbers"}


@pytest.mark.parametrize("options", [(), ("--processes", "2")])
def test_a_broker_and_the_worker_die_together_and_each_message_comes_once(
    tmp_path, options
):
    file = tmp_path / "numbers.yaml"
    file.write_text(FILE)
    with BrokerProcess(tmp_path / "data", *options) as broker:
        applied = danube("connect", "apply", str(file), url=broker.url)
        assert applied.stdout == "numbers: created\n", applied.stderr
        workers = {
            each: ConnectProcess(tmp_path / each, broker.url, "work")
            for each in ("a", "b")
        }
        with workers["a"], workers["b"]:
            numbers = asyncio.run(follow_deaths(broker, workers))
        assert numbers == list(range(COUNT))


async def follow_deaths(broker, workers):
    """Kill the broker twice together with the worker that runs the connector."""
    numbers = []
    deaths = [1000, 4000, 6000]
    async with pydanube.connect(broker.url) as client:
        await client.topics.create(TOPIC, exist_ok=True)
        while len(numbers) < COUNT:
            with suppress(pydanube.Unavailable):
                async for batch in client.read(
                    TOPIC, start=len(numbers), end=COUNT, follow=True
                ):
                    numbers += [json.loads(each)["number"] for each in batch.payloads]
                    if not deaths or len(numbers) < deaths[0]:
                        continue
                    # The second time, the broker dies alone.
                    is_alone = len(deaths) == 2
                    del deaths[0]
                    worker = workers[await runner_of(client)]
                    if not is_alone:
                        await asyncio.to_thread(worker.kill)
                    await asyncio.to_thread(broker.kill)
                    await asyncio.to_thread(broker.start)
                    if not is_alone:
                        worker.start()
    return numbers


async def runner_of(client):
    while True:
        report = (await client.connectors.describe("numbers")).report
        if report is not None and report.state == "running":
            return report.worker
        await asyncio.sleep(0.1)


async def follow(broker, workers):
    """Kill the worker that runs the connector, twice, and a broker; read all."""
    killed = []
    numbers = []
    async with pydanube.connect(broker.url) as client:
        await client.topics.create(TOPIC, exist_ok=True)

        async def kill_runner():
            while True:
                report = (await client.connectors.describe("numbers")).report
                is_other = report is not None and report.worker not in killed
                if is_other and report.state == "running":
                    killed.append(report.worker)
                    await asyncio.to_thread(workers[report.worker].kill)
                    return
                await asyncio.sleep(0.1)

        while len(numbers) < COUNT:
            try:
                async for batch in client.read(
                    TOPIC, start=len(numbers), end=COUNT, follow=True
                ):
                    numbers += [json.loads(each)["number"] for each in batch.payloads]
                    if not killed and len(numbers) >= 1000:
                        await kill_runner()
                    elif len(killed) == 1 and len(numbers) >= 4000:
                        # The first one comes back, and may take its share again.
                        workers[killed[0]].start()
                        await kill_runner()
            except pydanube.Unavailable:
                continue
    return numbers, killed
