"""
Commits of staged batches: each version of a query is published completely, and once.

Each query has one record.  One change of that record *decides* a commit: it names the
files of the parts, and a producer id that no commit had before.  Before the decision
nothing is visible, and any error refuses the commit.  After the decision nothing can
refuse it: the batches are appended to their topics, as those of a producer with that id
that counts from 0, until all are there.  The journal stores the producer's sequence
numbers with its batches, so that an attempt after a crash appends exactly the missing
ones.  Then the record is marked as done, and after that the files are removed.

::

    verify → register → record: decided → append … → sync → record: done → remove files
             a crash here:    nothing     append the missing batches       remove files

A commit of a transaction also acknowledges messages: it holds them before the decision,
and marks them as acknowledged after the last append; see ``transaction_acks``.

A commit that fails after its decision, for example because the disk is full, is tried
again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import msgspec

from pydanube.broker.producer_registrations import ProducerRegistration
from pydanube.broker.staged_parts import Part, is_staged_producer, producer_of
from pydanube.broker.topic import ReliableTopic
from pydanube.broker.topics import Topics
from pydanube.broker.transaction_acks import CommitAcks, TransactionAcknowledger
from pydanube.metadata import keys
from pydanube.metadata.records import QueryRecord, StagedTopicRecord, StagingDecision
from pydanube.metadata.store import ABSENT, MetadataStore, Stored
from pydanube.model.errors import (
    BrokerError,
    CorruptStage,
    StagedPartNotFound,
    TopicFenced,
    TopicNotFound,
)
from pydanube.model.ids import TopicId
from pydanube.model.names import TopicName
from pydanube.model.staging import TransactionAcks
from pydanube.storage.staging import PartReader, StagedFiles
from pydanube.storage.storage import Storage
from pydanube.wire.batches import BatchFrame, decode, restamp_producer
from pydanube.wire.files.journal_format import ProducerDeleted

log = logging.getLogger(__name__)

PIECE_BYTES = 8 * 1024 * 1024
"""How much of a part is read and appended at a time."""
PRODUCER_EPOCH = 1
"""The epoch of a query's producer, which clients cannot open."""


@dataclass(slots=True)
class _Target:
    """A topic to which a commit appends."""

    topic: ReliableTopic | None
    """None if the topic was deleted after the decision."""
    appended: int
    """The number of messages that an earlier attempt has appended."""
    sequence: int = 0
    """The sequence number of the next message that is read."""


@dataclass(slots=True)
class Commit:
    """A commit and the registrations of its producer."""

    decision: StagingDecision
    registrations: dict[int, tuple[ReliableTopic, ProducerRegistration]] = field(
        default_factory=dict
    )
    """By topic id."""
    acks: Sequence[CommitAcks] = ()
    """The messages that it acknowledges."""
    byte_count: int = 0
    """The size of its parts on disk."""

    def leave(self) -> None:
        """Remove the registrations."""
        for topic, registration in self.registrations.values():
            topic.registrations.leave(registration)
        self.registrations.clear()


