"""
Staging: batches are stored in parts, and published together by one commit.

``staged_parts`` fills parts, ``staged_commits`` publishes them; the methods here check
and order the requests for both.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress

from pydanube.aio.locks import NamedLocks
from pydanube.model.errors import (
    BrokerError,
    InvalidRequest,
    QueryNotFound,
    RevisionConflict,
    StagedPartNotFound,
    StagingClosed,
    TransactionFenced,
)
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.staging import (
    PartKey,
    StagedCommit,
    StagedPart,
    StagingDescription,
    TransactionAcks,
    is_repeat,
)
from pydanube_broker.broker.publishing.topic import ReliableTopic
from pydanube_broker.broker.pure.transactions import Transactions
from pydanube_broker.broker.staging.part_staging import (
    PARTS_MAX,
    PartStaging,
    QueryWriter,
    check_version,
)
from pydanube_broker.broker.staging.staged_commits import (
    Commit,
    Committer,
    Queries,
    check_complete,
    count_of,
    is_empty,
)
from pydanube_broker.broker.staging.staged_parts import Part, StagedParts
from pydanube_broker.broker.staging.transaction_acks import (
    CommitAcks,
    TransactionAcknowledger,
)
from pydanube_broker.broker.topics.topic_schemas import TopicSchemas
from pydanube_broker.broker.topics.topics import Topics
from pydanube_broker.metadata.store import ABSENT, MetadataStore, Revision
from pydanube_broker.storage.config import StagingConfig
from pydanube_broker.storage.files import Files
from pydanube_broker.storage.journal.staging import (
    RecoveredPart,
    StagedFiles,
    open_staged_files,
)
from pydanube_broker.storage.storage import Storage

log = logging.getLogger(__name__)

RETRY_S = 1.0
"""The pause before a decided commit that failed is tried again."""
SWEEP_INTERVAL_S_MAX = 60.0
"""The longest interval between removals of expired parts and old queries."""


class Staging(PartStaging):
    """The staged batches of a broker; made by ``open_staging``."""

    def __init__(
        self,
        topics: Topics,
        schemas: TopicSchemas,
        *,
        storage: Storage,
        files: StagedFiles,
        parts: StagedParts,
        queries: Queries,
        acknowledger: TransactionAcknowledger,
        config: StagingConfig,
    ) -> None:
        super().__init__(topics, schemas, files, parts)
        self._queries = queries
        self._config = config
        self.committer = Committer(topics, storage, files, queries, acknowledger)
        self._transactions = Transactions(config.queries_max)
        self._locks: NamedLocks[str] = NamedLocks()
        self._writers: dict[str, tuple[bytes, Revision]] = {}
        self._last_revision = ABSENT
        """The newest revision of any writer; no revision is given twice."""
        self._commits: dict[str, Commit] = {}
        """Commits that are decided and not carried out yet, by query."""
        self._unconfirmed: dict[str, _Unconfirmed] = {}
        """Commits that failed while they were decided, by query."""
        self._logged: dict[str, str] = {}
        """The last logged error, by query, so that each is logged once."""
        # Parts are on the disk, which a journal may outlive.
        self._loses_parts = storage.journal.outlives_disk
        self._found: list[RecoveredPart] | None = None
        self._recovered = asyncio.Event()
        self._retry = asyncio.Event()

    # Owners.

    async def claim(self, query: str, member: str) -> str:
        """See ``PartStaging``."""
        await self._recovered.wait()
        owner = self._queries.of(query).owner
        if owner:
            return owner
        async with self._locks.of(query):
            return await self._queries.claim(query, member)

    async def release(self, query: str) -> None:
        """See ``PartStaging``."""
        await self._recovered.wait()
        async with self._locks.of(query):
            if not await self._queries.release(query):
                raise QueryNotFound(f"no principal owns the query {query!r}")

    # Writers.

    async def read_writer(self, query: str) -> QueryWriter:
        """See ``PartStaging``."""
        await self._recovered.wait()
        return self._writer_of(query)

    async def read_writers(self) -> Iterable[tuple[str, QueryWriter]]:
        """See ``PartStaging``."""
        return self.known_writers()

    def known_writers(self) -> Iterable[tuple[str, QueryWriter]]:
        """See ``PartStaging``."""
        return [(query, self._writer_of(query)) for query in self._writers]

    async def write_writer(
        self, query: str, content: bytes, expected: Revision
    ) -> None:
        """See ``PartStaging``."""
        if self._writer_of(query).revision != expected:
            raise RevisionConflict(f"the writer of {query} has changed")
        self._last_revision = Revision(self._last_revision + 1)
        self._writers[query] = content, self._last_revision
        if len(self._writers) > self._config.queries_max:
            # Those whose transactions are fenced: nobody pushes out those of others.
            known = self._transactions.knows
            self._writers = {
                each: writer for each, writer in self._writers.items() if known(each)
            }

    async def begin_as_writer(
        self, query: str, content_of: Callable[[int], bytes], expected: Revision
    ) -> None:
        """See ``PartStaging``."""
        version = await self.begin_transaction(query)
        await self.write_writer(query, content_of(version), expected)

    def _writer_of(self, query: str) -> QueryWriter:
        content, revision = self._writers.get(query, (b"", ABSENT))
        commit = self._commits.get(query)
        return QueryWriter(
            content,
            revision,
            decided=self._queries.decided_version(query),
            acks=() if commit is None else commit.decision.acks,
        )

    # Versions.

    async def begin_transaction(self, query: str) -> int:
        """
        Begin a transaction; return its version, which is higher than earlier ones.

        Ordering: When this returns, no earlier transaction of the query can be
            committed any more.

        Raises:
            MetadataUnavailable: Whether an earlier commit was decided is unknown.
        """
        await self._recovered.wait()
        async with self._locks.of(query):
            await self._confirm(query)
            version = self._transactions.begin(
                query,
                self._queries.new_version(query),
                owner=self._queries.of(query).owner,
            )
        for part in self.parts.of_query(query):
            part.fail(TransactionFenced(f"a newer transaction of {query} has begun"))
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
        acknowledges the messages *acks*; it is refused if a later one has begun.

        Durability: On return every message is on disk in its topic.  A decided commit
            is always carried out, also after a crash.

        Ordering: The commits of one query run one after the other.

        Cancellation: The commit may be decided or not.

        Raises:
            StagedPartNotFound, CorruptStage, TopicNotFound, ProducerBusy,
            QuotaExceeded, TransactionFenced, MessageNotHeld, SubscriptionNotFound:
                The version cannot be committed; nothing happened.
            DiskFull, JournalFailed, MetadataUnavailable, Draining: The commit may be
                decided.  Then the broker tries again; call this method again for the
                result.
        """
        await self._recovered.wait()
        check_version(version)
        if len(named) > PARTS_MAX:
            raise InvalidRequest(
                f"a version of {len(named)} parts; at most {PARTS_MAX} are allowed"
            )
        async with self._locks.of(query):
            await self._finish(query)
            record = self._queries.of(query)
            if version == record.version:
                return StagedCommit(message_count=record.message_count, is_repeat=True)
            if is_transaction:
                self._transactions.check(query, version)
            elif acks:
                raise InvalidRequest("only a transaction can acknowledge messages")
            if is_repeat(query, version, record.version):
                return StagedCommit(message_count=0, is_repeat=True)
            commit = await self._decide(query, version, named, acks)
            await self._finish(query)
        return StagedCommit(message_count=count_of(commit.decision), is_repeat=False)

    async def drop_version(self, query: str, version: int) -> None:
        """Drop all parts of a version, unless its commit is decided."""
        await self._recovered.wait()
        async with self._locks.of(query):
            await self._confirm(query)
            for part in self.parts.of_query(query, version):
                part.fail(StagingClosed(f"version {version} of {query} was dropped"))

    async def describe(
        self, query: str, *, counts_parts: bool = True
    ) -> StagingDescription:
        """Describe the progress of a query, and its staged parts if they are asked."""
        await self._recovered.wait()
        parts = self.parts.of_query(query) if counts_parts else []
        return StagingDescription(
            query=query,
            committed_version=self._queries.decided_version(query),
            is_finished=query not in {*self._commits, *self._unconfirmed},
            part_count=len(parts),
            byte_count=sum(part.byte_count for part in parts),
        )

    @property
    def dropped_count(self) -> int:
        """The number of messages whose topic was deleted after the decision."""
        return self.committer.appender.dropped_count

    @property
    def pending_count(self) -> int:
        """The number of commits that are decided and not carried out yet."""
        return len(self._commits) + len(self._unconfirmed)

    # Lifecycle.

    async def begin(self) -> None:
        """Load decided commits, before other producers can publish."""
        await self._queries.load()
        if self._loses_parts:
            self._found = await self.files.recover()
            await self._abandon_lost({f.content.header.number for f in self._found})
        for query, decision in self._queries.pending().items():
            self._retry.set()
            try:
                # Registers its producers, so that their sessions are kept.
                self._commits[query] = await self.committer.resume(query, decision)
            except BrokerError as error:
                log.warning("a commit of %s cannot continue yet: %s", query, error)
                self._unconfirmed[query] = _Unconfirmed()

    async def run(self) -> None:
        """Carry out decided commits and remove old data, until cancelled."""
        await self._recover()
        interval_s = min(SWEEP_INTERVAL_S_MAX, self._config.expiry_s)
        sweep_at = self.parts.now() + interval_s
        while True:
            self._retry.clear()
            for query in [*self._unconfirmed, *self._commits]:
                await self._try_to_finish(query)
            if self.parts.now() >= sweep_at:
                await self._sweep()
                sweep_at = self.parts.now() + interval_s
            if self._retry.is_set():
                await asyncio.sleep(RETRY_S)
            else:
                with suppress(TimeoutError):
                    async with asyncio.timeout(sweep_at - self.parts.now()):
                        await self._retry.wait()

    async def _recover(self) -> None:
        recovered, self._found = self._found, None
        if recovered is None:
            recovered = await self.files.recover()
        for found in recovered:
            key, number = found.content.header.key, found.content.header.number
            decision = self._queries.decision_of(key.query)
            if decision is None or number not in dict(decision.parts):
                part = self.parts.restore(found)
                decided = self._queries.decided_version(key.query)
                if decided is not None and key.version <= decided:
                    # The broker was stopped before it removed the file.
                    self.parts.drop(part)
        self.committer.forget_finished()
        self._recovered.set()

    async def _abandon_lost(self, numbers: set[int]) -> None:
        """
        Abandon decided commits whose parts were lost with the disk.

        They were not acknowledged, so their clients stage the versions again.
        """
        for query, decision in self._queries.pending().items():
            lost = [number for number, _ in decision.parts if number not in numbers]
            if not lost:
                continue
            appended = self.committer.count_appended(query, decision)
            log.warning(
                "version %d of %s was being committed when the disk was lost, with %d "
                "of its %d parts: it is not committed and must be staged again; %d of "
                "its %d messages are in their topics already, and will be there twice",
                decision.version,
                query,
                len(lost),
                len(decision.parts),
                appended,
                count_of(decision),
            )
            await self._queries.abandon(query)

    async def _try_to_finish(self, query: str) -> None:
        try:
            async with self._locks.of(query):
                await self._finish(query)
        except Exception as error:
            # A failure of one commit must not stop the others.
            if self._logged.get(query) != repr(error):
                self._logged[query] = repr(error)
                log.warning(
                    "a commit of %s is decided and could not be carried out; it is "
                    "tried again until it can be: %s",
                    query,
                    error,
                    exc_info=None if isinstance(error, BrokerError) else error,
                )
        else:
            self._logged.pop(query, None)

    async def _sweep(self) -> None:
        self.parts.expire()
        config = self._config
        for query in self._queries.old(config.query_memory_s, config.queries_max):
            async with self._locks.of(query):
                await self._forget(query)

    async def _forget(self, query: str) -> None:
        try:
            await self._queries.forget(query)
        except BrokerError as error:
            log.warning("%s could not be forgotten: %s", query, error)

    # Helpers.

    async def _ready(self) -> None:
        await self._recovered.wait()

    def _check_topic(self, topic: ReliableTopic) -> None:
        """Accept any topic: the commit registers as its producer."""

    def _check_not_committed(self, query: str, version: int) -> None:
        self._transactions.check_not_fenced(query, version)
        decided = self._queries.decided_version(query)
        if decided is not None and version <= decided:
            raise StagingClosed(
                f"{query} has committed version {decided}; version {version} "
                "accepts no batches any more"
            )

    async def _decide(
        self,
        query: str,
        version: int,
        named: Sequence[StagedPart],
        acks: Sequence[TransactionAcks],
    ) -> Commit:
        parts = [self._find(query, version, each) for each in named]
        if len(set(parts)) < len(parts):
            raise InvalidRequest("a part is named twice")
        check_complete(parts)
        # Now the parts cannot be dropped.
        for part in parts:
            self.parts.take(part)
        try:
            commit = await self.committer.prepare(query, version, parts, acks)
        except BaseException:
            self._give_back(_Unconfirmed(parts))
            raise
        try:
            await self._queries.decide(query, commit.decision)
        except BaseException:
            commit.leave()
            self._unconfirmed[query] = _Unconfirmed(parts, commit.acks)
            self._retry.set()
            raise
        self._on_decided(query, commit)
        return commit

    def _on_decided(self, query: str, commit: Commit) -> None:
        decision = commit.decision
        if not is_empty(decision):
            self._commits[query] = commit
        for part in self.parts.of_query(query):
            if part.key.version <= decision.version:
                part.fail(
                    StagingClosed(f"{query} has committed version {decision.version}")
                )
        self.commit_count += 1
        self.committed_messages += count_of(decision)

    def _find(self, query: str, version: int, named: StagedPart) -> Part:
        key = PartKey(
            query=query, version=version, name=named.name, part_id=named.part_id
        )
        part = self.parts.find(key)
        if part is None:
            raise StagedPartNotFound(
                f"version {version} of {query} has no part {named.name} with this id: "
                "it was dropped or has expired; stage the version again"
            )
        return part

    async def _finish(self, query: str) -> None:
        """Carry out the decided commit of a query, if there is one."""
        try:
            await self._confirm(query)
            commit = self._commits.get(query)
            if commit is not None:
                await self.committer.carry_out(query, commit)
        except BaseException:
            self._retry.set()
            raise
        if commit is not None:
            del self._commits[query]
            self.parts.byte_count -= commit.byte_count
            await self.files.remove(number for number, _ in commit.decision.parts)

    async def _confirm(self, query: str) -> None:
        """Read from the store whether a commit that failed was decided."""
        unconfirmed = self._unconfirmed.get(query)
        if unconfirmed is None:
            return
        decision = await self._queries.reload(query)
        if decision is None:
            self._give_back(unconfirmed)
        else:
            commit = await self.committer.resume(query, decision)
            commit.byte_count = sum(part.byte_count for part in unconfirmed.parts)
            self._on_decided(query, commit)
        del self._unconfirmed[query]

    def _give_back(self, refused: _Unconfirmed) -> None:
        for part in refused.parts:
            self.parts.give_back(part)
        for acks in refused.acks:
            acks.give_back()


