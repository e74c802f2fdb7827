"""
The client without ``await``, for threads and scripts.

One thread runs the event loop; the objects here hand their work to it and wait.
They may be used from several threads, each object from one at a time.  What is
done per message, handing out, acknowledging and queueing, does not cross to the
loop for each.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, overload

from pydanube.aio.loops import new_loop
from pydanube.client import client as aio
from pydanube.client.messages import Message, MessageBatch, MessageId, MessageIds
from pydanube.client.producer import close_timeout_error
from pydanube.client.typed_producer import TypedProducer as AsyncTypedProducer
from pydanube.model.errors import BrokerError, Closed, TimedOut

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterator,
        Coroutine,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )
    from concurrent.futures import Future
    from contextlib import AbstractAsyncContextManager, AbstractContextManager
    from datetime import datetime
    from typing import Unpack

    import pyarrow as pa

    from pydanube.client.batching import DeliveryOptions
    from pydanube.client.consumer import Consumer as AsyncConsumer
    from pydanube.client.dead_letters import DeadLetter
    from pydanube.client.dead_letters import DeadLetters as AsyncDeadLetters
    from pydanube.client.offsets import AckTarget
    from pydanube.client.partitioned_consumer import (
        PartitionedConsumer as AsyncPartitionedConsumer,
    )
    from pydanube.client.partitioned_producer import (
        PartitionedProducer as AsyncPartitionedProducer,
    )
    from pydanube.client.pending import Pending as AsyncPending
    from pydanube.client.producer import BatchData
    from pydanube.client.producer import Producer as AsyncProducer
    from pydanube.client.schema import Schema
    from pydanube.client.schemas import Schemas as AsyncSchemas
    from pydanube.client.staging import PartWriter as AsyncPartWriter
    from pydanube.client.staging import Staging as AsyncStaging
    from pydanube.model.descriptions import (
        BrokerDescription,
        NamespaceDescription,
        Segments,
        SubscriptionDescription,
        TopicDescription,
    )
    from pydanube.model.policy import (
        DispatchLimits,
        FailurePolicy,
        NamespacePolicy,
        SubscriptionSettings,
    )
    from pydanube.model.positions import PositionLike
    from pydanube.model.schemas import (
        Compatibility,
        SchemaReference,
        SchemaVersion,
        SubjectDescription,
        TopicSchema,
    )
    from pydanube.model.staging import StagedCommit, StagedPart, StagingDescription
    from pydanube.schemas.compatibility import Violation

T = TypeVar("T")

BATCH_MESSAGES = 1000
"""So many messages come over from the loop at a time while one iterates."""
QUEUED_MESSAGES_MAX = 8192
"""When so many are queued, ``send_nowait`` waits for the loop to catch up."""


@contextmanager
def connect(
    url: str = aio.DEFAULT_URL,
    *,
    token: str = "",
    connect_timeout_s: float = aio.CONNECT_TIMEOUT_S,
    close_timeout_s: float = aio.CLOSE_TIMEOUT_S,
) -> Iterator[Client]:
    """
    A client of the broker at *url*; see ``pydanube.connect``.

    Raises:
        ConnectionLost: Nobody answers there.
        InvalidRequest: *url* is not one of ours.
    """
    with (
        _loop_thread() as loop,
        _entered(
            loop,
            aio.connect(
                url,
                token=token,
                connect_timeout_s=connect_timeout_s,
                close_timeout_s=close_timeout_s,
            ),
        ) as client,
    ):
        yield Client(loop, client)


class Client:
    """A client of one broker; see ``pydanube.Client`` for what each method does."""

    def __init__(self, loop: _LoopThread, client: aio.Client) -> None:
        self._loop = loop
        self._client = client
        self.schemas = Schemas(loop, client.schemas)
        """The schema registry."""

    @overload
    def producer(
        self, topic: str, *, schema: Schema[Any] | type, **options: Any
    ) -> AbstractContextManager[TypedProducer]: ...
    @overload
    def producer(
        self, topic: str, *, subject: str, **options: Any
    ) -> AbstractContextManager[TypedProducer]: ...
    @overload
    def producer(
        self, topic: str, **options: Any
    ) -> AbstractContextManager[Producer]: ...
    def producer(self, topic: str, **options: Any) -> AbstractContextManager[Any]:
        """A producer for *topic*; options as for ``pydanube.Client.producer``."""
        scope = self._client.producer(topic, **options)
        return _producer(self._loop, self._client, scope)

    @contextmanager
    def consumer(self, topic: str, **options: Any) -> Iterator[Consumer]:
        """A consumer of *topic*; options as for ``pydanube.Client.consumer``."""
        with _entered(self._loop, self._client.consumer(topic, **options)) as consumer:
            wrapped = Consumer(self._loop, consumer)
            yield wrapped
            wrapped.hand_over()

    def dead_letters(
        self, topic: str, subscription: str, *, dead_letter_topic: str | None = None
    ) -> DeadLetters:
        """What *subscription* has given up on, to be looked at and dealt with."""
        found = self._client.dead_letters(
            topic, subscription, dead_letter_topic=dead_letter_topic
        )
        return DeadLetters(self._loop, found)

    def staging(self, query: str, version: int) -> Staging:
        """One version of what *query* writes; see ``pydanube.Client.staging``."""
        return Staging(self._loop, self._client.staging(query, version))

    def read(
        self,
        topic: str,
        *,
        start: PositionLike = "earliest",
        end: int | None = None,
        follow: bool = False,
        schema: Schema[Any] | type | None = None,
    ) -> Iterator[MessageBatch]:
        """The messages ``start … end``; see ``pydanube.Client.read``."""
        batches = self._client.read(
            topic, start=start, end=end, follow=follow, schema=schema
        )
        try:
            while (batch := self._loop.wait(_next_or_none(batches))) is not None:
                yield batch
        finally:
            self._loop.wait(batches.aclose())  # type: ignore[attr-defined]

    def describe_broker(self) -> BrokerDescription:
        """Which broker this client is connected to."""
        return self._loop.wait(self._client.describe_broker())

    def create_topic(self, topic: str, **options: Any) -> None:
        """Create *topic*; options as for ``pydanube.Client.create_topic``."""
        self._loop.wait(self._client.create_topic(topic, **options))

    def delete_topic(self, topic: str, *, force: bool = False) -> None:
        """Remove *topic* with all its messages and subscriptions."""
        self._loop.wait(self._client.delete_topic(topic, force=force))

    def topics(self, namespace: str | None = None) -> list[str]:
        """The names of all topics, or of those of *namespace*."""
        return self._loop.wait(self._client.topics(namespace))

    def describe_topic(self, topic: str) -> TopicDescription:
        """What is known of *topic* at the moment."""
        return self._loop.wait(self._client.describe_topic(topic))

    def segments(self, topic: str, base: int = 0, end: int = 0) -> Segments:
        """The immutable files that hold messages ``base … end`` of *topic*."""
        return self._loop.wait(self._client.segments(topic, base, end))

    def replace_segments(
        self,
        topic: str,
        topic_id: int,
        old: Sequence[str],
        new: Sequence[tuple[str, int, int]],
    ) -> int:
        """For maintenance: put objects in the place of segments of *topic*."""
        return self._loop.wait(self._client.replace_segments(topic, topic_id, old, new))

    def hold_topic(self, topic: str, name: str, reason: str = "") -> None:
        """Have the segments of *topic* stay as they are, until it is released."""
        self._loop.wait(self._client.hold_topic(topic, name, reason))

    def release_topic(self, topic: str, name: str) -> None:
        """End the hold called *name* on *topic*."""
        self._loop.wait(self._client.release_topic(topic, name))

    def find_offsets(
        self, topic: str, times: Sequence[datetime | float]
    ) -> list[int | None]:
        """Where *topic* stood at each of *times*."""
        return self._loop.wait(self._client.find_offsets(topic, times))

    def set_topic_limits(self, topic: str, limits: NamespacePolicy | None) -> None:
        """Have *limits* hold for *topic*, or again those of its namespace."""
        self._loop.wait(self._client.set_topic_limits(topic, limits))

    def set_on_corruption(self, topic: str, on_corruption: str) -> None:
        """Have subscriptions ``"stop"`` or ``"skip"`` at a corrupt segment."""
        self._loop.wait(self._client.set_on_corruption(topic, on_corruption))

    def add_partitions(self, topic: str, partitions: int) -> None:
        """Have *topic* consist of so many *partitions* from now on."""
        self._loop.wait(self._client.add_partitions(topic, partitions))

    def partitions(self, topic: str) -> list[str]:
        """The topics that *topic* consists of: its partitions by number."""
        return self._loop.wait(self._client.partitions(topic))

    def create_namespace(self, namespace: str, **options: Any) -> None:
        """Create *namespace*; options as for ``pydanube.Client.create_namespace``."""
        self._loop.wait(self._client.create_namespace(namespace, **options))

    def delete_namespace(self, namespace: str) -> None:
        """Remove *namespace*, which has no topics any more."""
        self._loop.wait(self._client.delete_namespace(namespace))

    def namespaces(self) -> list[str]:
        """The names of all namespaces."""
        return self._loop.wait(self._client.namespaces())

    def describe_namespace(self, namespace: str) -> NamespaceDescription:
        """The limits of *namespace*, and how many topics it has."""
        return self._loop.wait(self._client.describe_namespace(namespace))

    def set_namespace_policy(self, namespace: str, policy: NamespacePolicy) -> None:
        """Have *policy* hold for all topics of *namespace* from now on."""
        self._loop.wait(self._client.set_namespace_policy(namespace, policy))

    def create_subscription(
        self, topic: str, subscription: str, **options: Any
    ) -> None:
        """Create a subscription that has no consumer yet."""
        self._loop.wait(
            self._client.create_subscription(topic, subscription, **options)
        )

    def delete_subscription(
        self, topic: str, subscription: str, *, force: bool = False
    ) -> None:
        """Forget a subscription and what it has done."""
        self._loop.wait(
            self._client.delete_subscription(topic, subscription, force=force)
        )

    def describe_subscription(
        self, topic: str, subscription: str
    ) -> SubscriptionDescription:
        """What is known of a subscription at the moment."""
        return self._loop.wait(self._client.describe_subscription(topic, subscription))

    def subscription_settings(
        self, topic: str, subscription: str
    ) -> SubscriptionSettings:
        """What was decided about a subscription, whether it exists yet or not."""
        return self._loop.wait(self._client.subscription_settings(topic, subscription))

    def set_failure_policy(
        self, topic: str, subscription: str, policy: FailurePolicy | None
    ) -> None:
        """Decide what becomes of messages that are not acknowledged."""
        self._loop.wait(self._client.set_failure_policy(topic, subscription, policy))

    def set_dispatch_limits(
        self, topic: str, subscription: str, limits: DispatchLimits | None
    ) -> None:
        """Decide how much may be unacknowledged at a time."""
        self._loop.wait(self._client.set_dispatch_limits(topic, subscription, limits))

    def pause_subscription(self, topic: str, subscription: str) -> None:
        """Deliver nothing until ``resume_subscription``."""
        self._loop.wait(self._client.pause_subscription(topic, subscription))

    def resume_subscription(self, topic: str, subscription: str) -> None:
        """Go on delivering."""
        self._loop.wait(self._client.resume_subscription(topic, subscription))

    def seek_subscription(
        self, topic: str, subscription: str, to: PositionLike
    ) -> None:
        """Go on at an offset, at ``"earliest"``, at ``"latest"``, or at a time."""
        self._loop.wait(self._client.seek_subscription(topic, subscription, to))

    def skip(self, topic: str, subscription: str, count: int) -> None:
        """Have the next *count* messages that are not done count as done."""
        self._loop.wait(self._client.skip(topic, subscription, count))

    def mark_done(self, topic: str, subscription: str, messages: AckTarget) -> None:
        """Acknowledge *messages* without being a consumer."""
        self._loop.wait(self._client.mark_done(topic, subscription, messages))

    def report_progress(self, topic: str, subscription: str, offset: int) -> None:
        """Say that a reader with positions of its own has come to *offset*."""
        self._loop.wait(self._client.report_progress(topic, subscription, offset))


class Pending:
    """A message on its way."""

    __slots__ = ("_failure", "_owner", "_pending")

    def __init__(self, owner: Producer) -> None:
        self._owner = owner
        self._pending: AsyncPending | None = None
        self._failure: BrokerError | None = None

    def result(self) -> MessageId:
        """
        Wait for the message's id.

        Raises: As ``pydanube.Producer.send``.
        """
        return self._owner.wait_for(self)

    def take(self, sent: AsyncPending | BrokerError) -> None:
        """On the loop: the message was sent, or could not be."""
        if isinstance(sent, BrokerError):
            self._failure = sent
        else:
            self._pending = sent

    async def wait_for_offsets(self) -> MessageId:
        """On the loop: the id, when it is there."""
        if self._failure is not None:
            raise self._failure
        assert self._pending is not None
        return await self._pending


_Queued: TypeAlias = (
    "tuple[Pending, bytes | str, str | bytes | None, Mapping[str, str] | None, "
    "DeliveryOptions]"
)
"""A message that the loop has not taken over yet."""


class Producer:
    """A producer; see ``pydanube.Producer`` for what each method does."""

    def __init__(
        self,
        loop: _LoopThread,
        producer: AsyncProducer | AsyncPartitionedProducer | AsyncTypedProducer[Any],
    ) -> None:
        self.topic = producer.topic
        self.name = producer.name
        self._loop = loop
        self._producer = producer
        self._queue: deque[_Queued] = deque()
        self._is_scheduled = False

    def send(
        self,
        payload: bytes | str,
        *,
        key: str | bytes | None = None,
        attributes: Mapping[str, str] | None = None,
        **delivery: Unpack[DeliveryOptions],
    ) -> MessageId:
        """Publish one message and return its id; *delivery* is as in ``Producer``."""
        self.hand_over()
        return self._loop.wait(
            self._producer.send(payload, key=key, attributes=attributes, **delivery)
        )

    def send_nowait(
        self,
        payload: bytes | str,
        *,
        key: str | bytes | None = None,
        attributes: Mapping[str, str] | None = None,
        **delivery: Unpack[DeliveryOptions],
    ) -> Pending:
        """
        Publish one message soon; ``result()`` of what it returns waits for its id.

        Waits when too much is on its way already.
        """
        pending = Pending(self)
        self._queue.append((pending, payload, key, attributes, delivery))
        if len(self._queue) >= QUEUED_MESSAGES_MAX:
            self.hand_over()
        elif not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._send_queued)
        return pending

    def send_batch(
        self, messages: BatchData, **delivery: Unpack[DeliveryOptions]
    ) -> MessageIds:
        """Publish many messages and wait for their ids; *delivery* as for ``send``."""
        self.hand_over()
        return self._loop.wait(self._producer.send_batch(messages, **delivery))

    def flush(self) -> None:
        """Wait until everything that was sent is acknowledged."""
        self.hand_over()
        self._loop.wait(self._producer.flush())

    def wait_for(self, pending: Pending) -> MessageId:
        """The id of *pending*'s message, when it is there."""
        self.hand_over()
        return self._loop.wait(pending.wait_for_offsets())

    def hand_over(self) -> None:
        """Have everything queued sent, and wait while there is no room for it."""
        if self._queue:
            self._loop.wait(self._send_all())

    def hand_over_to_close(self, client: aio.Client) -> None:
        """Have everything queued sent, as long as closing may take."""
        if self._queue:
            self._loop.wait(self._send_all_in_time(client))

    async def _send_all_in_time(self, client: aio.Client) -> None:
        try:
            async with client.closing():
                await self._send_all()
        except TimeoutError:
            count = len(self._queue) + self._producer.pending_count
            raise close_timeout_error(count, self.topic, client) from None

    def _send_queued(self) -> None:
        """On the loop: send what is queued, as far as there is room."""
        self._is_scheduled = False
        while self._queue and self._producer.has_capacity:
            self._send_one(self._queue.popleft())

    async def _send_all(self) -> None:
        while self._queue:
            await self._producer.wait_for_capacity()
            self._send_one(self._queue.popleft())

    def _send_one(self, queued: _Queued) -> None:
        pending, payload, key, attributes, delivery = queued
        try:
            pending.take(
                self._producer.send_nowait(
                    payload, key=key, attributes=attributes, **delivery
                )
            )
        except BrokerError as error:
            pending.take(error)


