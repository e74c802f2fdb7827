"""A topic that a broker serves: its log, producers and subscriptions."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

from pydanube.model.descriptions import TopicDescription, TopicOffsets
from pydanube.model.errors import (
    BrokerError,
    InvalidRequest,
    OutOfSequence,
    SubscriptionNotFound,
    Unavailable,
)
from pydanube.model.ids import Sequence as SequenceNumber
from pydanube.model.ids import TopicId
from pydanube.model.names import SubscriptionName, TopicName
from pydanube.model.policy import (
    DEFAULT_DEDUPLICATION,
    KEEP_ALL,
    AtTime,
    Deduplication,
    NamespacePolicy,
    Position,
    Retention,
    Start,
    TopicPolicy,
)
from pydanube.model.positions import TIME_MAX, TIME_MIN
from pydanube.model.schemas import TopicSchema
from pydanube.model.segments import SegmentEntry
from pydanube.wire.batches import BatchFrame
from pydanube_broker.broker.delivery.counts import Counts
from pydanube_broker.broker.delivery.direct_subscription import DirectSubscription
from pydanube_broker.broker.delivery.subscription import Subscription
from pydanube_broker.broker.publishing.deduplication_reading import read_window
from pydanube_broker.broker.publishing.publish_pacing import PublishPacing
from pydanube_broker.broker.publishing.schema_validation import (
    RejectMessages,
    SchemaCounts,
    SchemaValidation,
)
from pydanube_broker.broker.publishing.tracing import Tracing
from pydanube_broker.broker.pure.deduplication import (
    DeduplicationWindow,
    Ids,
    check_ids,
    ids_of,
    offsets_of,
    select,
    times_of,
)
from pydanube_broker.broker.pure.limits import check_header, check_quota, verify
from pydanube_broker.broker.pure.producer_registrations import ProducerRegistrations
from pydanube_broker.broker.pure.producer_session import OnPublished, ProducerSession
from pydanube_broker.metadata.records import TopicRecord
from pydanube_broker.storage.segments.topic_log import TopicLog

FIND_TIMES_MAX = 1000
"""The number of times that one request may look up."""


class Topic:
    """
    An open topic.

    Ordering: Batches get their offsets in the order of the calls of ``publish``, and
        are delivered to subscriptions in that order.
    """

    def __init__(
        self,
        name: TopicName,
        record: TopicRecord,
        counts: Counts,
        clock: Callable[[], float],
        tracing: Tracing | None,
    ) -> None:
        self.name = name
        self.topic_id = TopicId(record.topic_id)
        self.shard = record.shard
        self.record = b""
        """The stored record whose settings are in effect."""
        self.policy = record.policy
        self.limits = NamespacePolicy()
        """The limits in force; see ``set_limits``."""
        self.has_own_limits = False
        """Whether the limits are the topic's own, not those of its namespace."""
        self.namespace_retention = KEEP_ALL
        """The retention of its namespace."""
        self.registrations = ProducerRegistrations(name)
        """The producers that may publish."""
        self.sessions: dict[str, ProducerSession] = {}
        """Sessions by producer name, also of idle producers, in order of opening."""
        self.last_producer_id = 0
        """The highest id of a producer of this topic."""
        self.recovered_producers = 0
        """The number of producers in the journal when the topic was opened."""
        self.reconnect_until = 0.0
        """Recovered producers are not forgotten before this time."""
        self.subscriptions: dict[SubscriptionName, Subscription] = {}
        self.gone: BrokerError | None = None
        """Why subscriptions cannot be created: the topic leaves or is closed."""
        self.refusal: BrokerError | None = None
        """Why the topic refuses batches; None if it accepts them."""
        self.schema: TopicSchema | None = None
        """The schema that its messages must match."""
        self.schema_validation: SchemaValidation | None = None
        """Validates batches; None if they are not validated."""
        self.schema_counts: SchemaCounts | None = None
        """The results of validation, if batches were ever validated."""
        self.counts = Counts(counts)
        self.pacing = PublishPacing(clock)
        """The pace at which it accepts messages."""
        self.tracing = tracing
        """Traces batches; None: they are not traced."""

    # Events.

    def publish(
        self, session: ProducerSession, frame: BatchFrame, done: OnPublished
    ) -> None:
        """
        Publish a batch of a producer; *done* is called when it is stored.

        The topic takes over the frame's buffer.

        Raises:
            InvalidRequest: The batch is damaged, has too many messages, or is out of
                sequence.
            MessageTooLarge: One of its messages is too large; none is stored.
            SchemaMismatch, InvalidPayload: It does not match the topic's schema.
            ProducerFenced: Another producer has fenced this one.
            QuotaExceeded: The topic or its namespace stores as much as allowed.
            Draining: The broker is stopping.
        """
        self.check()
        self.pacing.check("storage_bytes")
        registration = session.registration
        assert registration is not None, f"{session.name} is not open"
        registration.check()
        if not frame.is_verified:
            self.verify(frame)
        check_header(frame.header, session.name)
        if self.tracing is not None:
            done = self.tracing.publishing(self.name, frame, done)
        if self.schema_validation is None:
            self.store(session, frame, done)
        else:
            store = partial(self._store_valid, session, done)
            self.schema_validation.admit(frame, registration.schema, store, done)

    def verify(self, frame: BatchFrame) -> None:
        """
        Check the content of a batch; ``publish`` does not check it again.

        May run in a thread: it changes only *frame*.

        Raises:
            InvalidRequest: The batch is damaged, or has too many messages.
            MessageTooLarge: One of its messages is too large.
        """
        verify(frame, self.limits.max_message_size, self.name)
        frame.is_verified = True

    def check(self) -> None:
        """Raise the reason if the topic refuses batches."""
        if self.refusal is not None:
            # The same exception object is raised repeatedly: drop its traceback.
            raise self.refusal.with_traceback(None)

    def publish_unchecked(self, frame: BatchFrame, done: OnPublished) -> None:
        """
        Publish a batch that the broker has made.

        Neither its content nor its schema is checked, and its sequence numbers neither.
        Otherwise as ``publish``.

        Raises:
            Draining, TopicNotFound, TopicFenced, JournalFailed: The topic refuses
                batches.
        """
        self.check()
        self.append(frame, done)

    def publish_batched(
        self, frame: BatchFrame, done: OnPublished, reject: RejectMessages
    ) -> None:
        """
        Publish a batch of messages that producers have sent one by one.

        If some of them do not match the topic's schema, *reject* rejects these and
        returns the others.

        Raises:
            SchemaMismatch: None of them matches the topic's schema.
            QuotaExceeded: The topic or its namespace stores as much as allowed.
        """
        self.check()
        self.pacing.check("storage_bytes")
        if self.tracing is not None:
            done = self.tracing.publishing(self.name, frame, done)
        if self.schema_validation is None:
            self.append(frame, done)
        else:
            store = partial(self._append_valid, done)
            self.schema_validation.admit(frame, None, store, done, reject)

    def store(
        self, session: ProducerSession, frame: BatchFrame, done: OnPublished
    ) -> None:
        """Store a checked batch of a producer, unless it is stored already."""
        raise NotImplementedError

    def append(self, frame: BatchFrame, done: OnPublished) -> None:
        """Store a batch at the end of the topic."""
        raise NotImplementedError

    def set_limits(self, limits: NamespacePolicy, *, are_own: bool) -> None:
        """
        Set the limits in force.

        Connected producers and consumers stay, even if there are more than allowed.
        """
        rate_before = self.dispatch_rate
        self.limits = limits
        self.has_own_limits = are_own
        self.pacing.set_rate(limits.max_publish_rate)
        if self.dispatch_rate != rate_before:
            for subscription in self.subscriptions.values():
                subscription.set_rate(self.dispatch_rate)

    def configure(self, policy: TopicPolicy, namespace_retention: Retention) -> None:
        """Apply a changed policy, and the retention of the namespace, from now on."""
        self.policy, self.namespace_retention = policy, namespace_retention

    def trim(self, offset: int) -> None:
        """Let nobody read the messages before *offset*, from now on."""

    def find_subscription(self, name: SubscriptionName) -> Subscription:
        """
        Return the subscription *name*.

        Raises:
            SubscriptionNotFound: It does not exist.
        """
        found = self.subscriptions.get(name)
        if found is None:
            raise SubscriptionNotFound(f"{self.name} has no subscription {name!r}")
        return found

    def check_new_subscription(self) -> None:
        """
        Raise if the topic or its namespace has its maximum number of subscriptions.

        Raises:
            QuotaExceeded: It has.
        """
        self.pacing.check("subscriptions")
        check_quota(
            f"Not allowed to create the subscription for the topic: {self.name}",
            len(self.subscriptions),
            self.limits.max_subscriptions_per_topic,
        )

    def check_new_consumer(self, subscription: Subscription) -> None:
        """
        Raise if *subscription* or the topic has its maximum number of consumers.

        Raises:
            QuotaExceeded: One of them has.
        """
        check_quota(
            f"Consumer limit per topic reached for {self.name}",
            self.counts.consumers,
            self.limits.max_consumers_per_topic,
        )
        check_quota(
            f"Consumer limit per subscription reached for {subscription.name} of "
            f"{self.name}",
            subscription.consumer_count,
            self.limits.max_consumers_per_subscription,
        )

    def close(self, reason: BrokerError) -> None:
        """Disconnect all producers and consumers, and tell them the reason."""
        self.gone = reason
        if self.schema_validation is not None:
            self.schema_validation.close(reason)
        self.registrations.close(reason)
        self.sessions.clear()
        for subscription in self.subscriptions.values():
            subscription.close(reason)
            subscription.cancel()
        self.subscriptions.clear()

    # State.

    def check_stays(self) -> None:
        """Raise if the topic is leaving this broker, or is closed."""
        if self.gone is not None:
            raise self.gone.with_traceback(None)

    @property
    def is_in_use(self) -> bool:
        """Whether a producer or consumer is connected."""
        return len(self.registrations) > 0 or self.counts.consumers > 0

    @property
    def retention(self) -> Retention:
        """The retention that applies: the topic's own, or that of its namespace."""
        return self.policy.effective_retention(self.namespace_retention)

    @property
    def dispatch_rate(self) -> float | None:
        """Messages per second that each subscription may deliver; None: no limit."""
        return self.limits.max_subscription_dispatch_rate or None

    def publish_delay_s(self, now: float) -> float:
        """
        Return how many seconds a server should wait before it publishes more.

        Batches that are published earlier are accepted, and make the delay longer.
        """
        return self.pacing.delay_s(now)

    @property
    def end_offset(self) -> int:
        """The offset of the next message."""
        raise NotImplementedError

    @property
    def segments(self) -> tuple[SegmentEntry, ...]:
        """The segments of the topic."""
        return ()

    def offsets(self) -> TopicOffsets:
        """Return the offsets of the topic."""
        return TopicOffsets(
            topic_id=self.topic_id,
            base_offset=self.end_offset,
            end_offset=self.end_offset,
            sealed_offset=self.end_offset,
            tail_bytes=0,
            is_reliable=False,
        )

    def describe(self, first: int = 0, limit: int | None = None) -> TopicDescription:
        """
        Describe the topic.

        Lists producers and subscriptions from index *first* on, up to *limit* of each.
        """
        end_offset = self.end_offset
        stop = None if limit is None else first + limit
        return TopicDescription(
            topic=str(self.name),
            topic_id=self.topic_id,
            policy=self.policy,
            epoch=1,
            base_offset=end_offset,
            end_offset=end_offset,
            sealed_offset=end_offset,
            tail_bytes=0,
            segment_bytes=0,
            segment_count=0,
            producers=tuple(islice(self.registrations, first, stop)),
            subscriptions=tuple(
                s.describe(end_offset)
                for s in islice(self.subscriptions.values(), first, stop)
            ),
            dropped=self.counts.dropped,
            retention=self.retention,
            limits=self.limits,
            own_limits=self.limits if self.has_own_limits else None,
            schema=self.schema,
        )

    # Helpers.

    def _store_valid(
        self, session: ProducerSession, done: OnPublished, frame: BatchFrame
    ) -> None:
        # The batch may have waited for validation: check again.
        self.check()
        assert session.registration is not None
        session.registration.check()
        self.store(session, frame, done)

    def _append_valid(self, done: OnPublished, frame: BatchFrame) -> None:
        self.check()
        fenced = self.registrations.find_fencing(frame.header.producer)
        if fenced is not None:
            raise fenced
        self.append(frame, done)