class Queries:
    """The progress of all queries, in the metadata store."""

    def __init__(self, store: MetadataStore, wall_clock_us: Callable[[], int]) -> None:
        self._store = store
        self._wall_clock_us = wall_clock_us
        self._records: dict[str, Stored[QueryRecord]] = {}
        # The queries whose last change failed, and may have been made.
        self._uncertain: set[str] = set()

    async def load(self) -> None:
        """Load all queries; must be called first."""
        for path, stored in await self._store.scan(keys.QUERIES):
            self._records[keys.QUERIES.name_of(path)] = stored

    def of(self, query: str) -> QueryRecord:
        """Return the record of *query*; an empty one if it has not committed yet."""
        stored = self._records.get(query)
        return QueryRecord() if stored is None else stored.value

    def decided_version(self, query: str) -> int | None:
        """Return the last decided version of *query*, carried out or not."""
        record = self.of(query)
        return record.version if record.decision is None else record.decision.version

    def new_commit_id(self, query: str) -> int:
        """Return an id that no commit of *query* has had."""
        # The time makes ids unique even if the query was forgotten.
        return max(self._wall_clock_us(), self.of(query).commit_id + 1)

    def new_version(self, query: str) -> int:
        """Return a version that is higher than all that *query* has committed."""
        decided = self.decided_version(query)
        return max(self._wall_clock_us(), 0 if decided is None else decided + 1)

    def decision_of(self, query: str) -> StagingDecision | None:
        """Return the decision of *query* that is not carried out yet."""
        return self.of(query).decision

    async def reload(self, query: str) -> StagingDecision | None:
        """Return the same after reading it from the store again."""
        stored = await self._store.get(keys.QUERIES.key(query))
        self._uncertain.discard(query)
        if stored is None:
            self._records.pop(query, None)
        else:
            self._records[query] = stored
        return self.decision_of(query)

    def pending(self) -> dict[str, StagingDecision]:
        """Return all decisions that are not carried out yet, by query."""
        return {
            query: stored.value.decision
            for query, stored in self._records.items()
            if stored.value.decision is not None
        }

    async def decide(self, query: str, decision: StagingDecision) -> None:
        """
        Store a decision; one without parts and acks counts as carried out.

        Durability: On return it is on disk.
        """
        if is_empty(decision):
            await self.mark_done(query, decision)
            return
        record = msgspec.structs.replace(self.of(query), decision=decision)
        await self._put(query, record)

    async def abandon(self, query: str) -> None:
        """Forget the decision of *query*, whose version can be committed again."""
        record = msgspec.structs.replace(self.of(query), decision=None)
        await self._put(query, record)

    async def mark_done(self, query: str, decision: StagingDecision) -> None:
        """Record that a decision was carried out."""
        record = QueryRecord(
            version=decision.version,
            message_count=count_of(decision),
            committed_at=self._wall_clock_us(),
            commit_id=decision.commit_id,
        )
        await self._put(query, record)

    def old(self, memory_s: float, count_max: int) -> list[str]:
        """Return queries to forget, oldest first: idle for *memory_s*, or too many."""
        begin = self._wall_clock_us() - int(memory_s * 1_000_000)
        idle = sorted(
            (stored.value.committed_at, query)
            for query, stored in self._records.items()
            if stored.value.decision is None
        )
        excess = len(self._records) - count_max
        return [
            query
            for at, (committed_at, query) in enumerate(idle)
            if committed_at < begin or at < excess
        ]

    async def forget(self, query: str) -> None:
        """Delete a query's record, unless it has a pending decision."""
        if query in self._uncertain:
            await self.reload(query)
        stored = self._records.get(query)
        if stored is None or stored.value.decision is not None:
            return
        key = keys.QUERIES.key(query)
        with self._noting_failure(query):
            await self._store.delete(key, expected=stored.revision)
        del self._records[query]

    async def _put(self, query: str, record: QueryRecord) -> None:
        if query in self._uncertain:
            await self.reload(query)
        stored = self._records.get(query)
        expected = ABSENT if stored is None else stored.revision
        key = keys.QUERIES.key(query)
        with self._noting_failure(query):
            revision = await self._store.put(key, record, expected=expected)
        self._records[query] = Stored(record, revision)

    @contextmanager
    def _noting_failure(self, query: str) -> Iterator[None]:
        """Note that the record has to be read again if its change fails."""
        try:
            yield
        except BaseException:
            self._uncertain.add(query)
            raise


