"""Tests of the jobs of workers."""

import asyncio
import time
from contextlib import asynccontextmanager

import pytest

from bench import work
from bench.payloads import ring_length
from bench.systems.system import Consumer, Driver, Publisher
from pydanube_cli.bench.figures import PERCENTS


class MemoryDriver(Driver):
    """A system of lists: each subscription gets what its topic is sent."""

    def __init__(self, *, spoil=lambda payloads: payloads):
        super().__init__({})
        self._spoil = spoil
        self._queues = {}

    async def create(self, topics, subscriptions, *, sharing):
        for topic in topics:
            for subscription in subscriptions:
                self._queues[topic, subscription] = asyncio.Queue()

    async def delete(self, topics):
        for key in [key for key in self._queues if key[0] in topics]:
            del self._queues[key]

    @asynccontextmanager
    async def publisher(self, topics):
        yield MemoryPublisher(self)

    @asynccontextmanager
    async def consumer(self, topics, subscription, *, number, sharing):
        yield MemoryConsumer([self._queues[topic, subscription] for topic in topics])

    def put(self, topic, payloads):
        for (name, _), queue in self._queues.items():
            if name == topic:
                queue.put_nowait(self._spoil(payloads))


class MemoryPublisher(Publisher):
    chunk = 7

    def __init__(self, driver):
        self._driver = driver

    async def send(self, topic, payloads):
        self._driver.put(topic, payloads)
        await asyncio.sleep(0)

    async def flush(self):
        pass

    async def send_one(self, topic, payload):
        self._driver.put(topic, [payload])


class MemoryConsumer(Consumer):
    def __init__(self, queues):
        self._queues = queues

    async def receive(self, timeout_s):
        for queue in self._queues:
            if not queue.empty():
                return queue.get_nowait()
        await asyncio.sleep(0.001)
        return []

    async def ack(self):
        pass


class Parent:
    """Says when to start, and how many messages there were."""

    def __init__(self, start_ns):
        self._start_ns = start_ns
        self.said = []
        self.answers = []

    async def start(self):
        return self._start_ns

    async def told(self, what, timeout_s):
        await asyncio.sleep(0)
        return self.answers.pop(0) if self.answers else None

    def say(self, line):
        self.said.append(line)


def job(messages=100, **options):
    told = {
        "topics": ["t"],
        "subscriptions": ["s"],
        "sharing": 1,
        "producers": 1,
        "messages": messages,
        "message_bytes": 32,
        "rate": None,
        "burst": None,
    } | options
    streams = len(told["topics"]) * told["producers"]
    ring = ring_length(messages // streams, 32, streams)
    return {"streams": streams, "ring": ring} | told


def run(asked, *, publish=work.publish, driver=None):
    """Return the answers of producer and consumer to a job."""

    async def both():
        used = driver or MemoryDriver()
        parent = Parent(time.monotonic_ns())
        parent.answers = [None, asked.get("published")]
        await work.create(used, asked, parent)
        async with asyncio.TaskGroup() as tasks:
            consumed = tasks.create_task(work.consume(used, asked, parent))
            published = tasks.create_task(publish(used, asked, parent))
        await work.delete(used, asked, parent)
        return published.result(), consumed.result()

    return asyncio.run(both())


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(work, "SURPLUS_WAIT_S", 0.001)


def test_published_messages_are_consumed_and_checked():
    published, consumed = run(job())

    assert published["messages"] == consumed["messages"] == 100
    assert consumed["problems"] == []
    assert consumed["ended_ns"] >= consumed["began_ns"]


@pytest.mark.parametrize(
    ("options", "received"),
    [
        ({"sharing": 4}, 100),
        ({"subscriptions": ["s", "t", "u"]}, 300),
        ({"topics": ["t", "u"], "producers": 5, "burst": 3}, 100),
    ],
)
def test_every_consumer_checks_messages(options, received):
    _, consumed = run(job(**options))

    assert consumed["messages"] == received
    assert consumed["problems"] == []


def test_lost_messages_are_detected(monkeypatch):
    monkeypatch.setattr(work, "STALL_S", 1.0)
    driver = MemoryDriver(spoil=lambda payloads: payloads[:-1] or payloads)

    _, consumed = run(job(), driver=driver)

    assert consumed["problems"][0].startswith("s: 85 of 100 messages came")


def test_repeated_messages_are_detected():
    driver = MemoryDriver(spoil=lambda payloads: [*payloads, payloads[-1]])

    _, consumed = run(job(), driver=driver)

    assert "repeated or late" in " ".join(consumed["problems"])


def test_publishing_one_at_a_time_measures_each_latency():
    published, consumed = run(job(senders=1), publish=work.publish_each)

    assert set(published["latency_us"]) == {*PERCENTS, "max_us"}
    assert consumed["problems"] == []


def test_each_task_waits_for_the_acknowledgement_of_its_message():
    unacknowledged = []

    class SlowPublisher(MemoryPublisher):
        waiting = 0

        async def send_one(self, topic, payload):
            await super().send_one(topic, payload)
            self.waiting += 1
            unacknowledged.append(self.waiting)
            await asyncio.sleep(0)
            self.waiting -= 1

    class SlowDriver(MemoryDriver):
        @asynccontextmanager
        async def publisher(self, topics):
            yield SlowPublisher(self)

    published, consumed = run(
        job(60, senders=4), publish=work.publish_each, driver=SlowDriver()
    )

    assert (published["messages"], max(unacknowledged)) == (60, 4)
    assert consumed["problems"] == []


def test_paced_latency_counts_from_the_due_time(monkeypatch):
    monkeypatch.setattr(work, "WARM_UP_S", 0.0)

    published, consumed = run(
        job(200, rate=10_000, ring=200), publish=work.publish_paced
    )

    assert published["messages"] == 200
    assert consumed["problems"] == []
    assert consumed["latency_us"]["p50_us"] > 0
    assert published["lag_us"]["p50_us"] >= 0


def test_expected_count_can_be_given_at_the_end():
    asked = job(100, until_told=True, published=100)

    _, consumed = run(asked)

    assert consumed["messages"] == 100
    assert consumed["problems"] == []
