"""
Several brokers of a cluster in one deterministic run, with faults of every kind.

Real parts.  Sessions, the controller, takeovers and moves of shards, object journals
with their fences, recovery of shards, and the removal of journals.

Simulated parts.  Time and threads (``loop.py``), and processes, which are killed, and
paused for longer than their sessions last (``loop.Host``).  The metadata store: late,
failing, with changes of unknown outcome, and cut off in one or both directions; a watch
that was cut off gets all missed changes as one, as after a compaction.  The clocks of
brokers: a session ends for its holder earlier or later than in the store.  The object
store: slow, failing, and executing requests late.  Messages are in memory, without the
topics and subscriptions of a broker (``support/fakes/message_clusters.py``).

Checks.  A ledger knows what producers sent and what they and readers were told.  It
finds messages that are lost, duplicated, invented, out of order or at two offsets,
ends that go back, and refused messages that appear.  After the last fault, all topics
must be served again, and all journals without use removed; the run ends when they are.

``cluster_rules.py`` leaves out rules of the protocol, one at a time, to show that runs
find that.

    make sim SEED=4711 ARGS='--cluster'       one run and a report
    make sim-long ARGS='--cluster'            seed after seed, until Ctrl-C
    make sim SEED=0 ARGS='--cluster --without fence_before_read'
"""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from unittest.mock import patch

from pydanube.aio.tasks import task_scope
from pydanube.model.clusters import BrokerMode
from pydanube.model.errors import (
    BrokerError,
    MetadataUnavailable,
    NotOwner,
    SessionLost,
)
from pydanube.objects.memory import MemoryObjects
from pydanube_broker.cluster.controller import create_shards
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.cluster_records import BrokerModeRecord
from pydanube_broker.storage.journal import object_recovery
from simulation.loop import HOST, Host, SimulatedLoop
from support.fakes.clusters import TTL_S
from support.fakes.memory_store import MemoryStore
from support.fakes.message_clusters import Ledger, MessageBroker

SHARDS = 4
TOPICS = {1: 0, 2: 1, 3: 2, 4: 3, 5: 0}
"""The shard of each topic."""
BROKERS = ("a", "b", "c")
DISTURBED_S = 60.0
CALM_S = 50.0
"""The longest time until all is well after the last fault."""
LOOK_S = 1.0
READS_IN_FLIGHT = 8
"""Fewer than usual: they take most of the time, and one that fails ends all."""
_FAULTS = (
    *("kills",) * 2,
    "changes of modes",
    "object store faults",
    "metadata faults",
    "lost sessions",
    "object store faults",
    "lost sessions",
    *("pauses",) * 2,
    *("partitions",) * 2,
)
"""The name of each fault."""


