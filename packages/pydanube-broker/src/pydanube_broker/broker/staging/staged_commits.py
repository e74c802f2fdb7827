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

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from functools import partial

import msgspec

from pydanube.model.errors import (
    CorruptStage,
    StagedPartNotFound,
    TopicNotFound,
)
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.names import TopicName
from pydanube.model.staging import TransactionAcks
from pydanube_broker.broker.publishing.topic import ReliableTopic
from pydanube_broker.broker.pure.producer_registrations import ProducerRegistration
from pydanube_broker.broker.staging.query_owners import claimed, old_queries
from pydanube_broker.broker.staging.staged_appends import (
    StagedAppender,
    Target,
    register_commit,
)
from pydanube_broker.broker.staging.staged_parts import Part
from pydanube_broker.broker.staging.transaction_acks import (
    CommitAcks,
    TransactionAcknowledger,
)
from pydanube_broker.broker.topics.topics import Topics
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.records import (
    QueryRecord,
    StagedTopicRecord,
    StagingDecision,
)
from pydanube_broker.metadata.store import ABSENT, MetadataStore, Stored
from pydanube_broker.storage.journal.staging import PartReader, StagedFiles
from pydanube_broker.storage.storage import Storage

log = logging.getLogger(__name__)


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
        for path, stored in await self._store.scan_valid(keys.QUERIES):
            self._records[keys.QUERIES.name_of(path)] = stored
        paths = await self._store.paths(keys.QUERIES)
        # The others are damaged, and are read again when they are used.
        self._uncertain = {*map(keys.QUERIES.name_of, paths)} - self._records.keys()

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
        record = msgspec.structs.replace(
            self.of(query),
            version=decision.version,
            message_count=count_of(decision),
            committed_at=self._wall_clock_us(),
            commit_id=decision.commit_id,
            decision=None,
        )
        await self._put(query, record)

    async def claim(self, query: str, member: str) -> str:
        """Return the owner of *query*, which is *member* if it has none yet."""
        if query in self._uncertain:
            await self.reload(query)
        record = self.of(query)
        after = claimed(record, member, self._wall_clock_us())
        if after is not record:
            await self._put(query, after)
        return after.owner

    async def release(self, query: str) -> bool:
        """Take the owner from *query*; return False if it has none."""
        if query in self._uncertain:
            await self.reload(query)
        record = self.of(query)
        if not record.owner:
            return False
        await self._put(query, msgspec.structs.replace(record, owner=""))
        return True

    def old(self, memory_s: float, count_max: int) -> list[str]:
        """Return queries to forget, oldest first: idle for *memory_s*, or too many."""
        return old_queries(self._records, self._wall_clock_us(), memory_s, count_max)

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
        self.appender = StagedAppender(topics, storage, files)
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
            self.appender.count_appended(query, decision, record)
            for record in decision.topics
        )

    def forget_finished(self) -> None:
        """
        Delete the producers of commits that are done, or were abandoned.

        A crash may have lost the entries that did this.
        """
        self.appender.forget_producers(self._queries.pending())

    async def resume(self, query: str, decision: StagingDecision) -> Commit:
        """
        Return a commit that was decided before, and register its producer.

        Its messages are acknowledged in memory, so that nobody receives them.
        """
        commit = Commit(decision, acks=await self._acknowledger.resume(decision.acks))
        for record in decision.topics:
            topic = await self.appender.find_topic(record)
            if topic is not None:
                commit.registrations[record.topic_id] = (
                    topic,
                    register_commit(topic, query),
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
            record.topic_id: Target(
                topic=await self.appender.find_topic(record),
                appended=self.appender.count_appended(query, decision, record),
            )
            for record in decision.topics
        }
        await self.appender.append(
            decision.commit_id,
            targets,
            [partial(self._open_part, *part) for part in decision.parts],
        )
        # The cursors follow the batches in the journal: if that outlives the parts on
        # the disk, no message is acknowledged whose results are missing.
        await self._acknowledger.acknowledge(decision.acks)
        await self._storage.journal.sync()
        await self._queries.mark_done(query, decision)
        for record in decision.topics:
            if targets[record.topic_id].topic is not None:
                self.appender.forget_producer(query, record)
        commit.leave()

    async def _open_part(self, number: int, part_id: str) -> PartReader:
        reader = await self._files.reader(number)
        if reader.header.key.part_id != part_id:
            raise CorruptStage(f"the file {number} belongs to another part")
        return reader

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
        topic.pacing.check("storage_bytes")
        registration = register_commit(
            topic, query, topic.limits.max_producers_per_topic
        )
        commit.registrations[record.topic_id] = (topic, registration)


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
