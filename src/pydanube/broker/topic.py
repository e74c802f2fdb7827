"""One topic as its broker sees it: a log, producers, subscriptions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from pydanube.broker.counts import Counts
from pydanube.broker.direct_subscription import DirectSubscription
from pydanube.broker.limits import PublishRate, verify
from pydanube.broker.producer_registrations import ProducerRegistrations
from pydanube.broker.subscription import Subscription
from pydanube.model.batch import Column
from pydanube.model.descriptions import TopicDescription
from pydanube.model.errors import (
    CorruptBatch,
    InvalidRequest,
    QuotaExceeded,
    SubscriptionNotFound,
)
from pydanube.model.policy import AtTime, NamespacePolicy, Start
from pydanube.wire.batches import TIME_MAX, TIME_MIN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pydanube.broker.producer_session import OnPublished, ProducerSession
    from pydanube.broker.schema_validation import (
        RejectMessages,
        SchemaCounts,
        SchemaValidation,
    )
    from pydanube.model.errors import BrokerError
    from pydanube.model.ids import TopicId
    from pydanube.model.names import SubscriptionName, TopicName
    from pydanube.model.policy import CorruptionPolicy, Position, TopicPolicy
    from pydanube.model.schemas import TopicSchema
    from pydanube.storage.manifest import SegmentEntry
    from pydanube.storage.topic_log import TopicLog
    from pydanube.wire.batches import BatchFrame, BatchHeader

FIND_TIMES_MAX = 1000
"""The number of times that one request may look up."""


class Topic:
    """
    A topic that this broker serves.

    Ordering: Batches get their offsets in the order of the calls to
        ``publish``, and become visible to subscriptions in that order.
    """

    def __init__(
        self,
        name: TopicName,
        topic_id: TopicId,
        policy: TopicPolicy,
        counts: Counts,
        clock: Callable[[], float],
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.policy = policy
        self.limits = NamespacePolicy()
        """What holds for it; see ``set_limits``."""
        self.has_own_limits = False
        """Whether they are its own, and not those of its namespace."""
        self.registrations = ProducerRegistrations(name)
        """Who publishes at the moment."""
        self.sessions: dict[str, ProducerSession] = {}
        """Producers by name, in the order of their last opening; also idle ones."""
        self.last_producer_id = 0
        """The highest id that a producer of the topic has been given."""
        self.recovered_producers = 0
        """The number of producers that the journal remembered at the opening."""
        self.reconnect_until = 0.0
        """Until then the recovered producers may reconnect and are not forgotten."""
        self.subscriptions: dict[SubscriptionName, Subscription] = {}
        self.refusal: BrokerError | None = None
        """Why nothing is taken at the moment, if so."""
        self.schema: TopicSchema | None = None
        """What its messages keep to."""
        self.schema_validation: SchemaValidation | None = None
        """What sees to it; None where nothing is looked at."""
        self.schema_counts: SchemaCounts | None = None
        """What its gates have counted, if there ever was one."""
        self.counts = Counts(counts)
        self._clock = clock
        self._publish_rate: PublishRate | None = None

    # What happened.

    def publish(
        self, session: ProducerSession, frame: BatchFrame, done: OnPublished
    ) -> None:
        """
        Take a batch from a producer; *done* is called when it is safe.

        The frame's buffer belongs to the topic from here on.

        Raises:
            InvalidRequest: The batch is damaged, has too many messages, or is out of
                sequence.
            MessageTooLarge: One of its messages is; none is taken.
            SchemaMismatch, InvalidPayload: It does not keep to the topic's schema.
            ProducerFenced: The producer has lost its place to another one.
            Draining: The broker is stopping.
        """
        self.check()
        registration = session.registration
        assert registration is not None, f"{session.name} is not open"
        registration.check()
        if not frame.is_verified:
            self.verify(frame)
        _check_is_of(session, frame.header)
        if self.schema_validation is None:
            self.store(session, frame, done)
        else:
            store = partial(self._store_admitted, session, done)
            self.schema_validation.admit(frame, registration.schema, store, done)

    def verify(self, frame: BatchFrame) -> None:
        """
        Check what is in a batch; ``publish`` does not check it again.

        It changes nothing but *frame* and may run in a thread.

        Raises:
            InvalidRequest: The batch is damaged, or has too many messages.
            MessageTooLarge: One of its messages is.
        """
        try:
            verify(frame, self.limits.max_message_size, self.name)
        except CorruptBatch as error:
            raise InvalidRequest(f"the batch is damaged: {error}") from error
        frame.is_verified = True

    def check(self) -> None:
        """
        Let somebody pass who wants to publish.

        Raises: Why nothing is taken.
        """
        if self.refusal is not None:
            # One error is raised many times, and must not collect where.
            raise self.refusal.with_traceback(None)

    def take(self, frame: BatchFrame, done: OnPublished) -> None:
        """
        Take a batch that the broker has made, of producers that do not number.

        What is in it is not checked, not even its schema.  Otherwise as ``publish``.

        Raises:
            Draining, TopicNotFound, TopicFenced, JournalFailed: Nothing is taken
                any more.
        """
        self.check()
        assert not frame.header.producer_id
        self.append(frame, done)

    def publish_batched(
        self, frame: BatchFrame, done: OnPublished, reject: RejectMessages
    ) -> None:
        """
        The same for a batch of messages that producers have sent one by one.

        If the topic's schema forbids some of them, *reject* refuses these and gives
        the rest.

        Raises:
            SchemaMismatch: None of them keeps to the topic's schema.
        """
        self.check()
        if self.schema_validation is None:
            self.append(frame, done)
        else:
            store = partial(self._append_admitted, done)
            self.schema_validation.admit(frame, None, store, done, reject)

    def store(
        self, session: ProducerSession, frame: BatchFrame, done: OnPublished
    ) -> None:
        """Give a checked batch its place, unless it has one already."""
        raise NotImplementedError

    def append(self, frame: BatchFrame, done: OnPublished) -> None:
        """Give a batch the next registration."""
        raise NotImplementedError

    def set_limits(self, limits: NamespacePolicy, *, are_own: bool) -> None:
        """
        Other limits hold from now on.

        Who is there already stays, whatever they say.
        """
        rate_before = self.dispatch_rate
        self.limits = limits
        self.has_own_limits = are_own
        self._change_publish_rate(limits.max_publish_rate)
        if self.dispatch_rate != rate_before:
            for subscription in self.subscriptions.values():
                subscription.set_rate(self.dispatch_rate)

    def set_on_corruption(self, on_corruption: CorruptionPolicy) -> None:
        """Subscriptions do something else from now on when a segment is corrupt."""
        self.policy = replace(self.policy, on_corruption=on_corruption)

    def find_subscription(self, name: SubscriptionName) -> Subscription:
        """
        The subscription called *name*.

        Raises:
            SubscriptionNotFound: There is none.
        """
        found = self.subscriptions.get(name)
        if found is None:
            raise SubscriptionNotFound(f"{self.name} has no subscription {name!r}")
        return found

    def check_new_subscription(self) -> None:
        """
        Let a new subscription pass.

        Raises:
            QuotaExceeded: There are as many as there may be.
        """
        count = len(self.subscriptions)
        count_max = self.limits.max_subscriptions_per_topic
        if 0 < count_max <= count:
            raise QuotaExceeded(
                f"Not allowed to create the subscription for the topic: {self.name}. "
                f"Current: {count}, Limit: {count_max}"
            )

    def check_new_consumer(self, subscription: Subscription) -> None:
        """
        Let a consumer pass that is new to *subscription*.

        Raises:
            QuotaExceeded: It or the topic has as many as there may be.
        """
        count_max = self.limits.max_consumers_per_topic
        if count_max:
            count = self.counts.consumers
            if count >= count_max:
                raise QuotaExceeded(
                    f"Consumer limit per topic reached for {self.name}. "
                    f"Current: {count}, Limit: {count_max}"
                )
        count = subscription.consumer_count
        count_max = self.limits.max_consumers_per_subscription
        if 0 < count_max <= count:
            raise QuotaExceeded(
                f"Consumer limit per subscription reached for {subscription.name} of "
                f"{self.name}. Current: {count}, Limit: {count_max}"
            )

    def close(self, reason: BrokerError) -> None:
        """Let all producers and consumers go, and say why."""
        if self.schema_validation is not None:
            self.schema_validation.close(reason)
        self.registrations.close(reason)
        self.sessions.clear()
        for subscription in self.subscriptions.values():
            subscription.close(reason)
            subscription.cancel()
        self.subscriptions.clear()

    # What is known.

    @property
    def open_producers(self) -> Iterator[str]:
        """The names of the producers that are open."""
        return iter(self.registrations)

    @property
    def is_in_use(self) -> bool:
        """Whether a producer or consumer is connected."""
        return len(self.registrations) > 0 or self.counts.consumers > 0

    @property
    def dispatch_rate(self) -> float | None:
        """Messages a second that each subscription may deliver; None: any number."""
        return self.limits.max_subscription_dispatch_rate or None

    def publish_delay_s(self, now: float) -> float:
        """
        For how long a server should take nothing for this topic; 0: it may go on.

        Whatever it brings is taken all the same, and makes the next delay longer.
        """
        rate = self._publish_rate
        return 0.0 if rate is None else rate.delay_s(now)

    @property
    def end_offset(self) -> int:
        """The first offset that is not there yet."""
        raise NotImplementedError

    @property
    def segments(self) -> tuple[SegmentEntry, ...]:
        """The sealed part of the topic."""
        return ()

    def describe(self, first: int = 0, limit: int | None = None) -> TopicDescription:
        """
        The facts at this moment.

        Producers and subscriptions from number *first* on, and at most *limit* of each.
        """
        raise NotImplementedError

    # What follows.

    def _store_admitted(
        self, session: ProducerSession, done: OnPublished, frame: BatchFrame
    ) -> None:
        # It may have waited at the gate, and much may have happened.
        self.check()
        assert session.registration is not None
        session.registration.check()
        self.store(session, frame, done)

    def _append_admitted(self, done: OnPublished, frame: BatchFrame) -> None:
        self.check()
        fenced = self.registrations.find_fencing(frame.header.producer)
        if fenced is not None:
            raise fenced
        self.append(frame, done)

    def count_taken(self, count: int) -> None:
        """So many messages are on their way; the publish rate counts them."""
        if self._publish_rate is not None:
            self._publish_rate.take(count, self._clock())

    def _change_publish_rate(self, messages_per_s: int) -> None:
        now = self._clock()
        if not messages_per_s:
            self._publish_rate = None
        elif self._publish_rate is None:
            self._publish_rate = PublishRate(messages_per_s, now)
        else:
            self._publish_rate.change(messages_per_s, now)

    def _facts(
        self,
        first: int,
        limit: int | None,
        *,
        epoch: int,
        base_offset: int,
        sealed_offset: int,
        tail_bytes: int = 0,
        segments: Sequence[SegmentEntry] = (),
        missing: int = 0,
    ) -> TopicDescription:
        end_offset = self.end_offset
        end = None if limit is None else first + limit
        return TopicDescription(
            topic=str(self.name),
            topic_id=self.topic_id,
            policy=self.policy,
            epoch=epoch,
            base_offset=base_offset,
            end_offset=end_offset,
            sealed_offset=sealed_offset,
            tail_bytes=tail_bytes,
            segment_bytes=sum(s.byte_count for s in segments),
            segment_count=len(segments),
            producers=tuple(islice(self.open_producers, first, end)),
            subscriptions=tuple(
                s.describe(end_offset)
                for s in islice(self.subscriptions.values(), first, end)
            ),
            dropped=self.counts.dropped,
            limits=self.limits,
            own_limits=self.limits if self.has_own_limits else None,
            schema=self.schema,
            message_count=end_offset - base_offset - missing,
        )


class ReliableTopic(Topic):
    """A topic whose messages are in a log before they are acknowledged."""

    def __init__(
        self,
        name: TopicName,
        topic_id: TopicId,
        policy: TopicPolicy,
        counts: Counts,
        clock: Callable[[], float],
        *,
        topic_log: TopicLog,
    ) -> None:
        super().__init__(name, topic_id, policy, counts, clock)
        self.log = topic_log
        # Repeated batches whose first copy is not committed yet.
        self._repeated: deque[tuple[int, int, OnPublished]] = deque()
        self._unwatch = topic_log.watch(self._answer_repeated)

    def close(self, reason: BrokerError) -> None:
        """See the base class."""
        super().close(reason)
        self._unwatch()

    def store(
        self, session: ProducerSession, frame: BatchFrame, done: OnPublished
    ) -> None:
        """Append the batch to the log, unless it is there already."""
        known = session.admit(frame.header)
        if known is not None:
            self._repeated.append((known + frame.count, known, done))
            self._answer_repeated()
            return
        base_sequence = frame.header.base_sequence
        count, byte_count = frame.count, frame.byte_count

        def committed(error: BrokerError | None) -> None:
            if error is None:
                self.counts.publish(count, byte_count)
            else:
                self._forget(session, error)
            done(base_offset, error)

        base_offset = self.log.append_nowait(frame, committed)
        session.record(base_sequence, base_offset, count)
        self.count_taken(count)

    def append(self, frame: BatchFrame, done: OnPublished) -> None:
        """See the base class."""
        count, byte_count = frame.count, frame.byte_count

        def committed(error: BrokerError | None) -> None:
            if error is None:
                self.counts.publish(count, byte_count)
            done(base_offset, error)

        base_offset = self.log.append_nowait(frame, committed)
        self.count_taken(count)

    def set_on_corruption(self, on_corruption: CorruptionPolicy) -> None:
        """See the base class."""
        super().set_on_corruption(on_corruption)
        self.log.policy = self.policy
        for subscription in self.subscriptions.values():
            subscription.on_policy_changed()

    async def locate(self, position: Position) -> int:
        """
        Return the offset of a position; at least that of the first stored message.

        Raises:
            InvalidRequest: The offset is negative or beyond the end of the topic.
            CorruptSegment: A segment must be read to find a time, and is damaged.
        """
        if isinstance(position, AtTime):
            # No message has a time outside these bounds.
            time = max(TIME_MIN, min(position.publish_time, TIME_MAX + 1))
            offset: int = await self.log.find_time(time)
        elif isinstance(position, Start):
            is_latest = position is Start.LATEST
            offset = self.end_offset if is_latest else self.log.base_offset
        else:
            offset = position
        if offset < 0:
            raise InvalidRequest(f"the offset {offset} is negative")
        self.check_offset(offset)
        return max(offset, self.log.base_offset)

    def check_offset(self, offset: int) -> None:
        """
        Raise if an offset is beyond the end of the topic.

        Raises:
            InvalidRequest: It is.
        """
        if offset > self.end_offset:
            raise InvalidRequest(
                f"{self.name} ends at offset {self.end_offset}; {offset} is beyond it"
            )

    async def find_offsets(
        self, publish_times: Sequence[int]
    ) -> tuple[list[int], int, int]:
        """
        Return for each time the offset of the first message published then or later.

        Also returns the base and end offsets of the topic at the time of the call.  The
        end offset stands for times after the last message.

        Bounds: FIND_TIMES_MAX times.

        Raises:
            InvalidRequest: There are too many times.
            CorruptSegment: A segment must be read, and is damaged or missing.
        """
        if len(publish_times) > FIND_TIMES_MAX:
            raise InvalidRequest(
                f"{len(publish_times)} times are too many; ask for {FIND_TIMES_MAX} at "
                "most"
            )
        base, end = self.log.base_offset, self.end_offset
        offsets = [min(end, await self.locate(AtTime(time))) for time in publish_times]
        return offsets, base, end

    @property
    def end_offset(self) -> int:
        """See the base class."""
        return self.log.end_offset

    @property
    def segments(self) -> tuple[SegmentEntry, ...]:
        """See the base class."""
        return self.log.segments

    def describe(self, first: int = 0, limit: int | None = None) -> TopicDescription:
        """See the base class."""
        topic_log = self.log
        return self._facts(
            *(first, limit),
            epoch=topic_log.epoch,
            base_offset=topic_log.base_offset,
            sealed_offset=topic_log.sealed_offset,
            tail_bytes=topic_log.tail_bytes,
            segments=topic_log.segments,
            missing=topic_log.missing_from(topic_log.base_offset),
        )

    def _answer_repeated(self) -> None:
        while self._repeated and self._repeated[0][0] <= self.log.end_offset:
            _, base_offset, done = self._repeated.popleft()
            done(base_offset, None)

    def _forget(self, session: ProducerSession, error: BrokerError) -> None:
        # What the session counted was not written, and neither was what a later
        # one of this name took over from it.  The next opening takes up what the
        # journal remembers.
        if session.registration is not None:
            # Whoever has it is told by *done*.
            self.registrations.leave(session.registration, error)
        current = self.sessions.pop(session.name, None)
        if current is not None and current.registration is not None:
            self.registrations.fence(current.registration, error)
        repeated, self._repeated = self._repeated, deque()
        for _, base_offset, done in repeated:
            done(base_offset, error)


class DirectTopic(Topic):
    """A topic whose messages are only passed on."""

    _next_offset = 0

    def store(
        self, session: ProducerSession, frame: BatchFrame, done: OnPublished
    ) -> None:
        """Pass the batch on, unless it was passed on before."""
        if session.admit(frame.header) is not None:
            # Sent again after a lost connection: it has been passed on before,
            # and a second time would be one too many.
            done(self._next_offset, None)
            return
        session.record(frame.header.base_sequence, self._next_offset, frame.count)
        self.append(frame, done)

    def append(self, frame: BatchFrame, done: OnPublished) -> None:
        """Pass the batch to every subscription."""
        base_offset = self._next_offset
        frame.stamp(base_offset, 1)
        self._next_offset += frame.count
        self.counts.publish(frame.count, frame.byte_count)
        self.count_taken(frame.count)
        for subscription in self.subscriptions.values():
            assert isinstance(subscription, DirectSubscription)
            subscription.offer(frame)
        done(base_offset, None)

    @property
    def end_offset(self) -> int:
        """See the base class."""
        return self._next_offset

    def describe(self, first: int = 0, limit: int | None = None) -> TopicDescription:
        """See the base class."""
        end = self._next_offset
        return self._facts(first, limit, epoch=1, base_offset=end, sealed_offset=end)


def _check_is_of(session: ProducerSession, header: BatchHeader) -> None:
    """A producer says who it is, and nothing about offsets and other producers."""
    if header.producer != session.name:
        raise InvalidRequest(
            f"the batch names the producer {header.producer!r}, the channel belongs "
            f"to {session.name!r}"
        )
    if header.columns & (Column.OFFSET | Column.PRODUCER):
        raise InvalidRequest("a published batch has no column offset or producer")
