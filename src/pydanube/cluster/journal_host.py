"""
Takeovers of shards whose messages are in object journals.

Fencing and reading are one pass: the reader looks for the end of the journal, group
after group, and puts the fence there.  What it has read counts only after that.  One
pass reads all shards that wait for the same source.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from pydanube.aio.futures import completion
from pydanube.cluster.decided_acks import with_decided_acks
from pydanube.cluster.session_journals import journal_of
from pydanube.metadata import keys
from pydanube.metadata.store import MetadataStore
from pydanube.model.errors import BrokerError, Corrupt
from pydanube.model.ids import Epoch, Offset, TopicId
from pydanube.model.retry import RetryPolicy
from pydanube.model.segments import SegmentEntry
from pydanube.objects.store import Objects
from pydanube.storage.manifest import Manifest
from pydanube.storage.object_journal import ObjectJournal
from pydanube.storage.shard_recovery import (
    ShardFold,
    entries_of_adoption,
    recover_shards,
)
from pydanube.storage.state import TopicState
from pydanube.wire.batches import BatchFrame
from pydanube.wire.files.journal_format import (
    Batch,
    ShardForgotten,
    ShardLeft,
)

_BEGIN = Offset(0)
_NO_RETRIES = RetryPolicy(0.0, 0.0, retries_max=0)
"""The caller repeats a step that failed."""


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
    ) -> None:
        self._session_id = session_id
        self._store = store
        self._server = server
        self._journal = journal
        self._journal_id = journal_id
        self._objects = objects
        self._manifest = manifest
        self._passes: dict[str, _Pass] = {}
        self._fenced: set[str] = set()
        self._read: dict[int, _ShardContent] = {}

    async def fence(self, source: str) -> None:
        """Note that the journal of *source* is to be fenced when it is read."""
        self._fenced.add(source)

    async def read(self, shard: int, source: str | None, epoch: int) -> None:
        """Read the manifests, and the entries of the shard with *epoch*."""
        prefix = keys.SHARD_TOPICS.within(shard)
        topics = {
            TopicId(int(prefix.name_of(path))): stored.value
            for path, stored in await self._store.scan(prefix)
        }
        segments = {
            topic_id: await self._manifest.load(topic_id) for topic_id in topics
        }
        states: Mapping[TopicId, TopicState] = {}
        frames: Mapping[TopicId, list[BatchFrame]] = {}
        if source is not None:
            one_pass = self._passes.setdefault(source, _Pass())
            fold = await one_pass.include(shard, epoch, partial(self._recover, source))
            states, frames = fold.topics_of(shard), fold.recovery.frames
            # Read after the claim, so none is missing.
            states = await with_decided_acks(self._store, states)
        self._read[shard] = _ShardContent(source, topics, segments, states, frames)

    async def _recover(self, source: str, epochs: Mapping[int, Epoch]) -> ShardFold:
        stored = await self._store.get(keys.SESSION_JOURNALS.key(source))
        if stored is None:
            raise Corrupt(
                f"the metadata store has no record of the journal of session {source}"
            )
        return await recover_shards(
            self._objects,
            journal_of(source, stored.value),
            epochs,
            journal_id=self._journal_id,
            reader_id=bytes.fromhex(self._session_id),
            have_left=source not in self._fenced,
            retries=_NO_RETRIES,
        )

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
                state = TopicState(name, claim, _BEGIN, _BEGIN, shard=shard)
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
        await journal.sync()

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
        await completion(partial(self._journal.append, left))

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


Recover = Callable[[Mapping[int, Epoch]], Awaitable[ShardFold]]


class _Pass:
    """Reading one source for all shards that wait for it."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._waiting: dict[int, Epoch] = {}
        self._found: dict[tuple[int, Epoch], ShardFold] = {}

    async def include(self, shard: int, epoch: int, recover: Recover) -> ShardFold:
        """Return the fold of a pass that includes *shard*."""
        wanted = shard, Epoch(epoch)
        self._waiting[shard] = wanted[1]
        async with self._lock:
            if wanted not in self._found:
                epochs = dict(self._waiting)
                fold = await recover(epochs)
                self._found |= dict.fromkeys(epochs.items(), fold)
                self._waiting = {
                    shard: epoch
                    for shard, epoch in self._waiting.items()
                    if epochs.get(shard) != epoch
                }
            return self._found.pop(wanted)
