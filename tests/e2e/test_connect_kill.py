"""A connector and its broker are killed at any moment: each message exactly once."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import threading
from contextlib import ExitStack, contextmanager, suppress

import pytest

import pydanube
from pydanube.objects.opening import open_objects
from support.drivers.connectors import ConnectProcess
from support.servers.object_stores import S3Server
from support.servers.processes import BrokerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

TOPIC = "/default/numbers"
COUNT = 12_000
KILLS = 6
FILE = f"""
connectors:
  numbers:
    kind: generator-source
    topic: {TOPIC}
    retries: {{backoff: 100ms}}
    batch: {{messages: 500}}
    options: {{count: {COUNT}, rate: 4000, keys: 5}}
"""


def numbers_of(batch):
    return [json.loads(each)["number"] for each in batch.payloads]


@pytest.mark.soak
def test_each_message_is_published_once_although_both_are_killed(tmp_path):
    file = tmp_path / "connectors.yaml"
    file.write_text(FILE)
    chance = random.Random(7)
    kills = sorted(chance.sample(range(1, COUNT - 1000), KILLS))
    with (
        BrokerProcess(tmp_path / "data") as broker,
        ConnectProcess(file, broker.url) as connector,
    ):

        def kill(number):
            if number % 3 == 2:
                broker.kill()
                broker.start()
            else:
                connector.kill()
                connector.start()

        async def follow():
            numbers = []
            async with pydanube.connect(broker.url) as client:
                await client.topics.create(TOPIC, exist_ok=True)
                while len(numbers) < COUNT:
                    # Reading ends with the connection to a broker that is killed.
                    with suppress(pydanube.Unavailable):
                        async for batch in client.read(
                            TOPIC, start=len(numbers), end=COUNT, follow=True
                        ):
                            numbers += numbers_of(batch)
                            while kills and len(numbers) >= kills[0]:
                                kills.pop(0)
                                kill(len(kills))
                assert connector.wait() == 0
                return numbers, (await client.topics.describe(TOPIC)).message_count

        numbers, stored = pydanube.run(follow())
    assert kills == []
    assert connector.starts == 1 + KILLS - KILLS // 3
    assert numbers == list(range(COUNT))
    assert stored == COUNT


def test_sigterm_stops_a_connector_which_continues_later(tmp_path):
    file = tmp_path / "connectors.yaml"
    file.write_text(FILE)
    with (
        BrokerProcess(tmp_path / "data") as broker,
        ConnectProcess(file, broker.url) as connector,
    ):

        async def follow():
            numbers = []
            async with pydanube.connect(broker.url) as client:
                await client.topics.create(TOPIC, exist_ok=True)
                async for batch in client.read(TOPIC, follow=True, end=COUNT):
                    numbers += numbers_of(batch)
                    if connector.starts == 1:
                        assert connector.terminate() == 143
                        connector.start()
            return numbers

        assert pydanube.run(follow()) == list(range(COUNT))
        assert connector.wait() == 0


@contextmanager
def directory_of_files(directory):
    files = directory / "files"
    files.mkdir()
    yield f"fs://{files}", {}


@contextmanager
def bucket(directory):
    with S3Server(directory) as server:
        yield server.new_store()


async def numbers_in_files(objects):
    """The numbers in all files, sorted by their names."""
    found = []
    for name in await objects.names(""):
        lines = gzip.decompress(await objects.read(name)).splitlines()
        found += [json.loads(each)["number"] for each in lines]
    return found


@pytest.mark.soak
@pytest.mark.parametrize("partition", ["", "key={key}"])
@pytest.mark.parametrize("place", [directory_of_files, bucket])
def test_each_message_is_in_one_file_although_both_are_killed(
    place, partition, tmp_path
):
    """With partitions, a batch is several files, and may be interrupted between."""
    file = tmp_path / "connectors.yaml"
    chance = random.Random(9)
    kills = sorted(chance.sample(range(1, COUNT - 1000), KILLS))
    with ExitStack() as stack:
        url, store = stack.enter_context(place(tmp_path))
        options = {"url": url, "store": store, "compression": "gzip"}
        options |= {"partition": partition}
        file.write_text(f"""{FILE}
  archive:
    kind: files-sink
    topic: {TOPIC}
    retries: {{backoff: 100ms}}
    batch: {{messages: 200}}
    options: {json.dumps(options)}
""")
        objects = open_objects(url, store)
        broker = stack.enter_context(BrokerProcess(tmp_path / "data"))
        connector = stack.enter_context(ConnectProcess(file, broker.url))

        async def follow():
            while len(found := await numbers_in_files(objects)) < COUNT:
                while kills and len(found) >= kills[0]:
                    kills.pop(0)
                    if len(kills) % 3 == 2:
                        broker.kill()
                        broker.start()
                    connector.kill()
                    connector.start()
            return found, await objects.names("")

        found, names = asyncio.run(follow())
    assert kills == []
    assert (found if not partition else sorted(found)) == list(range(COUNT))
    assert len({each.rpartition("/")[0] for each in names}) == (5 if partition else 1)


@pytest.mark.soak
def test_each_line_is_published_once_while_files_are_rotated(tmp_path):
    """The connector is killed while a program writes and renames its log."""
    logs = tmp_path / "logs"
    logs.mkdir()
    file = tmp_path / "connectors.yaml"
    file.write_text(f"""
connectors:
  numbers:
    kind: files-source
    topic: {TOPIC}
    retries: {{backoff: 100ms}}
    options: {{directory: {logs}, patterns: [app.log], poll: 10ms}}
""")
    chance = random.Random(8)
    kills = sorted(chance.sample(range(1, COUNT - 1000), KILLS))
    ahead = threading.Semaphore(500)
    """How far the writer may be ahead of the reader."""

    def write():
        log = (logs / "app.log").open("w")
        for number in range(COUNT):
            ahead.acquire()
            log.write(f'{{"number": {number}}}\n')
            log.flush()
            if number % 1500 == 700:
                # The program notices later that its file was renamed.
                (logs / "app.log").rename(logs / f"app.log.{number}")
            if number % 1500 == 800:
                log.close()
                log = (logs / "app.log").open("w")
        log.close()

    with (
        BrokerProcess(tmp_path / "data") as broker,
        ConnectProcess(file, broker.url) as connector,
    ):

        async def follow():
            numbers = []
            async with pydanube.connect(broker.url) as client:
                await client.topics.create(TOPIC, exist_ok=True)
                async for batch in client.read(TOPIC, end=COUNT, follow=True):
                    numbers += numbers_of(batch)
                    ahead.release(len(batch.payloads))
                    while kills and len(numbers) >= kills[0]:
                        kills.pop(0)
                        connector.kill()
                        connector.start()
                return numbers, (await client.topics.describe(TOPIC)).message_count

        writer = threading.Thread(target=write)
        writer.start()
        numbers, stored = pydanube.run(follow())
        writer.join()
    assert kills == []
    # Lines of different files may change their order.
    assert sorted(numbers) == list(range(COUNT))
    assert stored == COUNT
