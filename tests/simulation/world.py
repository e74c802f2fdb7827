"""A run of one seed, from the first message to the last check."""

from __future__ import annotations

import asyncio
import logging
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from crc32c import crc32c

from pydanube.aio.chance import SOURCE
from pydanube.client.client import Client
from pydanube.client.connections.requester import Requester
from pydanube.model.dead_letters import ORIGINAL_OFFSET
from pydanube.model.errors import (
    BrokerError,
    OffsetDropped,
    SubscriptionNotFound,
    TopicNotFound,
)
from pydanube.model.policy import Retention
from simulation.applications import Administrator, Publisher, Subscriber
from simulation.deliveries import SENDING_S_MAX, Watch
from simulation.faults import FaultInjector
from simulation.ledger import (
    Ledger,
    SubscriptionHistory,
    TopicHistory,
    Violation,
    Violations,
)
from simulation.loop import (
    HOST,
    BusyLoop,
    Deadlock,
    Host,
    SimulatedLoop,
    is_dead_process,
)
from simulation.machine import Clock, Machine, always_idle
from simulation.network import Network, NetworkConditions
from simulation.trace import Trace
from simulation.wiretap import LinkTap

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator

    from pydanube.model.descriptions import TopicDescription
    from simulation.applications import Application
    from simulation.network import Link
    from simulation.plan import Plan, SubscriptionPlan

