"""
Nothing acknowledged is lost, repeated or reordered while shards change their owners.

Brokers with object journals are killed, stopped, cut off and drained at random moments,
over a metadata store and an object store that are late, fail, and do not answer.  Time
is simulated.
"""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from pydanube.aio.tasks import task_scope
from pydanube.cluster.controller import create_shards
from pydanube.metadata import keys
from pydanube.metadata.cluster_records import BrokerModeRecord
from pydanube.model.clusters import BrokerMode
from pydanube.model.errors import BrokerError
from pydanube.objects.memory import MemoryObjects
from simulation.loop import SimulatedLoop
from support.memory_store import MemoryStore
from support.message_clusters import Ledger, MessageBroker

SHARDS = 4
TOPICS = {1: 0, 2: 1, 3: 2, 4: 3, 5: 0}
"""The shard of each topic."""
BROKERS = ("a", "b", "c")
DISTURBED_S = 60.0
CALM_S = 40.0


class World:
    """A cluster, its producers and readers."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.store = MemoryStore()
        self.objects = MemoryObjects()
        self.ledger = Ledger()
        self.brokers: dict[str, MessageBroker] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.gone: list[MessageBroker] = []

    def start(self, broker_id: str, scope) -> None:
        broker = MessageBroker(self.store, self.objects, broker_id, self.rng)
        self.brokers[broker_id] = broker
        self.tasks[broker_id] = scope.run(self.run_broker(broker), broker_id)

    async def run_broker(self, broker: MessageBroker) -> None:
        await broker.run()
        # Its session is over; the next one begins when something starts the broker.
        if self.brokers.get(broker.broker_id) is broker:
            del self.brokers[broker.broker_id]
            del self.tasks[broker.broker_id]
            self.gone.append(broker)

    async def disturb(self, scope) -> None:
        rng = self.rng
        broker_id = rng.choice(BROKERS)
        broker = self.brokers.get(broker_id)
        if broker is None:
            self.start(broker_id, scope)
            return
        match rng.randrange(8):
            case 0 | 1:
                broker.metadata.is_dead = is_killed = rng.random() < 0.7
                # Requests of a dead process may still be executed.
                broker.objects.is_cut = is_killed
                del self.brokers[broker_id]
                self.gone.append(broker)
                task = self.tasks.pop(broker_id)
                task.cancel()
                await asyncio.wait([task])
            case 2:
                mode = rng.choice([BrokerMode.ACTIVE, BrokerMode.DRAINING])
                await self.set_mode(broker_id, mode)
            case 3 | 6:
                broker.objects.error_rate = rng.choice([0.0, 0.1, 0.5])
                broker.objects.latency_s = rng.choice([0.01, 0.1, 1.0])
            case 4:
                broker.metadata.error_rate = rng.choice([0.0, 0.2])
            case 5 | 7 if broker.session is not None:
                # The store has not heard of it for the TTL, but it is alive, and its
                # requests to the object store arrive late.
                broker.objects.latency_s = rng.choice([0.01, 3.0])
                await asyncio.sleep(0.3)
                self.store.lose(broker.session.lease)
        for each in [*self.brokers.values(), *self.gone]:
            await each.objects.execute_late()

    async def set_mode(self, broker_id: str, mode: BrokerMode) -> None:
        record = BrokerModeRecord(mode=mode, changed_at=0)
        await self.store.put(keys.BROKER_MODES.key(broker_id), record)

    async def produce(self, topic_id: int, producer: str) -> None:
        """Send messages one after the other, each until it is acknowledged."""
        sequence = 0
        while True:
            await asyncio.sleep(self.rng.random() * 0.2)
            server = self.find_server()
            if server is None:
                continue
            try:
                async with asyncio.timeout(self.rng.choice([0.1, 5.0])):
                    topic = server.find(topic_id)
                    offset, payload = await topic.publish(producer, sequence)
            except (BrokerError, TimeoutError):
                continue
            self.ledger.ack(topic_id, offset, payload)
            sequence += 1

    async def read(self) -> None:
        while True:
            await asyncio.sleep(self.rng.random() * 0.2)
            for topic_id in TOPICS:
                self.read_topic(topic_id)

    def read_topic(self, topic_id: int) -> bool:
        for broker in self.brokers.values():
            try:
                if broker.server is None:
                    continue
                topic = broker.server.find(topic_id)
            except BrokerError:
                continue
            self.ledger.read(topic_id, topic.payloads[: topic.end])
            return True
        return False

    def find_server(self):
        broker = self.brokers.get(self.rng.choice(BROKERS))
        return None if broker is None else broker.server

    async def run(self) -> None:
        await create_shards(self.store, SHARDS)
        for topic_id, shard in TOPICS.items():
            await self.store.put(keys.SHARD_TOPICS.key(shard, topic_id), f"t{topic_id}")
        loop = asyncio.get_running_loop()
        async with task_scope() as scope:
            for broker_id in BROKERS:
                self.start(broker_id, scope)
            for topic_id in TOPICS:
                for producer in ("p", "q"):
                    scope.run(self.produce(topic_id, producer))
            scope.run(self.read())
            while loop.time() < DISTURBED_S:
                await asyncio.sleep(self.rng.expovariate(0.7))
                await self.disturb(scope)
            for broker_id in BROKERS:
                if broker_id not in self.brokers:
                    self.start(broker_id, scope)
                await self.set_mode(broker_id, BrokerMode.ACTIVE)
                broker = self.brokers[broker_id]
                broker.objects.error_rate = broker.metadata.error_rate = 0.0
                broker.objects.latency_s = 0.01
            await asyncio.sleep(CALM_S)
            counts = {topic_id: len(each) for topic_id, each in self.acked()}
            await asyncio.sleep(5.0)
            # All topics are served again.
            assert all(len(each) > counts[topic_id] for topic_id, each in self.acked())
            assert all(self.read_topic(topic_id) for topic_id in TOPICS)
            # The journals of all sessions that have ended are removed.
            assert await self.names(keys.SESSION_JOURNALS) == await self.names(
                keys.SESSIONS
            )

    async def names(self, prefix) -> set[str]:
        return {prefix.name_of(path) for path, _ in await self.store.scan(prefix)}

    def acked(self):
        return ((topic_id, self.ledger.acked[topic_id]) for topic_id in TOPICS)


def simulate(seed: int) -> World:
    world = World(seed)
    loop = SimulatedLoop(Random(seed))
    try:
        loop.run_until_complete(world.run())
        assert not loop.failures
    finally:
        loop.close()
    return world


# With each of these seeds, another rule that is left out is found.
@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2, 18])
def test_nothing_acknowledged_is_lost_by_takeovers_and_moves(seed: int) -> None:
    simulate(seed)


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_nothing_acknowledged_is_lost_by_takeovers_with_many_seeds() -> None:
    for seed in range(1000, 1200):
        simulate(seed)