class TypedProducer(Producer):
    """A producer of values; see ``pydanube.TypedProducer``."""

    def __init__(self, loop: _LoopThread, producer: AsyncTypedProducer[Any]) -> None:
        super().__init__(loop, producer)
        self._typed = producer
        self.schema = producer.schema
        """What is written: which version of which subject."""

    def send(self, payload: Any, **options: Any) -> MessageId:
        """Publish one value and wait for its id; options as for the other client."""
        return super().send(payload, **options)

    def send_nowait(self, payload: Any, **options: Any) -> Pending:
        """Publish one value soon; ``result()`` of what it returns waits for its id."""
        return super().send_nowait(payload, **options)

    def send_batch(self, messages: Sequence[Any], **options: Any) -> MessageIds:
        """Publish many values and wait for their ids; options as for the other one."""
        return super().send_batch(messages, **options)

    def send_encoded(
        self, messages: BatchData, **delivery: Unpack[DeliveryOptions]
    ) -> MessageIds:
        """Publish payloads that are of the schema already, and wait for their ids."""
        self.hand_over()
        return self._loop.wait(self._typed.send_encoded(messages, **delivery))


class Consumer:
    """A consumer; see ``pydanube.Consumer`` for what each method does."""

    def __init__(
        self, loop: _LoopThread, consumer: AsyncConsumer | AsyncPartitionedConsumer
    ) -> None:
        self.topic = consumer.topic
        self.subscription = consumer.subscription
        self.name = consumer.name
        self._loop = loop
        self._consumer = consumer
        # Messages that came over from the loop and are not handed out.
        self._messages: deque[Message] = deque()
        self._acks: deque[AckTarget] = deque()
        self._is_scheduled = False

    def __iter__(self) -> Iterator[Message]:
        while True:
            try:
                yield self.receive()
            except Closed:
                return

    def receive(self, *, timeout_s: float | None = None) -> Message:
        """The next message."""
        if not self._messages:
            batch = self._receive(BATCH_MESSAGES, timeout_s)
            if not batch:
                raise TimedOut(f"no message came in {timeout_s} s")
            self._messages.extend(batch)
        return self._messages.popleft()

    def receive_batch(
        self, *, max_messages: int = 1000, timeout_s: float | None = None
    ) -> MessageBatch:
        """The messages that are here, at least one and at most *max_messages*."""
        if self._messages:
            # What iterating has left over, as far as it is of one partition.
            topic = self._messages[0].topic
            taken: list[Message] = []
            while self._messages and len(taken) < max_messages:
                if self._messages[0].topic != topic:
                    break
                taken.append(self._messages.popleft())
            return MessageBatch.of(topic, taken)
        return self._receive(max_messages, timeout_s)

    def ack(self, messages: AckTarget) -> None:
        """These messages are done; the broker learns it within milliseconds."""
        self._acks.append(self._consumer.check_acknowledgeable(messages))
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._ack_queued)

    def ack_cumulative(self, message: Message | MessageId) -> None:
        """This message and all before it are done."""
        self._loop.wait(self._consumer.ack_cumulative(message))

    def nack(
        self, messages: AckTarget, *, delay_s: float = 0.0, reason: str = ""
    ) -> None:
        """These messages were not processed: they are delivered again."""
        self._loop.wait(self._consumer.nack(messages, delay_s=delay_s, reason=reason))

    def flush(self) -> None:
        """Wait until the broker has all acknowledgements on disk."""
        self.hand_over()
        self._loop.wait(self._consumer.flush())

    def seek(self, to: PositionLike) -> None:
        """Go on at an offset, at ``"earliest"``, at ``"latest"``, or at a time."""
        self._messages.clear()
        self._loop.wait(self._consumer.seek(to))

    def hand_over(self) -> None:
        """Have every acknowledgement taken over by the loop."""
        if self._acks:
            self._loop.wait(self._ack_all())

    def _receive(self, max_messages: int, timeout_s: float | None) -> MessageBatch:
        return self._loop.wait(
            self._consumer.receive_batch(max_messages=max_messages, timeout_s=timeout_s)
        )

    def _ack_queued(self) -> None:
        self._is_scheduled = False
        # The consumer may have failed since; whoever receives or flushes is told.
        while self._acks:
            with suppress(BrokerError):
                self._consumer.ack_nowait(self._acks.popleft())

    async def _ack_all(self) -> None:
        self._ack_queued()