class Committer:
    """Prepares commits, and carries out decided ones."""

    def __init__(
        self,
        topics: Topics,
        storage: Storage,
        files: StagedFiles,
        queries: Queries,
        acknowledger: TransactionAcknowledger,
    ) -> None:
        self.dropped_count = 0
        """The number of messages whose topic was deleted after the decision."""
        self._topics = topics
        self._storage = storage
        self._files = files
        self._queries = queries
        self._acknowledger = acknowledger

    async def prepare(
        self,
        query: str,
        version: int,
        parts: Sequence[Part],
        acks: Sequence[TransactionAcks],
    ) -> Commit:
        """
        Return a commit to decide; it has a producer in the topics, and holds messages.

        Raises:
            CorruptStage: A part is damaged.
            TopicNotFound: A topic was deleted since messages were staged for it.
            ProducerBusy, QuotaExceeded: The producer cannot be registered.
            MessageNotHeld, SubscriptionNotFound: A message cannot be acknowledged.
        """
        ack_records = await self._acknowledger.find(acks)
        counts: dict[int, tuple[str, int]] = {}
        for part in parts:
            content = await self._files.verify(part.number)
            if content.header.key != part.key:
                raise CorruptStage(f"the file {part.number} belongs to another part")
            counted = zip(content.topics, content.message_counts, strict=True)
            for topic, count in counted:
                _, before = counts.get(topic.topic_id, ("", 0))
                counts[topic.topic_id] = (topic.name, before + count)
        commit = Commit(
            StagingDecision(
                version=version,
                commit_id=self._queries.new_commit_id(query),
                parts=tuple((part.number, part.key.part_id) for part in parts),
                topics=tuple(
                    StagedTopicRecord(topic_id=topic_id, name=name, message_count=count)
                    for topic_id, (name, count) in counts.items()
                ),
                acks=tuple(ack_records),
            ),
            byte_count=sum(part.byte_count for part in parts),
        )
        try:
            for record in commit.decision.topics:
                await self._enter(commit, query, record)
            commit.acks = self._acknowledger.hold(
                ack_records,
                [each.consumer_id for each in acks],
                self._queries.pending().values(),
            )
        except BaseException:
            commit.leave()
            raise
        return commit

    def count_appended(self, query: str, decision: StagingDecision) -> int:
        """Return how many messages of a decision are in their topics already."""
        return sum(
            self._count_appended(query, decision, record) for record in decision.topics
        )

    def forget_finished(self) -> None:
        """
        Delete the producers of commits that are done, or were abandoned.

        A crash may have lost the entries that did this.
        """
        pending = {producer_of(query) for query in self._queries.pending()}
        for topic_id, topic in self._storage.journal.state.topics.items():
            for name in topic.producers:
                if is_staged_producer(name) and name not in pending:
                    self._storage.save(ProducerDeleted(topic_id, name))

    async def resume(self, query: str, decision: StagingDecision) -> Commit:
        """
        Return a commit that was decided before, and register its producer.

        Its messages are acknowledged in memory, so that nobody receives them.
        """
        commit = Commit(decision, acks=await self._acknowledger.resume(decision))
        for record in decision.topics:
            topic = await self._find_topic(record)
            if topic is not None:
                commit.registrations[record.topic_id] = (
                    topic,
                    _register(topic, query, 0),
                )
        return commit

    async def carry_out(self, query: str, commit: Commit) -> None:
        """
        Append the missing messages, and record that the commit was carried out.

        Durability: On return every message is on disk in its topic.

        Cancellation: The method can be called again, also after an error.

        Raises:
            DiskFull, JournalFailed, MetadataUnavailable: Not all messages are stored.
            CorruptStage: A part was damaged after the decision.
            Draining: The broker is stopping; it continues after the next start.
        """
        decision = commit.decision
        targets = {
            record.topic_id: _Target(
                topic=await self._find_topic(record),
                appended=self._count_appended(query, decision, record),
            )
            for record in decision.topics
        }
        appends = _Appends()
        try:
            for number, part_id in decision.parts:
                reader = await self._files.reader(number)
                if reader.header.key.part_id != part_id:
                    raise CorruptStage(f"the file {number} belongs to another part")
                work = partial(_read_frames, reader, decision.commit_id, targets)
                await self._append_part(work, targets, appends)
        finally:
            await appends.wait()
        appends.check()
        # The cursors follow the batches in the journal: if that outlives the parts on
        # the disk, no message is acknowledged whose results are missing.
        await self._acknowledger.acknowledge(commit.acks)
        await self._storage.journal.sync()
        await self._queries.mark_done(query, decision)
        for record in decision.topics:
            if targets[record.topic_id].topic is not None:
                self._storage.save(
                    ProducerDeleted(TopicId(record.topic_id), producer_of(query))
                )
        commit.leave()

    async def _append_part(
        self,
        read: Callable[[], _Frames],
        targets: dict[int, _Target],
        appends: _Appends,
    ) -> None:
        is_last = False
        while not is_last:
            frames, dropped, is_last = await self._files.do(read)
            self.dropped_count += dropped
            for topic_id, frame in frames:
                self._topics.check_not_draining()
                if not self._topics.has_room:
                    await self._topics.wait_for_room()
                appends.check()
                self._append(targets[topic_id], frame, appends)

    def _append(self, target: _Target, frame: BatchFrame, appends: _Appends) -> None:
        topic = target.topic
        if topic is None:
            self.dropped_count += frame.count
            return
        try:
            topic.append(frame, partial(self._on_appended, target, frame, appends))
        except (TopicNotFound, TopicFenced) as error:
            self._drop(target, frame, error)
        else:
            appends.begin()

    def _on_appended(
        self,
        target: _Target,
        frame: BatchFrame,
        appends: _Appends,
        _: int,
        error: BrokerError | None,
    ) -> None:
        if isinstance(error, TopicNotFound | TopicFenced):
            self._drop(target, frame, error)
            error = None
        appends.end(error)

    def _drop(self, target: _Target, frame: BatchFrame, error: BrokerError) -> None:
        if target.topic is not None:
            log.warning("dropping committed messages: %s", error)
            target.topic = None
        self.dropped_count += frame.count

    async def _enter(
        self, commit: Commit, query: str, record: StagedTopicRecord
    ) -> None:
        topic = await self._topics.get_reliable(TopicName.parse(record.name))
        if topic.topic_id != record.topic_id:
            raise TopicNotFound(
                f"{record.name} was deleted after messages were staged for it, and "
                "created again; stage the version again"
            )
        topic.check()
        registration = _register(topic, query, topic.limits.max_producers_per_topic)
        commit.registrations[record.topic_id] = (topic, registration)

    def _count_appended(
        self, query: str, decision: StagingDecision, record: StagedTopicRecord
    ) -> int:
        """Return how many messages of a decision a topic has already."""
        state = self._storage.find_state(TopicId(record.topic_id))
        known = None if state is None else state.producers.get(producer_of(query))
        if known is None or known.producer_id != decision.commit_id:
            return 0
        return known.next_sequence

    async def _find_topic(self, record: StagedTopicRecord) -> ReliableTopic | None:
        try:
            topic = await self._topics.get_reliable(TopicName.parse(record.name))
        except TopicNotFound:
            topic = None
        if topic is None or topic.topic_id != record.topic_id:
            log.warning(
                "%s was deleted; dropping %d messages that were committed to it",
                record.name,
                record.message_count,
            )
            return None
        return topic


