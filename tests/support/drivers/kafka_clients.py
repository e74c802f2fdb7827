"""Clients of librdkafka that publish numbers, and read them with a group."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from threading import Event

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

WAIT_S = 60
PARTITIONS = 4
CLASSIC = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 200}
CONSUMER = {"group.protocol": "consumer"}
"""The two protocols of groups; the broker chooses the times of the second."""


MOVING = {"NOT_COORDINATOR", "UNKNOWN_MEMBER_ID"}
"""The errors that a consumer tells its program, and gets over."""


def options_of(addresses, **options):
    """Settings of a client that looks for new leaders often."""
    return {
        "bootstrap.servers": addresses,
        "log_level": 0,
        "topic.metadata.refresh.interval.ms": 500,
        "retry.backoff.ms": 20,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 200,
        **options,
    }


class Publishing:
    """A producer that publishes numbers until it is told to stop."""

    def __init__(self, options, topic):
        self._options = options | {"enable.idempotence": True, "linger.ms": 1}
        self._topic = topic
        self._is_enough = Event()
        self.acknowledged = 0
        self.errors = []
        self.published = 0

    def _on_delivery(self, error, _):
        if error:
            self.errors.append(error)
        else:
            self.acknowledged += 1

    def run(self):
        producer = confluent_kafka.Producer(self._options)
        while not self._is_enough.is_set():
            partition = self.published % PARTITIONS
            producer.produce(
                self._topic,
                str(self.published).encode(),
                partition=partition,
                on_delivery=self._on_delivery,
            )
            self.published += 1
            producer.poll(0.002)
        assert producer.flush(WAIT_S) == 0

    @asynccontextmanager
    async def running(self):
        """Publish while the body runs; at the end all is acknowledged."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(asyncio.to_thread(self.run))
            try:
                yield self
            finally:
                self._is_enough.set()

    async def acknowledges(self, count):
        """Wait for so many more acknowledgements."""
        until = self.acknowledged + count
        while self.acknowledged < until:  # noqa: ASYNC110  # Another thread counts.
            await asyncio.sleep(0.01)


def consume(options, topic, has_all, on_read=lambda _: None, protocol=CLASSIC):
    """Read with a group until *has_all*; returns the numbers of each partition."""
    consumer = confluent_kafka.Consumer(
        options
        | {
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        | protocol
    )
    consumer.subscribe([topic])
    found = {each: [] for each in range(PARTITIONS)}
    while not has_all(found):
        for message in consumer.consume(100, 0.2):
            if message.error():
                # The client tells of it, and looks for the coordinator.
                is_moving = message.error().name() in MOVING
                assert is_moving or message.error().retriable(), message.error()
                continue
            found[message.partition()].append(int(message.value()))
        on_read(found)
        # Without new messages, there is nothing to commit.
        with suppress(confluent_kafka.KafkaException):
            consumer.commit(asynchronous=True)
    consumer.close()
    return found


async def create(addresses, topic):
    """Create a topic; returns a client for administrators."""
    admin = AdminClient(options_of(addresses))
    await asyncio.to_thread(
        admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result
    )
    return admin


async def check_all_once(addresses, publishing):
    """Check that a reader gets each number once, in order."""
    assert publishing.errors == []
    assert publishing.acknowledged == publishing.published
    options = options_of(addresses)

    def has_all(found):
        return sum(map(len, found.values())) >= publishing.published

    found = await asyncio.to_thread(
        consume, options | {"group.instance.id": "i"}, "t", has_all
    )
    for partition, numbers in found.items():
        assert numbers == list(range(partition, publishing.published, PARTITIONS))