class Schemas:
    """The schema registry; see ``pydanube.Schemas`` for what each method does."""

    def __init__(self, loop: _LoopThread, schemas: AsyncSchemas) -> None:
        self._loop = loop
        self._schemas = schemas

    def register(
        self, subject: str, schema: Schema[Any] | type, **options: Any
    ) -> SchemaVersion:
        """Make *schema* the latest version of *subject*, which is created if needed."""
        return self._loop.wait(self._schemas.register(subject, schema, **options))

    def get(self, subject: str, version: int) -> SchemaVersion:
        """One version of *subject*."""
        return self._loop.wait(self._schemas.get(subject, version))

    def latest(self, subject: str) -> SchemaVersion:
        """The latest version of *subject*."""
        return self._loop.wait(self._schemas.latest(subject))

    def by_id(self, schema_id: int, version: int) -> SchemaVersion:
        """The version that messages with this id and version were written with."""
        return self._loop.wait(self._schemas.by_id(schema_id, version))

    def versions(self, subject: str) -> list[SchemaVersion]:
        """All versions of *subject*, in order."""
        return self._loop.wait(self._schemas.versions(subject))

    def subjects(self) -> list[str]:
        """The names of all subjects."""
        return self._loop.wait(self._schemas.subjects())

    def describe(self, subject: str) -> SubjectDescription:
        """What is known of *subject*: its type, its mode, which versions it has."""
        return self._loop.wait(self._schemas.describe(subject))

    def delete(
        self, subject: str, version: int | None = None, *, force: bool = False
    ) -> None:
        """Remove a version of *subject*, or the subject with all its versions."""
        self._loop.wait(self._schemas.delete(subject, version, force=force))

    def check(
        self,
        subject: str,
        schema: Schema[Any] | type,
        *,
        mode: str | Compatibility | None = None,
    ) -> list[Violation]:
        """Why *schema* may not become a version of *subject*; empty if it may."""
        return self._loop.wait(self._schemas.check(subject, schema, mode=mode))

    def compatibility(self, subject: str) -> Compatibility:
        """What later versions of *subject* must be able to do."""
        return self._loop.wait(self._schemas.compatibility(subject))

    def set_compatibility(self, subject: str, mode: str | Compatibility) -> None:
        """Decide what later versions of *subject* must be able to do."""
        self._loop.wait(self._schemas.set_compatibility(subject, mode))

    def bind(self, topic: str, subject: str | None, **options: Any) -> None:
        """Decide which subject the messages of *topic* keep to; None: to none."""
        self._loop.wait(self._schemas.bind(topic, subject, **options))

    def topic_schema(self, topic: str) -> TopicSchema | None:
        """What the messages of *topic* keep to; None if to nothing."""
        return self._loop.wait(self._schemas.topic_schema(topic))


