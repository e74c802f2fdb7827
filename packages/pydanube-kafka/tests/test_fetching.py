"""Fetching in a session, request by request, without a socket."""

from __future__ import annotations

from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from pydanube_broker.testing import memory_broker
from pydanube_kafka.calls import Call
from pydanube_kafka.config import KafkaConfig
from pydanube_kafka.connection import KafkaConnection
from pydanube_kafka.fetching import fetch
from pydanube_kafka.server import open_kafka_server
from pydanube_kafka.wire.apis import Api, parse_request
from pydanube_kafka.wire.record_batches import decode_batches
from support.drivers.kafka_requests import KafkaRequests, request_bytes
from support.fakes.listener_parts import listener_parts
from support.fakes.storages import seal

pytestmark = pytest.mark.slow

VERSION = 12


class Consumer:
    """A consumer that fetches two partitions in a session."""

    def __init__(self, server):
        self._server, self._connection = server, KafkaConnection(server)
        self._epoch, self._session_id = 0, 0

    async def begin(self, *offsets, max_wait_s=0.0):
        """Begin to fetch; return what the answer can be awaited with."""
        types = KafkaRequests(0).types(Api.FETCH, VERSION)
        partitions = tuple(
            types.FetchPartition(
                partition=index,
                current_leader_epoch=-1,
                fetch_offset=offset,
                last_fetched_epoch=-1,
                log_start_offset=-1,
                partition_max_bytes=100_000,
            )
            for index, offset in enumerate(offsets)
        )
        data = request_bytes(
            Api.FETCH,
            VERSION,
            replica_id=-1,
            max_wait=timedelta(seconds=max_wait_s),
            min_bytes=1,
            max_bytes=100_000,
            isolation_level=0,
            session_id=self._session_id,
            session_epoch=self._epoch,
            topics=(types.FetchTopic(topic="orders", partitions=partitions),),
            forgotten_topics_data=(),
            rack_id="",
        )
        self._epoch += 1
        return await fetch(
            Call(self._server, self._connection, parse_request(data), 0.0)
        )

    async def end(self, waiting):
        """Return the partitions with records of an answer."""
        answer = await waiting
        self._session_id = answer.session_id
        return [
            partition.partition_index
            for each in answer.responses
            for partition in each.partitions
            if partition.records
        ]

    def forget_session(self):
        """Let the next request begin another session."""
        self._epoch, self._session_id = 0, 0

    def close(self):
        """End its session."""
        self._connection.end_fetch_session()


@asynccontextmanager
async def served():
    async with (
        memory_broker() as memory,
        memory.connect() as client,
        open_kafka_server(
            KafkaConfig(port=0), listener_parts(memory.broker, "kafka")
        ) as server,
    ):
        await client.topics.create("/default/orders", partitions=2)
        consumer = Consumer(server)
        consumer.broker = memory.broker
        yield client, consumer
        consumer.close()


async def test_messages_that_come_before_a_request_waits_end_its_waiting():
    async with served() as (client, consumer):
        assert await consumer.end(await consumer.begin(0, 0)) == []
        # The topics were opened since, so these are looked at once more.
        assert await consumer.end(await consumer.begin()) == []
        waiting = await consumer.begin(max_wait_s=2.0)
        async with client.producer("/default/orders-part-1") as producer:
            await producer.send(b"m")
        assert await consumer.end(waiting) == [1]


async def test_messages_come_once_in_an_answer_although_sealing_joins_batches(
    monkeypatch,
):
    name = "/default/orders-part-0"
    async with served() as (client, consumer):
        async with client.producer(name) as producer:
            for number in range(3):
                await producer.send_batch([b"%d" % number] * 4)
        storage = consumer.broker.storage
        [topic_log] = [each for each in storage.logs.values() if str(each.name) == name]
        read = topic_log.read

        async def read_one_and_seal(offset, *, bytes_max):
            frames = await read(offset, bytes_max=bytes_max)
            await seal(storage, topic_log.topic_id)
            return frames[:1]

        monkeypatch.setattr(topic_log, "read", read_one_and_seal)
        offset, found = 0, []
        while offset < 12:
            answer = await (await consumer.begin(offset, 0))
            consumer.forget_session()
            (records,) = [
                partition.records
                for each in answer.responses
                for partition in each.partitions
                if partition.records
            ]
            for batch in decode_batches(records):
                # As librdkafka, which compares with the offset that it asked for.
                base, end = batch.base_offset, batch.base_offset + batch.count
                found += range(max(base, offset), end)
            offset = found[-1] + 1
        assert found == list(range(12))
