"""Apache Kafka with confluent-kafka, whose core is a library in C."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from bench.packages import missing_of, versions_of
from bench.systems import kafka_broker
from bench.systems.system import (
    BenchFailed,
    Consumer,
    Driver,
    Publisher,
    Server,
    System,
    Variant,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence
    from pathlib import Path

CHUNK = 1000
QUEUE_MESSAGES_MAX = 100_000
QUEUE_BYTES_MAX = 64 * 1024 * 1024
RECORDS_MAX = 10_000
FETCH_BYTES = 8 * 1024 * 1024
ASSIGNMENT_WAIT_S = 60.0
FLUSH_WAIT_S = 300.0
HEARTBEAT_MS = 500
"""How soon a consumer learns of new members of its group."""


class KafkaConfluent(System):
    """Apache Kafka, one node, with confluent-kafka."""

    name = "kafka-confluent"
    title = "Apache Kafka, confluent-kafka"
    client = "confluent-kafka"
    how = "produce_batch of 1,000, linger.ms 5 (0 for latency); consume of 10,000"
    warm_s = 4.0

    def variants(self) -> Sequence[Variant]:
        return kafka_broker.VARIANTS

    def missing(self) -> str | None:
        told = [
            kafka_broker.missing_broker(),
            missing_of(packages=("confluent-kafka",)),
        ]
        return "; ".join(filter(None, told)) or None

    def version(self) -> str:
        return f"{kafka_broker.broker_version()}, {versions_of('confluent-kafka')}"

    @contextmanager
    def serve(
        self, variant: Variant, directory: Path, workload: str
    ) -> Iterator[Server]:
        with kafka_broker.serving(variant, directory, workload) as server:
            yield server

    def driver(self, endpoint: dict[str, Any]) -> Driver:
        return ConfluentDriver(endpoint)


class ConfluentDriver(Driver):
    """
    ``produce_batch`` and ``consume``, the calls of its documentation for many messages.

    The C library batches messages, with its default linger of 5 ms in throughput
    workloads and none in latency workloads.  There is no callback per delivery, which
    would cost more than sending: ``flush`` waits for all acknowledgements, and the
    consumer detects missing messages.  The library commits offsets every 5 s by
    default.  Blocking calls run in their own thread.
    """

    async def create(
        self, topics: Sequence[str], subscriptions: Sequence[str], *, sharing: int
    ) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic  # noqa: PLC0415

        admin = AdminClient({"bootstrap.servers": self.endpoint["address"]})
        new = [
            NewTopic(topic, num_partitions=sharing, replication_factor=1)
            for topic in topics
        ]
        for made in admin.create_topics(new).values():
            await asyncio.to_thread(made.result)

    async def delete(self, topics: Sequence[str]) -> None:
        from confluent_kafka.admin import AdminClient  # noqa: PLC0415

        admin = AdminClient({"bootstrap.servers": self.endpoint["address"]})
        for done in admin.delete_topics(list(topics)).values():
            await asyncio.to_thread(done.result)

    @asynccontextmanager
    async def publisher(self, topics: Sequence[str]) -> AsyncIterator[Publisher]:
        from confluent_kafka import Producer  # noqa: PLC0415

        producer = Producer(
            {
                "bootstrap.servers": self.endpoint["address"],
                "acks": "all",
                "linger.ms": self.endpoint["linger_ms"],
                "queue.buffering.max.messages": 2 * QUEUE_MESSAGES_MAX,
            }
        )
        with ThreadPoolExecutor(1) as thread:
            yield ConfluentPublisher(producer, thread)

    @asynccontextmanager
    async def consumer(
        self, topics: Sequence[str], subscription: str, *, number: int, sharing: int
    ) -> AsyncIterator[Consumer]:
        import confluent_kafka  # noqa: PLC0415

        client = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.endpoint["address"],
                "group.id": f"{topics[0]}-{subscription}",
                "auto.offset.reset": "earliest",
                "max.partition.fetch.bytes": FETCH_BYTES,
                "heartbeat.interval.ms": HEARTBEAT_MS,
            }
        )
        with ThreadPoolExecutor(1) as thread:
            consumer = ConfluentConsumer(client, thread)
            try:
                client.subscribe(list(topics))
                await consumer.run(consumer.wait_for_assignment)
                consumer.keep_polling()
                yield consumer
            finally:
                consumer.stop_polling()
                await consumer.run(client.close)


class ConfluentPublisher(Publisher):
    """Passes messages to the library while its queue is short enough."""

    chunk = CHUNK

    def __init__(self, producer: Any, thread: ThreadPoolExecutor) -> None:
        self._producer = producer
        self._thread = thread

    async def send(self, topic: str, payloads: list[bytes]) -> None:
        messages_max = min(QUEUE_MESSAGES_MAX, QUEUE_BYTES_MAX // len(payloads[0]))
        while len(self._producer) > messages_max:
            # Acknowledged messages count until they are polled for.
            self._producer.poll(0)
            await asyncio.sleep(0.001)
        messages = [{"value": payload} for payload in payloads]
        if self._producer.produce_batch(topic, messages) != len(messages):
            raise BenchFailed("the client did not take all messages of a batch")

    async def flush(self) -> None:
        loop = asyncio.get_running_loop()
        left = await loop.run_in_executor(
            self._thread, self._producer.flush, FLUSH_WAIT_S
        )
        if left:
            raise BenchFailed(f"{left} messages were not acknowledged")

    async def send_one(self, topic: str, payload: bytes) -> None:
        self._producer.produce(topic, payload)
        self._producer.flush()


class ConfluentConsumer(Consumer):
    """Receives available messages, up to a maximum at a time."""

    def __init__(self, client: Any, thread: ThreadPoolExecutor) -> None:
        self._client = client
        self._thread = thread
        self._early: list[Any] = []
        self._is_wanted = threading.Event()

    async def run(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Call something in the thread and return its result."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, call, *arguments)

    def wait_for_assignment(self) -> None:
        """Poll until the group has given this consumer its partitions."""
        give_up_at = time.monotonic() + ASSIGNMENT_WAIT_S
        while not self._client.assignment():
            if time.monotonic() > give_up_at:
                raise BenchFailed("the group gave its consumer no partition")
            self._poll_early()

    def keep_polling(self) -> None:
        """Poll for the group until ``receive`` is called: others may be joining."""
        self._thread.submit(self._poll_until_wanted)

    def stop_polling(self) -> None:
        """Run the calls of the thread."""
        self._is_wanted.set()

    def _poll_until_wanted(self) -> None:
        # If messages already exist, no other consumer will join.
        while not self._is_wanted.is_set() and not self._early:
            self._poll_early()

    def _poll_early(self) -> None:
        message = self._client.poll(0.01)
        if message is not None and message.error() is None:
            self._early.append(message)

    async def receive(self, timeout_s: float) -> Sequence[bytes]:
        self.stop_polling()
        payloads: list[bytes] = await self.run(self._consume, timeout_s)
        return payloads

    def _consume(self, timeout_s: float) -> list[bytes]:
        if self._early:
            early, self._early = self._early, []
            return [message.value() for message in early]
        # It would wait for the full number; the available ones are enough.
        first = self._client.poll(timeout_s)
        if first is None:
            return []
        messages = [first, *self._client.consume(RECORDS_MAX, 0)]
        for message in messages:
            if message.error() is not None:
                raise BenchFailed(f"the consumer was told: {message.error()}")
        return [message.value() for message in messages]

    async def ack(self) -> None:
        """Do nothing: the library commits automatically."""


SYSTEM = KafkaConfluent()
