"""
Staged batches: parts that are stored, and published by one commit.

What a part is stands in ``staged_parts``, how it is committed in ``staged_commits``.
Here is what may be asked of both, in the order that a server asks it.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from pydanube.broker.staged_commits import (
    Commit,
    Committer,
    check_complete,
    count_of,
)
from pydanube.broker.staged_parts import Stage, StagedParts
from pydanube.broker.staged_queries import Queries
from pydanube.model.errors import (
    BrokerError,
    InvalidRequest,
    StagedPartNotFound,
    StagingClosed,
)
from pydanube.model.staging import (
    PartKey,
    StagedCommit,
    StagedPart,
    StagingDescription,
)
from pydanube.storage.staging import open_staged_files
from pydanube.wire.batches import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from pydanube.broker.staged_parts import Part, StagePort
    from pydanube.broker.topic_schemas import TopicSchemas
    from pydanube.broker.topics import Topics
    from pydanube.metadata.store import MetadataStore
    from pydanube.model.names import TopicName
    from pydanube.model.schemas import SchemaReference
    from pydanube.storage.config import StagingConfig
    from pydanube.storage.files import Files
    from pydanube.storage.staging import StagedFiles
    from pydanube.storage.storage import Storage

log = logging.getLogger(__name__)

PARTS_MAX = 10_000
"""So many parts may be committed together."""
RETRY_S = 1.0
"""How long a commit rests that is decided and could not be carried out."""
SWEEP_INTERVAL_S_MAX = 60.0
"""How often expired parts and forgotten queries are looked for, at least."""


class Staging:
    """What is staged at a broker; made by ``open_staging``."""

    def __init__(
        self,
        topics: Topics,
        schemas: TopicSchemas,
        *,
        storage: Storage,
        files: StagedFiles,
        parts: StagedParts,
        queries: Queries,
        config: StagingConfig,
    ) -> None:
        self.parts = parts
        self.commit_count = 0
        """Versions that were committed since the start."""
        self.committed_messages = 0
        self._topics = topics
        self._schemas = schemas
        self._files = files
        self._queries = queries
        self._config = config
        self._committer = Committer(topics, storage, files, queries)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._commits: dict[str, Commit] = {}
        """What is decided and not carried out yet, by query."""
        self._uncertain: dict[str, Sequence[Part]] = {}
        """Queries of which nobody knows what the store says, with what it is about."""
        self._said: dict[str, str] = {}
        """What the log has said of them last, to say it once."""
        self._recovered = asyncio.Event()
        self._undone = asyncio.Event()

    # Parts.

    async def open_stage(
        self,
        key: PartKey,
        name: TopicName,
        schema: SchemaReference | None,
        port: StagePort,
    ) -> Stage:
        """
        A way for batches into the part that *key* names, which need not exist yet.

        *port* is told what becomes of them.  Who filled the part's topic before
        does so no more.

        Raises:
            TopicNotFound: There is no such topic.
            InvalidRequest: It is not reliable.
            SchemaNotFound, OtherSchema: The topic does not take the schema.
            StagingClosed: The version is committed, or the part is finished.
            Draining: The broker is stopping.
        """
        await self._recovered.wait()
        _check_version(key.version)
        topic = await self._topics.get_reliable(name)
        topic.check()
        chosen = None
        if schema is not None:
            chosen = await self._schemas.assign(topic, schema)
        self._refuse_committed(key.query, key.version)
        return self.parts.find_or_create(key).stage(topic, chosen, port)

    async def finish_part(
        self, key: PartKey, batch_count: int, message_count: int
    ) -> int:
        """
        The part is complete, and should have so much; its length on the disk.

        Durability: On return the part is on disk.

        Raises:
            StagedPartNotFound: There is no such part, or it has something else.
            StagingClosed: The version is committed.
            DiskFull, Unavailable: It could not be written, and is dropped.
        """
        await self._recovered.wait()
        self._refuse_committed(key.query, key.version)
        part = self.parts.find(key)
        if part is None:
            raise StagedPartNotFound(f"there is no part {key.name}; stage it again")
        part.touch()
        await part.finish(batch_count, message_count)
        return part.byte_count

    async def drop_part(self, key: PartKey) -> None:
        """Drop a part; nothing happens if it is not there."""
        await self._recovered.wait()
        part = self.parts.find(key)
        if part is not None:
            part.fail(StagingClosed(f"the part {key.name} was dropped"))

    @property
    def has_room(self) -> bool:
        """Whether servers may go on taking batches that are to be staged."""
        return self._files.has_room

    async def room(self) -> None:
        """Wait until there is room for more."""
        await self._files.room()

    # Versions.

    async def commit(
        self, query: str, version: int, named: Sequence[StagedPart]
    ) -> StagedCommit:
        """
        Publish the parts that are *named*, in their order; drop the others.

        If the version or a later one is committed, nothing happens.

        Durability: On return every message is on disk in its topic.  Once it is
            decided, it is carried out, whatever happens to the broker.

        Ordering: Of the commits of one query, one comes after the other.

        Cancellation: It may be decided or not.

        Raises:
            StagedPartNotFound, CorruptStage, TopicNotFound, ProducerBusy,
            QuotaExceeded: It cannot be committed like this; nothing happened.
            DiskFull, JournalFailed, MetadataUnavailable, Draining: It may be decided;
                it is tried again, and whoever asks again hears of it.
        """
        await self._recovered.wait()
        _check_version(version)
        if len(named) > PARTS_MAX:
            raise InvalidRequest(f"a version has {PARTS_MAX} parts at most")
        async with self._lock(query):
            await self._finish(query)
            record = self._queries.of(query)
            done = None if record is None else record.version
            if record is not None and done is not None and version <= done:
                count = record.message_count if version == done else 0
                return StagedCommit(message_count=count, is_repeat=True)
            commit = await self._decide(query, version, named)
            await self._finish(query)
        return StagedCommit(message_count=count_of(commit.decision), is_repeat=False)

    async def drop_version(self, query: str, version: int) -> None:
        """Drop all parts of a version; one that is decided stays."""
        await self._recovered.wait()
        async with self._lock(query):
            await self._make_certain(query)
            for part in self.parts.of_version(query, version):
                part.fail(StagingClosed(f"version {version} of {query} was dropped"))

    async def describe(self, query: str) -> StagingDescription:
        """How far a query is, and what is staged for it."""
        await self._recovered.wait()
        parts = self.parts.of_query(query)
        return StagingDescription(
            query=query,
            committed_version=self._queries.decided_version(query),
            is_finished=query not in {*self._commits, *self._uncertain},
            part_count=len(parts),
            byte_count=sum(part.byte_count for part in parts),
        )

    @property
    def query_count(self) -> int:
        """How many queries are remembered."""
        return len(self._queries)

    @property
    def undone_count(self) -> int:
        """How many commits are decided and not carried out yet."""
        return len(self._commits) + len(self._uncertain)

    @property
    def dropped_count(self) -> int:
        """How many messages were committed to topics that were deleted since."""
        return self._committer.dropped_count

    # The life of it.

    async def begin(self) -> None:
        """Take up what is decided; before anybody else can publish."""
        await self._queries.load()
        for query, decision in self._queries.undone().items():
            self._undone.set()
            try:
                # Its producers must not be forgotten before it is carried out.
                self._commits[query] = await self._committer.resume(query, decision)
            except BrokerError as error:
                log.warning("a commit of %s cannot go on yet: %s", query, error)
                self._uncertain[query] = ()

    async def run(self) -> None:
        """Finish what is decided, and forget what is old, until cancelled."""
        await self._recover()
        interval_s = min(SWEEP_INTERVAL_S_MAX, self._config.expiry_s)
        sweep_at = self.parts.now() + interval_s
        while True:
            self._undone.clear()
            for query in [*self._uncertain, *self._commits]:
                await self._try_to_finish(query)
            if self.parts.now() >= sweep_at:
                await self._sweep()
                sweep_at = self.parts.now() + interval_s
            if self._undone.is_set():
                await asyncio.sleep(RETRY_S)
            else:
                with suppress(TimeoutError):
                    async with asyncio.timeout(sweep_at - self.parts.now()):
                        await self._undone.wait()

    async def _recover(self) -> None:
        for found in await self._files.recover():
            key, number = found.content.header.key, found.content.header.number
            decision = self._queries.decision_of(key.query)
            if decision is None or number not in dict(decision.parts):
                part = self.parts.restore(found)
                decided = self._queries.decided_version(key.query)
                if decided is not None and key.version <= decided:
                    # The broker was stopped before it had removed the file.
                    self.parts.drop(part)
        self._recovered.set()

    async def _try_to_finish(self, query: str) -> None:
        try:
            async with self._lock(query):
                await self._finish(query)
        except Exception as error:
            # One commit may fail alone; the others go on.
            if self._said.get(query) != repr(error):
                self._said[query] = repr(error)
                log.warning(
                    "a commit of %s is decided and could not be carried out; it is "
                    "tried again until it can be: %s",
                    query,
                    error,
                    exc_info=None if isinstance(error, BrokerError) else error,
                )
        else:
            self._said.pop(query, None)

    async def _sweep(self) -> None:
        self.parts.expire()
        config = self._config
        for query in self._queries.old(config.query_memory_s, config.queries_max):
            async with self._lock(query):
                await self._forget(query)

    async def _forget(self, query: str) -> None:
        try:
            await self._queries.forget(query)
        except BrokerError as error:
            log.warning("%s could not be forgotten: %s", query, error)

    # What follows.

    def _lock(self, query: str) -> asyncio.Lock:
        """Held by whoever commits or drops something of *query*."""
        lock = self._locks.get(query)
        if lock is None:
            lock = self._locks[query] = asyncio.Lock()
        return lock

    def _refuse_committed(self, query: str, version: int) -> None:
        decided = self._queries.decided_version(query)
        if decided is not None and version <= decided:
            raise StagingClosed(
                f"{query} has committed version {decided}; nothing can be staged for "
                f"version {version} any more"
            )

    async def _decide(
        self, query: str, version: int, named: Sequence[StagedPart]
    ) -> Commit:
        parts = [self._find(query, version, each) for each in named]
        if len(set(parts)) < len(parts):
            raise InvalidRequest("a part is named twice")
        check_complete(parts)
        # From here on nobody else can drop them.
        for part in parts:
            self.parts.take(part)
        try:
            commit = await self._committer.prepare(query, version, parts)
        except BaseException:
            self._give_back(parts)
            raise
        try:
            await self._queries.decide(query, commit.decision)
        except BaseException:
            commit.leave()
            self._uncertain[query] = parts
            self._undone.set()
            raise
        self._on_decided(query, commit)
        return commit

    def _on_decided(self, query: str, commit: Commit) -> None:
        decision = commit.decision
        if decision.parts:
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
                f"version {version} of {query} has no such part {named.name}: it was "
                "dropped or has expired; stage the version again"
            )
        return part

    async def _finish(self, query: str) -> None:
        """Carry out what is decided, if anything is."""
        try:
            await self._make_certain(query)
            commit = self._commits.get(query)
            if commit is not None:
                await self._committer.carry_out(query, commit)
        except BaseException:
            self._undone.set()
            raise
        if commit is not None:
            del self._commits[query]
            self.parts.byte_count -= commit.byte_count
            await self._files.remove(number for number, _ in commit.decision.parts)

    async def _make_certain(self, query: str) -> None:
        """If nobody knows whether something is decided, ask the store."""
        parts = self._uncertain.get(query)
        if parts is None:
            return
        decision = await self._queries.reload(query)
        if decision is None:
            self._give_back(parts)
        else:
            commit = await self._committer.resume(query, decision)
            commit.byte_count = sum(part.byte_count for part in parts)
            self._on_decided(query, commit)
        del self._uncertain[query]

    def _give_back(self, parts: Sequence[Part]) -> None:
        for part in parts:
            self.parts.give_back(part)


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
    What is staged in *files*, and how far *store* says that queries are.

    On entering, what was decided before has its places in its topics; it is carried
    out while the body runs.  On leaving, what is staged stays where it is.
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
            config=config,
        )
        await staging.begin()
        running = tasks.create_task(staging.run(), name="staging")
        try:
            yield staging
        finally:
            running.cancel()
            await parts.close()


def _check_version(version: int) -> None:
    if version > INT64_MAX:
        raise InvalidRequest(f"a version is at most {INT64_MAX}, not {version}")
