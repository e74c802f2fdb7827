"""
The acknowledgements of transactions, which take effect together with a commit.

A commit *holds* the messages that it acknowledges before it is decided: their consumer
must have them, and nobody else gets them.  The decision names them.  When the batches
of the commit are in the journal, the messages are marked as acknowledged there, too.
If it turns out that the commit was not decided, the messages are delivered again.

After a crash, decided acknowledgements are applied again before consumers can receive
the messages.  To apply them twice changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pydanube.aio.futures import completion
from pydanube.broker.reliable_subscription import ReliableSubscription
from pydanube.broker.subscription import Consumer
from pydanube.broker.topic import ReliableTopic
from pydanube.broker.topics import Topics
from pydanube.metadata import keys
from pydanube.metadata.records import CommittedAcksRecord, StagingDecision
from pydanube.metadata.store import MetadataStore
from pydanube.model.errors import (
    InvalidRequest,
    MessageNotHeld,
    SubscriptionNotFound,
    TopicNotFound,
)
from pydanube.model.names import SubscriptionName, TopicName, parse_subscription
from pydanube.model.ranges import RangeSet
from pydanube.model.staging import TransactionAcks

log = logging.getLogger(__name__)

ACK_SUBSCRIPTIONS_MAX = 1000
"""The most topics and partitions whose messages a transaction acknowledges."""
ACK_RANGES_MAX = 10_000
"""The most ranges of offsets that a transaction acknowledges."""


@dataclass(slots=True)
class CommitAcks:
    """The messages of one subscription that a commit acknowledges."""

    record: CommittedAcksRecord
    topic: ReliableTopic
    subscription: ReliableSubscription

    @property
    def is_current(self) -> bool:
        """Whether the subscription was not deleted meanwhile."""
        name = SubscriptionName(self.record.subscription)
        return self.topic.subscriptions.get(name) is self.subscription

    def give_back(self) -> None:
        """Deliver the messages again: the commit was not decided."""
        self.subscription.refuse_commit(self.record.ranges)


class TransactionAcknowledger:
    """Holds the messages that commits acknowledge, and marks them as done."""

    def __init__(self, topics: Topics, store: MetadataStore) -> None:
        self._topics = topics
        self._store = store

    async def find(self, acks: Sequence[TransactionAcks]) -> list[CommittedAcksRecord]:
        """
        Return what a decision says about *acks*.

        Raises:
            TopicNotFound, SubscriptionNotFound: It was deleted.
            InvalidRequest: A topic is not reliable, a consumer is named twice, or there
                is too much.
        """
        check_bounds(acks)
        named = {(each.topic, each.subscription, each.consumer_id) for each in acks}
        if len(named) < len(acks):
            raise InvalidRequest("a transaction names a consumer twice")
        records = []
        for each in acks:
            topic = await self._topics.get_reliable(TopicName.parse(each.topic))
            name = parse_subscription(each.subscription)
            created_at = await self._created_at(topic, name)
            if created_at is None:
                raise SubscriptionNotFound(
                    f"the subscription {name} of {each.topic} was deleted; process the "
                    "messages again if a new subscription delivers them"
                )
            records.append(
                CommittedAcksRecord(
                    topic_id=topic.topic_id,
                    name=each.topic,
                    subscription=name,
                    created_at=created_at,
                    ranges=each.ranges,
                )
            )
        return records

    def hold(
        self,
        records: Sequence[CommittedAcksRecord],
        consumers: Iterable[int],
        decisions: Iterable[StagingDecision],
    ) -> list[CommitAcks]:
        """
        Hold the messages of *records*, which these *consumers* have.

        *decisions* are the commits that are decided and not carried out yet.

        Raises:
            MessageNotHeld: A consumer does not have a message; nothing is held.
        """
        decided = [acks for decision in decisions for acks in decision.acks]
        found: list[tuple[CommitAcks, Consumer]] = []
        for record, consumer_id in zip(records, consumers, strict=True):
            _check_undecided(record, decided)
            acks = self._find(record)
            consumer = acks.subscription.check_held(consumer_id, record.ranges)
            found.append((acks, consumer))
        for acks, consumer in found:
            acks.subscription.hold_messages(consumer, acks.record.ranges)
        return [acks for acks, _ in found]

    async def resume(self, records: Iterable[CommittedAcksRecord]) -> list[CommitAcks]:
        """Apply acknowledgements of a commit that was decided before."""
        found = []
        for record in records:
            acks = await self._find_again(record)
            if acks is None:
                log.warning(
                    "the subscription %s of %s was deleted; its acknowledgements that "
                    "were committed are dropped",
                    record.subscription,
                    record.name,
                )
                continue
            acks.subscription.commit(record.ranges)
            found.append(acks)
        return found

    async def acknowledge(self, acks: Iterable[CommitAcks]) -> None:
        """
        Mark the messages as acknowledged; call this after all batches are appended.

        Durability: On return the cursors are on disk.

        Raises:
            DiskFull, JournalFailed: They may not be; repeat the call.
        """
        current = [each for each in acks if each.is_current]
        for each in current:
            each.subscription.commit(each.record.ranges)
        for each in current:
            if each.is_current:
                try:
                    await completion(each.subscription.save_cursor_now)
                except (SubscriptionNotFound, TopicNotFound) as error:
                    log.warning("dropping acknowledgements: %s", error)

    def _find(self, record: CommittedAcksRecord) -> CommitAcks:
        topic = self._topics.opened.get(TopicName.parse(record.name))
        if isinstance(topic, ReliableTopic) and topic.topic_id == record.topic_id:
            name = SubscriptionName(record.subscription)
            subscription = topic.subscriptions.get(name)
            if isinstance(subscription, ReliableSubscription):
                return CommitAcks(record, topic, subscription)
        raise MessageNotHeld(
            f"the subscription {record.subscription} of {record.name} was deleted "
            "while the transaction acknowledged its messages"
        )

    async def _find_again(self, record: CommittedAcksRecord) -> CommitAcks | None:
        try:
            topic = await self._topics.get_reliable(TopicName.parse(record.name))
        except TopicNotFound:
            return None
        name = SubscriptionName(record.subscription)
        if topic.topic_id != record.topic_id:
            return None
        if await self._created_at(topic, name) != record.created_at:
            return None
        subscription = topic.subscriptions.get(name)
        if not isinstance(subscription, ReliableSubscription):
            return None
        return CommitAcks(record, topic, subscription)

    async def _created_at(
        self, topic: ReliableTopic, name: SubscriptionName
    ) -> int | None:
        stored = await self._store.get(keys.SUBSCRIPTIONS.key(topic.topic_id, name))
        return None if stored is None else stored.value.created_at


def check_bounds(acks: Sequence[TransactionAcks]) -> None:
    """
    Raise if a transaction acknowledges too much.

    Raises:
        InvalidRequest: There are more than ``ACK_SUBSCRIPTIONS_MAX`` subscriptions or
            ``ACK_RANGES_MAX`` ranges, or a range is not above the one before.
    """
    if len(acks) > ACK_SUBSCRIPTIONS_MAX:
        raise InvalidRequest(
            f"the transaction acknowledges messages of {len(acks)} topics or "
            f"partitions; at most {ACK_SUBSCRIPTIONS_MAX} are allowed: commit smaller "
            "transactions"
        )
    range_count = sum(len(each.ranges) for each in acks)
    if range_count > ACK_RANGES_MAX:
        raise InvalidRequest(
            f"the transaction acknowledges {range_count} ranges of offsets; at most "
            f"{ACK_RANGES_MAX} are allowed: commit smaller transactions"
        )
    for each in acks:
        end_before = 0
        for base, end in each.ranges:
            if not end_before <= base < end:
                raise InvalidRequest(
                    f"the acknowledged ranges of {each.topic} are not in order"
                )
            end_before = end


def _check_undecided(
    record: CommittedAcksRecord, decided: Iterable[CommittedAcksRecord]
) -> None:
    for each in decided:
        if (each.topic_id, each.subscription) != (record.topic_id, record.subscription):
            continue
        taken = RangeSet(each.ranges)
        if any(taken.count_in(base, end) for base, end in record.ranges):
            raise MessageNotHeld(
                f"another transaction has acknowledged messages of {record.name}"
            )
