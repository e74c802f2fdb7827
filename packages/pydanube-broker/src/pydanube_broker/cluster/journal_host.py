"""
Takeovers of shards whose messages are in object journals.

Fencing and reading are one pass: the reader looks for the end of the journal, group
after group, and puts the fence there.  What it has read counts only after that.  All
shards of a source share one reading.  Before a shard moves, the reading goes up to the
present end of the journal, so that little is left when the owner has left.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Protocol

from pydanube.aio.futures import Done, completion
from pydanube.aio.tasks import run_all
from pydanube.model.errors import (
    BrokerError,
    Corrupt,
    CorruptJournal,
    ObjectsUnavailable,
)
from pydanube.model.ids import Epoch, Offset, TopicId
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.segments import SegmentEntry
from pydanube.objects.store import Objects
from pydanube.wire.batches import BatchFrame
from pydanube.wire.files.group_format import HEADER_BYTES
from pydanube.wire.files.journal_format import (
    Batch,
    Entry,
    MetadataRevision,
    ShardForgotten,
    ShardLeft,
)
from pydanube_broker.cluster.decided_acks import with_decided_acks
from pydanube_broker.cluster.session_journals import journal_of
from pydanube_broker.cluster.shard_owners import TakeoverCounts
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.store import MetadataStore
from pydanube_broker.storage.journal.journal_sessions import JournalSession
from pydanube_broker.storage.journal.object_journal import ObjectJournal
from pydanube_broker.storage.journal.recovery import Recovery
from pydanube_broker.storage.journal.shard_recovery import (
    SourceReading,
    entries_of_adoption,
)
from pydanube_broker.storage.journal.state import SKIPPED_OFFSETS, TopicState
from pydanube_broker.storage.journal.unsealed import uploaded_of
from pydanube_broker.storage.pure.group_commits import FIRST_GROUP
from pydanube_broker.storage.segments.manifest import Manifest

log = logging.getLogger(__name__)

_BEGIN = Offset(0)


class ShardServer(Protocol):
    """Accepts and delivers the messages of shards."""

    async def serve(
        self, shard: int, epoch: int, topics: Mapping[TopicId, str]
    ) -> None:
        """Open *topics*: the journal has their states and recovered batches."""

    def refuse_messages(self, shard: int) -> None:
        """Accept no more messages, but go on with those that were appended."""

    def stop(self, shard: int) -> None:
        """Deliver nothing more; serve() may not have been called."""


@dataclass(frozen=True, slots=True)
class _ShardContent:
    """The topics of a shard, as they were read."""

    source: str | None
    topics: Mapping[TopicId, str]
    """The names of the topics that the metadata store has."""
    segments: Mapping[TopicId, tuple[SegmentEntry, ...]]
    states: Mapping[TopicId, TopicState]
    """The states in the journal of the source; a new topic may be missing."""
    frames: Mapping[TopicId, list[BatchFrame]]
    is_lost: bool
    """Whether the journal of the source was given up."""


class JournalHost:
    """The messages of this session's shards; implements ``takeover.ShardHost``."""

    def __init__(
        self,
        session_id: str,
        store: MetadataStore,
        server: ShardServer,
        *,
        journal: ObjectJournal,
        journal_id: bytes,
        objects: Objects,
        manifest: Manifest,
        counts: TakeoverCounts,
    ) -> None:
        self._session_id = session_id
        self._store = store
        self._server = server
        self._journal = journal
        self._journal_id = journal_id
        self._objects = objects
        self._manifest = manifest
        self._sources: dict[str, _Source] = {}
        self._fenced: set[str] = set()
        self._read: dict[int, _ShardContent] = {}
        self._counts = counts

    async def prepare(self, source: str) -> None:
        """Read what the journal of *source* has now; its owner goes on."""
        found = self._sources.setdefault(source, _Source())
        rounds = found.rounds
        async with found.lock:
            if found.rounds == rounds:
                async with self._reading(found, source) as (reading, session):
                    await reading.read_ahead(session)
                found.rounds += 1

    async def fence(self, source: str) -> None:
        """Note that the journal of *source* is to be fenced when it is read."""
        self._fenced.add(source)

    async def read(self, shard: int, source: str | None, epoch: int) -> None:
        """Read the manifests, and the entries of the shard with *epoch*."""
        topics: dict[TopicId, str] = {}
        segments: dict[TopicId, tuple[SegmentEntry, ...]] = {}
        states: Mapping[TopicId, TopicState] = {}
        frames: Mapping[TopicId, list[BatchFrame]] = {}
        is_lost = False

        async def load_manifests() -> None:
            loaded = await self._manifest.load_each(list(topics))
            segments.update(zip(topics, loaded, strict=True))

        async def load_entries(source: str) -> None:
            nonlocal states, frames, is_lost
            try:
                recovery = await self._recover(source, shard, Epoch(epoch))
            except CorruptJournal as error:
                stored = await self._store.get(keys.SESSION_JOURNALS.key(source))
                if stored is None or not stored.value.is_given_up:
                    raise
                log.warning("shard %d goes on without its journal: %s", shard, error)
                is_lost = True
                return
            # Read after the claim, so none is missing.
            states = await with_decided_acks(self._store, recovery.state.topics)
            frames = recovery.frames

        prefix = keys.SHARD_TOPICS.within(shard)
        for path, stored in await self._store.scan(prefix):
            topics[TopicId(int(prefix.name_of(path)))] = stored.value
        works = [load_manifests()]
        # A journal that must be fenced is read also if the shard has no topics.
        if source is not None and (topics or source in self._fenced):
            works.append(load_entries(source))
        await run_all(works)
        self._read[shard] = _ShardContent(
            source, topics, segments, states, frames, is_lost
        )

    async def _recover(self, source: str, shard: int, epoch: Epoch) -> Recovery:
        """Return what the journal of *source* has of a shard that was claimed."""
        found = self._sources.setdefault(source, _Source())
        async with found.lock:
            if found.reading is not None and found.reading.is_fenced:
                return found.reading.fold.recovery_of(shard, epoch)
            async with self._reading(found, source) as (reading, session):
                if source in self._fenced:
                    await reading.read_to_end(session)
                else:
                    await reading.read_until_left(session, shard, epoch)
                return reading.fold.recovery_of(shard, epoch)

    @asynccontextmanager
    async def _reading(
        self, found: _Source, source: str
    ) -> AsyncIterator[tuple[SourceReading, JournalSession]]:
        """Continue the reading of *source*, or begin another one."""
        # After the claim, which has frozen the record of a journal that is fenced.
        stored = await self._store.get(keys.SESSION_JOURNALS.key(source))
        if stored is None:
            raise Corrupt(
                f"the metadata store has no record of the journal of session {source}"
            )
        session = journal_of(source, stored.value)
        if found.reading is None or not found.reading.can_continue(session):
            await self._check_begin(session)
            found.reading = SourceReading(
                self._objects,
                journal_id=self._journal_id,
                reader_id=bytes.fromhex(self._session_id),
            )
        try:
            yield found.reading, session
        except ObjectsUnavailable:
            raise
        except BrokerError:
            found.reading = None
            raise

    async def _check_begin(self, session: JournalSession) -> None:
        """
        Raise if the journal of a source does not begin where its record says.

        The reader would take the missing group for the end of an empty journal.
        """
        name = session.object_name(session.first)
        if await self._objects.read(name, 0, HEADER_BYTES) is None:
            raise CorruptJournal(
                f"{name}: expected the first group of the journal of session "
                f"{session.session_id}, there is no object"
            )

    def keep_sources(self, sources: Collection[str]) -> None:
        """Forget what was read of sessions that are not in *sources*."""
        for source in self._sources.keys() - set(sources):
            if not self._sources[source].lock.locked():
                del self._sources[source]

    async def adopt(self, shard: int, epoch: int) -> None:
        """Append what was read, as *epoch*; return when it is committed."""
        content, journal = self._read[shard], self._journal
        claim = Epoch(epoch)
        if content.source == self._session_id:
            # A snapshot has one epoch of a topic, and the older one is still needed.
            journal.trim_holds.add(shard)
        for topic_id, name in content.topics.items():
            state = content.states.get(topic_id)
            if state is None:
                begin = _BEGIN
                if content.is_lost:
                    begin = self._skip_lost(name, content.segments[topic_id])
                state = TopicState(name, claim, begin, begin, shard=shard)
            entries = list(
                entries_of_adoption(
                    topic_id,
                    state,
                    content.frames.get(topic_id, ()),
                    content.segments[topic_id],
                    claim,
                )
            )
            await journal.wait_for_room()
            for entry in entries:
                journal.append(entry, None)
            journal.recovered[topic_id] = [
                entry.frame for entry in entries if type(entry) is Batch
            ]
        if journal.durable_end.position == FIRST_GROUP:
            # A journal that is a source is never empty; see _check_begin().
            journal.append(MetadataRevision(0), None)
        if content.source in self._fenced:
            # Many shards are adopted with few groups.
            await journal.sync()
        else:
            await completion(partial(self._append_now, None))

    def _skip_lost(self, name: str, segments: tuple[SegmentEntry, ...]) -> Offset:
        """Return the offset at which a topic goes on whose journal is lost."""
        end = uploaded_of(segments)[-1].end if uploaded_of(segments) else _BEGIN
        begin = Offset(end + SKIPPED_OFFSETS)
        self._counts.lost_topics += 1
        log.error(
            "%s: messages from offset %d on that were not uploaded are lost, with the "
            "cursors of subscriptions; the topic goes on at offset %d",
            name,
            end,
            begin,
        )
        return begin

    async def serve(self, shard: int, epoch: int) -> None:
        """Open the topics that were adopted."""
        content = self._read[shard]
        await self._server.serve(shard, epoch, content.topics)
        del self._read[shard]
        self._journal.trim_holds.discard(shard)

    def refuse_messages(self, shard: int) -> None:
        """See ShardServer."""
        self._server.refuse_messages(shard)

    async def append_left(self, shard: int, epoch: int) -> None:
        """Append SHARD_LEFT; return when it is committed."""
        left = ShardLeft(shard, Epoch(epoch))
        await completion(partial(self._append_now, left))

    def _append_now(self, entry: Entry | None, done: Done) -> None:
        """Append without waiting for further entries, because publishers wait."""
        self._journal.append(entry, done)
        self._journal.hurry()

    def stop(self, shard: int) -> None:
        """See ShardServer."""
        self._server.stop(shard)

    def note_source(self, shard: int, epoch: int) -> None:
        """
        Take that a record names a source with *epoch*.

        Entries of the shard with an earlier epoch, which has left, are not needed any
        more.  Records may be late: an older one has an epoch that is not later.
        """
        left = self._journal.state.left_shards.get(shard)
        if left is not None and left < epoch:
            # If it fails, another record or the end of the session does the same.
            with suppress(BrokerError):
                self._journal.append(ShardForgotten(shard, left), None, sync=False)


class _Source:
    """The journal of another session, as far as it was read."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.reading: SourceReading | None = None
        self.rounds = 0
        """How often it was read ahead."""
