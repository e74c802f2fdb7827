"""
Whole brokers of a cluster with real clients in one deterministic run.

Real parts.  Brokers with topics, subscriptions, staging and the server of the native
protocol, above the parts that ``cluster.py`` has; and the client.

Simulated parts.  Time, threads and processes (``loop.py``), and a network for each
broker (``network.py``).  The metadata store and the object store are late and fail, and
the store ends sessions, as in ``cluster.py``.  Local disks are lost with their broker.

``features.py`` has the applications: transactions with acknowledgements, deduplication,
delays, dead letters, topics that are deleted and created again, exclusive producers,
schemas, seeks, and partitions that grow.  Each has promises of its own, which it checks
while it runs and at the end, when all faults are over.  A run that does not become well
by itself has failed, too, and so has an error that no fault explains.

``feature_rules.py`` leaves out rules of the product, one at a time, to show that runs
find it (``--without``).

    make sim SEED=4711 ARGS='--features'      one run and a report
    make sim-long ARGS='--features'           seed after seed, until Ctrl-C
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack, suppress
from contextvars import copy_context
from random import Random
from typing import TYPE_CHECKING, Any

import pydanube
from pydanube.aio.chance import SOURCE
from pydanube.aio.tasks import task_scope
from pydanube.client.connections.redirects import Redirect, redirecting
from pydanube.model.clusters import BrokerMode
from pydanube.model.errors import (
    BrokerError,
    Closed,
    ConnectionLost,
    JournalFailed,
    MetadataUnavailable,
    ObjectsUnavailable,
    SessionLost,
)
from pydanube.wire.batches import decode
from pydanube_broker.broker.delivery.internal_batches import InternalBatch
from pydanube_broker.cluster.controller import create_shards
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.cluster_records import BrokerModeRecord
from pydanube_broker.servers.native.connection import NativeConnection
from pydanube_broker.servers.native.server import NativeServer, open_native_server
from simulation.loop import HOST, Host, SimulatedLoop
from simulation.machine import always_idle
from simulation.network import Network, NetworkConditions
from support.fakes.broker_clusters import SHARDS, Member, SharedObjects, open_member
from support.fakes.clusters import TTL_S, LateStore
from support.fakes.memory_store import MemoryStore
from support.fakes.message_clusters import SlowLink
from support.fakes.served_clusters import PORT

if TYPE_CHECKING:
    from collections.abc import Callable

    from simulation.features import Feature

BROKERS = ("a", "b", "c")
URL = "danube://" + ",".join(BROKERS)
DISTURBED_S = 40.0
CALM_S = 300.0
"""The longest time until all is well after the last fault."""
STOP_S = 60.0
"""How long a broker whose session is over may take to stop."""
WALL_CLOCK_AT_START_US = 1_700_000_000_000_000
FAULTS = (
    "kills",
    "lost sessions",
    "pauses",
    "partitions",
    "modes",
    "object store faults",
    "metadata faults",
    "broken connections",
    *("moves",) * 3,
)
_EXPECTED = (
    JournalFailed,
    SessionLost,
    Closed,
    MetadataUnavailable,
    ObjectsUnavailable,
)
"""The errors with which a broker may end, because of faults."""


class RemoteLink(SlowLink):
    """The way of one process to the store with journals, segments and parts."""

    async def _travel(self) -> None:
        await asyncio.sleep(self._rng.random() * self.latency_s)
        if self.is_cut:
            # The journal would try again for ever, and nothing ends its tasks.
            raise JournalFailed("the process is dead")

    async def put(self, name: str, data: Any) -> None:
        kept = bytes(data)
        await self._ask(lambda: self._objects.put(name, kept))

    async def stat(self, name: str) -> Any:
        return await self._ask(lambda: self._objects.stat(name))

    def open(self, name: str) -> Any:
        if self.is_cut or self._rng.random() < self.error_rate:
            raise OSError("on purpose")
        return self._objects.open(name)

    def url(self, name: str) -> str:
        return self._objects.url(name)


class PeerLink:
    """The way of one broker to the others."""

    def __init__(self, world: ServedWorld) -> None:
        self._world = world

    async def append(self, peer: Any, topic: Any, source: Any, batches: Any) -> None:
        """See internal_publishing.Peers."""
        rng = self._world.rng
        await asyncio.sleep(rng.random() * 0.01)
        process = self._world.processes.get(peer.broker_id)
        if process is None or process.member is None or not process.host.is_alive:
            raise ConnectionLost(f"{peer.broker_id} cannot be reached")
        copies = [
            InternalBatch(list(each.positions), decode(bytearray(each.frame.buffer)))
            for each in batches
        ]
        context = copy_context()
        context.run(HOST.set, process.host)
        work = process.member.broker.internal.append(topic, source, copies)
        task = process.member.tasks.create_task(_outcome(work), context=context)
        await asyncio.wait([task], timeout=5.0)
        await asyncio.sleep(rng.random() * 0.01)
        is_lost = "broken connections" in self._world.likely_faults
        if not task.done() or task.cancelled() or (is_lost and rng.random() < 0.1):
            raise ConnectionLost(f"the answer of {peer.broker_id} was lost")
        error = task.result()
        if error is not None:
            raise error


async def _outcome(request: Any) -> BrokerError | None:
    try:
        await request
    except BrokerError as error:
        return error
    return None


class NoTap:
    """An observer of a link that looks at nothing."""

    def on_received(self, data: bytes) -> None:
        """See network.Tap."""

    def on_written(self, data: bytes) -> None:
        """See network.Tap."""

    def on_lost(self) -> None:
        """See network.Tap."""


class BrokerProcess:
    """One run of a broker."""

    def __init__(self, world: ServedWorld, broker_id: str) -> None:
        world.start_count += 1
        self.broker_id = broker_id
        self.host = Host(f"{broker_id}.{world.start_count}")
        self.metadata = LateStore(world.store, world.rng)
        self.objects = RemoteLink(world.remote, world.rng)
        self.member: Member | None = None
        self.is_stale = False
        """Whether the store has ended its session, perhaps without its notice."""
        self.task: asyncio.Task[None] | None = None
        self._world = world
        self._server: NativeServer | None = None

    def new_protocol(self) -> asyncio.BufferedProtocol:
        """See network.Listener."""
        assert self._server is not None
        return NativeConnection(self._server)

    @property
    def is_cut_off(self) -> bool:
        """Whether a pause or a partition goes on."""
        metadata = self.metadata
        return self.host.is_paused or metadata.is_mute or metadata.is_deaf

    async def run(self) -> None:
        """Serve until the session is over, or the process is killed."""
        HOST.set(self.host)
        world, network = self._world, self._world.networks[self.broker_id]
        try:
            async with (
                open_member(
                    self.broker_id,
                    store=self.metadata,
                    remote=self.objects,
                    started_at=world.start_count,
                    settings=world.storage,
                    ttl_s=TTL_S,
                    wall_clock_us=world.wall_clock_us,
                    new_session_id=world.new_session_id,
                    merging=world.merging,
                    peers=PeerLink(world),
                ) as self.member,
                open_native_server(self.member.broker) as self._server,
            ):
                self.metadata.has_session = True
                network.listener = self
                try:
                    await self.member.session.lease.lost.wait()
                    # It answers for a while before it notices.
                    await asyncio.sleep(world.rng.random() * 2.0)
                finally:
                    if network.listener is self:
                        network.listener = None
        except BaseException as error:
            if self.host.is_alive and not _is_expected(error):
                raise
        finally:
            if self.member is not None:
                world.merged_count += self.member.broker.storage.merger.merged_count
            if self.host.is_alive:
                self.host.is_alive = False
                network.on_process_died(self.host, is_silent=False)
            if world.processes.get(self.broker_id) is self:
                del world.processes[self.broker_id]

    def kill(self) -> None:
        """End the process at once; the store does not know it until the TTL."""
        self.host.is_alive = False
        self.metadata.is_dead = True
        self.objects.is_cut = True
        network = self._world.networks[self.broker_id]
        if network.listener is self:
            network.listener = None
        network.on_process_died(self.host, is_silent=False)
        if self.member is not None:
            lease: Any = self.member.session.lease
            self._world.loop.call_later(TTL_S, self._world.store.lose, lease)
            # Nothing of the process may wait for ever.
            lease.end()
        assert self.task is not None
        self.task.cancel()


def _is_expected(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_expected, error.exceptions))
    return isinstance(error, (*_EXPECTED, asyncio.CancelledError))


class ServedWorld:
    """A cluster, its clients and the faults."""

    def __init__(self, seed: int, loop: SimulatedLoop) -> None:
        self.seed = seed
        self.loop = loop
        self.rng = Random(seed)
        self.store = MemoryStore()
        self.remote = SharedObjects()
        self.processes: dict[str, BrokerProcess] = {}
        self.start_count = 0
        self.faults: Counter[str] = Counter()
        self.violations: list[str] = []
        self.errors: Counter[str] = Counter()
        """The errors that applications got, by type."""
        self.is_stopping = False
        """Whether applications begin nothing more."""
        self.ended_at = 0.0
        self.storage = {
            "seal_interval_s": self.rng.choice([0.5, 5.0]),
            "seal_age_s": self.rng.choice([1.0, 600.0]),
        }
        # Its own random numbers do not change the rest of the run.
        rng = Random(f"merging {seed}")
        self.storage["merge_bytes"] = 0
        if rng.random() < 0.25:
            # A quarter of the runs merges segments, and has many.
            self.storage |= {
                "seal_interval_s": 0.5,
                "seal_age_s": 0.5,
                "merge_bytes": rng.choice([64 * 1024, 1024 * 1024]),
            }
        self.merging = always_idle(rng.choice([0.5, 3.0]), rng)
        self.merged_count = 0
        """The segments that merged ones have replaced."""
        self.networks = {
            each: Network(loop, self.rng, NetworkConditions(), _ignore, _no_tap)
            for each in BROKERS
        }
        count = self.rng.choice([2, 4, len(FAULTS)])
        self.likely_faults = [*self.rng.sample(FAULTS, count), "moves"]
        self.fault_rate = self.rng.choice([0.2, 0.6, 1.2])
        """Faults per second."""

    # Clocks and ids.

    def wall_clock_us(self) -> int:
        """Return microseconds since 1970."""
        return WALL_CLOCK_AT_START_US + int(self.loop.time() * 1_000_000)

    def new_session_id(self) -> str:
        """Return the id of a session of a broker."""
        return self.rng.randbytes(16).hex()

    # Applications.

    def connect(self, **options: Any) -> Any:
        """Connect a client."""
        return pydanube.connect(URL, wait_s=CALM_S, retry_s=60.0, **options)

    def violate(self, text: str) -> None:
        """Note that a promise was broken."""
        self.violations.append(f"at {self.loop.time():.3f}: {text}")

    def note(self, error: BaseException, *allowed: type[BaseException]) -> None:
        """Note an error that an application got; faults explain it or *allowed*."""
        self.errors[type(error).__name__] += 1
        if isinstance(error, allowed):
            return
        if not isinstance(error, BrokerError) or error.remedy.name == "GIVE_UP":
            self.violate(f"an application got {error!r}")

    # Brokers.

    def start(self, broker_id: str, scope: Any) -> None:
        """Start a broker."""
        process = self.processes[broker_id] = BrokerProcess(self, broker_id)
        process.task = scope.run(process.run(), process.host.name)

    async def disturb(  # noqa: PLR0912 (one case for each fault)
        self, scope: Any, admin: Any, topics: list[str]
    ) -> None:
        """Begin a fault."""
        rng = self.rng
        broker_id = rng.choice(BROKERS)
        process = self.processes.get(broker_id)
        if process is None:
            self.start(broker_id, scope)
            return
        if process.is_cut_off or process.member is None:
            return
        fault = rng.choice(self.likely_faults)
        self.faults[fault] += 1
        match fault:
            case "kills":
                process.kill()
                self.processes.pop(broker_id, None)
            case "lost sessions":
                process.objects.latency_s = rng.choice([0.01, 1.0])
                self.store.lose(process.member.session.lease)
            case "pauses":
                scope.run(self.pause(process, rng.choice([0.5, 3.0, 6.0])))
            case "partitions":
                ways = rng.choice([(True, False), (False, True), (True, True)])
                scope.run(self.cut_off(process, ways, rng.choice([0.5, 4.0])))
            case "modes":
                mode = rng.choice([BrokerMode.ACTIVE, BrokerMode.DRAINING])
                await self.set_mode(broker_id, mode)
            case "object store faults":
                process.objects.error_rate = rng.choice([0.0, 0.1, 0.5])
                process.objects.latency_s = rng.choice([0.01, 0.1, 1.0])
            case "metadata faults":
                process.metadata.error_rate = rng.choice([0.0, 0.2])
            case "broken connections":
                for link in list(self.networks[broker_id].links.values()):
                    if rng.random() < 0.5:
                        link.reset()
            case "moves" if topics:
                scope.run(self.move(admin, rng.choice(topics), broker_id))
        for each in list(self.processes.values()):
            await each.objects.execute_late()

    async def move(self, admin: Any, topic: str, broker_id: str) -> None:
        """Move a topic to a broker, unless something is in the way."""
        with suppress(BrokerError):
            await admin.cluster.move_topic(topic, broker_id)

    async def pause(self, process: BrokerProcess, seconds: float) -> None:
        """Stop a process, as SIGSTOP does."""
        process.host.pause()
        try:
            await self._stop_keepalives(process, seconds, is_known_to_store=True)
        finally:
            process.host.resume(self.loop)

    async def cut_off(
        self, process: BrokerProcess, ways: tuple[bool, bool], seconds: float
    ) -> None:
        """Cut a process off from the metadata store, in one or both directions."""
        metadata = process.metadata
        metadata.is_mute, metadata.is_deaf = ways
        await self._stop_keepalives(
            process, seconds, is_known_to_store=metadata.is_mute
        )
        metadata.is_mute = metadata.is_deaf = False

    async def _stop_keepalives(
        self, process: BrokerProcess, seconds: float, *, is_known_to_store: bool
    ) -> None:
        assert process.member is not None
        lease: Any = process.member.session.lease
        if seconds < TTL_S:
            await asyncio.sleep(seconds)
            return
        # The clock of the broker drifts from that of the store.
        holder_s = TTL_S * self.rng.choice([0.8, 1.0, 1.5])
        lease._valid_until = self.loop.time() + holder_s
        self.loop.call_later(holder_s, lease.end)
        await asyncio.sleep(TTL_S)
        if is_known_to_store:
            process.is_stale = True
            self.store.expire(lease)
        await asyncio.sleep(seconds - TTL_S)

    async def set_mode(self, broker_id: str, mode: BrokerMode) -> None:
        """Drain or activate a broker."""
        record = BrokerModeRecord(mode=mode, changed_at=0)
        await self.store.put(keys.BROKER_MODES.key(broker_id), record)

    async def calm(self, scope: Any) -> None:
        """End all faults, and start all brokers again."""
        while any(each.is_cut_off for each in self.processes.values()):  # noqa: ASYNC110
            await asyncio.sleep(1.0)
        for broker_id in BROKERS:
            await self.set_mode(broker_id, BrokerMode.ACTIVE)
        began_at = self.loop.time()
        while True:
            for process in self.processes.values():
                process.objects.error_rate = process.metadata.error_rate = 0.0
                process.objects.latency_s = 0.01
            for broker_id in BROKERS:
                if broker_id not in self.processes:
                    self.start(broker_id, scope)
            ending = [
                each
                for each in self.processes.values()
                if each.is_stale or each.member is None or each.member.session.is_over
            ]
            if not ending:
                return
            assert self.loop.time() < began_at + STOP_S, "brokers do not stop or start"
            await asyncio.sleep(1.0)

    # The run.

    async def run(self, features: list[Feature]) -> None:
        """Run *features* through faults, and check what they promise."""
        await create_shards(self.store, SHARDS)
        async with AsyncExitStack() as stack:
            for each in BROKERS:
                dial = self.networks[each].dial_from(Host("clients"))
                redirect = Redirect((each, PORT), dial, self._wall_clock_ns)
                stack.enter_context(redirecting(redirect))
            async with task_scope() as scope:
                for each in BROKERS:
                    self.start(each, scope)
                async with self.connect() as admin:
                    for feature in features:
                        await feature.prepare(admin)
                    await self._run_features(features, admin, scope)
                for process in list(self.processes.values()):
                    assert process.task is not None
                    process.kill()

    async def _run_features(
        self, features: list[Feature], admin: Any, scope: Any
    ) -> None:
        topics = [topic for feature in features for topic in feature.topics]
        async with task_scope() as apps:
            running = [
                apps.run(work, type(feature).__name__)
                for feature in features
                for work in feature.works()
            ]
            while self.loop.time() < DISTURBED_S:
                await asyncio.sleep(self.rng.expovariate(self.fault_rate))
                await self.disturb(scope, admin, topics)
            self.is_stopping = True
            await self.calm(scope)
            calm_at = self.loop.time()
            for feature in features:
                missing: str | None = "its check has not begun"
                while missing is not None:
                    if self.loop.time() > calm_at + CALM_S:
                        self.violate(f"{type(feature).__name__}: {missing}")
                        return
                    await asyncio.sleep(1.0)
                    missing = await self._missing(feature, admin)
            while not all(each.done() for each in running):
                if self.loop.time() > calm_at + 2 * CALM_S:
                    self.violate("applications do not end")
                    return
                await asyncio.sleep(1.0)
            for feature in features:
                await feature.check(admin)

    async def _missing(self, feature: Feature, admin: Any) -> str | None:
        if feature.repeating:
            # What it sends last would come after consumers have ended.
            return f"{feature.repeating} applications have not ended"
        try:
            return await feature.missing(admin)
        except BrokerError as error:
            self.note(error)
            return repr(error)

    def _wall_clock_ns(self) -> int:
        return self.wall_clock_us() * 1000


def _ignore(_: str) -> None:
    pass


def _no_tap(_: Any) -> NoTap:
    return NoTap()


def simulate_features(
    seed: int, make: Callable[[ServedWorld], list[Feature]]
) -> ServedWorld:
    """Run a cluster with applications; raises if a promise is broken."""
    loop = SimulatedLoop(Random(f"threads {seed}"))
    world = ServedWorld(seed, loop)
    chance = SOURCE.set(Random(seed).random)
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(world.run(make(world)))
        world.ended_at = loop.time()
        assert not world.violations, "; ".join(world.violations[:5])
        assert not loop.failures, loop.failures
    finally:
        asyncio.set_event_loop(None)
        SOURCE.reset(chance)
        loop.close()
    return world
