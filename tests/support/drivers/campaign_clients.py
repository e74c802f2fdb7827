"""Producers and consumers of a cluster in which everything fails, and their ledger."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import grpc

from pydanube.aio.tasks import gather
from pydanube.model.errors import (
    ConsumerBusy,
    InvalidPayload,
    TimedOut,
)
from pydanube.model.policy import SubscriptionType
from simulation.ledger import Ledger, SubscriptionHistory, TopicHistory, Violations
from support.drivers.danube_calls import DanubeCalls
from support.fakes.grpc_calls import connected

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    import pydanube
    from support.servers.campaign_cluster import Log

PAUSE_S_MAX = 0.03
KEYS = 7
SUBJECT = "texts"
CALL_S = 5
"""The deadline of a gRPC call."""
RETRY_S = 600
"""Longer than a campaign: clients wait until all faults are over."""


class Book:
    """The ledger of a campaign, its log, and what its clients share."""

    def __init__(self, log: Log, rng: Random) -> None:
        self.log = log
        self.rng = rng
        self.violations = Violations(log.now)
        self.ledger = Ledger(self.violations, log.now)
        self.is_over = asyncio.Event()
        """Set when producers shall end."""
        self.ends: dict[str, int] = {}
        """The end of each topic, once all producers have ended."""
        self.violations.on_violation = lambda: log.add(str(self.violations.found[-1]))

    def add_topic(self, name: str, partitions: int = 0) -> list[str]:
        """Add a topic; return the names of its partitions, or its own."""
        names = [f"{name}-part-{each}" for each in range(partitions)] or [name]
        attempted: dict[bytes, int] = {}
        for each in names:
            # Only the answer tells to which partition a message went.
            self.ledger.topics[each] = TopicHistory(each, attempted=attempted)
        return names

    async def pause(self) -> None:
        await asyncio.sleep(self.rng.random() * PAUSE_S_MAX)

    async def check_stored(self, client: pydanube.Client) -> None:
        """Compare what is stored with the ledger."""
        seen: dict[bytes, str] = {}
        ends = {}
        for topic in self.ledger.topics:
            batches = [batch async for batch in client.read(topic)]
            payloads = [each for batch in batches for each in batch.payloads]
            offsets = [each for batch in batches for each in batch.offsets]
            if offsets != list(range(len(payloads))):
                self.violations.add("offsets have no gaps", f"{topic}: {offsets}")
            self.ledger.check_stored(topic, 0, payloads)
            ends[topic] = len(payloads)
            for payload in payloads:
                if seen.setdefault(payload, topic) != topic:
                    self.violations.add(
                        "a message is in one partition",
                        f"{payload!r} is in {seen[payload]} and {topic}",
                    )
            self.log.add(f"{topic} has {len(payloads)} messages")
        self.ends = ends


class Sender(ABC):
    """A producer that sends until the campaign is over."""

    def __init__(self, book: Book, topic: str, name: str, partitions: int = 0) -> None:
        self.book = book
        self.topic = topic
        self.name = name
        self.count = 0
        self.names = book.add_topic(topic, partitions)

    def new_payload(self) -> bytes:
        """Return the next payload, which is unique, and note that it is sent."""
        payload = b"%s:%d" % (self.name.encode(), self.count)
        self.count += 1
        self.book.ledger.on_sent(self.names[0], [payload])
        return payload

    def on_ack(self, payload: bytes, offset: int, topic: str = "") -> None:
        self.book.ledger.on_acknowledged(topic or self.topic, payload, offset)
        self.book.log.on_ack(self.name)

    @abstractmethod
    async def run(self, client: pydanube.Client) -> None:
        """Send messages until the campaign is over, and all are acknowledged."""


class SingleSender(Sender):
    """It sends one message after the other."""

    async def run(self, client: pydanube.Client) -> None:
        async with client.producer(self.topic, name=self.name) as producer:
            while not self.book.is_over.is_set():
                payload = self.new_payload()
                self.on_ack(payload, (await producer.send(payload)).offset)
                await self.book.pause()


class BatchSender(Sender):
    """It sends batches, two at a time."""

    async def run(self, client: pydanube.Client) -> None:
        async with client.producer(self.topic, name=self.name) as producer:
            while not self.book.is_over.is_set():
                await gather(self._send(producer) for _ in range(2))
                await self.book.pause()

    async def _send(self, producer: Any) -> None:
        payloads = [self.new_payload() for _ in range(self.book.rng.randint(1, 50))]
        ids = await producer.send_batch(payloads)
        for payload, id_ in zip(payloads, ids, strict=True):
            self.on_ack(payload, id_.offset)


class KeyedSender(Sender):
    """It sends messages with keys to partitions, many at a time."""

    async def run(self, client: pydanube.Client) -> None:
        async with client.producer(self.topic, name=self.name) as producer:
            while not self.book.is_over.is_set():
                sent = {}
                for _ in range(self.book.rng.randint(1, 20)):
                    payload = self.new_payload()
                    key = b"k%d" % (self.count % KEYS)
                    sent[payload] = producer.send_nowait(payload, key=key)
                for payload, pending in sent.items():
                    id_ = await pending
                    self.on_ack(payload, id_.offset, id_.topic)
                await self.book.pause()


class RepeatingSender(Sender):
    """It sends some messages again, under the ids that they had."""

    async def run(self, client: pydanube.Client) -> None:
        sent: list[bytes] = []
        async with client.producer(self.topic, name=self.name) as producer:
            while not self.book.is_over.is_set():
                if sent and self.book.rng.random() < 0.3:
                    payload = self.book.rng.choice(sent)
                else:
                    payload = self.new_payload()
                    sent.append(payload)
                id_ = await producer.send(payload, id=payload.decode())
                self.on_ack(payload, id_.offset)
                await self.book.pause()


class RefusedSender(Sender):
    """It sends JSON and now and then something else, which the broker refuses."""

    async def run(self, client: pydanube.Client) -> None:
        async with client.producer(
            self.topic, name=self.name, subject=SUBJECT
        ) as producer:
            while not self.book.is_over.is_set():
                # The outer producer would refuse them itself.
                await gather(
                    self._send(producer._producer)
                    for _ in range(self.book.rng.randint(1, 4))
                )
                await self.book.pause()

    async def _send(self, producer: Any) -> None:
        payload = b'"%s:%d"' % (self.name.encode(), self.count)
        self.count += 1
        payload = payload[self.book.rng.random() < 0.2 :]
        self.book.ledger.on_sent(self.topic, [payload])
        try:
            id_ = await producer.send(payload)
        except InvalidPayload:
            # The others of its batch are refused with it.
            self.book.ledger.on_refused(self.topic, payload)
        else:
            self.on_ack(payload, id_.offset)


class GrpcSender(Sender):
    """
    A bare client of the gRPC servers, which may call any broker.

    It never sends a message again, so those without an answer may be stored or not.
    """

    def __init__(
        self, book: Book, topic: str, name: str, ports: Sequence[int], **options: Any
    ) -> None:
        super().__init__(book, topic, name, **options)
        self._ports = ports
        self.acked: list[bytes] = []

    async def run(self, _: pydanube.Client) -> None:
        while not self.book.is_over.is_set():
            with suppress(grpc.aio.AioRpcError, TimeoutError):
                async with asyncio.timeout(2 * CALL_S):
                    await self._create_and_send()
            await self.book.pause()

    async def _create_and_send(self) -> None:
        async with connected(self.book.rng.choice(self._ports)) as call:
            calls = DanubeCalls(call)
            await calls.create_producer(self.name, self.topic)
            for _ in range(self.book.rng.randint(1, 50)):
                payload = b"%s.%d:" % (self.name.encode(), self.count)
                self.count += 1
                self.book.ledger.on_sent(self.topic, [payload])
                async with asyncio.timeout(CALL_S):
                    await calls.send(payload, name=self.name, topic=self.topic)
                self.acked.append(payload)
                self.book.log.on_ack(self.name)
                if self.book.is_over.is_set():
                    return
                await self.book.pause()

    def check(self, violations: Violations) -> None:
        """Check that all acknowledged messages are stored, in their order."""
        offsets = self.book.ledger.topics[self.topic].offsets
        lost = [each for each in self.acked if each not in offsets]
        if lost:
            violations.add("acknowledged messages are stored", f"{lost} are not")
        kept = [offsets[each] for each in self.acked if each in offsets]
        if kept != sorted(kept):
            violations.add("acknowledged messages are in order", f"{self.name}")


class Group:
    """The consumers of a subscription, which come and go."""

    def __init__(
        self, book: Book, sender: Sender, type_: SubscriptionType, size: int
    ) -> None:
        self.book = book
        self.topic = sender.topic
        self.names = sender.names
        self.type = type_
        self.size = size
        self.subscription = type_.value
        for name in self.names:
            book.ledger.subscriptions[name, self.subscription] = SubscriptionHistory(
                topic=book.ledger.topics[name],
                name=self.subscription,
                type=type_,
                start=0,
            )
        self._committed: dict[tuple[str, int], int] = {}
        """A number for each message whose acknowledgement is on disk."""
        self._last_of_key: dict[tuple[str, str], int] = {}
        self.backlog = 1
        """How many messages are not acknowledged, once producers have ended."""
        self._nacked: set[tuple[str, int]] = set()

    async def run(self, client: pydanube.Client) -> None:
        """Consume until all messages are acknowledged, as the brokers say."""
        async with asyncio.TaskGroup() as tasks:
            for number in range(self.size):
                tasks.create_task(self._consume(client, f"c{number}"))
            while self.backlog:
                await asyncio.sleep(0.2)
                if self.book.ends:
                    self.backlog = await self._count_backlog(client)

    async def _count_backlog(self, client: pydanube.Client) -> int:
        facts = [
            await client.subscriptions.describe(each, self.subscription)
            for each in self.names
        ]
        return sum(each.backlog for each in facts)

    async def _consume(self, client: pydanube.Client, name: str) -> None:
        while self.backlog:
            with suppress(ConsumerBusy, TimedOut):
                opened_at = len(self._committed)
                async with client.consumer(
                    self.topic,
                    subscription=self.subscription,
                    type=self.type.value,
                    start="earliest",
                    name=name,
                ) as consumer:
                    await self._receive(consumer, opened_at)
            await self.book.pause()

    async def _receive(self, consumer: Any, opened_at: int) -> None:
        acked: list[tuple[str, int]] = []
        for _ in range(self.book.rng.randint(5, 60)):
            batch = await consumer.receive_batch(
                max_messages=self.book.rng.randint(1, 100), timeout_s=0.2
            )
            acks = []
            for message in batch:
                self.note(
                    *(message.topic, message.offset, message.payload, message.key),
                    opened_at,
                )
                at = message.topic, message.offset
                if self._may_nack(at):
                    self._nacked.add(at)
                    await consumer.nack(message)
                else:
                    acks.append(message)
            for message in acks:
                await consumer.ack(message)
            acked += [(each.topic, each.offset) for each in acks]
            if self.book.rng.random() < 0.2:
                await consumer.flush()
                self.commit(acked)
                acked = []
            if not self.backlog:
                break
        await consumer.flush()
        self.commit(acked)

    def _may_nack(self, at: tuple[str, int]) -> bool:
        return (
            self.type is SubscriptionType.SHARED
            and at not in self._nacked
            and self.book.rng.random() < 0.02
        )

    def commit(self, acked: Sequence[tuple[str, int]]) -> None:
        """Note that acknowledgements are on disk."""
        for each in acked:
            self._committed.setdefault(each, len(self._committed))

    def note(
        self, topic: str, offset: int, payload: bytes, key: Any, opened_at: int
    ) -> None:
        """Note that a consumer got a message; *opened_at* is of the consumer."""
        history = self.book.ledger.subscriptions[topic, self.subscription]
        if self._committed.get((topic, offset), opened_at) < opened_at:
            self.book.violations.add(
                "acknowledged messages do not come again",
                f"{history.key}: {offset}",
            )
        if offset not in history.seen and self.type is SubscriptionType.KEY_SHARED:
            before = self._last_of_key.get((topic, key), -1)
            if offset < before:
                self.book.violations.add(
                    "the messages of a key come in order",
                    f"{history.key}: {offset} of {key} comes after {before}",
                )
            self._last_of_key[topic, key] = offset
        self.book.ledger.on_received(topic, self.subscription, offset, payload)

    async def check(self, client: pydanube.Client) -> None:
        """Check that the broker knows that all is done."""
        for name in self.names:
            history = self.book.ledger.subscriptions[name, self.subscription]
            unseen = set(range(self.book.ends[name])) - history.seen
            facts = await client.subscriptions.describe(name, self.subscription)
            if unseen or facts.backlog or facts.cursor != self.book.ends[name]:
                self.book.violations.add(
                    "all messages are delivered, and their acknowledgements kept",
                    f"{history.key}: {unseen} were not seen; the broker says {facts}",
                )


class GrpcGroup(Group):
    """The consumers of a subscription that use the gRPC servers of any broker."""

    def __init__(self, *arguments: Any, ports: Sequence[int]) -> None:
        super().__init__(*arguments)
        self._ports = ports

    async def _consume(self, client: pydanube.Client, name: str) -> None:
        while self.backlog:
            with suppress(grpc.aio.AioRpcError, TimeoutError):
                await self._stream(name)
            await self.book.pause()

    async def _stream(self, name: str) -> None:
        opened_at = len(self._committed)
        async with connected(self.book.rng.choice(self._ports)) as call:
            calls = DanubeCalls(call)
            async with asyncio.timeout(2 * CALL_S):
                stream = await calls.consume(
                    name,
                    subscription=self.subscription,
                    topic=self.topic,
                    type_=GRPC_TYPES[self.type],
                )
            while self.backlog:
                async with asyncio.timeout(CALL_S):
                    message = await stream._call.read()
                if message is grpc.aio.EOF:
                    return
                offset = message.msg_id.topic_offset
                self.note(self.topic, offset, message.payload, None, opened_at)
                async with asyncio.timeout(CALL_S):
                    await calls.ack(message, subscription=self.subscription)
                self.commit([(self.topic, offset)])


GRPC_TYPES = {SubscriptionType.EXCLUSIVE: 0, SubscriptionType.SHARED: 1}


async def follow(book: Book, client: pydanube.Client, topic: str) -> None:
    """Read a topic without a subscription, again and again, until its final end."""
    position = 0
    while position < book.ends.get(topic, position + 1):
        # The broker refuses it if the topic ends before this.
        async for batch in client.read(topic, start=position):
            for offset, payload in zip(batch.offsets, batch.payloads, strict=True):
                if offset != position:
                    book.violations.add(
                        "a reader skips nothing",
                        f"{topic}: {offset} comes in place of {position}",
                    )
                book.ledger.on_read(topic, offset, payload)
                position = offset + 1
        await book.pause()
