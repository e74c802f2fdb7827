"""The applications: processes that publish and consume with the real client."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydanube.client.client import open_client
from pydanube.client.messages import MessageId
from pydanube.model.errors import (
    BrokerError,
    ConsumerBusy,
    ConsumerReplaced,
    OffsetDropped,
    SubscriptionNotFound,
    TimedOut,
)
from simulation.loop import HOST, Host
from simulation.plan import PATIENT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from pydanube.client.client import Client
    from pydanube.client.consumer import Consumer
    from pydanube.client.messages import Message
    from pydanube.client.producer import Producer
    from pydanube.model.errors import Remedy
    from simulation.plan import ConsumerPlan, ProducerPlan, SubscriptionPlan
    from simulation.world import World

_AFTER_DEATH_S = 1.0
_SPOILT_MAX = 3
"""So often the work on a message comes to nothing at most."""


class Application:
    """A process that is started again when it dies, until its work is done."""

    def __init__(self, world: World, name: str, chance: Random) -> None:
        self.world = world
        self.name = name
        self.chance = chance
        self.start_count = 0
        self.lives: list[asyncio.Task[None]] = []
        self._host: Host | None = None
        self._died = asyncio.Event()

    @property
    def is_done(self) -> bool:
        """Whether there is nothing left to do."""
        raise NotImplementedError

    async def work(self, client: Client) -> None:
        """Do what this application does, for a while."""
        raise NotImplementedError

    async def run(self) -> None:
        """Work, life after life."""
        loop = self.world.loop
        while not self.is_done:
            self.start_count += 1
            host = self._host = Host(f"{self.name}.{self.start_count}")
            self._died = asyncio.Event()
            life = loop.create_task(self._live(host))
            self.lives.append(life)
            died = loop.create_task(self._died.wait())
            await asyncio.wait([life, died], return_when=asyncio.FIRST_COMPLETED)
            died.cancel()
            self._host = None
            await asyncio.sleep(self.chance.random() * _AFTER_DEATH_S)

    def kill(self) -> None:
        """The process is gone at once."""
        if self._host is not None:
            self.world.trace.note(self.name, "is killed")
            self._host.is_alive = False
            self.world.network.on_process_died(
                self._host, is_silent=self.chance.random() < 0.2
            )
            self.lives[-1].cancel()
            self._died.set()

    async def _live(self, host: Host) -> None:
        HOST.set(host)
        try:
            async with open_client(
                self.world.network.dial_from(host),
                url="danube://machine",
                wall_clock_ns=lambda: self.world.client_clock.us() * 1000,
            ) as client:
                await self.work(client)
        except BrokerError as error:
            if host.is_alive:
                self._judge(error)
        except Exception as error:  # noqa: BLE001 (whatever it is, it is a finding)
            if host.is_alive:
                self.world.verdict.add("the client raises what it says", repr(error))

    def _judge(self, error: BrokerError) -> None:
        self.world.trace.note(self.name, f"gets {error.code}: {error}")
        if not is_passing(error):
            self.world.verdict.add(
                "applications get errors only for what they did",
                f"{self.name} got {error!r}",
            )


def is_passing(error: BrokerError) -> bool:
    """Whether *error* is one that the weather, or a rival, explains."""
    remedy: Remedy = error.remedy
    return remedy.name != "GIVE_UP" or isinstance(
        error, ConsumerBusy | ConsumerReplaced | OffsetDropped
    )


class Publisher(Application):
    """Publishes its messages, one after the other."""

    def __init__(self, world: World, plan: ProducerPlan, chance: Random) -> None:
        super().__init__(world, plan.name, chance)
        self.plan = plan
        self._sent = 0

    @property
    def is_done(self) -> bool:
        return self._sent >= self.plan.message_count

    async def work(self, client: Client) -> None:
        plan, chance = self.plan, self.chance
        async with client.producer(
            plan.topic, name=plan.name, compression=plan.compression
        ) as producer:
            while not self.is_done:
                await asyncio.sleep(chance.expovariate(1) * plan.pause_s)
                await self._send(producer, self._next_messages())
                if chance.random() < plan.leave_share:
                    return

    def _next_messages(self) -> list[_Message]:
        plan, chance, topic = self.plan, self.chance, self.plan.topic
        left = plan.message_count - self._sent
        count = chance.randint(1, min(left, plan.together_max))
        messages = [self._next_message(self._sent + each) for each in range(count)]
        self._sent += count
        book = self.world.ledger.topics[topic]
        book.delayed |= {m.payload for m in messages if m.deliver_after_s is not None}
        book.mortal |= {m.payload for m in messages if m.ttl_s is not None}
        book.keys |= {m.payload: m.key for m in messages if m.key is not None}
        self.world.ledger.on_sent(topic, [message.payload for message in messages])
        first = messages[0].payload[:9].decode()
        self.world.trace.note(self.name, f"sends {first} +{count}")
        return messages

    def _next_message(self, number: int) -> _Message:
        plan, chance = self.plan, self.chance
        payload = f"{plan.name}:{number:05d}:".encode()
        is_delayed = chance.random() < plan.delay_share
        return _Message(
            payload.ljust(chance.randint(1, plan.payload_bytes_max), b"."),
            f"k{chance.randrange(plan.key_count)}" if plan.key_count else None,
            chance.random() * plan.delay_s_max if is_delayed else None,
            plan.ttl_s if not is_delayed and chance.random() < plan.ttl_share else None,
        )

    async def _send(self, producer: Producer, messages: Sequence[_Message]) -> None:
        try:
            offsets = await self._offsets(producer, messages)
        except BrokerError as error:
            # It may be stored or not; nobody will ever say.
            self._judge(error)
            return
        for message, offset in zip(messages, offsets, strict=True):
            self.world.ledger.on_acknowledged(self.plan.topic, message.payload, offset)

    async def _offsets(
        self, producer: Producer, messages: Sequence[_Message]
    ) -> list[int]:
        """Send in one of the ways there are; where the messages are stored."""
        way = self.chance.random()
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
    """What a publisher sends."""

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
    """Consumes from a subscription, until the world says that all is done."""

    def __init__(
        self,
        world: World,
        subscription: SubscriptionPlan,
        plan: ConsumerPlan,
        chance: Random,
    ) -> None:
        super().__init__(world, plan.name, chance)
        self.subscription = subscription
        self.plan = plan
        self._spoilt: dict[int, int] = {}

    @property
    def is_done(self) -> bool:
        return self.world.is_drained

    async def work(self, client: Client) -> None:
        plan, asked = self.plan, self.subscription
        async with client.consumer(
            asked.topic,
            subscription=asked.name,
            type=asked.type.value,
            start=asked.start,
            name=plan.name,
            ack_timeout_s=asked.ack_timeout_s,
            prefetch_messages=plan.prefetch_messages,
        ) as consumer:
            self.world.trace.note(self.name, f"consumes {asked.topic} {asked.name}")
            while not self.is_done:
                await self._work_on(consumer, await self._receive(consumer))
                if self._leaves():
                    self.world.trace.note(self.name, "leaves")
                    return

    def _leaves(self) -> bool:
        # While it stays, a rival for an exclusive place can never come in.
        share = 0.0 if self.world.is_calm else self.plan.leave_share
        return self.chance.random() < share

    async def _receive(self, consumer: Consumer) -> Sequence[Message]:
        timeout_s = 0.2 + 2 * self.chance.random()
        if self.chance.random() < 0.5:
            with suppress(TimedOut):
                return [await consumer.receive(timeout_s=timeout_s)]
            return []
        batch = await consumer.receive_batch(
            max_messages=self.chance.randint(1, self.plan.together_max),
            timeout_s=timeout_s,
        )
        return list(batch)

    async def _work_on(self, consumer: Consumer, messages: Sequence[Message]) -> None:
        chance, plan, asked = self.chance, self.plan, self.subscription
        for message in messages:
            self.world.ledger.on_received(
                asked.topic, asked.name, message.offset, message.payload
            )
        if messages:
            offsets = [message.offset for message in messages]
            self.world.trace.note(self.name, f"receives {offsets}")
        await asyncio.sleep(chance.expovariate(1) * plan.work_s)
        nacked = [each for each in messages if self._spoils(each, plan.nack_share)]
        if nacked:
            self.world.trace.note(self.name, f"nacks {[m.offset for m in nacked]}")
            delay_s = chance.random() * plan.nack_delay_s
            await consumer.nack(nacked, delay_s=delay_s, reason="on purpose")
        done = [
            each
            for each in messages
            if each not in nacked and not self._spoils(each, plan.forget_share)
        ]
        if done and plan.is_cumulative and not nacked:
            self.world.ledger.on_cumulative_ack(
                asked.topic, asked.name, done[-1].offset
            )
            await consumer.ack_cumulative(done[-1])
        elif done:
            await consumer.ack(done)
        if chance.random() < plan.flush_share:
            await consumer.flush()

    def _spoils(self, message: Message, share: float) -> bool:
        """Whether the work on *message* comes to nothing this time."""
        if self.world.is_calm or self.chance.random() >= share:
            return False
        times = self._spoilt.get(message.offset, 0)
        self._spoilt[message.offset] = times + 1
        return times < _SPOILT_MAX


class Administrator(Application):
    """Does this and that with a subscription, and leaves it in good order."""

    def __init__(
        self, world: World, subscription: SubscriptionPlan, chance: Random
    ) -> None:
        super().__init__(world, f"a{subscription.topic[-1]}{subscription.name}", chance)
        self.subscription = subscription
        self._is_done = False

    @property
    def is_done(self) -> bool:
        return self._is_done

    async def work(self, client: Client) -> None:
        asked = self.subscription
        while asked.operations and not self.world.is_calm:
            pause_s = self.chance.expovariate(1) * asked.operation_pause_s
            await asyncio.sleep(min(pause_s, 5.0))
            with suppress(SubscriptionNotFound):
                await self._operate(client, self.chance.choice(asked.operations))
        while not self.world.is_calm:  # noqa: ASYNC110
            await asyncio.sleep(0.5)
        self.world.trace.note(self.name, "leaves it in good order")
        await client.resume_subscription(asked.topic, asked.name)
        await client.set_failure_policy(asked.topic, asked.name, PATIENT)
        self._is_done = True

    async def _operate(self, client: Client, what: str) -> None:
        topic, name = self.subscription.topic, self.subscription.name
        chance = self.chance
        self.world.trace.note(self.name, what)
        match what:
            case "pause":
                await client.pause_subscription(topic, name)
                await asyncio.sleep(chance.expovariate(1))
                await client.resume_subscription(topic, name)
            case "seek":
                end = (await client.describe_topic(topic)).end_offset
                where: int | str = chance.choice(("earliest", "latest", "offset"))
                if where == "offset":
                    where = chance.randint(0, end)
                await client.seek_subscription(topic, name, where)
            case "skip":
                await client.skip(topic, name, chance.randint(1, 5))
            case "policy":
                await client.set_failure_policy(
                    topic,
                    name,
                    chance.choice((None, PATIENT, self.subscription.policy)),
                )
            case "mark done":
                cursor = (await client.describe_subscription(topic, name)).cursor
                end = (await client.describe_topic(topic)).end_offset
                if cursor < end:
                    message = MessageId(topic, chance.randrange(cursor, end))
                    await client.mark_done(topic, name, message)