class DeadLetters:
    """Dead letters; see ``pydanube.client.dead_letters`` for what each method does."""

    def __init__(self, loop: _LoopThread, dead_letters: AsyncDeadLetters) -> None:
        self._loop = loop
        self._dead_letters = dead_letters

    def letters(self) -> Iterator[DeadLetter]:
        """Those that nobody has replayed or dropped yet, oldest first."""
        letters = self._dead_letters.letters()
        try:
            while (letter := self._loop.wait(_next_or_none(letters))) is not None:
                yield letter
        finally:
            self._loop.wait(letters.aclose())  # type: ignore[attr-defined]

    def replay(self, letters: Iterable[DeadLetter]) -> int:
        """Publish *letters* again where they failed, and mark them as done."""
        return self._loop.wait(self._dead_letters.replay(list(letters)))

    def drop(self, letters: Iterable[DeadLetter]) -> int:
        """Mark *letters* as done without doing anything about them."""
        return self._loop.wait(self._dead_letters.drop(list(letters)))


class Staging:
    """Staged batches; see ``pydanube.client.staging`` for what each method does."""

    def __init__(self, loop: _LoopThread, staging: AsyncStaging) -> None:
        self.query = staging.query
        self.version = staging.version
        self._loop = loop
        self._staging = staging

    def is_committed(self) -> bool:
        """Whether the query has committed this version, or a later one."""
        return self._loop.wait(self._staging.is_committed())

    def describe(self) -> StagingDescription:
        """How far the query is, and what is staged for it."""
        return self._loop.wait(self._staging.describe())

    def part(self, name: str, *, compression: str | None = None) -> PartWriter:
        """A part that one writer stages; nothing is asked of the broker yet."""
        return PartWriter(self._loop, self._staging.part(name, compression=compression))

    def commit(self, parts: Sequence[StagedPart]) -> StagedCommit:
        """Publish *parts*, all together and once; other parts are dropped."""
        return self._loop.wait(self._staging.commit(parts))

    def abort(self) -> None:
        """Drop everything that is staged for the version, unless it is committed."""
        self._loop.wait(self._staging.abort())


