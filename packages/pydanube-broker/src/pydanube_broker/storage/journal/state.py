"""
The state of a broker's topics without their messages: a fold over journal entries.

Recovery folds the files, and the open journal folds the entries that it has committed.
Both use the same ``apply``.  ``snapshot`` is its inverse: it returns entries that fold
to an equal state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import field

from pydanube.model.errors import CorruptJournal
from pydanube.model.ids import Epoch, Offset, ProducerId, Sequence, TopicId
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.wire.files.journal_format import (
    INTERNAL_PREFIX,
    RUNS_MAX,
    Batch,
    CursorSaved,
    CursorState,
    Entry,
    MetadataRevision,
    ProducerDeleted,
    ProducerOpened,
    ProducerSaved,
    Run,
    ShardForgotten,
    ShardLeft,
    SnapshotEnd,
    SubscriptionDeleted,
    TopicAdopted,
    TopicDeleted,
    TopicOpened,
    TopicSealed,
)

SKIPPED_OFFSETS = 10**10
"""
The number of offsets that are skipped if the end of a topic was lost.

A journal cannot contain as many messages, and the lower digits of offsets stay equal.
"""
_FIRST = Sequence(0)
TopicEntry = (
    TopicOpened
    | Batch
    | CursorSaved
    | ProducerOpened
    | ProducerSaved
    | TopicSealed
    | TopicDeleted
    | SubscriptionDeleted
    | ProducerDeleted
)
"""Entries that change one topic."""
ProgressEntry = (
    CursorSaved | SubscriptionDeleted | ProducerOpened | ProducerSaved | ProducerDeleted
)
"""Entries that change the cursors or producers of a topic."""


@dataclass(slots=True)
class ProducerState:
    """The messages of a named producer, to recognise repeated batches."""

    name: str
    producer_id: ProducerId
    epoch: Epoch
    next_sequence: Sequence = _FIRST
    """The first sequence number of its next batch."""
    runs: deque[Run] = field(default_factory=deque)
    """The offsets of its last messages; adjacent runs are merged."""

    def __post_init__(self) -> None:
        if not self.is_internal:
            self.runs = deque(self.runs, RUNS_MAX)

    @property
    def is_internal(self) -> bool:
        """Whether the broker itself is the producer."""
        return self.name.startswith(INTERNAL_PREFIX)

    def record(self, base_sequence: int, base_offset: int, count: int) -> None:
        """Record the offset of a stored batch."""
        self.next_sequence = Sequence(base_sequence + count)
        if self.runs:
            sequence, offset, length = self.runs[-1]
            if (sequence + length, offset + length) == (base_sequence, base_offset):
                self.runs[-1] = (sequence, offset, length + count)
                return
        self.runs.append((base_sequence, base_offset, count))


@dataclass(slots=True)
class TopicState:
    """The committed state of one topic."""

    name: str
    epoch: Epoch
    end_offset: Offset
    """The first offset after all batches of the journal."""
    sealed_offset: Offset
    """The offset up to which the topic is sealed, as far as the journal knows."""
    cursors: dict[str, CursorState] = field(default_factory=dict)
    producers: dict[str, ProducerState] = field(default_factory=dict)
    shard: int | None = None
    """Its shard, if the broker is in a cluster."""
    has_left: bool = False
    """Whether the shard has left; then further entries of the topic are ignored."""

    @property
    def has_failures(self) -> bool:
        """Whether messages have failed, so that a subscription may be blocked."""
        return any(cursor.failures for cursor in self.cursors.values())


@dataclass(slots=True)
class JournalState:
    """The state of all topics of a journal, without their messages."""

    topics: dict[TopicId, TopicState] = field(default_factory=dict)
    metadata_revision: int = 0
    """The highest revision that the metadata store is known to have had."""
    left_shards: dict[int, Epoch] = field(default_factory=dict)
    """The shards that have left, and the last epoch of their entries."""

    def apply(self, entry: Entry) -> bool:
        """
        Apply one entry; return False if it is ignored.

        Entries of unknown topics are ignored: they were appended while the topic was
        being deleted.  So are those of a shard that has left.

        Raises:
            CorruptJournal: A batch does not continue its topic.
        """
        if type(entry) is Batch:
            # Checked first, because nearly all entries are batches.
            return self._apply_batch(entry)
        match entry:
            case TopicAdopted():
                return self._apply_adopted(entry)
            case MetadataRevision(revision):
                self.metadata_revision = max(self.metadata_revision, revision)
            case ShardLeft(shard, epoch):
                self.left_shards[shard] = max(epoch, self.left_shards.get(shard, epoch))
                for topic in self.topics_of(shard, epoch).values():
                    topic.has_left = True
            case ShardForgotten(shard, epoch):
                for topic_id in self.topics_of(shard, epoch):
                    del self.topics[topic_id]
                if self.left_shards.get(shard, epoch + 1) <= epoch:
                    del self.left_shards[shard]
            case SnapshotEnd():
                pass
            case _:
                return self._apply_to_topic(entry)
        return True

    def topics_of(self, shard: int, epoch: int) -> dict[TopicId, TopicState]:
        """Return the topics of a shard with *epoch* or an earlier one."""
        return {
            topic_id: topic
            for topic_id, topic in self.topics.items()
            if topic.shard == shard and topic.epoch <= epoch
        }

    def _apply_batch(self, entry: Batch) -> bool:
        topic = self.topics.get(entry.topic_id)
        if topic is None or topic.has_left:
            return False
        header = entry.frame.header
        if header.base_offset != topic.end_offset:
            raise CorruptJournal(
                f"expected a batch of topic {entry.topic_id} at offset "
                f"{topic.end_offset}, it has {header.base_offset}"
            )
        topic.end_offset = Offset(header.base_offset + header.count)
        if header.producer_id:
            producer = topic.producers.get(header.producer)
            if producer is None:
                producer = ProducerState(
                    header.producer,
                    ProducerId(header.producer_id),
                    Epoch(header.producer_epoch),
                )
                topic.producers[header.producer] = producer
            if producer.producer_id != header.producer_id:
                producer.producer_id = ProducerId(header.producer_id)
                producer.runs.clear()
            producer.epoch = Epoch(max(producer.epoch, header.producer_epoch))
            producer.record(header.base_sequence, header.base_offset, header.count)
        return True

    def _apply_to_topic(self, entry: TopicEntry) -> bool:
        topic = self.topics.get(entry.topic_id)
        if topic is not None and topic.has_left:
            return False
        if isinstance(entry, TopicOpened):
            self._apply_opened(entry, topic)
        elif topic is None:
            return False
        elif isinstance(entry, TopicDeleted):
            del self.topics[entry.topic_id]
        else:
            _change_topic(topic, entry)
        return True

    def _apply_opened(self, entry: TopicOpened, before: TopicState | None) -> None:
        self.topics[entry.topic_id] = TopicState(
            entry.name,
            entry.epoch,
            entry.end_offset,
            entry.sealed_offset,
            {} if before is None else before.cursors,
            {} if before is None else before.producers,
            None if before is None else before.shard,
        )

    def _apply_adopted(self, entry: TopicAdopted) -> bool:
        if self.left_shards.get(entry.shard, -1) >= entry.epoch:
            return False
        self.topics[entry.topic_id] = TopicState(
            entry.name,
            entry.epoch,
            entry.end_offset,
            entry.sealed_offset,
            shard=entry.shard,
        )
        return True

    def positions(self) -> dict[TopicId, tuple[object, ...]]:
        """
        Return the positions that must be equal in two computations of one state.

        Producers' runs are not among them: another version of this program may merge
        them differently.
        """
        return {
            topic_id: (
                topic.end_offset,
                topic.sealed_offset,
                topic.shard,
                topic.has_left,
                topic.cursors,
                {each.name: each.next_sequence for each in topic.producers.values()},
            )
            for topic_id, topic in self.topics.items()
        }

    def snapshot(self) -> Iterator[Entry]:
        """Yield entries whose fold is equal to this state."""
        if self.metadata_revision:
            yield MetadataRevision(self.metadata_revision)
        for topic_id, topic in self.topics.items():
            yield _beginning_of(topic_id, topic)
            for subscription, cursor in topic.cursors.items():
                yield CursorSaved(topic_id, subscription, cursor)
            for producer in topic.producers.values():
                yield ProducerSaved(
                    topic_id=topic_id,
                    name=producer.name,
                    producer_id=producer.producer_id,
                    epoch=producer.epoch,
                    next_sequence=producer.next_sequence,
                    runs=tuple(producer.runs),
                )
        for shard, epoch in self.left_shards.items():
            yield ShardLeft(shard, epoch)


def _beginning_of(topic_id: TopicId, topic: TopicState) -> TopicOpened | TopicAdopted:
    """Return the entry that begins a topic which is as *topic*."""
    if topic.shard is None:
        return TopicOpened(
            topic_id=topic_id,
            name=topic.name,
            epoch=topic.epoch,
            end_offset=topic.end_offset,
            sealed_offset=topic.sealed_offset,
        )
    return TopicAdopted(
        topic_id=topic_id,
        shard=topic.shard,
        name=topic.name,
        epoch=topic.epoch,
        end_offset=topic.end_offset,
        sealed_offset=topic.sealed_offset,
    )


def _change_topic(topic: TopicState, entry: TopicEntry) -> None:
    match entry:
        case CursorSaved():
            topic.cursors[entry.subscription] = entry.cursor
        case SubscriptionDeleted():
            topic.cursors.pop(entry.subscription, None)
        case ProducerOpened():
            _open_producer(topic, entry)
        case ProducerSaved():
            topic.producers[entry.name] = ProducerState(
                entry.name,
                entry.producer_id,
                entry.epoch,
                entry.next_sequence,
                deque(entry.runs),
            )
        case ProducerDeleted():
            topic.producers.pop(entry.name, None)
        case TopicSealed():
            topic.sealed_offset = Offset(max(topic.sealed_offset, entry.sealed_offset))


def _open_producer(topic: TopicState, entry: ProducerOpened) -> None:
    producer = topic.producers.get(entry.name)
    if producer is None or producer.producer_id != entry.producer_id:
        topic.producers[entry.name] = ProducerState(
            entry.name, entry.producer_id, entry.epoch
        )
    else:
        producer.epoch = entry.epoch
