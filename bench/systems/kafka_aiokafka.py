"""Apache Kafka with aiokafka."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, contextmanager
from itertools import cycle
from typing import TYPE_CHECKING, Any

from bench.packages import missing_of, versions_of
from bench.systems import kafka_broker
from bench.systems.system import (
    Consumer,
    Driver,
    Publisher,
    Server,
    System,
    Variant,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence
    from pathlib import Path

CHUNK = 1000
BATCH_BYTES = 512 * 1024
WINDOW_BATCHES = 16
RECORDS_MAX = 10_000
FETCH_BYTES = 8 * 1024 * 1024
ASSIGNMENT_WAIT_S = 60
HEARTBEAT_MS = 500
"""How soon a consumer learns of new members of its group."""


class KafkaAiokafka(System):
    """Apache Kafka, one node, with aiokafka."""

    name = "kafka-aiokafka"
    title = "Apache Kafka, aiokafka"
    client = "aiokafka"
    how = "own batches of 512 KiB, 16 on their way; getmany, offsets by auto-commit"
    warm_s = 4.0

    def variants(self) -> Sequence[Variant]:
        return kafka_broker.VARIANTS

    def missing(self) -> str | None:
        told = [kafka_broker.missing_broker(), missing_of(packages=("aiokafka",))]
        return "; ".join(filter(None, told)) or None

    def version(self) -> str:
        return f"{kafka_broker.broker_version()}, {versions_of('aiokafka')}"

    @contextmanager
    def serve(
        self, variant: Variant, directory: Path, workload: str
    ) -> Iterator[Server]:
        with kafka_broker.serving(variant, directory, workload) as server:
            yield server

    def driver(self, endpoint: dict[str, Any]) -> Driver:
        return AiokafkaDriver(endpoint)


class AiokafkaDriver(Driver):
    """
    Manual batches, called "direct batch control" in aiokafka's documentation.

    A batch of up to 1,000 messages or 512 KiB is built with ``create_batch`` and sent
    with ``send_batch``, 16 of them in flight; this avoids a coroutine and a future per
    message.  Consumers call ``getmany`` and leave committing offsets to the client,
    every 5 s by default.  A topic that several consumers share has a partition for
    each, because Kafka shares by partition.
    """

    async def create(
        self, topics: Sequence[str], subscriptions: Sequence[str], *, sharing: int
    ) -> None:
        from aiokafka.admin import (  # noqa: PLC0415
            AIOKafkaAdminClient,
            NewTopic,
        )

        admin = AIOKafkaAdminClient(bootstrap_servers=self.endpoint["address"])
        await admin.start()
        try:
            await admin.create_topics([NewTopic(topic, sharing, 1) for topic in topics])
        finally:
            await admin.close()

    async def delete(self, topics: Sequence[str]) -> None:
        from aiokafka.admin import AIOKafkaAdminClient  # noqa: PLC0415

        admin = AIOKafkaAdminClient(bootstrap_servers=self.endpoint["address"])
        await admin.start()
        try:
            await admin.delete_topics(list(topics))
        finally:
            await admin.close()

    @asynccontextmanager
    async def publisher(self, topics: Sequence[str]) -> AsyncIterator[Publisher]:
        from aiokafka import AIOKafkaProducer  # noqa: PLC0415

        async with AIOKafkaProducer(
            bootstrap_servers=self.endpoint["address"],
            acks="all",
            linger_ms=0,
            max_batch_size=BATCH_BYTES,
        ) as producer:
            partitions = {
                topic: sorted(await producer.partitions_for(topic)) for topic in topics
            }
            yield AiokafkaPublisher(producer, partitions)

    @asynccontextmanager
    async def consumer(
        self, topics: Sequence[str], subscription: str, *, number: int, sharing: int
    ) -> AsyncIterator[Consumer]:
        from aiokafka import AIOKafkaConsumer  # noqa: PLC0415

        async with AIOKafkaConsumer(
            *topics,
            bootstrap_servers=self.endpoint["address"],
            group_id=f"{topics[0]}-{subscription}",
            auto_offset_reset="earliest",
            max_partition_fetch_bytes=FETCH_BYTES,
            heartbeat_interval_ms=HEARTBEAT_MS,
        ) as consumer:
            async with asyncio.timeout(ASSIGNMENT_WAIT_S):
                while not consumer.assignment():  # noqa: ASYNC110  # It tells nobody.
                    await asyncio.sleep(0.02)
            yield AiokafkaConsumer(consumer)


class AiokafkaPublisher(Publisher):
    """Fills batches, for several partitions in turn."""

    chunk = CHUNK

    def __init__(self, producer: Any, partitions: dict[str, list[int]]) -> None:
        self._producer = producer
        self._partitions = {topic: cycle(all_) for topic, all_ in partitions.items()}
        self._free = asyncio.Semaphore(WINDOW_BATCHES)
        self._failure: BaseException | None = None

    async def send(self, topic: str, payloads: list[bytes]) -> None:
        batch = self._producer.create_batch()
        for payload in payloads:
            if batch.append(key=None, value=payload, timestamp=None) is None:
                await self._ship(topic, batch)
                batch = self._producer.create_batch()
                batch.append(key=None, value=payload, timestamp=None)
        await self._ship(topic, batch)

    async def _ship(self, topic: str, batch: Any) -> None:
        await self._free.acquire()
        partition = next(self._partitions[topic])
        future = await self._producer.send_batch(batch, topic, partition=partition)
        future.add_done_callback(self._on_done)

    def _on_done(self, future: asyncio.Future[Any]) -> None:
        self._free.release()
        self._failure = self._failure or future.exception()

    async def flush(self) -> None:
        await self._producer.flush()
        if self._failure is not None:
            raise self._failure

    async def send_one(self, topic: str, payload: bytes) -> None:
        await self._producer.send_and_wait(topic, payload)


class AiokafkaConsumer(Consumer):
    """Receives all available messages."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    async def receive(self, timeout_s: float) -> Sequence[bytes]:
        records = await self._consumer.getmany(
            timeout_ms=int(timeout_s * 1000), max_records=RECORDS_MAX
        )
        return [record.value for found in records.values() for record in found]

    async def ack(self) -> None:
        """Do nothing: the client commits automatically."""


SYSTEM = KafkaAiokafka()