PUBLISHED_S_MAX = 600.0
"""The longest time to publish all messages after the last fault."""
DRAINED_S_MAX = 600.0
"""The longest time to deliver and acknowledge them after that."""
ENDED_S_MAX = 300.0


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a run."""

    plan: Plan
    digest: str
    violations: tuple[Violation, ...]
    trace: Trace
    counts: dict[str, float]

    @property
    def is_good(self) -> bool:
        """Whether no rule was violated."""
        return not self.violations


class World:
    """All parts of a run."""

    def __init__(self, plan: Plan, loop: SimulatedLoop) -> None:
        self.plan = plan
        self.loop = loop
        self.trace = Trace(loop.time)
        self.violations = Violations(loop.time)
        self.ledger = self._new_ledger()
        self.watch = Watch(
            self.ledger,
            self.violations,
            plan.subscriptions,
            clock=loop.time,
            wall_clock_us=self._broker_time,
            note=self.trace.note,
        )
        self.ledger.may_be_out_of_order = self.watch.is_explained
        self.client_clock = Clock(loop)
        self.are_faults_over = False
        """Whether all faults are over."""
        self.dropped_count = 0
        """The number of messages that retention has dropped, for each subscription."""
        self.read_count = 0
        """The number of messages that readers got during faults."""
        self.is_drained = False
        """Whether all messages are delivered and acknowledged."""
        conditions = NetworkConditions(
            latency_s=plan.latency_s,
            cut_share=plan.cut_share,
            window_bytes=plan.window_bytes,
        )
        self.network = Network(
            loop,
            self.rng("network"),
            conditions,
            partial(self.trace.note, "network"),
            self._new_tap,
        )
        self.machine = Machine(
            loop,
            self.rng("machine"),
            self.network,
            self.violations,
            plan.storage,
            note=self.trace.note,
            on_process_ended=self.watch.on_broker_ended,
        )
        self.machine.sync_s_max = plan.sync_s_max
        self.machine.merging = always_idle(plan.merge_interval_s, self.rng("merging"))
        self.machine.on_power_lost = self.watch.on_power_lost
        self.watch.remote_failed_at = lambda: self.machine.remote_service.failed_at
        self.ledger.broker_starts = lambda: self.machine.start_count
        self.faults = FaultInjector(self, plan.faults, self.rng("weather"))
        self.publishers = [
            Publisher(self, each, self.rng(each.name)) for each in plan.producers
        ]
        self.subscribers = [
            Subscriber(self, each, consumer, self.rng(consumer.name))
            for each in plan.subscriptions
            for consumer in each.consumers
        ]
        self.administrators = [
            Administrator(self, each, self.rng(f"administrator {each.name}"))
            for each in plan.subscriptions
            if self.ledger.topics[each.topic].is_reliable
        ]
        self.applications: list[Application] = [
            *self.publishers,
            *self.subscribers,
            *self.administrators,
        ]
        self._tasks: list[asyncio.Task[None]] = []

    def _new_ledger(self) -> Ledger:
        ledger = Ledger(self.violations, self.loop.time)
        for topic in self.plan.topics:
            ledger.topics[topic.name] = TopicHistory(
                topic.name,
                is_reliable=topic.is_reliable,
                is_durable=topic.durability == "durable",
                ttl_s=topic.ttl_s,
                has_retention=topic.retention_bytes_max is not None,
            )
        for each in self.plan.subscriptions:
            ledger.subscriptions[each.topic, each.name] = SubscriptionHistory(
                ledger.topics[each.topic], each.name, each.type
            )
        return ledger

    def _new_tap(self, link: Link) -> LinkTap:
        return LinkTap(link, self.watch, self.trace.note, self.ledger.on_stored)

    def _broker_time(self) -> int | None:
        """Return the time of the broker's wall clock, unless it is set wrong."""
        return self.machine.clock.us() if not self.machine.clock.offset_s else None

    def rng(self, purpose: str) -> Random:
        """Return a random generator for one *purpose*, independent of the others."""
        return Random(f"{purpose} {self.plan.seed}")

    async def run(self) -> None:
        """Run all stages."""
        start = self._start
        machine = start(self.machine.run())
        await self._stage("topics can be created", self._make_topics(), ENDED_S_MAX)
        faults = start(self.faults.run())
        publishers = [start(each.run()) for each in self.publishers]
        subscribers = [start(each.run()) for each in self.subscribers]
        administrators = [start(each.run()) for each in self.administrators]
        readers = [start(self._read_again(each)) for each in self._merged_topics()]
        await faults
        self.are_faults_over = True
        await self._stage(
            "all messages are published at the end",
            _all(publishers),
            PUBLISHED_S_MAX,
        )
        await self._stage("readers finish at the end", _all(readers), ENDED_S_MAX)
        await self._stage(
            "administrators finish at the end",
            _all(administrators),
            ENDED_S_MAX,
        )
        await self._stage(
            "all messages are delivered and acknowledged at the end",
            self._drained(),
            DRAINED_S_MAX,
        )
        await self._replay()
        self.is_drained = True
        await self._stage("consumers can close", _all(subscribers), ENDED_S_MAX)
        self._inject_final_fault()
        await self._stage("all messages can be read", self._read_all(), ENDED_S_MAX)
        if self.plan.storage.remote.url:
            await self._stage(
                "all segments are uploaded", self._uploaded(), ENDED_S_MAX
            )
        self.machine.is_wanted = False
        self.machine.stop()
        await self._stage("the broker stops", _all([machine]), ENDED_S_MAX)

    async def end(self) -> None:
        """End all tasks: first the supervisors of processes, then the processes."""
        await _end(self._tasks)
        await _end(task for each in self.applications for task in each.process_tasks)
        await _end(self.machine.process_tasks)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self.loop.create_task(work)
        self._tasks.append(task)
        return task

    async def _stage(self, rule: str, work: Awaitable[object], s_max: float) -> None:
        self.trace.note("world", rule)
        try:
            async with asyncio.timeout(s_max):
                await work
        except TimeoutError:
            self.violations.add(rule, f"not in {s_max:.0f} s; {self._what_is_left()}")
            raise _Over from None

    async def _replay(self) -> None:
        """Seek subscriptions to the beginning and wait for all deliveries."""
        for each in self.plan.subscriptions:
            if each.is_replayed:
                await self._stage(
                    "all messages can be replayed",
                    self._with_client(partial(self._replay_one, each)),
                    DRAINED_S_MAX,
                )

    async def _replay_one(self, each: SubscriptionPlan, client: Client) -> None:
        watch = self.watch.subscriptions[each.topic, each.name]
        watch.handled.clear()
        watch.history.waived_end = 0
        await client.subscriptions.seek(each.topic, each.name, "earliest")
        described = await client.topics.describe(each.topic)
        base, end = described.base_offset, described.end_offset
        if described.retention.drops_acknowledged:
            # What is being dropped is before the earliest position already.
            found = await client.subscriptions.describe(each.topic, each.name)
            base = max(base, found.cursor)
        history = watch.history.topic
        while not await self._is_drained(client, each):  # noqa: ASYNC110
            await asyncio.sleep(0.5)
        # Cumulative acks include messages that were not delivered yet.
        begin = max(base, watch.history.waived_end)
        # A late ack from before the seek counts in any state of the message.
        missing = [
            at
            for at in range(begin, end)
            if at not in watch.handled and not history.may_expire(at)
        ]
        if missing:
            self.violations.add(
                "after a seek all later messages are delivered again",
                f"{watch.key}: of {end} messages {missing[:10]} were not delivered",
            )

    async def _make_topics(self) -> None:
        async def make(client: Client) -> None:
            for topic in self.plan.topics:
                await client.topics.create(
                    topic.name,
                    reliable=topic.is_reliable,
                    durability=topic.durability,
                    ttl_s=topic.ttl_s,
                    exist_ok=True,
                    retention=Retention(
                        bytes_max=topic.retention_bytes_max,
                        drops_acknowledged=topic.drops_acknowledged,
                    ),
                )
            for each in self.plan.subscriptions:
                if each.policy is not None:
                    await client.subscriptions.configure(
                        each.topic, each.name, failure_policy=each.policy
                    )
                if each.limits is not None:
                    await client.subscriptions.configure(
                        each.topic, each.name, limits=each.limits
                    )

        await self._with_client(make)

    async def _drained(self) -> None:
        async def look(client: Client) -> None:
            for each in self.plan.subscriptions:
                while not await self._is_drained(client, each):  # noqa: ASYNC110
                    await asyncio.sleep(0.5)

        await self._with_client(look)

    async def _is_drained(self, client: Any, each: SubscriptionPlan) -> bool:
        try:
            found = await client.subscriptions.describe(each.topic, each.name)
        except SubscriptionNotFound:
            # No consumer has opened it yet.
            return False
        return not found.backlog and not found.in_flight

    async def _uploaded(self) -> None:
        """Wait until the backlog of uploads is empty, and compare the copies."""
        machine = self.machine

        async def look(client: Client) -> None:
            while (await client.storage.describe()).backlog_segments:  # noqa: ASYNC110
                await asyncio.sleep(0.5)
            for topic in self.plan.topics:
                for segment in (await client.storage.segments(topic.name)).segments:
                    name = segment.object_name
                    remote = await machine.remote.read(name)
                    local = await machine.objects.read(name)
                    if segment.is_uploaded and (
                        remote is None or crc32c(bytes(remote)) != segment.checksum
                    ):
                        self.violations.add(
                            "an uploaded segment has a remote copy", name
                        )
                    if local is None and not segment.is_uploaded:
                        self.violations.add("a segment has a copy", name)

        await self._with_client(look)

    def _inject_final_fault(self) -> None:
        match self.plan.final_fault:
            case "kill":
                self.machine.kill()
            case "power":
                self.machine.lose_power()
            case "stop":
                self.machine.stop()

    async def _read_all(self) -> None:
        for topic in self.plan.topics:
            if topic.is_reliable:
                await self._with_client(partial(self._read, topic.name))

    def _merged_topics(self) -> list[str]:
        """Return the topics whose segments are merged while they are read."""
        topics = self.plan.topics if self.plan.storage.merge_bytes else ()
        return [
            each.name
            for each in topics
            if each.is_reliable and each.durability == "durable"
        ]

    async def _read_again(self, topic: str) -> None:
        """Read *topic* from one earlier offset after the other, during faults."""
        rng = self.rng(f"reader {topic}")
        while not self.are_faults_over:
            await self._with_client(partial(self._read_from, topic, rng))
            await asyncio.sleep(rng.random())

    async def _read_from(self, topic: str, rng: Random, client: Client) -> None:
        description = await client.topics.describe(topic)
        start = rng.randint(description.base_offset, description.end_offset)
        next_offset, history = start, self.ledger.topics[topic]
        async for batch in client.read(topic, start=start):
            for message in batch:
                payload = history.at.get(message.offset, message.payload)
                if message.offset != next_offset or message.payload != payload:
                    self.violations.add(
                        "a reader gets each message at its offset",
                        f"{topic} {next_offset}: {message.payload!r} at "
                        f"{message.offset} instead of {payload!r}",
                    )
                next_offset += 1
        if next_offset < description.end_offset:
            self.violations.add(
                "a reader gets all messages",
                f"{topic}: {start} to {next_offset}, not {description.end_offset}",
            )
        self.read_count += next_offset - start
        self.trace.note("reader", f"reads {topic} from {start} to {next_offset}")

    async def _read(self, topic: str, client: Client) -> None:
        stored: list[bytes] = []
        offsets: list[int] = []
        description = await client.topics.describe(topic)
        async for batch in client.read(topic, start=description.base_offset):
            stored += batch.payloads
            offsets += batch.offsets
        if offsets != list(range(description.base_offset, description.end_offset)):
            self.violations.add(
                "offsets increase by one",
                f"{topic}, {description.base_offset} to {description.end_offset}: "
                f"{offsets}",
            )
        self.ledger.check_stored(topic, description.base_offset, stored)
        for each in self.plan.subscriptions:
            if each.topic == topic:
                await self._check_subscription(each, description, client)

    async def _check_subscription(
        self, each: SubscriptionPlan, description: TopicDescription, client: Client
    ) -> None:
        watch = self.watch.subscriptions[each.topic, each.name]
        history = watch.history
        if history.start is None or not history.topic.is_durable:
            return
        begin = history.start
        if history.topic.has_retention:
            begin = max(begin, description.base_offset)
        self.dropped_count += max(0, description.base_offset - history.start)
        if watch.last_seek_at is not None:
            begin = max(begin, history.topic.end_at(watch.last_seek_at + SENDING_S_MAX))
        excused = {
            at
            for at in range(begin, description.end_offset)
            if history.topic.may_expire(at)
        }
        if each.policy is not None and each.policy.dead_letter_topic is not None:
            excused |= await self._dead_letters(each, client)
        self.watch.check_done(
            each.topic, each.name, begin, description.end_offset, excused
        )

    async def _dead_letters(self, each: SubscriptionPlan, client: Client) -> set[int]:
        """Return the offsets of messages that have dead letters."""
        assert each.policy is not None
        history, offsets = self.ledger.topics[each.topic], set()
        try:
            async for batch in client.read(str(each.policy.dead_letter_topic)):
                for letter in batch:
                    offset = int(letter.attributes[ORIGINAL_OFFSET])
                    offsets.add(offset)
                    if history.at.get(offset) != letter.payload:
                        self.violations.add(
                            "a dead letter is a copy of its message",
                            f"{each.topic} {offset}: {letter.payload!r}",
                        )
        except TopicNotFound:
            # The topic is created with the first dead letter.
            return set()
        return offsets

    async def _with_client(self, work: Callable[[Client], Awaitable[None]]) -> None:
        """Call *work* with a client until it succeeds."""
        while True:
            try:
                requester = Requester(
                    self.network.dial_from(Host("checker")), url="danube://machine"
                )
                async with Client(requester).opened() as client:
                    await work(client)
                    return
            except BrokerError as error:
                self.trace.note("checker", f"gets {error.code}")
                # Retention may drop messages after their offsets were described.
                if error.remedy.name == "GIVE_UP" and not isinstance(
                    error, OffsetDropped
                ):
                    raise
            await asyncio.sleep(0.5)

    def _what_is_left(self) -> str:
        left = [each.name for each in self.publishers if not each.is_done]
        broker = self.machine.process and self.machine.process.broker
        subscriptions = [
            s.describe(topic.end_offset)
            for topic in (broker.topics.opened.values() if broker else ())
            for s in topic.subscriptions.values()
        ]
        return f"publishers {left}, subscriptions {subscriptions}"