@dataclass(frozen=True, slots=True)
class _Unconfirmed:
    """A commit that may be decided."""

    parts: Sequence[Part] = ()
    acks: Sequence[CommitAcks] = ()


@asynccontextmanager
async def open_staging(
    topics: Topics,
    schemas: TopicSchemas,
    store: MetadataStore,
    storage: Storage,
    files: Files,
    *,
    config: StagingConfig,
    clock: Callable[[], float],
    wall_clock_us: Callable[[], int],
) -> AsyncIterator[Staging]:
    """
    Open the staged parts in *files* and the progress of queries in *store*.

    On entry, the producers of decided commits are registered; the commits are carried
    out while the body runs.  On exit, staged parts are kept.
    """
    async with (
        open_staged_files(files) as staged_files,
        asyncio.TaskGroup() as tasks,
    ):
        parts = StagedParts(
            staged_files,
            config,
            tasks,
            clock=clock,
            wall_clock_us=wall_clock_us,
            check_disk=storage.check_disk,
        )
        staging = Staging(
            topics,
            schemas,
            storage=storage,
            files=staged_files,
            parts=parts,
            queries=Queries(store, wall_clock_us),
            acknowledger=TransactionAcknowledger(topics, store),
            config=config,
        )
        await staging.begin()
        running = tasks.create_task(staging.run(), name="staging")
        try:
            yield staging
        finally:
            running.cancel()
            await parts.close()
