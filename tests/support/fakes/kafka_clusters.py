"""Clusters of brokers in this process that clients of Kafka reach by sockets."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager

import pyarrow as pa

from pydanube.model.names import TopicName
from pydanube_broker.cluster.pure.placement import PlacementLimits
from pydanube_broker.cluster.shard_moves import move_shard
from pydanube_kafka.config import KafkaConfig
from pydanube_kafka.connection import listen_kafka
from pydanube_kafka.server import open_kafka_server
from support.fakes.broker_clusters import SHARDS, BrokerCluster
from support.fakes.listener_parts import listener_parts
from support.fakes.storages import until
from support.servers.ports import free_port


class KafkaCluster:
    """A cluster, and the addresses of its brokers."""

    def __init__(self, **kafka):
        """*kafka* are settings of the listener."""
        self.cluster = BrokerCluster()
        self.servers = {}
        self._kafka = kafka
        self._running = {}

    @property
    def addresses(self):
        """The addresses that clients begin with."""
        return ",".join(each.address for each in self._running.values())

    @asynccontextmanager
    async def running(self, *broker_ids):
        """Run brokers while the body runs."""
        # Arrow imports Pandas for the first array, which would delay the first request.
        pa.array([b""], pa.binary())
        async with AsyncExitStack() as stack:
            ports = [free_port() for _ in broker_ids]
            for broker_id, port in zip(broker_ids, ports, strict=True):
                address = f"127.0.0.1:{port}"
                self.cluster.own_options[broker_id] = {
                    "addresses": {"kafka": address},
                    # Only the test moves shards.
                    "limits": PlacementLimits.of(
                        moves_max=1, imbalance_percent_max=1_000_000
                    ),
                }
                member = await stack.enter_async_context(self.cluster.broker(broker_id))
                running = self._running[broker_id] = _Running(address)
                parts = listener_parts(member.broker, "kafka", address=address)
                await stack.enter_async_context(running.serving(self._kafka, parts))
            await self.cluster.settled(*broker_ids)
            for shard in range(SHARDS):
                await self.move_shard(shard, broker_ids[shard % len(broker_ids)])
            yield self

    def server(self, broker_id):
        """The server of a broker."""
        return self._running[broker_id].server

    async def kill(self, broker_id):
        """End the session of a broker, and its connections, as SIGKILL does."""
        self.cluster.lose(broker_id)
        await self._running.pop(broker_id).stop()
        await self.cluster.settled(*self._running)

    async def move(self, topic, broker_id):
        """Move the shard of a topic to another broker."""
        await self.move_shard(await self._shard_of(topic), broker_id)

    async def owner(self, topic):
        """The broker that serves a topic."""
        shard = await self._shard_of(topic)
        await self.cluster.settled(*self._running)
        return next(
            each for each in self._running if shard in self.cluster.served(each)
        )

    async def _shard_of(self, topic):
        broker = next(iter(self.cluster.members.values())).broker
        record = await broker.catalog.get_topic(TopicName.parse(topic))
        return record.value.shard

    async def move_shard(self, shard, broker_id):
        """Move a shard to another broker, unless it is there."""
        if shard not in self.cluster.served(broker_id):
            await move_shard(self.cluster.store, shard, broker_id)
            await until(lambda: shard in self.cluster.served(broker_id))
            await self.cluster.settled(*self._running)


class _Running:
    """The listener of one broker."""

    def __init__(self, address):
        self.address = address
        self.server = None
        self._stack = AsyncExitStack()

    @asynccontextmanager
    async def serving(self, kafka, parts):
        port = int(self.address.rpartition(":")[2])
        async with self._stack:
            self.server = await self._stack.enter_async_context(
                open_kafka_server(KafkaConfig(port=port, **kafka), parts)
            )
            await self._stack.enter_async_context(
                listen_kafka(self.server, "127.0.0.1", port)
            )
            yield

    async def stop(self):
        await self._stack.aclose()
