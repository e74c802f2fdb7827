"""
Staging in a cluster: parts are objects, and any broker decides commits.

A part is written at the broker that serves its topic.  When it is finished, it is put
into the object store that all brokers share, so the loss of that broker does not
concern it any more.  Any broker decides a commit: it verifies the parts, and changes
the record of the query.  ``shared_commits`` carries it out.

Parts that could still be committed are named in the record of their query before they
are removed, so that no commit of them is decided meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial

import msgspec

from pydanube.aio.locks import NamedLocks
from pydanube.aio.tasks import gather, task_scope
from pydanube.model.errors import (
    BrokerError,
    CorruptStage,
    InvalidRequest,
    MessageNotHeld,
    NotOwner,
    ProducerBusy,
    QueryNotFound,
    RevisionConflict,
    StagedPartNotFound,
    StagingClosed,
    TopicNotFound,
    TransactionFenced,
    Unavailable,
)
from pydanube.model.names import TopicName
from pydanube.model.staging import (
    PartKey,
    StagedCommit,
    StagedPart,
    StagingDescription,
    TransactionAcks,
)
from pydanube_broker.broker.publishing.topic import ReliableTopic
from pydanube_broker.broker.pure.shared_decisions import (
    answer_of,
    begun,
    commit_id_after,
    decided,
    dropping,
    is_complete,
    may_drop,
    waiting_text,
)
from pydanube_broker.broker.staging.part_staging import (
    PARTS_MAX,
    PartStaging,
    QueryWriter,
    check_version,
)
from pydanube_broker.broker.staging.query_owners import claimed, old_queries
from pydanube_broker.broker.staging.shared_commits import SharedCommits
from pydanube_broker.broker.staging.staged_parts import StagedParts
from pydanube_broker.broker.staging.transaction_acks import CommitAcks
from pydanube_broker.broker.topics.shards import Shards
from pydanube_broker.broker.topics.topic_schemas import TopicSchemas
from pydanube_broker.broker.topics.topics import Topics
from pydanube_broker.cluster.mirror import Mirror
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.key import Key
from pydanube_broker.metadata.records import (
    CommittedAcksRecord,
    QueryRecord,
    StagedTopicRecord,
    StagingDecision,
)
from pydanube_broker.metadata.store import (
    HasValue,
    MetadataStore,
    Revision,
    Stored,
)
from pydanube_broker.storage.config import StagingConfig
from pydanube_broker.storage.files import Files
from pydanube_broker.storage.journal.staged_objects import (
    StagedObjects,
    name_of,
    query_prefix,
    version_prefix,
)
from pydanube_broker.storage.journal.staging import StagedFiles, open_staged_files
from pydanube_broker.storage.storage import Storage

log = logging.getLogger(__name__)

DROPPED_AT_ONCE_MAX = 100
"""The number of parts that are removed with one change of the record."""
COMPLETION_S = 30.0
"""How long the answer to a commit waits until all of its topics are done."""
SWEEP_INTERVAL_S_MAX = 3600.0
"""The longest interval between removals of expired parts and old queries."""


class SharedStaging(PartStaging):
    """The staged batches of a broker in a cluster; made by ``open_shared_staging``."""

    def __init__(
        self,
        topics: Topics,
        schemas: TopicSchemas,
        shards: Shards,
        *,
        store: MetadataStore,
        files: StagedFiles,
        parts: StagedParts,
        objects: StagedObjects,
        commits: SharedCommits,
        config: StagingConfig,
        wall_clock_us: Callable[[], int],
    ) -> None:
        super().__init__(topics, schemas, files, parts)
        self.commits = commits
        self._shards = shards
        self._store = store
        self._objects = objects
        self._config = config
        self._wall_clock_us = wall_clock_us
        self._locks: NamedLocks[str] = NamedLocks()
        self.completion_s = COMPLETION_S

    def on_served(self) -> None:
        """See ``PartStaging``."""
        self.commits.wake()

    # Parts.

    async def _ready(self) -> None:
        """Return at once: complete parts belong to no broker."""

    def _check_topic(self, topic: ReliableTopic) -> None:
        """Raise if *topic* has an exclusive producer, which no commit could refuse."""
        exclusive = topic.registrations.exclusive
        if exclusive is not None:
            raise ProducerBusy(
                f"{topic.name} has an exclusive producer: {exclusive.name}; close it, "
                "or publish with it"
            )

    def _check_not_committed(self, query: str, version: int) -> None:
        _check_not_committed(self.commits.queries, query, version)

    async def finish_part(
        self, key: PartKey, batch_count: int, message_count: int
    ) -> int:
        self._check_quotas(key)
        part = await self._finish_part(key, batch_count, message_count)
        try:
            await self._objects.put(key, await self.files.content(part.number))
        except CorruptStage as error:
            if self.parts.knows(part):
                raise
            # It was dropped meanwhile, for example by a newer transaction.
            self._check_not_committed(key.query, key.version)
            raise StagedPartNotFound(
                f"the part {key.name} was dropped while it was stored; stage it again"
            ) from error
        finally:
            self.parts.drop(part)
        return part.byte_count

    def _check_quotas(self, key: PartKey) -> None:
        """
        Raise if a topic of a part stores as much as allowed.

        The broker that decides the commit does not know that.
        """
        part = self.parts.find(key)
        for name in () if part is None else part.topics:
            topic = self._topics.find_open(TopicName.parse(name))
            if topic is not None:
                topic.pacing.check("storage_bytes")

    async def topics_of(self, query: str) -> set[str]:
        found = await super().topics_of(query)
        return found | await self._objects.topics_of(query)

    # Owners.

    async def claim(self, query: str, member: str) -> str:
        """See ``PartStaging``."""
        while True:
            stored = await self.commits.read(query)
            after = claimed(stored.value, member, self._wall_clock_us())
            if after is stored.value:
                return after.owner
            with suppress(RevisionConflict):
                await self.commits.write(query, after, stored.revision)
                return after.owner

    async def release(self, query: str) -> None:
        """See ``PartStaging``."""
        while True:
            stored = await self.commits.read(query)
            if not stored.value.owner:
                raise QueryNotFound(f"no principal owns the query {query!r}")
            after = msgspec.structs.replace(stored.value, owner="")
            with suppress(RevisionConflict):
                await self.commits.write(query, after, stored.revision)
                return

    # Writers.

    async def read_writer(self, query: str) -> QueryWriter:
        """See ``PartStaging``."""
        return _writer_of(await self.commits.read(query))

    async def read_writers(self) -> Iterable[tuple[str, QueryWriter]]:
        """See ``PartStaging``."""
        prefix = keys.QUERIES
        found = await self._store.scan_valid(prefix)
        return _writers_in((prefix.name_of(path), stored) for path, stored in found)

    def known_writers(self) -> Iterable[tuple[str, QueryWriter]]:
        """See ``PartStaging``."""
        return _writers_in(list(self.commits.queries.values.items()))

    async def write_writer(
        self, query: str, content: bytes, expected: Revision
    ) -> None:
        """See ``PartStaging``."""
        stored = await self._read_at(query, expected)
        now = max(stored.value.committed_at, self._wall_clock_us())
        after = msgspec.structs.replace(stored.value, writer=content, committed_at=now)
        await self.commits.write(query, after, stored.revision)

    async def begin_as_writer(
        self, query: str, content_of: Callable[[int], bytes], expected: Revision
    ) -> None:
        """See ``PartStaging``."""
        stored = await self._read_at(query, expected)
        after, version = begun(stored.value, self._wall_clock_us())
        after = msgspec.structs.replace(after, writer=content_of(version))
        await self.commits.write(query, after, stored.revision)

    async def _read_at(self, query: str, expected: Revision) -> Stored[QueryRecord]:
        stored = await self.commits.read(query)
        if stored.revision != expected:
            raise RevisionConflict(f"the record of {query} has changed")
        return stored

    # Versions.

    async def begin_transaction(self, query: str) -> int:
        """
        Begin a transaction; return its version, which is higher than earlier ones.

        Ordering: When this returns, no earlier transaction of the query can be
            decided any more.
        """
        while True:
            stored = await self.commits.read(query)
            after, version = begun(stored.value, self._wall_clock_us())
            with suppress(RevisionConflict):
                await self.commits.write(query, after, stored.revision)
                return version

    async def commit(
        self,
        query: str,
        version: int,
        named: Sequence[StagedPart],
        *,
        is_transaction: bool = False,
        acks: Sequence[TransactionAcks] = (),
    ) -> StagedCommit:
        """
        Publish the parts *named*, in this order, and drop the version's other parts.

        Does nothing if this or a later version is committed.  A transaction also
        acknowledges the messages *acks*, those of consumers all of topics that this
        broker serves; it is refused if a later one has begun.

        Durability: On return every message is as durable as its topic promises.  A
            decided commit is always carried out, by whichever brokers serve the topics.

        Ordering: The commits of one query run one after the other.

        Cancellation: The commit may be decided or not.

        Raises:
            StagedPartNotFound, CorruptStage, TopicNotFound, TransactionFenced,
            MessageNotHeld, SubscriptionNotFound: The version cannot be committed;
                nothing happened.
            InvalidRequest: It acknowledges messages of topics of several brokers.
            Unavailable and its subclasses: The commit may be decided, and is then
                carried out; call this method again for the result.
        """
        if acks and not is_transaction:
            raise InvalidRequest("only a transaction can acknowledge messages")
        check_version(version)
        if len(named) > PARTS_MAX:
            raise InvalidRequest(
                f"a version of {len(named)} parts, one for each writer and topic or "
                f"partition; at most {PARTS_MAX} are allowed: use fewer writers"
            )
        async with self._locks.of(query):
            held: list[CommitAcks] = []
            try:
                return await self._commit(
                    query, version, named, acks if is_transaction else None, held
                )
            finally:
                for each in held:
                    each.give_back()

    async def _commit(
        self,
        query: str,
        version: int,
        named: Sequence[StagedPart],
        acks: Sequence[TransactionAcks] | None,
        held: list[CommitAcks],
    ) -> StagedCommit:
        """
        Commit a version; *acks* are those of a transaction.

        The messages *held* are given back, whatever happens.
        """
        own_id: int | None = None
        while True:
            stored = await self.commits.read(query)
            record = stored.value
            if record.decision is not None:
                await self._wait_until_done(query, record.decision)
                continue
            if acks is not None and record.version != version:
                _check_newest(query, record, version)
            answer = answer_of(query, record, version, own_id)
            if answer is not None:
                return answer
            self._topics.check_not_draining()
            now = self._wall_clock_us()
            try:
                decision = StagingDecision(
                    version=version,
                    commit_id=commit_id_after(record, now),
                    parts=(),
                    topics=await self._topics_of(query, version, named, record),
                    acks=(
                        *await self._hold(
                            [each for each in acks or () if each.consumer_id], held
                        ),
                        *await self.commits.acknowledger.find_progress(
                            [each for each in acks or () if not each.consumer_id]
                        ),
                    ),
                )
            except (StagedPartNotFound, CorruptStage):
                # Another broker may have committed the version, and removed its parts.
                if (await self.commits.read(query)).revision != stored.revision:
                    continue
                raise
            self._shards.owners.check_session()
            after = decided(record, decision, now)
            conditions = [
                HasValue(_epoch_key(each), each.topic.log.epoch) for each in held
            ]
            try:
                await self.commits.write(query, after, stored.revision, conditions)
            except RevisionConflict:
                await self._check_epochs(held)
            except BaseException:
                self.commits.settle(query, decision, stored.revision, tuple(held))
                held.clear()
                raise
            else:
                # They are acknowledged when the commit is carried out.
                held.clear()
                own_id = decision.commit_id
                self.commit_count += 1
                self.committed_messages += sum(
                    each.message_count for each in decision.topics
                )
                if after.decision is None:
                    await self.commits.remove_parts(query, decision)

    async def drop_version(self, query: str, version: int) -> None:
        """Drop all parts of a version, unless its commit is decided."""
        for part in self.parts.of_query(query, version):
            part.fail(StagingClosed(f"version {version} of {query} was dropped"))
        names = await self._objects.names(version_prefix(query, version))
        if names:
            async with self._locks.of(query):
                await self._remove(query, version, names)

    async def describe(
        self, query: str, *, counts_parts: bool = True
    ) -> StagingDescription:
        """
        Describe the progress of a query, and its staged parts if they are asked.

        Those are what is finished at any broker, and what is being written here.
        """
        record = (await self.commits.read(query)).value
        sizes: list[int] = []
        if counts_parts:
            sizes += await self._objects.sizes(query_prefix(query))
            sizes += [part.byte_count for part in self.parts.of_query(query)]
        decision = record.decision
        return StagingDescription(
            query=query,
            committed_version=record.version if decision is None else decision.version,
            is_finished=decision is None,
            part_count=len(sizes),
            byte_count=sum(sizes),
        )

    @property
    def dropped_count(self) -> int:
        """The number of messages whose topic was deleted after the decision."""
        return self.commits.appender.dropped_count

    @property
    def pending_count(self) -> int:
        """The number of commits that are decided and not carried out yet."""
        queries = self.commits.queries.values.values()
        return sum(stored.value.decision is not None for stored in queries)

    # Lifecycle.

    async def run(self) -> None:
        """Remove expired parts and old queries, until cancelled."""
        while True:
            await asyncio.sleep(min(SWEEP_INTERVAL_S_MAX, self._config.expiry_s))
            try:
                await self.sweep(self._wall_clock_us())
            except BrokerError as error:
                log.warning("expired parts are not removed yet: %s", error)

    async def sweep(self, now: int) -> None:
        """Remove the parts and queries that are too old *now*, in microseconds."""
        self.parts.expire()
        begin = now - int(self._config.expiry_s * 1_000_000)
        expired: dict[tuple[str, int], list[str]] = {}
        for name in await self._objects.names():
            header = await self._objects.header(name)
            if header is None or header.begun_at >= begin:
                continue
            if name_of(header.key) == name:
                key = header.key
                expired.setdefault((key.query, key.version), []).append(name)
        for (query, version), names in expired.items():
            self.parts.expired_count += len(names)
            async with self._locks.of(query):
                await self._remove(query, version, names)
        config, known = self._config, self.commits.queries.values
        for query in old_queries(known, now, config.query_memory_s, config.queries_max):
            with suppress(RevisionConflict):
                await self._store.delete(
                    keys.QUERIES.key(query), expected=known[query].revision
                )

    # Helpers.

    async def _hold(
        self, acks: Sequence[TransactionAcks], held: list[CommitAcks]
    ) -> tuple[CommittedAcksRecord, ...]:
        """Hold the messages of *acks*, unless they are *held*, and return records."""
        if not held and acks:
            for each in acks:
                try:
                    await self._topics.get_reliable(TopicName.parse(each.topic))
                except NotOwner as error:
                    if each is acks[0]:
                        raise
                    raise InvalidRequest(
                        f"a transaction acknowledges messages of {acks[0].topic} and "
                        f"{each.topic}, which different brokers serve: commit a "
                        "transaction for each batch that a consumer receives"
                    ) from error
            acknowledger = self.commits.acknowledger
            records = await acknowledger.find(acks)
            consumers = [each.consumer_id for each in acks]
            held += acknowledger.hold(records, consumers, ())
        return tuple(each.record for each in held)

    async def _check_epochs(self, held: Sequence[CommitAcks]) -> None:
        """Raise if another broker has taken over a topic whose messages are held."""
        for each in held:
            stored = await self._store.get(_epoch_key(each))
            if stored is None or stored.value != each.topic.log.epoch:
                raise MessageNotHeld(
                    f"another broker serves {each.topic.name} now, and delivers the "
                    "messages again that the transaction acknowledges"
                )

    async def _wait_until_done(self, query: str, decision: StagingDecision) -> None:
        try:
            async with asyncio.timeout(self.completion_s):
                await self.commits.wait_until_done(query, decision.commit_id)
        except TimeoutError:
            current = (await self.commits.read(query)).value.decision
            if current is None or current.commit_id != decision.commit_id:
                return
            raise Unavailable(
                f"the commit is decided: version {decision.version} of {query} will be "
                f"published, whatever happens now; it waits for {waiting_text(current)}"
                ", whose brokers do not answer, or cannot write; repeat the commit to "
                "wait longer, and see 'danube cluster status' and the logs of the "
                "brokers"
            ) from None

    async def _topics_of(
        self,
        query: str,
        version: int,
        named: Sequence[StagedPart],
        record: QueryRecord,
    ) -> tuple[StagedTopicRecord, ...]:
        """Verify the parts of a version, and return what they publish."""
        part_keys = [
            PartKey(query=query, version=version, name=each.name, part_id=each.part_id)
            for each in named
        ]
        if len(set(part_keys)) < len(part_keys):
            raise InvalidRequest("a part is named twice")
        prefix, dropped = query_prefix(query), set(record.dropping)
        for key in part_keys:
            if name_of(key).removeprefix(prefix) in dropped:
                raise StagedPartNotFound(
                    f"the part {key.name} was dropped or has expired; stage the "
                    "version again"
                )
        contents = await gather(map(self._objects.verify, part_keys))
        found: dict[int, StagedTopicRecord] = {}
        parts: dict[int, list[str]] = {}
        for content in contents:
            part = name_of(content.header.key).rpartition("/")[2]
            counted = zip(content.topics, content.message_counts, strict=True)
            for topic, count in counted:
                if topic.topic_id not in found:
                    found[topic.topic_id] = await self._find_topic(*topic[1:])
                known = found[topic.topic_id]
                found[topic.topic_id] = msgspec.structs.replace(
                    known, message_count=known.message_count + count
                )
                parts.setdefault(topic.topic_id, []).append(part)
        return tuple(
            msgspec.structs.replace(record, parts=tuple(parts[topic_id]))
            for topic_id, record in found.items()
        )

    async def _find_topic(self, topic_id: int, name: str) -> StagedTopicRecord:
        stored = await self._store.get(keys.topic(TopicName.parse(name)))
        if stored is None or stored.value.topic_id != topic_id:
            raise TopicNotFound(
                f"{name} was deleted after messages were staged for it; stage the "
                "version again"
            )
        return StagedTopicRecord(topic_id=topic_id, name=name, message_count=0)

    async def _remove(self, query: str, version: int, names: Sequence[str]) -> None:
        """Remove parts of a version, unless its commit is decided."""
        prefix = query_prefix(query)
        for begin in range(0, len(names), DROPPED_AT_ONCE_MAX):
            some = names[begin : begin + DROPPED_AT_ONCE_MAX]
            parts = [each.removeprefix(prefix) for each in some]
            if not await self._forbid(query, version, parts):
                return
            await self._objects.remove(some)

    async def _forbid(self, query: str, version: int, parts: Sequence[str]) -> bool:
        """Keep *parts* from being committed; return False if they must stay."""
        while True:
            stored = await self.commits.read(query)
            record = stored.value
            if not may_drop(record, version):
                return False
            if is_complete(record, version):
                return True
            # Another broker may not have removed these yet.
            prefix = query_prefix(query)
            await self._objects.remove(prefix + each for each in record.dropping)
            after = dropping(record, parts, self._wall_clock_us())
            with suppress(RevisionConflict):
                await self.commits.write(query, after, stored.revision)
                return True


def _drop_refused(parts: StagedParts, queries: Mirror[QueryRecord]) -> None:
    """Drop the parts that are written here and can never be committed."""
    for part in list(parts):
        try:
            _check_not_committed(queries, part.key.query, part.key.version)
        except (StagingClosed, TransactionFenced) as error:
            part.fail(error)


def _check_not_committed(
    queries: Mirror[QueryRecord], query: str, version: int
) -> None:
    stored = queries.values.get(query)
    if stored is None:
        return
    record = stored.value
    if record.begun is not None and version < record.begun:
        _check_newest(query, record, version)
    current = record if record.decision is None else record.decision
    if current.version is not None and version <= current.version:
        raise StagingClosed(
            f"{query} has committed version {current.version}; version {version} "
            "accepts no batches any more"
        )


def _writer_of(stored: Stored[QueryRecord]) -> QueryWriter:
    record, decision = stored.value, stored.value.decision
    return QueryWriter(
        content=record.writer,
        revision=stored.revision,
        decided=record.version if decision is None else decision.version,
        acks=()
        if decision is None
        else tuple(each for each in decision.acks if not each.is_done),
    )


def _writers_in(
    records: Iterable[tuple[str, Stored[QueryRecord]]],
) -> Iterator[tuple[str, QueryWriter]]:
    return (
        (query, _writer_of(stored)) for query, stored in records if stored.value.writer
    )


def _epoch_key(acks: CommitAcks) -> Key[int]:
    shard = acks.topic.log.shard
    assert shard is not None
    return keys.SHARD_EPOCHS.key(shard)


def _check_newest(query: str, record: QueryRecord, version: int) -> None:
    """Raise unless *version* is the newest transaction of *query*."""
    if record.begun != version:
        raise TransactionFenced(
            f"a newer transaction of {query} has begun, perhaps in another program; "
            "let each program that runs at the same time use a name of its own"
        )


@asynccontextmanager
async def open_shared_staging(
    topics: Topics,
    schemas: TopicSchemas,
    *,
    shards: Shards,
    store: MetadataStore,
    storage: Storage,
    files: Files,
    config: StagingConfig,
    clock: Callable[[], float],
    wall_clock_us: Callable[[], int],
) -> AsyncIterator[SharedStaging]:
    """
    Stage batches and take part in commits while the body runs.

    Parts that are being written are kept in *files*, which are emptied before.
    """
    assert storage.remote is not None, "brokers of a cluster have a remote store"
    objects = StagedObjects(storage.remote)
    async with (
        open_staged_files(files) as staged_files,
        asyncio.TaskGroup() as group,
    ):
        # Nobody can finish the parts of an earlier run.
        found = await staged_files.recover()
        await staged_files.remove(each.content.header.number for each in found)
        parts = StagedParts(
            staged_files,
            config,
            group,
            clock=clock,
            wall_clock_us=wall_clock_us,
            check_disk=storage.check_disk,
        )
        queries = Mirror(keys.QUERIES)
        commits = SharedCommits(
            topics,
            storage,
            shards=shards,
            store=store,
            files=staged_files,
            objects=objects,
            wall_clock_us=wall_clock_us,
            queries=queries,
            on_change=partial(_drop_refused, parts, queries),
        )
        staging = SharedStaging(
            topics,
            schemas,
            shards,
            store=store,
            files=staged_files,
            parts=parts,
            objects=objects,
            commits=commits,
            config=config,
            wall_clock_us=wall_clock_us,
        )
        async with task_scope() as tasks:
            tasks.run(commits.run(), "carry out commits")
            tasks.run(staging.run(), "remove expired parts")
            try:
                yield staging
            finally:
                await parts.close()
