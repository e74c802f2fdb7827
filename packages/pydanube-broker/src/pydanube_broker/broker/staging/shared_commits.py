"""
Carrying out the staged commits of a cluster: each owner appends to its own topics.

All brokers follow the records of queries.  When a commit is decided, and when a broker
begins to serve a shard, the owner of each topic of the commit reads the parts of that
topic from the object store, appends the missing messages, and marks the topic as done
in the record.  The broker that marks the last topic removes the parts.

A broker whose shard was taken over cannot commit to its journal any more, and one whose
shard moves appends nothing after the mark that ends the shard.  The next owner reads
from the journal how many messages were appended, so nothing is there twice.

The commit of a transaction may also acknowledge messages, which the deciding broker
holds.  The next owner finds them in the cursors that it adopts; see
``cluster.decided_acks``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from pydanube.aio.tasks import TaskScope, task_scope
from pydanube.model.errors import (
    BrokerError,
    MetadataUnavailable,
    NotOwner,
    ProducerBusy,
    RevisionConflict,
    SessionLost,
    Unavailable,
)
from pydanube.model.ids import Epoch
from pydanube.model.names import TopicName
from pydanube.wire.batches import INT64_MAX
from pydanube_broker.broker.publishing.topic import ReliableTopic
from pydanube_broker.broker.pure.producer_registrations import ProducerRegistration
from pydanube_broker.broker.pure.shared_decisions import mark_done
from pydanube_broker.broker.staging.staged_appends import (
    StagedAppender,
    Target,
    register_commit,
)
from pydanube_broker.broker.staging.transaction_acks import (
    CommitAcks,
    TransactionAcknowledger,
)
from pydanube_broker.broker.topics.shards import Shards
from pydanube_broker.broker.topics.topics import Topics
from pydanube_broker.cluster.mirror import Mirror
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.records import (
    CommittedAcksRecord,
    QueryRecord,
    StagedTopicRecord,
    StagingDecision,
)
from pydanube_broker.metadata.store import (
    ABSENT,
    Comparison,
    MetadataStore,
    Put,
    Revision,
    Stored,
    Unchanged,
)
from pydanube_broker.storage.journal.staged_objects import (
    StagedObjects,
    query_prefix,
    version_of,
    version_prefix,
)
from pydanube_broker.storage.journal.staging import StagedFiles
from pydanube_broker.storage.storage import Storage

log = logging.getLogger(__name__)

CARRIED_OUT_MAX = 4
"""The number of commits that are carried out at the same time; each has a part of at
most 64 MiB in memory, and the first MiB of up to 16 others."""
RETRY_S = 1.0
"""The pause before a part of a commit that failed is tried again."""

_Held = dict[int, tuple[ReliableTopic, ProducerRegistration]]


class SharedCommits:
    """The commits of all queries, as far as they concern this broker's topics."""

    def __init__(
        self,
        topics: Topics,
        storage: Storage,
        *,
        shards: Shards,
        store: MetadataStore,
        files: StagedFiles,
        objects: StagedObjects,
        wall_clock_us: Callable[[], int],
        queries: Mirror[QueryRecord],
        on_change: Callable[[], None],
    ) -> None:
        """*on_change* is called when the records *queries* have changed."""
        self.appender = StagedAppender(
            topics, storage, files, final_errors=(), check_served=self._check_served
        )
        self.acknowledger = TransactionAcknowledger(topics, store)
        self.queries = queries
        """The records, which may be late."""
        self._topics = topics
        self._shards = shards
        self._store = store
        self._storage = storage
        self._objects = objects
        self._wall_clock_us = wall_clock_us
        self._on_change = on_change
        self._changed = asyncio.Event()
        self._wanted: set[str] = set()
        self._running: set[str] = set()
        self._slots = asyncio.Semaphore(CARRIED_OUT_MAX)
        self._tasks: TaskScope | None = None
        self._logged: dict[str, str] = {}
        """The last logged error, by query, so that each is logged once."""

    # Records.

    async def read(self, query: str) -> Stored[QueryRecord]:
        """Return the record of *query* as it is now; an empty one if it is new."""
        stored = await self._store.get(keys.QUERIES.key(query))
        return Stored(QueryRecord(), ABSENT) if stored is None else stored

    async def write(
        self,
        query: str,
        record: QueryRecord,
        expected: Revision,
        conditions: Iterable[Comparison] = (),
    ) -> None:
        """
        Replace the record of *query*.

        Raises:
            RevisionConflict: It has changed since *expected*, or one of *conditions*
                does not hold.
        """
        key = keys.QUERIES.key(query)
        await self._store.transaction(
            [Unchanged(key, expected), *conditions], [Put(key, record)]
        )

    def settle(
        self,
        query: str,
        decision: StagingDecision,
        expected: Revision,
        acks: Sequence[CommitAcks],
    ) -> None:
        """
        Give messages back that a commit holds, unless it was decided.

        Its *decision* would have replaced the record with the revision *expected*.
        """
        if acks and self._tasks is not None:
            work = self._settle(query, decision, expected, acks)
            self._tasks.run(work, f"settle {query}")

    async def _settle(
        self,
        query: str,
        decision: StagingDecision,
        expected: Revision,
        acks: Sequence[CommitAcks],
    ) -> None:
        while True:
            try:
                stored = await self.read(query)
                record = stored.value
                current = record if record.decision is None else record.decision
                if (current.version, current.commit_id) == (
                    decision.version,
                    decision.commit_id,
                ):
                    return
                if stored.revision == expected:
                    # From now on it cannot be decided.
                    await self.write(query, record, expected)
            except (MetadataUnavailable, RevisionConflict):
                await asyncio.sleep(RETRY_S)
            else:
                # Messages that were acknowledged are not held any more.
                for each in acks:
                    each.give_back()
                return

    async def wait_until_done(self, query: str, commit_id: int) -> None:
        """Return when all messages of a decided commit are in their topics."""
        while True:
            changed = self._changed
            decision = (await self.read(query)).value.decision
            if decision is None or decision.commit_id != commit_id:
                return
            await changed.wait()

    # Carrying out.

    async def run(self) -> None:
        """Append the messages of decided commits to this broker's topics, forever."""
        async with task_scope() as self._tasks:
            await self.queries.follow(self._store, self.wake)

    def wake(self) -> None:
        """Look for commits of which this broker may have topics now."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        self._on_change()
        if self._tasks is None:
            return
        for query, stored in self.queries.values.items():
            if stored.value.decision is None:
                continue
            self._wanted.add(query)
            if query not in self._running:
                self._running.add(query)
                self._tasks.run(self._complete(query), f"commit {query}")

    async def _complete(self, query: str) -> None:
        """Carry out the commit of *query* as far as possible, until nothing changes."""
        held: _Held = {}
        try:
            while query in self._wanted:
                self._wanted.discard(query)
                try:
                    async with self._slots:
                        await self._carry_out(query, held)
                except SessionLost:
                    return
                except Exception as error:
                    # A failure of one commit must not stop the others.
                    if self._logged.get(query) != repr(error):
                        self._logged[query] = repr(error)
                        log.warning(
                            "a commit of %s is decided and could not be carried out; "
                            "it is tried again until it can be: %s",
                            query,
                            error,
                            exc_info=None if isinstance(error, BrokerError) else error,
                        )
                    self._wanted.add(query)
                    await asyncio.sleep(RETRY_S)
                else:
                    self._logged.pop(query, None)
        finally:
            self._running.discard(query)
            for topic, registration in held.values():
                topic.registrations.leave(registration)

    async def _carry_out(self, query: str, held: _Held) -> None:
        # Before the record is read: see _find().
        served = dict(self._shards.served)
        decision = (await self.read(query)).value.decision
        if decision is None:
            return
        acks: list[CommittedAcksRecord] = []
        targets = {
            # The messages of topics that are done, or not served here, are skipped.
            each.topic_id: Target(topic=None, appended=INT64_MAX)
            for each in decision.topics
        }
        own: list[StagedTopicRecord] = []
        deleted: set[int] = set()
        for record in decision.topics:
            if record.is_done:
                continue
            with suppress(NotOwner):
                topic = await self._find(record, served)
                if topic is None:
                    deleted.add(record.topic_id)
                else:
                    own.append(record)
                    targets[record.topic_id] = self._target(
                        query, decision, record, topic, held
                    )
        for each in decision.acks:
            if each.is_done:
                continue
            with suppress(NotOwner):
                if await self._find(each, served) is None:
                    deleted.add(each.topic_id)
                else:
                    acks.append(each)
        if not own and not acks and not deleted:
            return
        prefix = version_prefix(query, decision.version)
        names = dict.fromkeys(prefix + part for each in own for part in each.parts)
        async with task_scope() as tasks:
            readers = self._objects.readers(names, tasks)
            await self.appender.append(decision.commit_id, targets, readers)
        acked = await self.acknowledger.acknowledge(acks)
        await self._storage.journal.sync()
        for held_acks in acked:
            # Otherwise the cursor may stand behind the mark that ends the shard.
            self._check_served(held_acks.topic)
        await self._mark_done(query, decision, own, acks, deleted)
        for record in own:
            topic = targets[record.topic_id].topic
            assert topic is not None
            with suppress(NotOwner):
                self._check_served(topic)
                self.appender.forget_producer(query, record)

    async def _find(
        self,
        record: StagedTopicRecord | CommittedAcksRecord,
        served: Mapping[int, Epoch],
    ) -> ReliableTopic | None:
        """
        Return a topic; None if it was deleted.

        *served* are the shards that were served before the decision was read.  The
        owner before may have carried out an older decision, and have forgotten how many
        messages it has appended; so the next one must read the record again.

        Raises:
            NotOwner: Another broker serves it, or did when the decision was read.
            Unavailable: This broker has not seen yet that it was created again.
        """
        name = TopicName.parse(record.name)
        stored = await self._store.get(keys.topic(name))
        if stored is None or stored.value.topic_id != record.topic_id:
            return None
        shard = stored.value.shard
        self._shards.epoch_of(name, shard)
        topic = await self._topics.get_reliable(name)
        if topic.topic_id != record.topic_id:
            raise Unavailable(f"{name} was created again a moment ago")
        if shard is None or served.get(shard) != topic.log.epoch:
            raise NotOwner(f"{name} has come to this broker a moment ago")
        return topic

    def _check_served(self, topic: ReliableTopic) -> None:
        """Raise ``NotOwner`` unless this broker has served *topic* without a break."""
        if self._shards.epoch_of(topic.name, topic.log.shard) != topic.log.epoch:
            raise NotOwner(f"{topic.name} has moved to another broker and back")

    def _target(
        self,
        query: str,
        decision: StagingDecision,
        record: StagedTopicRecord,
        topic: ReliableTopic,
        held: _Held,
    ) -> Target:
        if record.topic_id not in held or held[record.topic_id][0] is not topic:
            # An exclusive producer that came after the stage cannot stop the commit.
            with suppress(ProducerBusy):
                held[record.topic_id] = topic, register_commit(topic, query)
        appended = self.appender.count_appended(query, decision, record)
        return Target(topic=topic, appended=appended)

    async def _mark_done(
        self,
        query: str,
        decision: StagingDecision,
        own: Sequence[StagedTopicRecord],
        acks: Sequence[CommittedAcksRecord],
        deleted: set[int],
    ) -> None:
        """Mark what is done, and remove the parts if that was the last of it."""
        topic_ids = {each.topic_id for each in own} | deleted
        acked = {
            (each.topic_id, each.subscription)
            for each in decision.acks
            if each in acks or each.topic_id in deleted
        }
        while True:
            stored = await self.read(query)
            before = stored.value
            after = mark_done(
                before,
                decision.commit_id,
                topic_ids,
                self._wall_clock_us(),
                acked=acked,
            )
            if after == before:
                return
            try:
                await self.write(query, after, stored.revision)
            except RevisionConflict:
                continue
            break
        assert before.decision is not None
        for each in before.decision.topics:
            if each.topic_id in deleted and not each.is_done:
                self.appender.dropped_count += each.message_count
                log.warning(
                    "%s was deleted; dropping %d messages that were committed to it",
                    each.name,
                    each.message_count,
                )
        if after.decision is None:
            await self.remove_parts(query, decision)

    async def remove_parts(self, query: str, decision: StagingDecision) -> None:
        """Remove all parts that can never be committed after a complete commit."""
        prefix = version_prefix(query, decision.version)
        names = {prefix + part for each in decision.topics for part in each.parts}
        try:
            found = await self._objects.names(query_prefix(query))
            names |= {each for each in found if version_of(each) <= decision.version}
            await self._objects.remove(names)
        except BrokerError as error:
            log.warning("parts of %s are left until they expire: %s", query, error)
