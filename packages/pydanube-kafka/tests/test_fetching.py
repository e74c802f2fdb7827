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
from support.drivers.kafka_requests import KafkaRequests, request_bytes
from support.fakes.listener_parts import listener_parts

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