class _Appends:
    """Batches that are being appended to the journal."""

    def __init__(self) -> None:
        self._count = 0
        self._error: BrokerError | None = None
        self._all_ended = asyncio.Event()
        self._all_ended.set()

    def begin(self) -> None:
        """Count a batch that is being appended."""
        self._count += 1
        self._all_ended.clear()

    def end(self, error: BrokerError | None) -> None:
        """Count a batch that was appended, or failed with *error*."""
        self._count -= 1
        self._error = self._error or error
        if not self._count:
            self._all_ended.set()

    def check(self) -> None:
        """Raise the first error: no batch may follow one that failed."""
        if self._error is not None:
            raise self._error.with_traceback(None)

    async def wait(self) -> None:
        """Wait until no batch is being appended."""
        await self._all_ended.wait()


def is_empty(decision: StagingDecision) -> bool:
    """Return whether a decision publishes and acknowledges nothing."""
    return not decision.parts and not decision.acks


def count_of(decision: StagingDecision) -> int:
    """Return the number of messages of a decision."""
    return sum(topic.message_count for topic in decision.topics)


def check_complete(parts: Sequence[Part]) -> None:
    """
    Raise if one of the parts cannot be committed.

    Raises:
        CorruptStage: A part was damaged when the broker started.
        StagedPartNotFound: A part is not finished.
    """
    for part in parts:
        if part.is_finished and part.damage is None:
            continue
        if part.damage is not None:
            raise CorruptStage(f"the part {part.key.name} is damaged: {part.damage}")
        raise StagedPartNotFound(f"the part {part.key.name} is not finished")


def _register(topic: ReliableTopic, query: str, count_max: int) -> ProducerRegistration:
    request = ProducerRegistration(name=producer_of(query), is_joining=True)
    registration = topic.registrations.register(request, count_max)
    # Only exclusive producers may be queued.
    assert registration is not None
    return registration


_Frames = tuple[list[tuple[TopicId, "BatchFrame"]], int, bool]


def _read_frames(
    reader: PartReader, commit_id: int, targets: dict[int, _Target]
) -> _Frames:
    """
    Return the next missing batches, ready to be appended; runs in a thread.

    Also returns the number of messages for deleted topics, and whether the part ends.
    """
    frames, dropped = [], 0
    read = reader.read(PIECE_BYTES)
    for topic_id, staged in read:
        target = targets[topic_id]
        sequence = target.sequence
        target.sequence = sequence + staged.count
        if sequence < target.appended:
            continue
        if target.topic is None:
            dropped += staged.count
            continue
        # A copy, because the file's buffer is read-only and will be unmapped.
        frame = decode(bytearray(staged.buffer))
        restamp_producer(frame, commit_id, PRODUCER_EPOCH, sequence)
        frames.append((topic_id, frame))
    return frames, dropped, not read
