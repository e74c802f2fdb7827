"""
Topics that are not open: what is known of them, and which have segments to drop.

Nothing here writes, and nothing is kept.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from pydanube.aio.long_work import LongWork
from pydanube.model.ids import Epoch, Offset, TopicId
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.policy import KEEP_ALL, Retention, TopicPolicy
from pydanube.model.segments import SegmentEntry
from pydanube_broker.storage.journal.journal import Journal
from pydanube_broker.storage.journal.unsealed import uploaded_of
from pydanube_broker.storage.segments.manifest import Manifest
from pydanube_broker.storage.segments.retention import plan_drops
from pydanube_broker.storage.segments.segment_cache import SegmentCache
from pydanube_broker.storage.segments.topic_log import TailMemory, TopicLog


@dataclass(frozen=True, slots=True)
class IdleLog:
    """The log of a topic that is not open, and whose messages are all in segments."""

    segments: tuple[SegmentEntry, ...]
    end_offset: Offset
    epoch: Epoch
    """The epoch with which it was open last; 0 if it never was."""

    @property
    def base_offset(self) -> Offset:
        """The first offset that can be read; the end if the log is empty."""
        return Offset(self.segments[0].base) if self.segments else self.end_offset


class IdleLogs:
    """The logs of a broker's topics that are not open."""

    def __init__(
        self,
        opened: Mapping[TopicId, TopicLog],
        journal: Journal,
        manifest: Manifest,
        *,
        cache: SegmentCache,
        memory: TailMemory,
        clock: Callable[[], float],
        wall_clock: Callable[[], int],
    ) -> None:
        """*opened* are the logs that are open."""
        self._opened = opened
        self._journal = journal
        self._manifest = manifest
        self._cache = cache
        self._memory = memory
        self._clock = clock
        self._wall_clock = wall_clock

    async def find(self, topic_ids: Sequence[TopicId]) -> list[IdleLog | None]:
        """
        Return what is known of topics that are not open.

        It is None for those that are open, and those that must be opened: messages of
        them are in the journal alone, messages have failed, or the manifest names
        segments that opening removes from it.

        Raises:
            MetadataUnavailable: The segments cannot be listed.
        """
        loaded = await self._manifest.load_each(topic_ids)
        return [self._known(*each) for each in zip(topic_ids, loaded, strict=True)]

    def _known(
        self, topic_id: TopicId, segments: tuple[SegmentEntry, ...]
    ) -> IdleLog | None:
        if topic_id in self._opened or self._journal.recovered.get(topic_id):
            return None
        # Others may exist only where an earlier owner, or a lost disk, has left them.
        is_whole = len(uploaded_of(segments)) == len(segments)
        if self._journal.outlives_disk and not is_whole:
            return None
        end = segments[-1].end if segments else 0
        state = self._journal.state.topics.get(topic_id)
        if state is None:
            return IdleLog(segments, Offset(end), Epoch(0))
        if state.sealed_offset < state.end_offset or state.has_failures:
            return None
        return IdleLog(segments, max(Offset(end), state.end_offset), state.epoch)

    def view(
        self,
        topic_id: TopicId,
        name: str,
        epoch: Epoch,
        policy: TopicPolicy,
        known: IdleLog,
        *,
        shard: int | None,
        start_offset: int,
    ) -> TopicLog:
        """Return a log that can be read, and to which nothing may be appended."""
        return TopicLog(
            topic_id,
            name,
            epoch,
            policy,
            journal=self._journal,
            cache=self._cache,
            memory=self._memory,
            clock=self._clock,
            segments=known.segments,
            sealed_offset=max(known.end_offset, Offset(start_offset)),
            shard=shard,
            start_offset=start_offset,
        )

    async def find_drops(
        self, retentions: Mapping[TopicId, Retention], starts: Mapping[TopicId, int]
    ) -> set[TopicId]:
        """
        Return the topics with segments that their *retentions* drop, and without holds.

        *retentions* are those of all topics of this broker, and *starts* the start
        offsets of those that were trimmed.  What is dropped is decided again when a
        topic is open, because only then all its subscriptions are known.

        Raises:
            MetadataUnavailable: The segments cannot be listed.
        """
        idle, work = dict[TopicId, Retention](), LongWork()
        for topic_id, retention in retentions.items():
            await work.did()
            is_limited = retention != KEEP_ALL or topic_id in starts
            if is_limited and topic_id not in self._opened:
                idle[topic_id] = retention
        if not idle:
            return set()
        for topic_id in await self._manifest.held_topics():
            idle.pop(topic_id, None)
        found = set()
        async for topic_id, segments in _segments_by_topic(self._manifest):
            await work.did(len(segments))
            if topic_id not in idle:
                continue
            state = self._journal.state.topics.get(topic_id)
            cursors = () if state is None else state.cursors.values()
            drops = plan_drops(
                segments,
                idle[topic_id],
                tail_bytes=0,
                now=self._wall_clock(),
                cursors=[cursor.offset for cursor in cursors],
                start_offset=starts.get(topic_id, 0),
            )
            if drops:
                found.add(topic_id)
        return found


async def _segments_by_topic(
    manifest: Manifest,
) -> AsyncIterator[tuple[TopicId, list[SegmentEntry]]]:
    previous, segments = None, list[SegmentEntry]()
    async for topic_id, entry in manifest.all_segments():
        if previous is not None and topic_id != previous:
            yield previous, segments
            segments = []
        previous = topic_id
        segments.append(entry)
    if previous is not None:
        yield previous, segments