class ReliableTopic(Topic):
    """A topic whose messages are on disk before producers get their receipts."""

    def __init__(
        self,
        name: TopicName,
        record: TopicRecord,
        counts: Counts,
        clock: Callable[[], float],
        tracing: Tracing | None,
        *,
        topic_log: TopicLog,
        wall_clock_us: Callable[[], int],
    ) -> None:
        super().__init__(name, record, counts, clock, tracing)
        self.log = topic_log
        self.starting: dict[SubscriptionName, int] = {}
        """The cursors of subscriptions that are being created."""
        # Repeated batches: the offset up to which the log must be committed before they
        # are acknowledged, and their offsets.
        self._repeated: deque[tuple[int, int | Sequence[int], OnPublished]] = deque()
        self._wall_clock_us = wall_clock_us
        self._window: DeduplicationWindow | None = None
        # Whether a producer has used ids, which the policy does not ask for.
        self._has_ids = False
        self._window_lock = asyncio.Lock()
        self._unwatch = topic_log.watch(self._answer_repeated)

    def close(self, reason: BrokerError) -> None:
        super().close(reason)
        self._unwatch()

    def store(
        self, session: ProducerSession, frame: BatchFrame, done: OnPublished
    ) -> None:
        if self.policy.deduplication is not None or frame.header.has_ids:
            ids = ids_of(frame)
            if ids is not None:
                self._store_identified(session, frame, ids, done)
                return
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
                self._end_sessions(session, error)
            done(base_offset, error)

        base_offset = self.log.append_nowait(frame, committed)
        session.record(base_sequence, base_offset, count)
        self.pacing.count(count, byte_count, are_stored=True)

    def _store_identified(
        self, session: ProducerSession, frame: BatchFrame, ids: Ids, done: OnPublished
    ) -> None:
        """Store the messages of a batch whose ids are not in the window."""
        header, window = frame.header, self._window
        if window is None:
            # The producer opens again, and sends the batch when the window was read.
            self._has_ids = True
            raise Unavailable(f"{self.name} has begun to deduplicate; open it again")
        check_ids(ids)
        next_sequence = max(session.next_sequence, header.base_sequence + frame.count)
        known: int | None = None
        try:
            known = session.admit(header)
        except OutOfSequence:
            # If the batch was sent before, the session may not know it as a whole,
            # because it had duplicates: the window has its ids.
            if header.base_sequence > session.next_sequence:
                raise
        if known is not None:
            self._repeated.append((known + frame.count, known, done))
            self._answer_repeated()
            return
        now = self._wall_clock_us()
        offsets, new = window.place(ids, self.log.next_offset, now)
        if not new:
            # A receipt also acknowledges all earlier batches of the producer.
            session.next_sequence = SequenceNumber(next_sequence)
            self._repeated.append((self.log.next_offset, offsets, done))
            self._answer_repeated()
            return
        stored = frame if len(new) == frame.count else select(frame, new)
        count, byte_count = stored.count, stored.byte_count
        answer = offsets if stored is not frame else offsets[0]

        def committed(error: BrokerError | None) -> None:
            if error is None:
                self.counts.publish(count, byte_count)
            else:
                window.remove_from(base_offset)
                self._end_sessions(session, error)
            done(answer, error)

        base_offset = self.log.append_nowait(stored, committed)
        new_ids = [ids[index] for index in new]
        window.add(new_ids, times_of(stored), offsets_of(stored), now)
        session.record(stored.header.base_sequence, base_offset, count)
        session.next_sequence = SequenceNumber(next_sequence)
        self.pacing.count(count, byte_count, are_stored=True)

    async def open_window(self) -> None:
        """
        Make sure that the topic knows the ids of its last messages, if it deduplicates.

        Messages of a segment that is corrupt do not count.

        Raises:
            ObjectsUnavailable: The remote store, which alone has some of them, does not
                answer.
        """
        async with self._window_lock:
            while self._window is None and (limits := self._id_limits) is not None:
                window = await read_window(self.log, limits, self._wall_clock_us())
                if self._id_limits == limits:
                    self._window = window

    @property
    def _id_limits(self) -> Deduplication | None:
        """The window of known ids; None while nobody uses ids."""
        if self.policy.deduplication is not None or not self._has_ids:
            return self.policy.deduplication
        return DEFAULT_DEDUPLICATION

    def append(self, frame: BatchFrame, done: OnPublished) -> None:
        count, byte_count = frame.count, frame.byte_count

        def committed(error: BrokerError | None) -> None:
            if error is None:
                self.counts.publish(count, byte_count)
            else:
                self._fail_repeated(error)
            done(base_offset, error)

        base_offset = self.log.append_nowait(frame, committed)
        self.pacing.count(count, byte_count, are_stored=True)

    def configure(self, policy: TopicPolicy, namespace_retention: Retention) -> None:
        before = self.policy.deduplication
        super().configure(policy, namespace_retention)
        self.log.configure(policy, self.retention)
        if policy.deduplication != before:
            self._change_window(has_begun=before is None)
        for subscription in self.subscriptions.values():
            subscription.on_policy_changed()

    def _change_window(self, *, has_begun: bool) -> None:
        limits = self.policy.deduplication
        if self._window is not None and limits is not None:
            self._window.limits = limits
            return
        self._window, self._has_ids = None, False
        if not has_begun and limits is not None:
            return
        # Producers learn it when they open again, and the window is read then.
        reason = Unavailable(f"{self.name} has begun or ended to deduplicate")
        for session in tuple(self.sessions.values()):
            if session.registration is not None:
                self.registrations.fence(session.registration, reason)

    def trim(self, offset: int) -> None:
        if offset <= self.log.start_offset:
            return
        self.log.trim(offset)
        for subscription in self.subscriptions.values():
            subscription.on_trimmed()

    async def locate(self, position: Position) -> int:
        """
        Return the offset of a position; at least that of the first message kept.

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
            offset = self.end_offset if is_latest else self.log.first_kept
        else:
            offset = position
        if offset < 0:
            raise InvalidRequest(f"the offset {offset} is negative")
        self.check_offset(offset)
        return max(offset, self.log.first_kept)

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
        return self.log.end_offset

    @property
    def segments(self) -> tuple[SegmentEntry, ...]:
        return self.log.segments

    def offsets(self) -> TopicOffsets:
        return TopicOffsets(
            topic_id=self.topic_id,
            base_offset=self.log.base_offset,
            end_offset=self.end_offset,
            sealed_offset=self.log.sealed_offset,
            tail_bytes=self.log.tail.byte_count,
            is_reliable=True,
        )

    def describe(self, first: int = 0, limit: int | None = None) -> TopicDescription:
        topic_log, description = self.log, super().describe(first, limit)
        base_offset, segments = topic_log.base_offset, topic_log.segments
        missing = topic_log.missing_from(base_offset)
        return replace(
            description,
            epoch=topic_log.epoch,
            base_offset=base_offset,
            sealed_offset=topic_log.sealed_offset,
            tail_bytes=topic_log.tail.byte_count,
            segment_bytes=topic_log.segment_bytes,
            segment_count=len(segments),
            message_count=description.end_offset - base_offset - missing,
        )

    def _answer_repeated(self) -> None:
        while self._repeated and self._repeated[0][0] <= self.log.end_offset:
            _, offsets, done = self._repeated.popleft()
            done(offsets, None)

    def _end_sessions(self, session: ProducerSession, error: BrokerError) -> None:
        # The journal lacks the batches that this session, and a later one of the same
        # name, have counted.  The next session continues from the journal's state.
        if session.registration is not None:
            # *done* tells the producer.
            self.registrations.leave(session.registration, error)
        current = self.sessions.pop(session.name, None)
        if current is not None and current.registration is not None:
            self.registrations.fence(current.registration, error)
        self._fail_repeated(error)

    def _fail_repeated(self, error: BrokerError) -> None:
        # They may repeat a batch that is not stored.
        repeated, self._repeated = self._repeated, deque()
        for _, offsets, done in repeated:
            done(offsets, error)


class DirectTopic(Topic):
    """A topic whose messages are delivered from memory and not stored."""

    _next_offset = 0

    def store(
        self, session: ProducerSession, frame: BatchFrame, done: OnPublished
    ) -> None:
        """Deliver the batch, unless it was delivered before."""
        if session.admit(frame.header) is not None:
            # The producer has sent it again after a lost connection.
            done(self._next_offset, None)
            return
        session.record(frame.header.base_sequence, self._next_offset, frame.count)
        self.append(frame, done)

    def append(self, frame: BatchFrame, done: OnPublished) -> None:
        """Deliver the batch to all subscriptions."""
        base_offset = self._next_offset
        frame.stamp(base_offset, 1)
        self._next_offset += frame.count
        self.counts.publish(frame.count, frame.byte_count)
        self.pacing.count(frame.count, frame.byte_count, are_stored=False)
        for subscription in self.subscriptions.values():
            assert isinstance(subscription, DirectSubscription)
            subscription.offer(frame)
        done(base_offset, None)

    @property
    def end_offset(self) -> int:
        return self._next_offset
