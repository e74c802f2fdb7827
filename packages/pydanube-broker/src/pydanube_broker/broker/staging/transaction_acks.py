"""
The acknowledgements of transactions, which take effect together with a commit.

A commit *holds* the messages that it acknowledges before it is decided: nobody gets
them meanwhile.  The first commit of a message wins: it need not be that of the consumer
to which the message was delivered last.  So a commit is refused only if others have
made progress, even if consumers are slower than the ack timeout.  The decision names
the messages.  When the batches
of the commit are in the journal, the messages are marked as acknowledged there, too.
If it turns out that the commit was not decided, the messages are delivered again.

After a crash, decided acknowledgements are applied again before consumers can receive
the messages.  To apply them twice changes nothing.

Decided acknowledgements are dropped only if the metadata store says that the topic or
the subscription was deleted.  That a broker does not have them open says nothing: their
shard may be leaving, and the next owner still needs the acknowledgements.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from pydanube.aio.futures import completion
from pydanube.aio.tasks import run_all
from pydanube.model.errors import (
    InvalidRequest,
    MessageNotHeld,
    SubscriptionNotFound,
    TopicNotFound,
    Unavailable,
)
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.names import SubscriptionName, TopicName, parse_subscription
from pydanube.model.ranges import RangeSet
from pydanube.model.staging import TransactionAcks
from pydanube_broker.broker.delivery.reliable_subscription import ReliableSubscription
from pydanube_broker.broker.publishing.topic import ReliableTopic
from pydanube_broker.broker.topics.topics import Topics
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.records import CommittedAcksRecord, StagingDecision
from pydanube_broker.metadata.store import MetadataStore

log = logging.getLogger(__name__)

ACK_SUBSCRIPTIONS_MAX = 1000
"""The most topics and partitions whose messages a transaction acknowledges."""
NO_CONSUMER = 0
"""The number of a reader that has read on from the cursor without a consumer."""
ACK_RANGES_MAX = 10_000
"""The most ranges of offsets that a transaction acknowledges."""
NOTES_LENGTH_MAX = 65_536
"""The most characters of all notes of a transaction, which are in its record."""


@dataclass(slots=True)
class CommitAcks:
    """The messages of one subscription that a commit acknowledges."""

    record: CommittedAcksRecord
    topic: ReliableTopic
    subscription: ReliableSubscription
    is_held: bool = False
    """Whether the messages are held, so that consumers do not get them."""

    def give_back(self) -> None:
        """Deliver the messages again: the commit was not decided."""
        if self.is_held:
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
            records.append(await self._record(topic.topic_id, each))
        return records

    async def find_progress(
        self, acks: Sequence[TransactionAcks]
    ) -> list[CommittedAcksRecord]:
        """
        Return what a decision says about messages that readers without consumers read.

        Their topics may be served by any broker; nothing is held.

        Raises: As ``find``.
        """
        check_bounds(acks)
        records = []
        for each in acks:
            stored = await self._store.get(keys.topic(TopicName.parse(each.topic)))
            if stored is None:
                raise TopicNotFound(f"{each.topic} was deleted while it was read")
            records.append(await self._record(stored.value.topic_id, each))
        return records

    async def _record(
        self, topic_id: int, acks: TransactionAcks
    ) -> CommittedAcksRecord:
        name = parse_subscription(acks.subscription)
        created_at = await self._created_at(topic_id, name)
        if created_at is None:
            raise SubscriptionNotFound(
                f"the subscription {name} of {acks.topic} was deleted; process the "
                "messages again if a new subscription delivers them"
            )
        return CommittedAcksRecord(
            topic_id=topic_id,
            name=acks.topic,
            subscription=name,
            created_at=created_at,
            ranges=acks.ranges,
            note=acks.note,
        )

    def hold(
        self,
        records: Sequence[CommittedAcksRecord],
        consumers: Iterable[int],
        decisions: Iterable[StagingDecision],
    ) -> list[CommitAcks]:
        """
        Hold the messages of *records*, which these *consumers* have received.

        *decisions* are the commits that are decided and not carried out yet.

        Raises:
            MessageNotHeld: A consumer has left, or a message is acknowledged already;
                nothing is held.
            InvalidRequest: A topic ends before what a reader has read; the same.
        """
        decided = [acks for decision in decisions for acks in decision.acks]
        found: list[CommitAcks] = []
        for record, consumer_id in zip(records, consumers, strict=True):
            _check_undecided(record, decided)
            acks = self._find(record)
            if consumer_id == NO_CONSUMER:
                for _, end in record.ranges:
                    acks.topic.check_offset(end)
                acks.subscription.check_progress(record.ranges)
            else:
                acks.subscription.check_acks(consumer_id, record.ranges)
                acks.is_held = True
            decided.append(record)
            found.append(acks)
        for acks in found:
            if acks.is_held:
                acks.subscription.hold_messages(acks.record.ranges)
        return found

    async def resume(self, records: Iterable[CommittedAcksRecord]) -> list[CommitAcks]:
        """
        Mark messages of a decided commit in memory; leave out what was deleted.

        Raises:
            NotOwner: Another broker serves a topic.
            Unavailable: A topic or subscription is not open at the moment.
        """
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
            acks.subscription.commit(record.ranges, record.note)
            found.append(acks)
        return found

    async def acknowledge(
        self, records: Iterable[CommittedAcksRecord]
    ) -> list[CommitAcks]:
        """
        Acknowledge the messages of a decided commit, after all batches are appended.

        Leave out what was deleted, and return the rest.

        Durability: On return the cursors are in the journal.  If the shard of a topic
            leaves this broker, the next owner may not have read the cursor: the caller
            must check that this broker still serves it.

        Raises:
            NotOwner: Another broker serves a topic.
            Unavailable: A topic or subscription is not open at the moment.
            DiskFull, JournalFailed: The cursors may not be on disk.
        """
        found = await self.resume(records)
        await run_all(self._save(each) for each in found)
        return found

    async def _save(self, acks: CommitAcks) -> None:
        try:
            await completion(acks.subscription.save_cursor_now)
        except (SubscriptionNotFound, TopicNotFound):
            if await self._find_again(acks.record) is not None:
                raise
            log.warning(
                "the subscription %s of %s was deleted while a commit acknowledged "
                "its messages",
                acks.record.subscription,
                acks.record.name,
            )

    def _find(self, record: CommittedAcksRecord) -> CommitAcks:
        topic = self._topics.opened.get(TopicName.parse(record.name))
        if isinstance(topic, ReliableTopic) and topic.topic_id == record.topic_id:
            name = SubscriptionName(record.subscription)
            subscription = topic.subscriptions.get(name)
            if isinstance(subscription, ReliableSubscription):
                return CommitAcks(record, topic, subscription)
        raise MessageNotHeld(
            f"the subscription {record.subscription} of {record.name} was deleted, or "
            "its topic has left this broker, while the transaction acknowledged its "
            "messages; process them in another transaction if they are delivered again"
        )

    async def _find_again(self, record: CommittedAcksRecord) -> CommitAcks | None:
        """
        Return the subscription of *record*, or None if it was deleted.

        Raises:
            NotOwner, Unavailable: This broker does not have it open.
        """
        name = TopicName.parse(record.name)
        subscription_name = SubscriptionName(record.subscription)
        # Only the metadata store knows what was deleted.
        stored = await self._store.get(keys.topic(name))
        if stored is None or stored.value.topic_id != record.topic_id:
            return None
        created_at = await self._created_at(record.topic_id, subscription_name)
        if created_at != record.created_at:
            return None
        topic = await self._topics.get_reliable(name)
        subscription = topic.subscriptions.get(subscription_name)
        if topic.topic_id == record.topic_id and isinstance(
            subscription, ReliableSubscription
        ):
            return CommitAcks(record, topic, subscription)
        topic.check_stays()
        raise Unavailable(
            f"the subscription {record.subscription} of {record.name} is not open yet"
        )

    async def _created_at(self, topic_id: int, name: SubscriptionName) -> int | None:
        stored = await self._store.get(keys.SUBSCRIPTIONS.key(topic_id, name))
        return None if stored is None else stored.value.created_at


def check_bounds(acks: Sequence[TransactionAcks]) -> None:
    """
    Raise if a transaction acknowledges too much.

    Raises:
        InvalidRequest: There are more than ``ACK_SUBSCRIPTIONS_MAX`` subscriptions,
            ``ACK_RANGES_MAX`` ranges or ``NOTES_LENGTH_MAX`` characters of notes, or a
            range is not above the one before.
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
    if sum(len(each.note) for each in acks) > NOTES_LENGTH_MAX:
        raise InvalidRequest(
            f"the notes of the transaction have more than {NOTES_LENGTH_MAX} characters"
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
                f"messages of {record.name} are acknowledged twice, by another "
                "transaction or by this one; process those that are delivered again "
                "in another transaction"
            )
