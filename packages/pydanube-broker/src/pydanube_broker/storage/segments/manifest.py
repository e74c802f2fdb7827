"""The interface to the manifest: the list of segments of each topic."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from typing import Protocol

from pydanube.model.errors import BackupRunning, Conflict, TopicFenced
from pydanube.model.ids import TopicId
from pydanube.model.segments import SegmentEntry
from pydanube_broker.storage.segments.removal_lock import RemovalLock
from pydanube_broker.storage.segments.topic_log import TopicLog


class Manifest(Protocol):
    """
    The list of segments of every topic.

    Each change is atomic and compares the epoch of the topic, or of its shard, so that
    a fenced broker cannot change a topic.
    """

    async def load(self, topic_id: TopicId) -> tuple[SegmentEntry, ...]:
        """Return all segments of the topic, sorted by offset."""

    async def load_each(
        self, topic_ids: Sequence[TopicId]
    ) -> list[tuple[SegmentEntry, ...]]:
        """Return for each topic what ``load`` does."""

    def all_segments(
        self, after: str = ""
    ) -> AsyncIterator[tuple[TopicId, SegmentEntry]]:
        """
        Yield all segments of all topics, sorted by ``position_of``.

        Only those whose position is greater than *after*.
        """
        ...

    def transferable_segments(self) -> AsyncIterator[tuple[TopicId, SegmentEntry]]:
        """
        Yield the segments that this broker may upload or evict, sorted likewise.

        Segments of topics that are not open are included.
        """
        ...

    async def held_topics(self) -> set[TopicId]:
        """Return the topics with retention holds, whose local copies are kept."""

    async def change(
        self,
        topic_id: TopicId,
        epoch: int,
        *,
        shard: int | None = None,
        removed: Sequence[SegmentEntry] = (),
        added: Sequence[SegmentEntry] = (),
    ) -> None:
        """
        Remove segments from the topic and add others, atomically.

        *shard* is that of the topic, if the broker is in a cluster; then *epoch* is
        compared with that of the shard.

        Removing an absent segment, or adding a segment again, changes nothing.  Many
        segments may be removed in several changes, in the given order, if none is
        added.

        Raises:
            TopicFenced: The topic or its shard has a newer epoch than *epoch*.
        """


def position_of(topic_id: TopicId, base: int) -> str:
    """Return the position of a segment among all segments; they are sorted as text."""
    return f"{topic_id}/{base:020d}"


class HoldableManifest(Manifest):
    """A manifest that refuses to remove segments while a backup copies them."""

    def __init__(self, manifest: Manifest, lock: RemovalLock | None = None) -> None:
        """*lock* is that of all processes of the broker, if it has several."""
        self._is_held = False
        self._manifest = manifest
        self._removals = asyncio.Lock()
        self._lock = lock

    @property
    def is_held(self) -> bool:
        """Whether segments must not be removed now."""
        return self._is_held or (self._lock is not None and self._lock.is_held)

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """
        Refuse removals during the body; those that have begun end before it.

        Raises:
            BackupRunning: It is held already.
        """
        if self._is_held:
            raise BackupRunning("a backup is being made; only one runs at a time")
        self._is_held = True
        try:
            async with self._removals:
                pass
            async with nullcontext() if self._lock is None else self._lock.keeping():
                yield
        finally:
            self._is_held = False

    def check_not_held(self) -> None:
        """
        Raise if segments must not be removed now.

        Raises:
            BackupRunning: They must not.
        """
        if self.is_held:
            raise BackupRunning(
                "a backup is being made and keeps all segments; try again when it is "
                "finished ('danube backup status')"
            )

    async def load(self, topic_id: TopicId) -> tuple[SegmentEntry, ...]:
        return await self._manifest.load(topic_id)

    async def load_each(
        self, topic_ids: Sequence[TopicId]
    ) -> list[tuple[SegmentEntry, ...]]:
        return await self._manifest.load_each(topic_ids)

    def all_segments(
        self, after: str = ""
    ) -> AsyncIterator[tuple[TopicId, SegmentEntry]]:
        return self._manifest.all_segments(after)

    def transferable_segments(self) -> AsyncIterator[tuple[TopicId, SegmentEntry]]:
        return self._manifest.transferable_segments()

    async def held_topics(self) -> set[TopicId]:
        return await self._manifest.held_topics()

    async def change(
        self,
        topic_id: TopicId,
        epoch: int,
        *,
        shard: int | None = None,
        removed: Sequence[SegmentEntry] = (),
        added: Sequence[SegmentEntry] = (),
    ) -> None:
        if not removed:
            await self._manifest.change(topic_id, epoch, shard=shard, added=added)
            return
        async with self._removals:
            self.check_not_held()
            with nullcontext() if self._lock is None else self._lock.removing():
                await self._manifest.change(
                    topic_id, epoch, shard=shard, removed=removed, added=added
                )

    async def remove_lost(
        self,
        topic_id: TopicId,
        epoch: int,
        *,
        shard: int | None,
        lost: Sequence[SegmentEntry],
    ) -> None:
        """Remove segments that no backup can have, because their objects are lost."""
        await self._manifest.change(topic_id, epoch, shard=shard, removed=lost)


async def change_manifest(
    manifest: Manifest,
    topic_log: TopicLog,
    *,
    removed: Sequence[SegmentEntry] = (),
    added: Sequence[SegmentEntry] = (),
) -> None:
    """
    Change the list of a topic's segments; see ``Manifest.change``.

    If the outcome of an earlier replacement is unknown, it is undone first: the other
    changes of a topic rely on the segments that its log has.

    Raises:
        TopicFenced: Another broker writes this log now; it accepts no more batches.
    """

    async def change(
        removed: Sequence[SegmentEntry], added: Sequence[SegmentEntry]
    ) -> None:
        await manifest.change(
            topic_log.topic_id,
            topic_log.epoch,
            shard=topic_log.shard,
            removed=removed,
            added=added,
        )

    try:
        if topic_log.unsettled is not None:
            old, new = topic_log.unsettled
            await change(new, old)
            topic_log.unsettled = None
        try:
            await change(removed, added)
        except Conflict:
            raise
        except BaseException:
            if removed and added:
                topic_log.unsettled = removed, added
            raise
    except TopicFenced as error:
        topic_log.refusal = error
        raise
