"""The applications: processes that publish and consume with the real client."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydanube.client.client import Client
from pydanube.client.connections.requester import Requester
from pydanube.client.messages.messages import MessageId
from pydanube.model.errors import (
    BrokerError,
    ConsumerBusy,
    ConsumerReplaced,
    OffsetDropped,
    SubscriptionNotFound,
    TimedOut,
)
from simulation.loop import HOST, Host
from simulation.plan import LENIENT_POLICY

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from pydanube.client.consumers.consumer import Consumer
    from pydanube.client.messages.messages import Message
    from pydanube.client.producers.producer import Producer
    from pydanube.model.errors import Remedy
    from simulation.plan import ConsumerPlan, ProducerPlan, SubscriptionPlan
    from simulation.world import World

_AFTER_DEATH_S = 1.0
_FAILURES_MAX = 3
"""The most failures of the work on a message."""


class Application:
    """A process that is restarted when it dies, until its work is done."""

    def __init__(self, world: World, name: str, rng: Random) -> None:
        self.world = world
        self.name = name
        self.rng = rng
        self.start_count = 0
        self.process_tasks: list[asyncio.Task[None]] = []
        self._host: Host | None = None
        self._died = asyncio.Event()

    @property
    def is_done(self) -> bool:
        """Whether all work is done."""
        raise NotImplementedError

    async def work(self, client: Client) -> None:
        """Work for a while."""
        raise NotImplementedError

    async def run(self) -> None:
        """Run processes until all work is done."""
        loop = self.world.loop
        while not self.is_done:
            self.start_count += 1
            host = self._host = Host(f"{self.name}.{self.start_count}")
            self._died = asyncio.Event()
            task = loop.create_task(self._run_process(host))
            self.process_tasks.append(task)
            died = loop.create_task(self._died.wait())
            await asyncio.wait([task, died], return_when=asyncio.FIRST_COMPLETED)
            died.cancel()
            self._host = None
            await asyncio.sleep(self.rng.random() * _AFTER_DEATH_S)

    def kill(self) -> None:
        """Kill the process."""
        if self._host is not None:
            self.world.trace.note(self.name, "is killed")
            self._host.is_alive = False
            self.world.network.on_process_died(
                self._host, is_silent=self.rng.random() < 0.2
            )
            self.process_tasks[-1].cancel()
            self._died.set()

    async def _run_process(self, host: Host) -> None:
        HOST.set(host)
        try:
            requester = Requester(
                self.world.network.dial_from(host),
                url="danube://machine",
                wall_clock_ns=lambda: self.world.client_clock.us() * 1000,
            )
            async with Client(requester).opened() as client:
                await self.work(client)
        except BrokerError as error:
            if host.is_alive:
                self._check_error(error)
        except Exception as error:  # noqa: BLE001 (any exception is a finding)
            if host.is_alive:
                self.world.violations.add(
                    "the client raises only documented errors", repr(error)
                )

    def _check_error(self, error: BrokerError) -> None:
        self.world.trace.note(self.name, f"gets {error.code}: {error}")
        if not is_passing(error):
            self.world.violations.add(
                "applications get only errors that faults or rivals explain",
                f"{self.name} got {error!r}",
            )


def is_passing(error: BrokerError) -> bool:
    """Return whether a fault or a rival application explains *error*."""
    remedy: Remedy = error.remedy
    return remedy.name != "GIVE_UP" or isinstance(
        error, ConsumerBusy | ConsumerReplaced | OffsetDropped
    )


class Publisher(Application):
    """Publishes its messages, one after the other."""

    def __init__(self, world: World, plan: ProducerPlan, rng: Random) -> None:
        super().__init__(world, plan.name, rng)
        self.plan = plan
        self._sent = 0

    @property
    def is_done(self) -> bool:
        return self._sent >= self.plan.message_count

    async def work(self, client: Client) -> None:
        plan, rng = self.plan, self.rng
        async with client.producer(
            plan.topic, name=plan.name, compression=plan.compression
        ) as producer:
            while not self.is_done:
                await asyncio.sleep(rng.expovariate(1) * plan.pause_s)
                await self._send(producer, self._next_messages())
                if rng.random() < plan.leave_share:
                    return

    def _next_messages(self) -> list[_Message]:
        plan, rng, topic = self.plan, self.rng, self.plan.topic
        left = plan.message_count - self._sent
        count = rng.randint(1, min(left, plan.together_max))
        messages = [self._next_message(self._sent + each) for each in range(count)]
        self._sent += count
        history = self.world.ledger.topics[topic]
        history.delayed |= {
            m.payload for m in messages if m.deliver_after_s is not None
        }
        history.expiring |= {m.payload for m in messages if m.ttl_s is not None}
        history.keys |= {m.payload: m.key for m in messages if m.key is not None}
        self.world.ledger.on_sent(topic, [message.payload for message in messages])
        first = messages[0].payload[:9].decode()
        self.world.trace.note(self.name, f"sends {first} +{count}")
        return messages

    def _next_message(self, number: int) -> _Message:
        plan, rng = self.plan, self.rng
        payload = f"{plan.name}:{number:05d}:".encode()
        is_delayed = rng.random() < plan.delay_share
        return _Message(
            payload.ljust(rng.randint(1, plan.payload_bytes_max), b"."),
            f"k{rng.randrange(plan.key_count)}" if plan.key_count else None,
            rng.random() * plan.delay_s_max if is_delayed else None,
            plan.ttl_s if not is_delayed and rng.random() < plan.ttl_share else None,
        )

    async def _send(self, producer: Producer, messages: Sequence[_Message]) -> None:
        try:
            offsets = await self._offsets(producer, messages)
        except BrokerError as error:
            # The messages may be stored or not.
            self._check_error(error)
            return
        for message, offset in zip(messages, offsets, strict=True):
            self.world.ledger.on_acknowledged(self.plan.topic, message.payload, offset)

    async def _offsets(
        self, producer: Producer, messages: Sequence[_Message]
    ) -> list[int]:
        """Send by one of the methods of the client; return the offsets."""
        way = self.rng.random()
        if way < 0.3 and all(message.is_plain for message in messages):
            payloads = [message.payload for message in messages]
            return list((await producer.send_batch(payloads)).offsets)
        if way < 0.7:
            pending = [
                producer.send_nowait(message.payload, **message.options)
                for message in messages
            ]
            return [(await each).offset for each in pending]
        return [
            (await producer.send(message.payload, **message.options)).offset
            for message in messages
        ]


@dataclass(frozen=True, slots=True)
class _Message:
    """A message of a publisher."""

    payload: bytes
    key: str | None
    deliver_after_s: float | None
    ttl_s: float | None

    @property
    def is_plain(self) -> bool:
        return self.key is None and self.deliver_after_s is None and self.ttl_s is None

    @property
    def options(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "deliver_after_s": self.deliver_after_s,
            "ttl_s": self.ttl_s,
        }


class Subscriber(Application):
    """Consumes from a subscription, until everything is done."""

    def __init__(
        self,
        world: World,
        subscription: SubscriptionPlan,
        plan: ConsumerPlan,
        rng: Random,
    ) -> None:
        super().__init__(world, plan.name, rng)
        self.subscription = subscription
        self.plan = plan
        self._failures: dict[int, int] = {}

    @property
    def is_done(self) -> bool:
        return self.world.is_drained

    async def work(self, client: Client) -> None:
        plan, subscription = self.plan, self.subscription
        async with client.consumer(
            subscription.topic,
            subscription=subscription.name,
            type=subscription.type.value,
            start=subscription.start,
            name=plan.name,
            ack_timeout_s=subscription.ack_timeout_s,
            prefetch_messages=plan.prefetch_messages,
        ) as consumer:
            self.world.trace.note(
                self.name, f"consumes {subscription.topic} {subscription.name}"
            )
            while not self.is_done:
                await self._work_on(consumer, await self._receive(consumer))
                if self._leaves():
                    self.world.trace.note(self.name, "leaves")
                    return

    def _check_error(self, error: BrokerError) -> None:
        super()._check_error(error)
        history = self.world.ledger.topics[self.subscription.topic]
        is_explained = history.has_retention or not history.is_durable
        if isinstance(error, OffsetDropped) and not is_explained:
            self.world.violations.add(
                "only what all subscriptions have acknowledged is dropped",
                f"{self.name} got {error!r}",
            )

    def _leaves(self) -> bool:
        # As long as it stays, a rival cannot open an exclusive subscription.
        share = 0.0 if self.world.are_faults_over else self.plan.leave_share
        return self.rng.random() < share

    async def _receive(self, consumer: Consumer) -> Sequence[Message]:
        timeout_s = 0.2 + 2 * self.rng.random()
        if self.rng.random() < 0.5:
            with suppress(TimedOut):
                return [await consumer.receive(timeout_s=timeout_s)]
            return []
        batch = await consumer.receive_batch(
            max_messages=self.rng.randint(1, self.plan.together_max),
            timeout_s=timeout_s,
        )
        return list(batch)

    async def _work_on(self, consumer: Consumer, messages: Sequence[Message]) -> None:
        rng, plan, subscription = self.rng, self.plan, self.subscription
        for message in messages:
            self.world.ledger.on_received(
                subscription.topic, subscription.name, message.offset, message.payload
            )
        if messages:
            offsets = [message.offset for message in messages]
            self.world.trace.note(self.name, f"receives {offsets}")
        await asyncio.sleep(rng.expovariate(1) * plan.work_s)
        if messages and plan.extend_share and rng.random() < plan.extend_share:
            timeout_s = rng.choice((None, 1.0, 4.0))
            self.world.trace.note(self.name, f"extends {offsets} by {timeout_s}")
            await consumer.extend(messages, timeout_s)
            await asyncio.sleep(rng.random() * (timeout_s or 1.0))
        if messages and plan.release_share and rng.random() < plan.release_share:
            self.world.trace.note(self.name, f"releases {offsets}")
            consumer._release_nowait(messages)
            return
        nacked = [each for each in messages if self._fails(each, plan.nack_share)]
        if nacked:
            self.world.trace.note(self.name, f"nacks {[m.offset for m in nacked]}")
            delay_s = rng.random() * plan.nack_delay_s
            await consumer.nack(nacked, delay_s=delay_s, reason="on purpose")
        done = [
            each
            for each in messages
            if each not in nacked and not self._fails(each, plan.forget_share)
        ]
        if done and plan.is_cumulative and not nacked:
            self.world.ledger.on_cumulative_ack(
                subscription.topic, subscription.name, done[-1].offset
            )
            await consumer.ack_cumulative(done[-1])
        elif done:
            await consumer.ack(done)
        if rng.random() < plan.flush_share:
            await consumer.flush()

    def _fails(self, message: Message, share: float) -> bool:
        """Return whether the work on *message* fails this time."""
        if self.world.are_faults_over or self.rng.random() >= share:
            return False
        times = self._failures.get(message.offset, 0)
        self._failures[message.offset] = times + 1
        return times < _FAILURES_MAX


class Administrator(Application):
    """Administers a subscription, and restores its settings at the end."""

    def __init__(
        self, world: World, subscription: SubscriptionPlan, rng: Random
    ) -> None:
        super().__init__(world, f"a{subscription.topic[-1]}{subscription.name}", rng)
        self.subscription = subscription
        self._is_done = False

    @property
    def is_done(self) -> bool:
        return self._is_done

    async def work(self, client: Client) -> None:
        subscription = self.subscription
        while subscription.operations and not self.world.are_faults_over:
            pause_s = self.rng.expovariate(1) * subscription.operation_pause_s
            await asyncio.sleep(min(pause_s, 5.0))
            with suppress(SubscriptionNotFound):
                await self._operate(client, self.rng.choice(subscription.operations))
        while not self.world.are_faults_over:  # noqa: ASYNC110
            await asyncio.sleep(0.5)
        self.world.trace.note(self.name, "restores the settings")
        await client.subscriptions.configure(
            subscription.topic, subscription.name, is_paused=False
        )
        await client.subscriptions.configure(
            subscription.topic, subscription.name, failure_policy=LENIENT_POLICY
        )
        self._is_done = True

    async def _operate(self, client: Client, what: str) -> None:
        topic, name = self.subscription.topic, self.subscription.name
        rng = self.rng
        self.world.trace.note(self.name, what)
        match what:
            case "pause":
                await client.subscriptions.configure(topic, name, is_paused=True)
                await asyncio.sleep(rng.expovariate(1))
                await client.subscriptions.configure(topic, name, is_paused=False)
            case "seek":
                end = (await client.topics.describe(topic)).end_offset
                where: int | str = rng.choice(("earliest", "latest", "offset"))
                if where == "offset":
                    where = rng.randint(0, end)
                await client.subscriptions.seek(topic, name, where)
            case "skip":
                await client.subscriptions.skip(topic, name, rng.randint(1, 5))
            case "policy":
                await client.subscriptions.configure(
                    topic,
                    name,
                    failure_policy=rng.choice(
                        (None, LENIENT_POLICY, self.subscription.policy)
                    ),
                )
            case "mark done":
                cursor = (await client.subscriptions.describe(topic, name)).cursor
                end = (await client.topics.describe(topic)).end_offset
                if cursor < end:
                    message = MessageId(topic, rng.randrange(cursor, end))
                    await client.subscriptions.mark_done(topic, name, message)