class ClusterWorld:
    """A cluster, its producers and readers."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.store = MemoryStore()
        self.objects = MemoryObjects()
        self.ledger = Ledger()
        self.brokers: dict[str, MessageBroker] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.gone: list[MessageBroker] = []
        self.hosts: dict[MessageBroker, Host] = {}
        self.stale: set[MessageBroker] = set()
        """Brokers whose sessions the store has ended, perhaps without their notice."""
        self.faults: Counter[str] = Counter()
        # Some runs have few kinds of faults, so that their combinations are frequent.
        count = self.rng.choice([4, 8, len(_FAULTS)])
        self.likely_faults = self.rng.sample(range(len(_FAULTS)), count)
        self.fault_rate = self.rng.choice([0.3, 0.7, 1.5])
        """Faults per second."""
        self.pause_s_max = self.rng.choice([0.2, 0.8])
        """The longest time that a producer waits between messages."""
        self.ended_at = 0.0
        """The simulated seconds of the run."""

    def start(self, broker_id: str, scope) -> None:
        broker = MessageBroker(self.store, self.objects, broker_id, self.rng)
        self.brokers[broker_id] = broker
        self.hosts[broker] = Host(broker_id)
        self.tasks[broker_id] = scope.run(self.run_broker(broker), broker_id)

    async def run_broker(self, broker: MessageBroker) -> None:
        HOST.set(self.hosts[broker])
        try:
            await broker.run()
        except MetadataUnavailable:
            # A broker that is cut off while it starts ends.
            if broker.server is not None:
                raise
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
        if self.hosts[broker].is_paused or broker.metadata.is_mute:
            return
        fault = rng.choice(self.likely_faults)
        self.faults[_FAULTS[fault]] += 1
        match fault:
            case 8 | 9 if broker.session is not None:
                scope.run(self.pause(broker, rng.choice([0.5, 3.0, 8.0])))
            case 10 | 11 if broker.session is not None:
                directions = rng.choice([(True, False), (False, True), (True, True)])
                scope.run(self.cut_off(broker, directions, rng.choice([0.5, 4.0, 8.0])))
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
                broker.objects.error_rate = rng.choice([0.0, 0.1, 0.5, 1.0])
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

    async def pause(self, broker: MessageBroker, seconds: float) -> None:
        """Stop the process, as SIGSTOP does."""
        host = self.hosts[broker]
        host.pause()
        try:
            await self.stop_keepalives(broker, seconds, is_known_to_store=True)
        finally:
            # Also at the end of the run: its tasks could not end otherwise.
            host.resume(asyncio.get_running_loop())

    async def cut_off(
        self, broker: MessageBroker, directions: tuple[bool, bool], seconds: float
    ) -> None:
        """Cut the process off from the metadata store, in one or both directions."""
        metadata = broker.metadata
        metadata.is_mute, metadata.is_deaf = directions
        await self.stop_keepalives(broker, seconds, is_known_to_store=metadata.is_mute)
        metadata.is_mute = metadata.is_deaf = False

    async def stop_keepalives(
        self, broker: MessageBroker, seconds: float, *, is_known_to_store: bool
    ) -> None:
        """Let the session end if *seconds* are longer than it lasts."""
        loop, lease = asyncio.get_running_loop(), broker.session.lease
        if seconds < TTL_S:
            await asyncio.sleep(seconds)
            return
        # The clock of the broker drifts from that of the store.
        holder_s = TTL_S * self.rng.choice([0.8, 1.0, 1.5, 5.0])
        lease._valid_until = loop.time() + holder_s
        loop.call_later(holder_s, lease.end)
        await asyncio.sleep(TTL_S)
        if is_known_to_store:
            self.stale.add(broker)
            self.store.expire(lease)
        await asyncio.sleep(seconds - TTL_S)

    async def set_mode(self, broker_id: str, mode: BrokerMode) -> None:
        record = BrokerModeRecord(mode=mode, changed_at=0)
        await self.store.put(keys.BROKER_MODES.key(broker_id), record)

    async def produce(self, topic_id: int, producer: str) -> None:
        """Send messages one after the other, each until it is acknowledged."""
        ledger, sequence, attempt, is_unknown = self.ledger, 0, 0, False
        while True:
            await asyncio.sleep(self.rng.random() * self.pause_s_max)
            server = self.find_server()
            if server is None:
                continue
            # A message that was refused is not sent again, but another one is.
            payload = f"{producer}{topic_id}:{sequence}:{attempt}".encode()
            ledger.sent.add(payload)
            try:
                async with asyncio.timeout(self.rng.choice([0.1, 5.0])):
                    topic = server.find(topic_id)
                    offset = await topic.publish(producer, sequence, payload)
            except (NotOwner, SessionLost):
                if not is_unknown:
                    ledger.refuse(payload)
                    attempt += 1
                continue
            except (BrokerError, TimeoutError):
                is_unknown = True
                continue
            ledger.ack(topic_id, offset, payload)
            sequence, attempt, is_unknown = sequence + 1, 0, False

    async def read(self) -> None:
        while True:
            await asyncio.sleep(self.rng.random() * 0.2)
            for topic_id in TOPICS:
                self.read_topic(topic_id)

    def read_topic(self, topic_id: int) -> bool:
        for broker in self.brokers.values():
            if broker.server is None or self.hosts[broker].is_paused:
                continue
            try:
                topic = broker.server.find(topic_id)
            except BrokerError:
                continue
            payloads = topic.payloads[: topic.end]
            self.ledger.read(topic_id, payloads, is_stale=broker in self.stale)
            return True
        return False

    def find_server(self):
        broker = self.brokers.get(self.rng.choice(BROKERS))
        if broker is None or self.hosts[broker].is_paused:
            return None
        return broker.server

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
                await asyncio.sleep(self.rng.expovariate(self.fault_rate))
                await self.disturb(scope)
            await asyncio.sleep(LOOK_S)
            while self.is_any_ending():  # noqa: ASYNC110 (a poll is enough here)
                await asyncio.sleep(LOOK_S)
            for broker_id in BROKERS:
                if broker_id not in self.brokers:
                    self.start(broker_id, scope)
                await self.set_mode(broker_id, BrokerMode.ACTIVE)
                broker = self.brokers[broker_id]
                broker.objects.error_rate = broker.metadata.error_rate = 0.0
                broker.objects.latency_s = 0.01
            calm_at = loop.time()
            counts = self.counts()
            while missing := await self.missing_after(counts):
                assert loop.time() < calm_at + CALM_S, missing
                await asyncio.sleep(LOOK_S)
                counts = self.counts()
                await asyncio.sleep(LOOK_S)

    def is_any_ending(self) -> bool:
        """Return whether a pause, a partition, or a run without session goes on."""
        return any(
            host.is_paused or broker.metadata.is_mute or broker.metadata.is_deaf
            for broker, host in self.hosts.items()
        ) or any(
            broker in self.stale or (broker.session and broker.session.is_over)
            for broker in self.brokers.values()
        )

    async def missing_after(self, counts: dict[int, int]) -> str | None:
        """Return what is not as it must be in a calm cluster, or None."""
        now = self.counts()
        for topic_id in TOPICS:
            if now[topic_id] == counts[topic_id]:
                return f"topic {topic_id} accepts no messages"
            if not self.read_topic(topic_id):
                return f"topic {topic_id} cannot be read"
        journals = await self.names(keys.SESSION_JOURNALS)
        sessions = await self.names(keys.SESSIONS)
        if journals != sessions:
            return f"sessions {sessions} have the journals {journals}"
        return None

    def counts(self) -> dict[int, int]:
        """Return the number of acknowledged messages of each topic."""
        return {
            topic_id: len(self.ledger.acked.get(topic_id, ())) for topic_id in TOPICS
        }

    async def names(self, prefix) -> set[str]:
        return {prefix.name_of(path) for path, _ in await self.store.scan(prefix)}


def simulate_cluster(seed: int) -> ClusterWorld:
    """Run a cluster; raises if a rule is violated."""
    world, loop = ClusterWorld(seed), SimulatedLoop(Random(seed))
    try:
        with patch.object(object_recovery, "READS_IN_FLIGHT", READS_IN_FLIGHT):
            loop.run_until_complete(world.run())
        assert not loop.failures, loop.failures
        world.ended_at = loop.time()
    finally:
        loop.close()
    return world


def violation_of(error: BaseException) -> str:
    """Return what a run has found, without the groups of tasks around it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
