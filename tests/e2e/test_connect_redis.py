"""Redis streams are read exactly once and written, also while everything is killed."""

from __future__ import annotations

import json
import random
import threading

import pytest

pytest.importorskip("redis")

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

import pydanube
from pydanube_broker.testing import memory_broker
from pydanube_connect.status import State
from support.drivers.connectors import ConnectProcess, declared, running
from support.servers.processes import BrokerProcess
from support.servers.redis_servers import DurableRedis

pytestmark = [pytest.mark.e2e]

TOPIC = "/default/orders"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with DurableRedis(tmp_path_factory.mktemp("redis")) as found:
        yield found


@pytest.fixture
def client(server):
    with connected(server) as found:
        found.flushall()
        yield found


def connected(server):
    # The client repeats commands by itself, and would append entries twice.
    once = Retry(NoBackoff(), 0)
    password = server.options["password"]
    return redis.Redis(port=server.port, password=password, retry=once)


def access(server):
    url = f"redis://127.0.0.1:{server.port}"
    return f"url: '{url}', password: {server.options['password']}"


def source(server, options="streams: {orders: }"):
    return f"""
connectors:
  orders:
    kind: redis-source
    topic: {TOPIC}
    retries: {{backoff: 50ms}}
    options: {{{access(server)}, {options}}}
"""


async def messages_of(client, count, topic=TOPIC, start=0):
    return [
        each
        async for batch in client.read(
            topic, start=start, end=start + count, follow=True
        )
        for each in batch
    ]


async def test_entries_are_objects_and_continue_after_the_last_one(server, client):
    first = client.xadd("orders", {"id": 1, "who": "Zoë"})
    client.xadd("other", {"payload": b"\xff\x00", "x": 1})
    async with memory_broker() as broker, broker.connect() as danube:
        for topic in (TOPIC, "/default/other"):
            await danube.topics.create(topic)
        text = source(server)
        async with running(declared(text, broker.url)):
            [message] = await messages_of(danube, 1)
            assert json.loads(message.payload) == {"id": "1", "who": "Zoë"}
            assert message.attributes == {
                "redis.stream": "orders",
                "redis.id": first.decode(),
            }
            client.xadd("orders", {"id": 2})
            await messages_of(danube, 1, start=1)
        for number in range(3, 2500):
            client.xadd("orders", {"id": number})
        text = source(
            server, "streams: {orders: , other: /default/other, none: }, field: payload"
        )
        async with running(declared(text, broker.url)):
            assert len(await messages_of(danube, 2497, start=2)) == 2497
            [other] = await messages_of(danube, 1, "/default/other")
            assert other.payload == b"\xff\x00"
            client.xadd("none", {"payload": "late"})
            [late] = await messages_of(danube, 1, start=2499)
    assert late.payload == b"late"


async def test_latest_begins_with_new_entries(server, client):
    client.xadd("orders", {"id": 1})
    async with memory_broker() as broker, broker.connect() as danube:
        await danube.topics.create(TOPIC)
        await danube.topics.create("/default/orders.positions")
        text = source(server, "streams: {orders: }, start: latest")
        async with running(declared(text, broker.url)):
            # The beginning is stored.
            await messages_of(danube, 1, "/default/orders.positions")
            client.xadd("orders", {"id": 2})
            [message] = await messages_of(danube, 1)
    assert json.loads(message.payload) == {"id": "2"}


@pytest.mark.parametrize("is_new", [False, True], ids=["trimmed", "anew"])
async def test_entries_that_are_gone_are_reported(server, client, is_new):
    client.xadd("orders", {"id": 1}, id="10-0")
    async with memory_broker() as broker, broker.connect() as danube:
        await danube.topics.create(TOPIC)
        async with running(declared(source(server), broker.url)):
            await messages_of(danube, 1)
        if is_new:
            client.delete("orders")
            client.xadd("orders", {"id": 2}, id="5-0")
        else:
            for number in range(2, 10):
                client.xadd("orders", {"id": number})
            client.xtrim("orders", maxlen=1, approximate=False)
        async with running(declared(source(server), broker.url)) as until:
            found = await until(lambda found: found["orders"].state is State.FAILED)
        assert "which were not read" in found["orders"].error
        if not is_new:
            assert "has deleted 7 entries" in found["orders"].error
        text = source(server, "streams: {orders: }, missing_entries: continue")
        async with running(declared(text, broker.url)):
            [message] = await messages_of(danube, 1, start=1)
    assert json.loads(message.payload) == {"id": "2" if is_new else "9"}


