"""Each message has exactly one result, although broker and program are killed."""

import asyncio
import random
import sys

import pytest

import pydanube
from support.drivers.running import received
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

INPUTS = "/default/inputs"
RESULTS = "/default/results"
PROGRAM = f"""
import asyncio, sys
import pydanube

async def main():
    async with pydanube.connect(sys.argv[1], wait_s=60) as client:
        async with client.consumer(
            "{INPUTS}", subscription="copy", type="shared", start="earliest"
        ) as consumer:
            while True:
                batch = await consumer.receive_batch(max_messages=7)
                try:
                    async with client.transaction(sys.argv[2]) as transaction:
                        for message in batch:
                            await transaction.send(
                                "{RESULTS}", message.payload, key=message.payload
                            )
                        await transaction.ack(batch)
                except (pydanube.MessageNotHeld, pydanube.TransactionFenced):
                    print("again", flush=True)
                except pydanube.StagedPartNotFound:
                    print("again", flush=True)

asyncio.run(main())
"""


@pytest.fixture
def broker(tmp_path):
    with BrokerProcess(tmp_path / "data") as broker:
        yield broker


class Program:
    """A program that copies messages in transactions, in a process of its own."""

    def __init__(self, url, name):
        self._arguments = (sys.executable, "-c", PROGRAM, url, name)
        self.process = None

    async def start(self):
        self.process = await asyncio.create_subprocess_exec(
            *self._arguments, stdout=asyncio.subprocess.DEVNULL
        )

    async def kill(self):
        # It must not end by itself: every error that it does not expect ends it.
        assert self.process.returncode is None
        self.process.kill()
        await self.process.wait()


async def publish(client, count):
    async with client.producer(INPUTS, name="inputs") as producer:
        for begin in range(0, count, 50):
            await producer.send_batch(
                [f"{n:06}" for n in range(begin, min(begin + 50, count))]
            )
            await asyncio.sleep(0.05)


async def results(client):
    return [
        message.payload
        for topic in await client.topics.partitions(RESULTS)
        async for batch in client.read(topic)
        for message in batch
    ]


async def backlog(client):
    topics = await client.topics.partitions(INPUTS)
    facts = [await client.subscriptions.describe(topic, "copy") for topic in topics]
    return sum(each.backlog for each in facts)


async def check_exactly_once(broker, *, count, kills, seed):
    """Kill the broker and two programs *kills* times while they copy *count*."""
    rng = random.Random(seed)
    programs = [Program(broker.url, f"copy-{n}") for n in range(2)]
    async with pydanube.connect(broker.url) as client:
        await client.topics.create(INPUTS, partitions=2)
        await client.topics.create(RESULTS, partitions=3)
        for topic in await client.topics.partitions(INPUTS):
            await client.subscriptions.create(
                topic, "copy", type="shared", start="earliest"
            )
        async with asyncio.TaskGroup() as tasks:
            publishing = tasks.create_task(publish(client, count))
            for program in programs:
                await program.start()
            for _ in range(kills):
                await asyncio.sleep(rng.uniform(0.1, 1.5))
                victim = rng.choice([broker, *programs])
                if victim is broker:
                    await asyncio.to_thread(broker.kill)
                    await asyncio.to_thread(broker.start)
                else:
                    await victim.kill()
                    await victim.start()
            await publishing
        async with client.consumer(
            RESULTS, subscription="check", start="earliest"
        ) as consumer:
            await received(consumer, count)
        assert await backlog(client) == 0
        for program in programs:
            await program.kill()
        assert sorted(await results(client)) == [b"%06d" % n for n in range(count)]


@pytest.mark.soak
@pytest.mark.timeout(120)
async def test_each_message_has_one_result_although_processes_are_killed(broker):
    await check_exactly_once(broker, count=1500, kills=6, seed=4711)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(3))
async def test_each_message_has_one_result_after_many_kills(broker, seed):
    await check_exactly_once(broker, count=20_000, kills=60, seed=seed)
