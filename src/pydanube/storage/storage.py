"""Storage: the logs of all topics of a broker, over one journal."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from pydanube.model.errors import (
    BrokerError,
    CorruptJournal,
    DiskFull,
    InconsistentDirectory,
    TopicFenced,
    TopicHeld,
    TopicNotFound,
)
from pydanube.model.ids import Epoch, Offset, ProducerId, TopicId
from pydanube.storage.journal import complete_future, open_journal
from pydanube.storage.replacement import (
    REPLACED_MAX,
    plan_replacement,
    verify_replacement,
)
from pydanube.storage.sealing import Sealer, pressure_bytes
from pydanube.storage.segment_cache import SegmentCache
from pydanube.storage.segments import topic_id_of
from pydanube.storage.topic_log import TailMemory, TopicLog
from pydanube.wire.files.journal_format import (
    CursorSaved,
    CursorState,
    MetadataRevision,
    ProducerDeleted,
    ProducerOpened,
    SubscriptionDeleted,
    TopicDeleted,
    TopicOpened,
)
from pydanube.wire.files.segment_format import object_prefix, parse_object_name

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from pydanube.model.policy import TopicPolicy
    from pydanube.storage.config import StorageConfig
    from pydanube.storage.files import Files
    from pydanube.storage.journal import Done, Journal
    from pydanube.storage.manifest import Manifest, SegmentEntry
    from pydanube.storage.objects import Objects
    from pydanube.storage.recovery import JournalPosition
    from pydanube.storage.replacement import Replacement
    from pydanube.storage.reserve import Reserve
    from pydanube.storage.state import TopicState
    from pydanube.wire.batches import BatchFrame
    from pydanube.wire.files.journal_format import Entry

PROBLEMS_MAX = 10
"""The most topics named among the problems of storage."""

# One row group for a reader who waits, one that is read ahead.
_READ_THREADS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageStats:
    """Storage in numbers, at one moment; counts are since the start."""

    topic_count: int
    tail_bytes: int
    tail_memory_bytes: int
    journal_bytes: int
    journal_file_count: int
    journal_pending_bytes: int
    journal_commit_count: int
    journal_sync_count: int
    journal_commit_s: float
    journal_committed_bytes: int
    segment_count: int
    segment_bytes: int
    sealed_count: int
    sealed_messages: int
    seal_failure_count: int
    is_disk_full: bool
    failing_topic_count: int
    """The topics whose sealing fails at the moment."""
    dropped_count: int
    corrupt_segment_count: int
    cache_bytes: int
    cache_hit_count: int
    cache_miss_count: int


class Storage:
    """
    The logs of all topics of a broker; see open_storage().

    All of it belongs to one event loop.
    """

    def __init__(
        self,
        journal: Journal,
        sealer: Sealer,
        cache: SegmentCache,
        memory: TailMemory,
        logs: dict[TopicId, TopicLog],
        *,
        config: StorageConfig,
        objects: Objects,
        manifest: Manifest,
        clock: Callable[[], float],
        wall_clock: Callable[[], int],
    ) -> None:
        self.recovered: list[tuple[TopicId, str]] = [
            (topic_id, topic.name) for topic_id, topic in journal.state.topics.items()
        ]
        """The topics that the journal knew at the start, with their names."""
        self._journal = journal
        self._sealer = sealer
        self._cache = cache
        self._memory = memory
        self._logs = logs
        self._config = config
        self._objects = objects
        self._manifest = manifest
        self._clock = clock
        self._wall_clock = wall_clock
        self._loop = asyncio.get_running_loop()

    async def open_log(
        self, topic_id: TopicId, name: object, epoch: Epoch, policy: TopicPolicy
    ) -> TopicLog:
        """
        The log of a topic, as the journal and the manifest have it.

        Durability: That it is open, under this epoch, is on disk on return.

        Cancellation: The log may or may not be open; it can be opened again.

        Raises:
            CorruptJournal: Messages are neither in the journal nor in a segment.
            InconsistentDirectory: The object store has later messages of the topic
                than the journal: the journal and the manifest are older than it.
        """
        assert topic_id not in self._logs, f"topic {topic_id} is open already"
        segments = await self._manifest.load(topic_id)
        frames, sealed_offset, end_offset = self._find_unsealed(topic_id, segments)
        await self._check_objects(topic_id, str(name), segments, end_offset)
        topic_log = TopicLog(
            topic_id,
            str(name),
            epoch,
            policy,
            journal=self._journal,
            cache=self._cache,
            memory=self._memory,
            clock=self._clock,
            segments=segments,
            sealed_offset=sealed_offset,
        )
        opened = TopicOpened(
            topic_id=topic_id,
            name=str(name),
            epoch=epoch,
            end_offset=end_offset,
            sealed_offset=sealed_offset,
        )
        try:
            await self._append(opened)
        except BaseException:
            topic_log.discard()
            raise
        topic_log.restore(frames, self._clock())
        self._journal.recovered.pop(topic_id, None)
        self._logs[topic_id] = topic_log
        self._sealer.on_opened(topic_log)
        return topic_log

    def _find_unsealed(
        self, topic_id: TopicId, segments: tuple[SegmentEntry, ...]
    ) -> tuple[list[BatchFrame], Offset, Offset]:
        """What of a topic is not in *segments*; where it is sealed, where it ends."""
        sealed_offset = end_offset = segments[-1].end if segments else 0
        state = self.find_state(topic_id)
        if state is not None:
            # The manifest may be ahead, if a crash came before the journal was
            # told; and the journal may be, if retention has dropped the rest.
            sealed_offset = max(sealed_offset, state.sealed_offset)
            end_offset = max(end_offset, state.end_offset)
        frames = [
            # A segment of another broker may end inside of a batch of ours.
            frame if frame.base >= sealed_offset else frame.slice(sealed_offset, end)
            for frame in self._journal.recovered.get(topic_id, ())
            if (end := frame.end) > sealed_offset
        ]
        begin = frames[0].base if frames else end_offset
        if begin > sealed_offset:
            raise CorruptJournal(
                f"topic {topic_id}: messages {sealed_offset} to {begin} are neither in "
                f"the journal, which begins with {self._journal.first_name}, nor in a "
                "segment"
            )
        return frames, Offset(sealed_offset), Offset(end_offset)

    async def _check_objects(
        self,
        topic_id: TopicId,
        topic: str,
        segments: tuple[SegmentEntry, ...],
        end_offset: Offset,
    ) -> None:
        """Raise if an object has messages of the topic from *end_offset* on."""
        known = {segment.object_name for segment in segments}
        for name in await self._objects.names(object_prefix(self._config.root, topic)):
            parsed = parse_object_name(name)
            if parsed is None or name in known or parsed.end <= end_offset:
                continue
            # A topic of the same name may have been deleted.
            if await asyncio.to_thread(_is_of_topic, self._objects, topic_id, name):
                raise InconsistentDirectory(
                    f"topic {topic}: the object {name} has messages up to offset "
                    f"{parsed.end}, the journal and the metadata know {end_offset}; "
                    "they are older than the object store. Put the later ones back, or "
                    f"run 'danube recover --from-segments --accept-loss'"
                )

    async def delete_topic(self, topic_id: TopicId) -> None:
        """
        Forget the topic: its messages, segments, cursors and producers.

        Durability: On return it is gone for good.  If it fails or a crash comes,
            some of it may be gone; ``recovered`` names the topic then, to delete
            it again.

        Raises:
            TopicFenced: Another broker has claimed the topic; nothing of its
                history was deleted.
            ObjectsUnavailable, MetadataUnavailable, DiskFull: Try again.
        """
        topic_log = self._logs.get(topic_id)
        if topic_log is None:
            await self._delete_history(topic_id)
            return
        topic_log.refuse(TopicNotFound(f"the topic {topic_log.name} is deleted"))
        async with topic_log.maintenance:
            await self._delete_history(topic_id)
            self._logs.pop(topic_id, None)
            topic_log.discard()
        self._sealer.on_memory_freed()
        await self._sealer.remove_files()

    async def _delete_history(self, topic_id: TopicId) -> None:
        topic_log, state = self._logs.get(topic_id), self.find_state(topic_id)
        segments = await self._manifest.load(topic_id)
        if segments:
            if topic_log is not None:
                epoch = topic_log.epoch
            else:
                epoch = state.epoch if state is not None else Epoch(segments[-1].epoch)
            await self._manifest.drop(topic_id, segments, epoch)
        names = {segment.object_name for segment in segments}
        known = topic_log or state
        if known is not None:
            names |= await self._find_objects(topic_id, known.name)
        for object_name in sorted(names):
            await self._objects.delete(object_name)
        # Last, so that after a crash the topic is found, to be deleted again.
        await self._append(TopicDeleted(topic_id))
        self._journal.recovered.pop(topic_id, None)

    async def _find_objects(self, topic_id: TopicId, topic: str) -> set[str]:
        """The topic's objects, also those that the manifest does not know."""
        # A topic of the same name may have been created again: the files
        # themselves say whose they are.
        names = await self._objects.names(object_prefix(self._config.root, topic))
        is_ours = partial(_is_of_topic, self._objects, topic_id)
        ours = [await asyncio.to_thread(is_ours, name) for name in names]
        return {name for name, mine in zip(names, ours, strict=True) if mine}

    def find_log(self, topic_id: TopicId) -> TopicLog | None:
        """The topic's log, if it is open."""
        return self._logs.get(topic_id)

    def find_state(self, topic_id: TopicId) -> TopicState | None:
        """What is committed about a topic; to be read, not to be changed."""
        return self._journal.state.topics.get(topic_id)

    def has_recovered(self, topic_id: TopicId) -> bool:
        """
        Whether a topic that is not open yet has messages that are not sealed.

        Until it is opened or deleted it keeps its journal files.  If the journal has
        lost these messages, opening it tells so.
        """
        state = self.find_state(topic_id)
        return bool(self._journal.recovered.get(topic_id)) or (
            state is not None and state.sealed_offset < state.end_offset
        )

    @property
    def journal_end(self) -> JournalPosition:
        """Everything in the journal before this is on disk, for good."""
        return self._journal.durable_end

    def note_metadata_revision(self, revision: int) -> None:
        """
        Remember that the metadata store has *revision* on disk.

        Durability: It goes to disk with whatever is synced next.
        """
        # Without the note a loss of metadata may go unnoticed; that is all.
        with suppress(BrokerError):
            self._journal.append(MetadataRevision(revision), None, sync=False)

    def segment_url(self, segment: SegmentEntry) -> str:
        """Where any engine can read the segment."""
        return self._objects.url(segment.object_name)

    def save_cursor(
        self,
        topic_id: TopicId,
        subscription: str,
        cursor: CursorState,
        done: Done | None = None,
    ) -> None:
        """
        Remember how far a subscription is.

        Durability: With *done* it is on disk when *done* is told None.  Without,
            it goes to disk with whatever is synced next.
        """
        self._save(topic_id, CursorSaved(topic_id, subscription, cursor), done)

    def delete_cursor(
        self, topic_id: TopicId, subscription: str, done: Done | None = None
    ) -> None:
        """Forget a subscription's cursor; see save_cursor()."""
        self._save(topic_id, SubscriptionDeleted(topic_id, subscription), done)

    def save_producer(
        self,
        topic_id: TopicId,
        name: str,
        producer_id: ProducerId | int,
        epoch: Epoch | int,
        done: Done | None = None,
    ) -> None:
        """
        Remember that a producer came; see save_cursor().

        What is known of an earlier one with the same name and id stays known.
        """
        opened = ProducerOpened(
            topic_id=topic_id,
            name=name,
            producer_id=ProducerId(producer_id),
            epoch=Epoch(epoch),
        )
        self._save(topic_id, opened, done)

    def delete_producer(
        self, topic_id: TopicId, name: str, done: Done | None = None
    ) -> None:
        """Forget a producer; see save_cursor()."""
        self._save(topic_id, ProducerDeleted(topic_id, name), done)

    async def seal(self, topic_id: TopicId) -> None:
        """
        Seal all messages of a topic that are committed at this moment.

        Raises:
            TopicNotFound: The topic is not open.
            TopicFenced: Another broker writes this log now.
            ObjectsUnavailable, MetadataUnavailable: Try again.
        """
        topic_log = self._logs.get(topic_id)
        if topic_log is None:
            raise TopicNotFound(f"topic {topic_id} is not open here")
        await self._sealer.seal(topic_log)

    async def replace_segments(
        self,
        topic_id: TopicId,
        old_names: Sequence[str],
        replacements: Sequence[Replacement],
    ) -> tuple[SegmentEntry, ...]:
        """
        Put the *replacements* in the place of the segments called *old_names*.

        They are read whole and compared with what they replace; then the manifest is
        changed with one transaction.  The old objects stay for ``replaced_keep_s``.

        Durability: On return the topic consists of them, whatever happens; if it
            fails, of the old ones.

        Raises:
            TopicNotFound: The topic is not open.
            TopicHeld: Its segments are to stay as they are.
            SegmentsChanged: It does not consist of the old ones any more, or the
                objects are not there; plan anew.
            InvalidRequest: The objects cannot take their place.
            TopicFenced: Another broker writes this log now.
            MetadataUnavailable: Nobody knows; ask which segments there are.
        """
        topic_log = self._logs.get(topic_id)
        if topic_log is None:
            raise TopicNotFound(f"topic {topic_id} is not open here")
        async with topic_log.maintenance:
            if topic_log.refusal is not None:
                raise topic_log.refusal.with_traceback(None)
            check_not_held(topic_log)
            found = [
                await asyncio.to_thread(
                    verify_replacement,
                    each,
                    partial(self._objects.open, each.object_name),
                )
                for each in replacements[: REPLACED_MAX + 1]
            ]
            old, new = plan_replacement(
                topic_log.segments,
                old_names,
                found,
                topic=topic_log.name,
                topic_id=topic_id,
                epoch=topic_log.epoch,
                root=self._config.root,
                now=self._wall_clock(),
            )
            try:
                await self._manifest.replace(topic_id, old, new, topic_log.epoch)
            except TopicFenced as error:
                topic_log.refuse(error)
                raise
            topic_log.on_replaced(old, new)
            self._sealer.delete_later(topic_log, [each.object_name for each in old])
        return new

    async def apply_retention(self, topic_id: TopicId) -> None:
        """Drop at once what the topic's policy does not keep; see seal()."""
        topic_log = self._logs.get(topic_id)
        if topic_log is None:
            raise TopicNotFound(f"topic {topic_id} is not open here")
        await self._sealer.apply_retention(topic_log)

    async def sync(self) -> None:
        """
        Return when everything that was appended or saved is on disk.

        Raises:
            DiskFull, JournalFailed, Closed: It is not, or nobody knows.
        """
        await self._journal.sync()

    @property
    def failure(self) -> BrokerError | None:
        """Why nothing can be stored any more, until a restart; usually None."""
        return self._journal.failure

    def check_disk(self) -> None:
        """
        Raise if nothing may be published or staged, because the disk is full.

        Raises:
            DiskFull: It is, and what was reserved serves deletions, cursors and
                metadata.
        """
        reserve = self._journal.reserve
        if reserve.is_released:
            raise DiskFull(reserve.refusal)

    @property
    def has_room(self) -> bool:
        """Whether publishers may go on: disk and sealing keep up."""
        return self._journal.has_room and self._memory.has_room

    @property
    def problems(self) -> list[str]:
        """
        Describe what is not well, for administrators; nothing is, if it is empty.

        Bounds: At most ``PROBLEMS_MAX`` topics are named.
        """
        problems = []
        memory = self._memory
        if not memory.has_room:
            problems.append(
                f"publishing waits: unsealed messages take {memory.sealable_bytes} "
                f"bytes of memory, and {memory.sealable_bytes_max} are allowed "
                "(storage.tail_bytes_max, less what topics hold whose sealing fails)"
            )
        if not self._journal.has_room:
            problems.append(
                f"publishing waits: {self._journal.pending_bytes} bytes wait for the "
                "disk (storage.journal.pending_bytes_max)"
            )
        failing = self._sealer.failing
        problems += [
            f"sealing {each.topic} fails since {_iso_time(each.since)}: {each.error}"
            for each in failing[:PROBLEMS_MAX]
        ]
        if len(failing) > PROBLEMS_MAX:
            problems.append(f"sealing {len(failing) - PROBLEMS_MAX} more topics fails")
        return problems

    async def room(self) -> None:
        """Return when publishers may go on, or the journal has failed."""
        while not self.has_room and self._journal.failure is None:
            await self._journal.room()
            await self._sealer.room()

    @property
    def stats(self) -> StorageStats:
        """Storage in numbers."""
        journal, sealer, cache = self._journal, self._sealer, self._cache
        logs = self._logs.values()
        return StorageStats(
            topic_count=len(logs),
            tail_bytes=sum(each.tail_bytes for each in self._memory.unsealed.values()),
            tail_memory_bytes=self._memory.byte_count,
            journal_bytes=journal.byte_count,
            journal_file_count=journal.file_count,
            journal_pending_bytes=journal.pending_bytes,
            journal_commit_count=journal.commit_count,
            journal_sync_count=journal.sync_count,
            journal_commit_s=journal.commit_s,
            journal_committed_bytes=journal.committed_bytes,
            segment_count=sum(len(each.segments) for each in logs),
            segment_bytes=sum(each.segment_bytes for each in logs),
            sealed_count=sealer.sealed_count,
            sealed_messages=sealer.sealed_messages,
            seal_failure_count=sealer.failure_count,
            is_disk_full=journal.reserve.is_released,
            failing_topic_count=len(sealer.failing),
            dropped_count=sealer.dropped_count,
            corrupt_segment_count=self._corrupt_segment_count(),
            cache_bytes=cache.byte_count,
            cache_hit_count=cache.hit_count,
            cache_miss_count=cache.miss_count,
        )

    def _corrupt_segment_count(self) -> int:
        failing = self._cache.failing
        if not failing:
            return 0
        return sum(
            segment in failing
            for each in self._logs.values()
            for segment in each.segments
        )

    def _save(self, topic_id: TopicId, entry: Entry, done: Done | None) -> None:
        error: BrokerError
        if topic_id not in self._journal.state.topics:
            error = TopicNotFound(f"topic {topic_id} is not stored here")
        else:
            try:
                self._journal.append(entry, done, sync=done is not None)
            except BrokerError as failure:
                error = failure
            else:
                return
        if done is not None:
            self._loop.call_soon(done, error)

    async def _append(self, entry: Entry) -> None:
        committed: asyncio.Future[None] = self._loop.create_future()
        self._journal.append(entry, partial(complete_future, committed))
        await committed