async def test_a_key_that_is_no_stream_is_reported(server, client):
    client.set("orders", "text")
    async with (
        memory_broker() as broker,
        running(declared(source(server), broker.url)) as until,
    ):
        found = await until(lambda found: found["orders"].state is State.FAILED)
    assert "WRONGTYPE" in found["orders"].error


async def test_a_wrong_password_is_reported_without_it(server):
    text = source(server).replace(server.options["password"], "secret-guess")
    async with memory_broker() as broker, running(declared(text, broker.url)) as until:
        found = await until(lambda found: found["orders"].state is State.FAILED)
    assert "secret-guess" not in found["orders"].error


async def test_messages_are_appended(server, client):
    text = f"""
connectors:
  copies:
    kind: redis-sink
    topic: {TOPIC}
    retries: {{backoff: 50ms}}
    options: {{{access(server)}, stream: "copy-{{topic}}"}}
"""
    async with memory_broker() as broker, broker.connect() as danube:
        async with danube.producer(TOPIC) as producer:
            await producer.send(b"\xff", key="k", attributes={"from": "test"})
            for number in range(100):
                await producer.send(b"%d" % number)
        async with running(declared(text, broker.url)) as until:
            await until(lambda found: found["copies"].messages == 101)
            server.kill()
            await danube_sends(danube, b"later")
            await until(lambda found: found["copies"].retries > 0)
            server.start()
            await until(lambda found: found["copies"].messages == 102)
    [(_, first), *others] = client.xrange("copy-orders")
    assert first == {b"payload": b"\xff", b"key": b"k", b"from": b"test"}
    payloads = [fields[b"payload"] for _, fields in others]
    assert payloads == [*(b"%d" % each for each in range(100)), b"later"]


async def danube_sends(danube, payload):
    async with danube.producer(TOPIC) as producer:
        await producer.send(payload)


@pytest.mark.slow
@pytest.mark.soak
def test_each_entry_is_published_once_although_everything_is_killed(
    server, client, tmp_path
):
    file = tmp_path / "connectors.yaml"
    file.write_text(source(server))
    chance = random.Random(11)
    count = 4000
    kills = sorted(chance.sample(range(1, count - 1000), 6))
    ahead = threading.Semaphore(300)
    """How far the writer may be ahead of the reader."""

    def write_all():
        """Append every number once, whatever happens to the server."""
        number = 0
        while number < count:
            try:
                with connected(server) as writer:
                    last = writer.xrevrange("orders", count=1)
                    number = int(last[0][1][b"n"]) + 1 if last else 0
                    while number < count:
                        ahead.acquire()
                        writer.xadd("orders", {"n": number})
                        number += 1
            except redis.ConnectionError:
                continue

    with (
        BrokerProcess(tmp_path / "data") as broker,
        ConnectProcess(file, broker.url) as connector,
    ):

        def kill(number):
            if number % 3 == 2:
                broker.kill()
                broker.start()
            elif number % 3 == 1:
                server.kill()
                server.start()
            else:
                connector.kill()
                connector.start()

        async def follow():
            numbers = []
            async with pydanube.connect(broker.url) as danube:
                await danube.topics.create(TOPIC, exist_ok=True)
                while len(numbers) < count:
                    try:
                        async for batch in danube.read(
                            TOPIC, start=len(numbers), end=count, follow=True
                        ):
                            numbers += [
                                int(json.loads(each)["n"]) for each in batch.payloads
                            ]
                            ahead.release(len(batch.payloads))
                            while kills and len(numbers) >= kills[0]:
                                kills.pop(0)
                                kill(len(kills))
                    except pydanube.Unavailable:
                        continue
                stored = (await danube.topics.describe(TOPIC)).message_count
            return numbers, stored

        writer = threading.Thread(target=write_all)
        writer.start()
        numbers, stored = pydanube.run(follow())
        writer.join()
    assert kills == []
    assert numbers == list(range(count))
    assert stored == count
