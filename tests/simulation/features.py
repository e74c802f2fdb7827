"""
The applications of a simulated cluster, one class for each feature with its promises.

Each has its own topics.  An application repeats what failed because of a fault, as
users do, and keeps its own account of what it was told.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pydanube
from pydanube.client.messages.schema import Schema
from pydanube.model.errors import (
    AlreadyExists,
    BrokerError,
    ConsumerBusy,
    MessageNotHeld,
    TimedOut,
    TopicNotFound,
    TransactionFenced,
    Unavailable,
)

if TYPE_CHECKING:
    from simulation.served import ServedWorld

LENIENT = pydanube.FailurePolicy(
    redeliveries_max=1000,
    ack_timeout_s=5.0,
    redelivery_delay_s=0.1,
    redelivery_delay_s_max=1.0,
)
"""A failure policy that gives up no message."""


class Feature:
    """Applications that use one feature, and what they are promised."""

    topics: Sequence[str] = ()
    """The topics that move."""
    is_over = False
    """Whether consumers end, because nothing is missing any more."""

    def __init__(self, world: ServedWorld) -> None:
        self.world = world
        self.rng = world.rng
        self.sent: dict[bytes, int] = {}
        """The messages that were acknowledged, with their offsets."""
        self.repeating = 0
        """The number of applications that may still publish something."""

    async def prepare(self, admin: Any) -> None:
        """Create what the applications need."""
        for topic in self.topics:
            await admin.topics.create(topic)

    def works(self) -> Iterator[Coroutine[Any, Any, None]]:
        """Return the applications; each ends after ``world.is_stopping``."""
        raise NotImplementedError

    async def missing(self, admin: Any) -> str | None:
        """Return what is not there yet; called again and again after all faults."""
        raise NotImplementedError

    async def check(self, admin: Any) -> None:
        """Note promises that were broken, at the end."""

    # For applications.

    @property
    def is_stopping(self) -> bool:
        return self.world.is_stopping

    async def pause(self, mean_s: float) -> None:
        """Let some time pass."""
        await asyncio.sleep(self.rng.expovariate(1.0 / mean_s))

    async def repeat(self, work: Any, *allowed: type[BaseException]) -> None:
        """Connect and *work*, again and again, until the run stops."""
        self.repeating += 1
        while not self.is_stopping:
            try:
                async with self.world.connect() as client:
                    await work(client)
            except (BrokerError, TimeoutError) as error:
                self.world.note(error, *allowed)
                await self.pause(0.2)
        self.repeating -= 1

    async def produce(self, topic: str, mean_s: float, send: Any) -> None:
        """Call *send* with a producer and 0, 1, …, until the run stops."""
        numbers = itertools.count()

        async def work(client: Any) -> None:
            async with client.producer(topic) as producer:
                while not self.is_stopping:
                    await self.pause(mean_s)
                    await send(producer, next(numbers))

        await self.repeat(work)

    async def publish(self, topic: str, sent: dict[bytes, int]) -> None:
        """Publish 0, 1, …; *sent* gets those that were acknowledged."""

        async def send(producer: Any, number: int) -> None:
            payload = b"%d" % number
            found = await producer.send(payload, key=payload[-1:])
            sent[payload] = found.offset

        await self.produce(topic, 0.15, send)

    async def subscribe(
        self,
        admin: Any,
        topic: str,
        type_: str,
        policy: pydanube.FailurePolicy = LENIENT,
    ) -> None:
        """Create the subscription ``s``, which gives up messages after *policy*."""
        await admin.subscriptions.configure(topic, "s", failure_policy=policy)
        await admin.subscriptions.create(topic, "s", type=type_, start="earliest")

    async def consume(self, topic: str, receive: Any, **options: Any) -> None:
        """Call *receive* with a client and a consumer of ``s``, until all is over."""
        while not self.is_over:
            try:
                async with (
                    self.world.connect() as client,
                    client.consumer(topic, subscription="s", **options) as consumer,
                ):
                    while not self.is_over:
                        await receive(client, consumer)
            except (BrokerError, TimeoutError) as error:
                # The broker may not know yet that the last connection is lost.
                self.world.note(error, ConsumerBusy)
                await self.pause(0.5)

    async def contents(self, admin: Any, topic: str) -> list[bytes]:
        """Return all messages of a topic or of its partitions."""
        return [m.payload async for found in admin.read(topic) for m in found]


class Transactions(Feature):
    """Programs that consume, transform and produce: one result for each input."""

    SOURCE, RESULTS = "/default/tx-in", "/default/tx-out"
    topics = (SOURCE, RESULTS)
    ACK_TIMEOUT_S = 5.0

    def __init__(self, world: ServedWorld) -> None:
        super().__init__(world)
        self.commits = self.refusals = 0

    async def prepare(self, admin: Any) -> None:
        await super().prepare(admin)
        policy = replace(LENIENT, ack_timeout_s=self.ACK_TIMEOUT_S)
        await self.subscribe(admin, self.SOURCE, "shared", policy)

    def works(self) -> Iterator[Coroutine[Any, Any, None]]:
        yield self.publish(self.SOURCE, self.sent)
        for number in range(2):
            yield self.copy(number)

    async def copy(self, number: int) -> None:
        """Publish a result for each message, and acknowledge it."""
        names = (f"{number}.{each}" for each in itertools.count())

        async def receive(client: Any, consumer: Any) -> None:
            batch = await consumer.receive_batch(
                max_messages=self.rng.randint(1, 10), timeout_s=0.5
            )
            if len(batch):
                await self.transact(client, next(names), batch)

        await self.consume(self.SOURCE, receive, type="shared")

    async def transact(self, client: Any, name: str, batch: Any) -> None:
        """Make one transaction; messages that it does not take come again."""
        try:
            async with client.transaction(f"copy-{name.partition('.')[0]}") as run:
                for message in batch:
                    await run.send(self.RESULTS, message.payload + b"|" + name.encode())
                await run.ack(batch)
            self.commits += 1
        except (MessageNotHeld, TransactionFenced, Unavailable, TimedOut) as error:
            self.refusals += isinstance(error, MessageNotHeld)
            self.world.note(error, MessageNotHeld, TransactionFenced)

    async def missing(self, admin: Any) -> str | None:
        inputs = set(await self.contents(admin, self.SOURCE))
        results = {
            each.partition(b"|")[0] for each in await self.contents(admin, self.RESULTS)
        }
        facts = await admin.subscriptions.describe(self.SOURCE, "s")
        if inputs - results:
            return f"{len(inputs - results)} inputs have no result"
        if facts.backlog:
            return f"{facts.backlog} inputs are not acknowledged"
        self.is_over = True
        return None

    async def check(self, admin: Any) -> None:
        inputs = await self.contents(admin, self.SOURCE)
        results = await self.contents(admin, self.RESULTS)
        counts = Counter(each.partition(b"|")[0] for each in results)
        for payload in set(self.sent) - set(inputs):
            self.world.violate(f"the input {payload!r} was acknowledged and is lost")
        for payload in inputs:
            if counts[payload] != 1:
                names = [each for each in results if each.startswith(payload + b"|")]
                self.world.violate(f"{counts[payload]} results for one input: {names}")
        for payload in counts.keys() - set(inputs):
            self.world.violate(f"a result without an input: {payload!r}")


class HurriedTransactions(Transactions):
    """Transactions with a short ack timeout do not do most of their work in vain."""

    ACK_TIMEOUT_S = 1.0
    REFUSALS_MIN = 50
    """The number of commits that faults alone may cause to be refused."""

    async def check(self, admin: Any) -> None:
        await super().check(admin)
        if self.refusals > max(self.REFUSALS_MIN, self.commits):
            self.world.violate(
                f"{self.refusals} transactions were refused, {self.commits} were not"
            )


class Deduplication(Feature):
    """Programs that send the same ids: each id is stored once."""

    TOPIC = "/default/dedup"
    topics = (TOPIC,)

    def __init__(self, world: ServedWorld) -> None:
        super().__init__(world)
        self.offsets: dict[str, int] = {}

    async def prepare(self, admin: Any) -> None:
        await admin.topics.create(
            self.TOPIC, deduplication=pydanube.Deduplication(age_s=3600.0)
        )

    def works(self) -> Iterator[Coroutine[Any, Any, None]]:
        for name in ("one", "two"):
            yield self.send(name)

    async def send(self, name: str) -> None:
        """Send ids in order, some of them again."""

        async def send(producer: Any, number: int) -> None:
            at = str(max(0, number - self.rng.choice([0, 0, 1, 5])))
            found = await producer.send(f"{at}|{name}", id=at)
            known = self.offsets.setdefault(at, found.offset)
            if known != found.offset:
                self.world.violate(f"the id {at} is at {found.offset} and at {known}")

        await self.produce(self.TOPIC, 0.2, send)

    async def missing(self, admin: Any) -> str | None:
        await self.contents(admin, self.TOPIC)
        return None

    async def check(self, admin: Any) -> None:
        stored = await self.contents(admin, self.TOPIC)
        ids = [each.partition(b"|")[0].decode() for each in stored]
        for each, count in Counter(ids).items():
            if count > 1:
                self.world.violate(f"the id {each} is stored {count} times")
        for each, offset in self.offsets.items():
            if ids[offset : offset + 1] != [each]:
                self.world.violate(f"the id {each} was acknowledged at {offset}")


class Delays(Feature):
    """Delayed messages come not too early, and all of them."""

    TOPIC = "/default/delays"
    topics = (TOPIC,)

    def __init__(self, world: ServedWorld) -> None:
        super().__init__(world)
        self.due: dict[bytes, float] = {}
        self.received: set[bytes] = set()

    async def prepare(self, admin: Any) -> None:
        await super().prepare(admin)
        await self.subscribe(admin, self.TOPIC, "shared")

    def works(self) -> Iterator[Coroutine[Any, Any, None]]:
        yield self.produce(self.TOPIC, 0.3, self.send)
        yield self.consume(self.TOPIC, self.receive, type="shared")

    async def send(self, producer: Any, number: int) -> None:
        delay_s = self.rng.choice([0.0, 0.5, 3.0, 20.0])
        payload = b"%d" % number
        self.due[payload] = self.world.loop.time() + delay_s
        found = await producer.send(payload, deliver_after_s=delay_s or None)
        self.sent[payload] = found.offset

    async def receive(self, _: Any, consumer: Any) -> None:
        batch = await consumer.receive_batch(timeout_s=0.5)
        for message in batch:
            self.take(message.payload)
        await consumer.ack(batch)

    def take(self, payload: bytes) -> None:
        """Note a message that has come."""
        # Times of messages are in microseconds.
        early_s = self.due[payload] - self.world.loop.time()
        if early_s > 1e-5:
            self.world.violate(f"{payload!r} comes {early_s:.3f} s too early")
        self.received.add(payload)

    async def missing(self, admin: Any) -> str | None:
        facts = await admin.subscriptions.describe(self.TOPIC, "s")
        left = self.sent.keys() - self.received
        if left or facts.backlog:
            return f"{len(left)} delayed messages have not come, {facts.backlog} left"
        self.is_over = True
        return None


class DeadLetters(Feature):
    """Each message that fails is delivered, copied to another topic, or blocks."""

    def __init__(self, world: ServedWorld) -> None:
        super().__init__(world)
        self.pairs = [(f"/default/dl{each}", f"/default/dead{each}") for each in "ab"]
        self.blocking = "/default/dlblock"
        self.topics = [*(each for pair in self.pairs for each in pair), self.blocking]
        self.sent_to: dict[str, dict[bytes, int]] = {}
        self.acked: dict[str, set[bytes]] = {}

    async def prepare(self, admin: Any) -> None:
        await super().prepare(admin)
        blocking = pydanube.FailurePolicy(
            redeliveries_max=1, redelivery_delay_s=0.1, ack_timeout_s=5.0
        )
        for topic, dead in self.pairs:
            policy = replace(
                blocking,
                poison=pydanube.PoisonPolicy.DEAD_LETTER,
                dead_letter_topic=dead,
            )
            await self.subscribe(admin, topic, "shared", policy)
        await self.subscribe(admin, self.blocking, "shared", blocking)

    def works(self) -> Iterator[Coroutine[Any, Any, None]]:
        for topic in (*(pair[0] for pair in self.pairs), self.blocking):
            sent = self.sent_to[topic] = {}
            yield self.publish(topic, sent)
            yield self.work(topic)

    async def work(self, topic: str) -> None:
        """Acknowledge messages, and let every third one fail always."""
        acked = self.acked[topic] = set()

        async def receive(_: Any, consumer: Any) -> None:
            for message in await consumer.receive_batch(timeout_s=0.5):
                if int(message.payload) % 3:
                    await consumer.ack(message)
                    acked.add(message.payload)
                else:
                    await consumer.nack(message, reason="a third one")

        await self.consume(topic, receive, type="shared")

    async def missing(self, admin: Any) -> str | None:
        for topic, dead in self.pairs:
            copied = set(await self.contents(admin, dead))
            left = self.sent_to[topic].keys() - self.acked[topic] - copied
            if left:
                return f"{len(left)} of {topic} are not done, such as {min(left)!r}"
            facts = await admin.subscriptions.describe(topic, "s")
            if facts.backlog:
                return f"{facts.backlog} of {topic} are not acknowledged"
        self.is_over = True
        return None

    async def check(self, admin: Any) -> None:
        for topic, dead in self.pairs:
            copies = Counter(await self.contents(admin, dead))
            for payload, count in copies.items():
                if count > 1:
                    self.world.violate(f"{payload!r} of {topic} has {count} copies")
        failed = {each for each in self.sent_to[self.blocking] if not int(each) % 3}
        facts = await admin.subscriptions.describe(self.blocking, "s")
        if failed and not facts.blocked:
            self.world.violate(f"{self.blocking} is not blocked by a failed message")


class Churn(Feature):
    """Topics that are deleted and created again have the messages of their own."""

    def __init__(self, world: ServedWorld) -> None:
        super().__init__(world)
        self.topics = [f"/default/churn{number}" for number in range(3)]
        self.generations = 0

    async def prepare(self, admin: Any) -> None:
        """Create nothing: the applications do."""

    def works(self) -> Iterator[Coroutine[Any, Any, None]]:
        for topic in self.topics:
            yield self.churn(topic)

    async def churn(self, topic: str) -> None:
        generation = 0

        async def work(client: Any) -> None:
            nonlocal generation
            while not self.is_stopping:
                generation += 1
                await self.create(client, topic)
                payloads = [b"%d.%d" % (generation, each) for each in range(5)]
                async with client.producer(topic) as producer:
                    await producer.send_batch(payloads)
                found = await self.contents(client, topic)
                if found != payloads:
                    self.world.violate(f"{topic}: {found} instead of {payloads}")
                self.generations += 1
                await self.pause(0.5)
                await self.delete(client, topic)

        # A deletion whose answer is lost was made.
        await self.repeat(work, TopicNotFound)

    async def create(self, client: Any, topic: str) -> None:
        try:
            await client.topics.create(topic)
        except AlreadyExists:
            # It is of a generation whose answers were lost.
            await self.delete(client, topic)
            await client.topics.create(topic)

    async def delete(self, client: Any, topic: str) -> None:
        try:
            await client.topics.delete(topic, force=True)
        except TopicNotFound:
            return

    async def missing(self, admin: Any) -> str | None:
        try:
            for topic in self.topics:
                await admin.topics.create(topic, exist_ok=True)
                await self.contents(admin, topic)
                await admin.topics.delete(topic, force=True)
        except TopicNotFound as error:
            # The application has deleted its last topic meanwhile.
            return str(error)
        if found := set(await admin.topics.list("default")) & set(self.topics):
            return f"{found} were deleted"
        return None


class ExclusiveProducers(Feature):
    """Producers that wait for exclusive access take turns."""

    TOPIC = "/default/exclusive"
    topics = (TOPIC,)

    def __init__(self, world: ServedWorld) -> None:
        super().__init__(world)
        self.turns = 0

    def works(self) -> Iterator[Coroutine[Any, Any, None]]:
        for number in range(3):
            yield self.take_turns(number)

    async def take_turns(self, number: int) -> None:
        async def work(client: Any) -> None:
            while not self.is_stopping:
                async with client.producer(
                    self.TOPIC, access="exclusive_wait"
                ) as producer:
                    self.turns += 1
                    turn = self.turns
                    for each in range(self.rng.randint(1, 5)):
                        await self.pause(0.1)
                        payload = b"%d:%d:%d" % (turn, each, number)
                        found = await producer.send(payload)
                        self.sent[payload] = found.offset
                await self.pause(0.3)

        # An exclusive producer whose connection is lost may find another one.
        await self.repeat(work, pydanube.ProducerFenced, pydanube.ProducerBusy)

    async def missing(self, admin: Any) -> str | None:
        await self.contents(admin, self.TOPIC)
        return None

    async def check(self, admin: Any) -> None:
        stored = await self.contents(admin, self.TOPIC)
        for payload, offset in self.sent.items():
            if stored[offset : offset + 1] != [payload]:
                self.world.violate(f"{payload!r} was acknowledged at {offset}")
        last = (0, 0)
        for payload in stored:
            turn, each, _ = map(int, payload.split(b":"))
            if (turn, each) <= last:
                self.world.violate(f"{payload!r} is stored twice or out of turn")
            last = turn, each


class Schemas(Feature):
    """Programs that register schemas at the same time agree on versions."""

    SUBJECT = "orders"

    def __init__(self, world: ServedWorld) -> None:
        super().__init__(world)
        self.versions: dict[int, int] = {}
        """The version of each schema, which has this many fields."""

    def works(self) -> Iterator[Coroutine[Any, Any, None]]:
        for _ in range(2):
            yield self.register()

    async def register(self) -> None:
        async def work(client: Any) -> None:
            while not self.is_stopping:
                # All start at once, as instances of a program do.
                await asyncio.sleep(1.0 - self.world.loop.time() % 1.0)
                count = self.rng.randint(1, max(self.versions, default=0) + 3)
                found = await client.schemas.register(self.SUBJECT, _schema_of(count))
                known = self.versions.setdefault(count, found.version)
                if known != found.version:
                    self.world.violate(
                        f"a schema has the versions {known} and {found.version}"
                    )

        await self.repeat(work)

    async def missing(self, admin: Any) -> str | None:
        if self.versions:
            await admin.schemas.versions(self.SUBJECT)
        return None

    async def check(self, admin: Any) -> None:
        if not self.versions:
            return
        found = [each.version for each in await admin.schemas.versions(self.SUBJECT)]
        if found != list(range(1, len(found) + 1)):
            self.world.violate(f"the subject has the versions {found}")
        if len(set(self.versions.values())) < len(self.versions):
            self.world.violate(f"two schemas have one version: {self.versions}")
        if not set(self.versions.values()) <= set(found):
            self.world.violate(f"versions are lost: {self.versions} of {found}")


def _schema_of(count: int) -> Any:
    fields = ", ".join(
        f'{{"name": "f{each}", "type": "int", "default": 0}}' for each in range(count)
    )
    return Schema.avro(f'{{"type": "record", "name": "Order", "fields": [{fields}]}}')


class Seeks(Feature):
    """A consumer that seeks gets the messages from there on, in order."""

    TOPIC = "/default/seeks"
    topics = (TOPIC,)

    def __init__(self, world: ServedWorld) -> None:
        super().__init__(world)
        self.received: set[int] = set()

    async def prepare(self, admin: Any) -> None:
        await super().prepare(admin)
        await self.subscribe(admin, self.TOPIC, "exclusive")

    def works(self) -> Iterator[Coroutine[Any, Any, None]]:
        yield self.publish(self.TOPIC, self.sent)
        yield self.consume(self.TOPIC, self.receive)

    async def receive(self, _: Any, consumer: Any) -> None:
        """Receive some messages, and seek."""
        batch = await consumer.receive_batch(max_messages=20, timeout_s=0.5)
        for message in batch:
            self.received.add(message.offset)
        await consumer.ack(batch)
        if self.is_stopping or not len(batch) or self.rng.random() < 0.8:
            return
        # Not forwards, because messages would be skipped.
        offset = self.rng.randint(0, batch[len(batch) - 1].offset)
        await consumer.seek(offset)
        self.received = {each for each in self.received if each < offset}
        batch = await consumer.receive_batch(max_messages=1, timeout_s=0.5)
        if len(batch):
            if batch[0].offset != offset:
                self.world.violate(f"after a seek to {offset} comes {batch[0].offset}")
            self.received.add(batch[0].offset)
            await consumer.ack(batch)

    async def missing(self, admin: Any) -> str | None:
        facts = await admin.subscriptions.describe(self.TOPIC, "s")
        left = set(self.sent.values()) - self.received
        if left or facts.backlog:
            return f"{sorted(left)[:5]} have not come, {facts.backlog} are left"
        self.is_over = True
        return None


class GrowingPartitions(Feature):
    """Consumers of a topic get all messages of partitions that are added."""

    TOPIC = "/default/grow"
    PARTITIONS_MAX = 6

    def __init__(self, world: ServedWorld) -> None:
        super().__init__(world)
        self.topics = [f"{self.TOPIC}-part-{number}" for number in range(2)]
        self.received: set[bytes] = set()

    async def prepare(self, admin: Any) -> None:
        await admin.topics.create(self.TOPIC, partitions=2)

    def works(self) -> Iterator[Coroutine[Any, Any, None]]:
        yield self.publish(self.TOPIC, self.sent)
        yield self.grow()
        yield self.consume(self.TOPIC, self.receive, start="earliest")

    async def grow(self) -> None:
        async def work(client: Any) -> None:
            while not self.is_stopping:
                await self.pause(8.0)
                count = len(await client.topics.partitions(self.TOPIC))
                if count < self.PARTITIONS_MAX:
                    await client.topics.add_partitions(self.TOPIC, count + 1)

        # A growth whose answer is lost was made.
        await self.repeat(work, pydanube.InvalidRequest)

    async def receive(self, _: Any, consumer: Any) -> None:
        batch = await consumer.receive_batch(timeout_s=0.5)
        self.received.update(message.payload for message in batch)
        await consumer.ack(batch)

    async def missing(self, admin: Any) -> str | None:
        left = set(self.sent) - self.received
        if left:
            return f"{len(left)} messages have not come, such as {min(left)!r}"
        self.is_over = True
        return None


FEATURES: tuple[type[Feature], ...] = (
    Transactions,
    Deduplication,
    Delays,
    DeadLetters,
    Churn,
    ExclusiveProducers,
    Schemas,
    Seeks,
    GrowingPartitions,
)


def some_features(world: ServedWorld) -> list[Feature]:
    """Return some or all features; runs with few of them have more faults for each."""
    count = world.rng.choice([2, 4, len(FEATURES)])
    return [kind(world) for kind in world.rng.sample(FEATURES, count)]