async def _all(tasks: Iterable[asyncio.Task[None]]) -> None:
    for task in tasks:
        await task


async def _end(tasks: Iterable[asyncio.Task[None]]) -> None:
    ending = list(tasks)
    for task in ending:
        task.cancel()
    if ending:
        await asyncio.wait(ending)


class _Over(Exception):
    """The run cannot continue, because of a violation."""


def simulate(plan: Plan) -> Report:
    """Run *plan* and return the report."""
    loop = SimulatedLoop(Random(f"threads {plan.seed}"))
    world = World(plan, loop)
    chance = SOURCE.set(Random(plan.seed).random)
    asyncio.set_event_loop(loop)
    try:
        with _listening_to_logs(world), warnings.catch_warnings():
            # Those of processes that were killed.
            warnings.filterwarnings("ignore", "the client of .* was open when its")
            _run(world, loop)
    finally:
        asyncio.set_event_loop(None)
        SOURCE.reset(chance)
        loop.close()
    for failure in loop.failures:
        error = failure.get("exception")
        world.violations.add(
            "no exception is unhandled", f"{failure['message']}: {error!r}"
        )
    return Report(
        plan,
        world.trace.digest,
        tuple(world.violations.found),
        world.trace,
        _counts_of(world),
    )


def _run(world: World, loop: SimulatedLoop) -> None:
    violations = world.violations
    main = loop.create_task(world.run())
    violations.on_violation = lambda: loop.call_soon(main.cancel)
    try:
        loop.run_until_complete(main)
    except (asyncio.CancelledError, _Over):
        pass
    except Deadlock:
        violations.add("tasks never wait for ever", "all tasks wait")
    except BusyLoop as error:
        violations.add("tasks never run for ever without waiting", str(error))
    except Exception as error:  # noqa: BLE001 (any exception is a finding)
        violations.add("the run completes", repr(error))
    violations.on_violation = lambda: None
    world.trace.is_over = True
    try:
        loop.run_until_complete(world.end())
    except Deadlock:
        violations.add("cancelled tasks end", f"{asyncio.all_tasks(loop)}")
    except BusyLoop as error:
        violations.add("tasks never run for ever without waiting", str(error))


