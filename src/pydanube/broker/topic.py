"""One topic as its broker sees it: a log, producers, subscriptions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from pydanube.broker.counts import Counts
from pydanube.broker.direct import DirectSubscription
from pydanube.broker.subscription import Subscription
from pydanube.model.batch import Column
from pydanube.model.descriptions import TopicDescription
from pydanube.model.errors import (
    CorruptBatch,
    InvalidRequest,
    ProducerFenced,
    SubscriptionNotFound,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pydanube.broker.producers import ProducerSession
    from pydanube.model.errors import BrokerError
    from pydanube.model.ids import TopicId
    from pydanube.model.names import SubscriptionName, TopicName
    from pydanube.model.policy import TopicPolicy
    from pydanube.storage.manifest import SegmentEntry
    from pydanube.storage.topic_log import TopicLog
    from pydanube.wire.batches import BatchFrame, BatchHeader

Published = Callable[[int, "BrokerError | None"], None]
"""Called with the base offset when a batch is safe, or with what went wrong."""


class Topic:
    """
    A topic that this broker serves.

    Ordering: Batches get their offsets in the order of the calls to
        ``publish``, and become visible to subscriptions in that order.
    """

    def __init__(
        self, name: TopicName, topic_id: TopicId, policy: TopicPolicy, counts: Counts
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.policy = policy
        self.sessions: dict[str, ProducerSession] = {}
        """Producers by name, in the order of their last opening; also idle ones."""
        self.subscriptions: dict[SubscriptionName, Subscription] = {}
        self.refusal: BrokerError | None = None
        """Why nothing is taken at the moment, if so."""
        self.counts = Counts(counts)

    # What happened.

    def publish(
        self, session: ProducerSession, frame: BatchFrame, done: Published
    ) -> None:
        """
        Take a batch from a producer; *done* is called when it is safe.

        The frame's buffer belongs to the topic from here on.

        Raises:
            InvalidRequest: The batch is damaged, or out of sequence.
            ProducerFenced: A newer producer of the same name is open.
            Draining: The broker is stopping.
        """
        if self.refusal is not None:
            raise self.refusal
        if self.sessions.get(session.name) is not session:
            raise ProducerFenced(f"another producer named {session.name} is open")
        try:
            frame.verify()
        except CorruptBatch as error:
            raise InvalidRequest(f"the batch is damaged: {error}") from error
        _check_is_of(session, frame.header)
        self.store(session, frame, done)

    def store(
        self, session: ProducerSession, frame: BatchFrame, done: Published
    ) -> None:
        """Give a checked batch its place."""
        raise NotImplementedError

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

    def close(self, reason: BrokerError) -> None:
        """Let all consumers go; producers learn it with their next batch."""
        self.sessions.clear()
        for subscription in self.subscriptions.values():
            subscription.close(reason)

    # What is known.

    @property
    def open_producers(self) -> Iterator[str]:
        """The names of the producers that are open."""
        return (s.name for s in self.sessions.values() if s.is_open)

    @property
    def is_in_use(self) -> bool:
        """Whether a producer or consumer is connected."""
        return any(self.open_producers) or any(
            s.has_consumers for s in self.subscriptions.values()
        )

    @property
    def end_offset(self) -> int:
        """The first offset that is not there yet."""
        raise NotImplementedError

    @property
    def segments(self) -> tuple[SegmentEntry, ...]:
        """The sealed part of the topic."""
        return ()

    def describe(self) -> TopicDescription:
        """The facts at this moment."""
        raise NotImplementedError

    def _facts(
        self,
        *,
        epoch: int,
        base_offset: int,
        sealed_offset: int,
        tail_bytes: int = 0,
        segments: Sequence[SegmentEntry] = (),
    ) -> TopicDescription:
        end_offset = self.end_offset
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
            producers=tuple(self.open_producers),
            subscriptions=tuple(
                s.describe(end_offset) for s in self.subscriptions.values()
            ),
            dropped=self.counts.dropped,
        )


class ReliableTopic(Topic):
    """A topic whose messages are in a log before they are acknowledged."""

    def __init__(
        self,
        name: TopicName,
        topic_id: TopicId,
        policy: TopicPolicy,
        counts: Counts,
        topic_log: TopicLog,
    ) -> None:
        super().__init__(name, topic_id, policy, counts)
        self.log = topic_log
        # Repeated batches whose first copy is not committed yet.
        self._repeated: deque[tuple[int, int, Published]] = deque()
        topic_log.watch(self._answer_repeated)

    def store(
        self, session: ProducerSession, frame: BatchFrame, done: Published
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

    @property
    def end_offset(self) -> int:
        """See the base class."""
        return self.log.end_offset

    @property
    def segments(self) -> tuple[SegmentEntry, ...]:
        """See the base class."""
        return self.log.segments

    def describe(self) -> TopicDescription:
        """See the base class."""
        topic_log = self.log
        return self._facts(
            epoch=topic_log.epoch,
            base_offset=topic_log.base_offset,
            sealed_offset=topic_log.sealed_offset,
            tail_bytes=topic_log.tail_bytes,
            segments=topic_log.segments,
        )

    def _answer_repeated(self) -> None:
        while self._repeated and self._repeated[0][0] <= self.log.end_offset:
            _, base_offset, done = self._repeated.popleft()
            done(base_offset, None)

    def _forget(self, session: ProducerSession, error: BrokerError) -> None:
        # What the session counted was not written.  Its next opening takes up
        # what the journal remembers.
        if self.sessions.get(session.name) is session:
            del self.sessions[session.name]
        repeated, self._repeated = self._repeated, deque()
        for _, base_offset, done in repeated:
            done(base_offset, error)


class DirectTopic(Topic):
    """A topic whose messages are only passed on."""

    _next_offset = 0

    def store(
        self, session: ProducerSession, frame: BatchFrame, done: Published
    ) -> None:
        """Pass the batch to every subscription."""
        if session.admit(frame.header) is not None:
            # Sent again after a lost connection: it has been passed on before,
            # and a second time would be one too many.
            done(self._next_offset, None)
            return
        base_offset = self._next_offset
        frame.stamp(base_offset, 1)
        session.record(frame.header.base_sequence, base_offset, frame.count)
        self._next_offset += frame.count
        self.counts.publish(frame.count, frame.byte_count)
        for subscription in self.subscriptions.values():
            assert isinstance(subscription, DirectSubscription)
            subscription.offer(frame)
        done(base_offset, None)

    @property
    def end_offset(self) -> int:
        """See the base class."""
        return self._next_offset

    def describe(self) -> TopicDescription:
        """See the base class."""
        end = self._next_offset
        return self._facts(epoch=1, base_offset=end, sealed_offset=end)


def _check_is_of(session: ProducerSession, header: BatchHeader) -> None:
    """A producer says who it is, and nothing about offsets and other producers."""
    if header.producer != session.name:
        raise InvalidRequest(
            f"the batch names the producer {header.producer!r}, the channel belongs "
            f"to {session.name!r}"
        )
    if header.columns & (Column.OFFSET | Column.PRODUCER):
        raise InvalidRequest("a published batch has no column offset or producer")