def check_not_held(topic_log: TopicLog) -> None:
    """
    Let somebody pass who changes what is sealed of a topic.

    Raises:
        TopicHeld: It is to stay as it is.
    """
    if topic_log.holds:
        raise TopicHeld(
            f"{topic_log.name} is held by {', '.join(sorted(topic_log.holds))}: its "
            "segments stay as they are; release it first"
        )


def _is_of_topic(objects: Objects, topic_id: TopicId, name: str) -> bool:
    return topic_id_of(partial(objects.open, name)) == topic_id


def _iso_time(time_us: int) -> str:
    return datetime.fromtimestamp(time_us // 1_000_000, UTC).isoformat()


def _wall_clock_us() -> int:
    return time.time_ns() // 1000


@asynccontextmanager
async def open_storage(
    config: StorageConfig,
    *,
    files: Files,
    objects: Objects,
    manifest: Manifest,
    clock: Callable[[], float] = time.monotonic,
    wall_clock: Callable[[], int] = _wall_clock_us,
    reserve: Reserve | None = None,
    new_journal: Callable[..., AbstractAsyncContextManager[Journal]] = open_journal,
) -> AsyncIterator[Storage]:
    """
    Storage over *files*, recovered; while it is open, what is due is sealed.

    *reserve* is released when the disk is full; by default there is none.
    *wall_clock* tells microseconds since 1970, UTC; *new_journal* opens the journal
    in *files*.

    On leaving, what was appended is committed; what is in memory stays in the
    journal.  An error of the body leaves as it came.

    Raises:
        CorruptJournal: There is damage that a crash cannot explain.
        OSError: The files cannot be read or written.
    """
    logs: dict[TopicId, TopicLog] = {}
    memory = TailMemory(
        config.seal_bytes, pressure_bytes(config.tail_bytes_max), config.tail_bytes_max
    )
    body_error: Exception | None = None
    with (
        ThreadPoolExecutor(1, thread_name_prefix="seal") as seal_thread,
        ThreadPoolExecutor(_READ_THREADS, thread_name_prefix="segments") as readers,
    ):
        async with new_journal(
            files, config.journal, reserve=reserve, clock=clock
        ) as journal:
            sealer = Sealer(
                config,
                logs,
                memory,
                files=files,
                journal=journal,
                objects=objects,
                manifest=manifest,
                executor=seal_thread,
                clock=clock,
                wall_clock=wall_clock,
            )
            cache = SegmentCache(
                objects,
                readers,
                frame_bytes=config.frame_bytes,
                bytes_max=config.cache_bytes_max,
            )
            storage = Storage(
                journal,
                sealer,
                cache,
                memory,
                logs,
                config=config,
                objects=objects,
                manifest=manifest,
                clock=clock,
                wall_clock=wall_clock,
            )
            async with asyncio.TaskGroup() as tasks:
                sealing = tasks.create_task(sealer.run(), name="seal topics")
                try:
                    yield storage
                except Exception as error:  # noqa: BLE001 (raised again below)
                    body_error = error
                finally:
                    sealing.cancel()
    if body_error is not None:
        raise body_error