@contextmanager
def _listening_to_logs(world: World) -> Iterator[None]:
    handler = _Handler(world)
    logs = [logging.getLogger(each) for each in ("pydanube", "pydanube_broker")]
    before = [(log.level, log.propagate, log.handlers) for log in logs]
    for log in logs:
        log.setLevel(logging.WARNING)
        log.propagate, log.handlers = False, [handler]
    try:
        yield
    finally:
        for log, (level, *rest) in zip(logs, before, strict=True):
            log.setLevel(level)
            log.propagate, log.handlers = rest


class _Handler(logging.Handler):
    """Checks log records; an error that no fault explains is a violation."""

    def __init__(self, world: World) -> None:
        # Another test may have given a logger below these a level of its own.
        super().__init__(logging.WARNING)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        if is_dead_process():
            return
        world = self._world
        error = record.exc_info[1] if record.exc_info else None
        host = HOST.get()
        who = host.name if host else "nobody"
        world.trace.note(who, f"logs: {record.getMessage()} {error!r}")
        if record.levelno < logging.ERROR:
            return
        if error is not None:
            world.machine.check_error(error)
        elif not world.machine.is_explained():
            world.violations.add("the broker handles all faults", record.getMessage())


def _counts_of(world: World) -> dict[str, float]:
    watch, machine = world.watch, world.machine
    return {
        "seconds": round(world.loop.time(), 3),
        "events": world.trace.count,
        "messages": sum(len(t.attempted) for t in world.ledger.topics.values()),
        "deliveries": watch.delivery_count,
        "redeliveries": watch.redelivery_count,
        "faults": world.faults.count,
        "broker starts": machine.start_count,
        "power losses": machine.power_loss_count,
        "dropped": world.dropped_count,
        "merged": machine.merged_count,
        "read again": world.read_count,
    }