class PartWriter:
    """One part on its way; see ``pydanube.client.staging``."""

    def __init__(self, loop: _LoopThread, part: AsyncPartWriter) -> None:
        self.key = part.key
        self._loop = loop
        self._part = part

    def write(
        self,
        topic: str,
        batch: pa.RecordBatch | pa.Table,
        *,
        schema: SchemaReference | None = None,
    ) -> None:
        """Stage messages for *topic*; waits while too much is on its way."""
        self._loop.wait(self._part.write(topic, batch, schema=schema))

    def finish(self) -> StagedPart:
        """The part as it is to be named for the commit; it is on disk then."""
        return self._loop.wait(self._part.finish())

    def abort(self) -> None:
        """Drop the part."""
        self._loop.wait(self._part.abort())


class _LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = new_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="pydanube client", daemon=True
        )
        self._thread.start()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """PartitionSlice *work* on the loop, and return what it returns."""
        future = self.run(work)
        try:
            return future.result()
        except BaseException:
            # Ctrl-C in the waiting thread must not leave the work behind.
            future.cancel()
            raise

    def run(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """PartitionSlice *work* on the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call_soon(self, callback: Any) -> None:
        """Call *callback* on the loop."""
        self._loop.call_soon_threadsafe(callback)

    def close(self) -> None:
        """End the loop and its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()


class _Held(Generic[T]):
    """
    An async context manager, entered and left in one task of the loop.

    Task groups insist on that.
    """

    def __init__(self, scope: AbstractAsyncContextManager[T]) -> None:
        self._scope = scope
        self._entered = asyncio.Event()
        self._leave = asyncio.Event()
        self._value: T
        self._failure: BaseException | None = None

    async def hold(self) -> None:
        """Enter, wait for ``leave``, and leave."""
        try:
            async with self._scope as value:
                self._value = value
                self._entered.set()
                await self._leave.wait()
                if self._failure is not None:
                    raise self._failure  # noqa: TRY301  # For the scope to see.
        except BaseException as error:
            self._failure = error
            raise
        finally:
            self._entered.set()

    async def value(self) -> T:
        """What the scope gave when it was entered."""
        await self._entered.wait()
        if self._failure is not None:
            raise self._failure
        return self._value

    async def leave(self, failure: BaseException | None) -> None:
        """Leave, as if the body had raised *failure*."""
        self._failure = failure
        self._leave.set()


@contextmanager
def _loop_thread() -> Iterator[_LoopThread]:
    loop = _LoopThread()
    try:
        yield loop
    finally:
        loop.close()


class _Interrupted(Exception):
    """Stands on the loop for what ends a thread, such as KeyboardInterrupt."""


@contextmanager
def _entered(loop: _LoopThread, scope: AbstractAsyncContextManager[T]) -> Iterator[T]:
    held = _Held(scope)
    holding = loop.run(held.hold())
    try:
        yield loop.wait(held.value())
    except BaseException as failure:
        # On the loop, anything but an Exception would stop the loop itself.
        told = failure if isinstance(failure, Exception) else _Interrupted()
        loop.wait(held.leave(told))
        try:
            holding.result()
        except BaseException as raised:
            if raised is not told:
                raise
        raise
    else:
        loop.wait(held.leave(None))
        holding.result()


@contextmanager
def _producer(
    loop: _LoopThread, client: aio.Client, scope: AbstractAsyncContextManager[Any]
) -> Iterator[Producer]:
    with _entered(loop, scope) as producer:
        wrapped = (
            TypedProducer(loop, producer)
            if isinstance(producer, AsyncTypedProducer)
            else Producer(loop, producer)
        )
        yield wrapped
        wrapped.hand_over_to_close(client)


async def _next_or_none(values: AsyncIterator[T]) -> T | None:
    return await anext(values, None)
