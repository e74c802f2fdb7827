"""
Sealing: writing the tail of a topic as a segment.

seal_planning.py decides which topics are next.  The Sealer seals one
segment at a time: it writes the Parquet file in a worker thread, makes room for it on
the local disk, stores the object, updates the manifest, then the tail, then the
journal.  The manifest decides which
messages are sealed; the journal's entry only lets old files be removed.  A crash
between two steps leaves at most an orphan, or a tail whose messages recovery finds in
the manifest.

The objects of a maintenance run (see replacement.py) are orphans until they replace
segments.  All objects of a topic whose metadata was lost are orphans, too.  They are
therefore kept for a long time (``orphan_keep_s``), and the Sealer logs the name of each
one that it deletes.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from functools import partial
from heapq import heappop, heappush

import pyarrow as pa

from pydanube.aio.futures import completion
from pydanube.model.errors import BrokerError, DiskFull, TopicFenced
from pydanube.model.histograms import Histogram
from pydanube.model.ids import Offset, TopicId
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.policy import Durability, Retention
from pydanube.model.retry import RetryPolicy
from pydanube.model.segments import SegmentEntry
from pydanube.objects.store import NewObject, Objects
from pydanube.wire.batches import BatchFrame
from pydanube.wire.files.journal_format import TopicSealed
from pydanube.wire.files.segment_checksums import file_checksum, part_checksums_of
from pydanube.wire.files.segment_format import (
    SegmentIdentity,
    object_name,
    object_prefix,
    parse_object_name,
)
from pydanube_broker.storage.config import StorageConfig
from pydanube_broker.storage.journal.journal import Journal
from pydanube_broker.storage.segments.manifest import HoldableManifest, change_manifest
from pydanube_broker.storage.segments.retention import plan_drops
from pydanube_broker.storage.segments.seal_planning import (
    SealCandidate,
    plan_seals,
)
from pydanube_broker.storage.segments.segments import publish_times_of, write_frames
from pydanube_broker.storage.segments.tail import Tail
from pydanube_broker.storage.segments.topic_log import TailMemory, TopicLog

log = logging.getLogger(__name__)

_RETRIES = RetryPolicy(first_s=1.0, max_s=60.0)
_US_PER_S = 1_000_000
# After so many topics, other work has its turn.
_TOPICS_AT_ONCE = 100
ROW_GROUPS_IN_MEMORY = 2
"""Sealing decodes one row group, and has the columns that it encodes of it."""
PLAN_PACE = 9.0
"""A plan that finds nothing to seal is followed by a pause of this many times its own
time, so that plans take a tenth of the event loop at most."""
PAUSE_S_MAX = 0.25
LOG_INTERVAL_S = 10.0
"""The failures of all topics together are logged at most once in this time."""


@dataclass(slots=True)
class _Failures:
    """The consecutive failures of one topic."""

    count: int
    retry_at: float
    sealing: SealingFailure | None = None
    """Set if sealing has failed, not other work."""


@dataclass(frozen=True, slots=True)
class SealingFailure:
    """A topic whose sealing fails."""

    topic: str
    since: int
    """When it first failed, in microseconds since 1970, UTC."""
    error: str


@dataclass(frozen=True, slots=True)
class _DelayedDeletion:
    """Replaced objects of a topic, and when to delete them."""

    time: float
    topic_log: TopicLog
    names: tuple[str, ...]
    uploaded_end: int
    """The messages up to here must be uploaded first."""


class Sealer:
    """Seals topics, applies retention and deletes orphans; see run()."""

    def __init__(
        self,
        config: StorageConfig,
        logs: Mapping[TopicId, TopicLog],
        memory: TailMemory,
        *,
        journal: Journal,
        objects: Objects,
        manifest: HoldableManifest,
        executor: Executor,
        clock: Callable[[], float],
        wall_clock: Callable[[], int],
        on_sealed: Callable[[TopicId, Sequence[SegmentEntry]], None] | None,
        delete: Callable[[str], Awaitable[None]],
        room: Callable[[int], AbstractAsyncContextManager[None]],
    ) -> None:
        """
        *on_sealed* is called with each new segment.

        *delete* deletes an object, wherever it has copies.  *room* makes room for a
        segment of a size on the local disk.
        """
        self.sealing_seconds = Histogram()
        self.failure_count = 0
        self.room = room
        self._delete_object = delete
        self._on_sealed = on_sealed
        self._config = config
        self._logs = logs
        self._memory = memory
        self._journal = journal
        self._objects = objects
        self._manifest = manifest
        self._executor = executor
        self._clock = clock
        self._wall_clock = wall_clock
        self._failures: dict[TopicId, _Failures] = {}
        # Failures since the last one was logged, and when the next one may be.
        self._unlogged = 0
        self._log_next_at = float("-inf")
        # The rest of the last plan; to make a plan, every unsealed topic is examined.
        self._planned: deque[TopicId] = deque()
        self._is_urgent = False
        # Topics whose objects are to be searched for orphans: now, or at a time.
        self._opened: deque[TopicLog] = deque()
        self._plan_s = 0.0
        """The time that the last plan took."""
        self._searches: list[tuple[float, TopicId]] = []
        # Sorted by time.
        self._delayed_deletions: deque[_DelayedDeletion] = deque()
        self._retention_applied_at = clock()

    async def run(self) -> None:
        """
        Seal topics and apply retention, forever.

        A topic whose work fails is retried after growing pauses, while the others
        continue.

        Cancellation: Safe at any point; unfinished work is repeated.
        """
        while True:
            # Before the work: what becomes due meanwhile ends the wait below at once.
            self._memory.due.clear()
            await self._collect_all_orphans()
            await self._run_delayed_deletions()
            await self.trim_journal()
            await self._refill_reserve()
            if (
                self._clock() - self._retention_applied_at
                >= self._config.retention_interval_s
            ):
                await self._apply_all_retention()
            if await self._seal_next():
                continue
            if not self._opened:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._config.seal_interval_s):
                        await self._memory.due.wait()
            # A takeover opens topic after topic, and each plan looks at all of them.
            await asyncio.sleep(min(self._plan_s * PLAN_PACE, PAUSE_S_MAX))

    async def seal_now(self, topic_ids: set[TopicId] | None = None) -> None:
        """
        Seal the messages that these topics have now; None stands for all topics.

        Raises:
            DiskFull: The disk is full, so that nothing is sealed on request.
            ObjectsUnavailable, MetadataUnavailable: A topic cannot be sealed.
            TopicFenced: Another broker writes a topic now.
        """
        for topic_id, topic_log in list(self._memory.unsealed.items()):
            if topic_ids is not None and topic_id not in topic_ids:
                continue
            # Not what is published meanwhile: a busy topic would never be done.
            end = topic_log.end_offset
            while topic_log.sealed_offset < end and topic_log.refusal is None:
                reserve = self._journal.reserve
                if reserve.is_released:
                    raise DiskFull(reserve.refusal)
                await self._seal_one(topic_log)

    @property
    def failing(self) -> list[SealingFailure]:
        """The topics whose sealing fails; the ones that have failed longest first."""
        failing = [
            failures.sealing
            for topic_id, failures in self._failures.items()
            if failures.sealing is not None and topic_id in self._logs
        ]
        return sorted(failing, key=lambda each: each.since)

    def on_opened(self, topic_log: TopicLog) -> None:
        """Search a newly opened log for orphans soon."""
        self._opened.append(topic_log)
        self._memory.due.set()

    def delete_later(
        self, topic_log: TopicLog, names: Iterable[str], *, uploaded_end: int = 0
    ) -> None:
        """
        Delete these objects after ``replaced_keep_s``; readers may have them open.

        They stay until the topic's messages up to *uploaded_end* are uploaded.  If the
        broker stops earlier, they are orphans.
        """
        time = self._clock() + self._config.replaced_keep_s
        self._delayed_deletions.append(
            _DelayedDeletion(time, topic_log, tuple(names), uploaded_end)
        )

    # The parts of run().

    async def _seal_next(self) -> bool:
        """Seal one segment of the most urgent topic; return whether there was one."""
        if self._journal.reserve.is_released:
            return await self._seal_smallest()
        now = self._clock()
        if not self._planned or (not self._is_urgent and self._is_under_pressure()):
            self._plan(now)
        topic_log = self._next_planned()
        if topic_log is None:
            return False
        work = self._seal_one(topic_log)
        if await self._attempt(topic_log, work, is_sealing=True):
            self._failures.pop(topic_log.topic_id, None)
        if not self._is_urgent:
            spent = self._clock() - now
            await asyncio.sleep(spent * self._config.seal_pace)
        return True

    async def _seal_smallest(self) -> bool:
        """
        On a full disk, seal the smallest topic, unless that takes too much space.

        A few messages may be all that keeps a journal file from being deleted.
        """
        reserve = self._journal.reserve
        loads = sorted(
            self._candidates(self._clock()), key=lambda load: load.byte_count
        )
        if not loads or loads[0].byte_count > reserve.sealing_bytes_left:
            return False
        reserve.sealing_bytes_left -= loads[0].byte_count
        topic_log = self._logs[loads[0].topic_id]
        work = self._seal_one(topic_log)
        return await self._attempt(topic_log, work, is_sealing=True)

    async def _refill_reserve(self) -> None:
        """If the disk was full, try to reserve the space again."""
        reserve = self._journal.reserve
        if not reserve.is_released:
            return
        self._journal.roll_if_useless(self._sealed_offset_of)
        if not reserve.is_blocking:
            reserve.refill()
            return
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._executor, reserve.refill)

    def _is_under_pressure(self) -> bool:
        return (
            self._memory.is_under_pressure
            or self._journal.byte_count > self._config.journal_bytes_max
        )

    def _plan(self, now: float) -> None:
        plan = plan_seals(
            self._candidates(now),
            now=now,
            tail_bytes=self._memory.sealable_bytes,
            tail_bytes_max=self._memory.sealable_bytes_max,
            journal_bytes=self._journal.byte_count,
            has_many_groups=self._journal.has_many_groups,
            entry_count=self._journal.entry_count,
            config=self._config,
        )
        self._plan_s = self._clock() - now
        self._planned.clear()
        self._planned.extend(plan.topics)
        self._is_urgent = plan.is_urgent

    def _next_planned(self) -> TopicLog | None:
        """Return the next planned topic that still has unsealed messages."""
        while self._planned:
            topic_log = self._memory.unsealed.get(self._planned.popleft())
            if topic_log is not None and topic_log.refusal is None:
                return topic_log
        return None

    def _candidates(self, now: float) -> Iterable[SealCandidate]:
        oldest = self._journal.oldest_ends()
        for topic_id, topic_log in self._memory.unsealed.items():
            time = topic_log.tail.oldest_time
            if time is None or topic_log.refusal is not None:
                continue
            failures = self._failures.get(topic_id)
            if failures is not None and failures.retry_at > now:
                continue
            seal_age_s = topic_log.policy.seal_age_s
            yield SealCandidate(
                topic_id,
                topic_log.tail.memory_bytes,
                topic_log.tail.held_bytes,
                time,
                topic_log.seal_bytes,
                self._config.seal_age_s if seal_age_s is None else seal_age_s,
                oldest.get(topic_id, 0) > topic_log.sealed_offset,
            )

    async def _attempt(
        self, topic_log: TopicLog, work: Awaitable[object], *, is_sealing: bool = False
    ) -> bool:
        """Do *work* for one topic; return whether it succeeded."""
        # One failing topic must not keep the others from being sealed.
        try:
            await work
        except TopicFenced as error:
            log.warning("topic %s is fenced: %s", topic_log.name, error)
        except Exception as error:  # noqa: BLE001  # Logged, with its traceback.
            self._on_failure(topic_log, error, is_sealing=is_sealing)
        else:
            return True
        return False

    def _on_failure(
        self, topic_log: TopicLog, error: Exception, *, is_sealing: bool
    ) -> None:
        self.failure_count += 1
        now = self._clock()
        failures = self._failures.setdefault(topic_log.topic_id, _Failures(0, now))
        failures.count += 1
        delay_s = _RETRIES.delay_s(failures.count)
        failures.retry_at = now + delay_s
        if is_sealing:
            since = self._wall_clock()
            if failures.sealing is not None:
                since = failures.sealing.since
            failures.sealing = SealingFailure(topic_log.name, since, str(error))
            topic_log.on_seal_failed(error)
        if now < self._log_next_at:
            self._unlogged += 1
            return
        log.warning(
            "topic %s cannot be %s (failure %d in a row, %d of other topics not "
            "logged); it is tried again in %g s: %s",
            topic_log.name,
            "sealed" if is_sealing else "cleaned up",
            failures.count,
            self._unlogged,
            delay_s,
            error,
            exc_info=None if isinstance(error, BrokerError) else error,
        )
        self._unlogged = 0
        self._log_next_at = now + LOG_INTERVAL_S

    async def _seal_one(self, topic_log: TopicLog) -> None:
        new = self._objects.new_object()
        try:
            await self._seal_as(topic_log, new)
        finally:
            # Unless it was stored.
            new.discard()

    async def _seal_as(self, topic_log: TopicLog, new: NewObject) -> None:
        begun_at, tail = self._clock(), topic_log.tail
        if not (frames := tail.frames_from(tail.base, topic_log.seal_bytes)):
            return
        # Without the lock of the topic, since it takes long.
        with self._memory.sealing(self._sealing_bytes_of(tail)):
            segment = await self._write(topic_log, frames, new)
        # What the tail forgets below is to be free at once.
        del frames
        # The room first, because making it takes the locks of topics.
        async with self.room(segment.byte_count), topic_log.maintenance:
            if tail.base != segment.base:
                # It was sealed or deleted meanwhile.
                return
            await self._store(topic_log, new, segment)
            if topic_log.is_released:
                # Another broker has read the messages in the journal.
                return
            topic_log.on_sealed(segment)
            if self._on_sealed is not None:
                self._on_sealed(topic_log.topic_id, [segment])
            topic_log.on_seal_recovered()
        self.sealing_seconds.observe(self._clock() - begun_at)
        # After the manifest: recovery must not skip messages that no segment has.
        await self._append_sealed(topic_log, segment)
        await self.trim_journal()

    def _sealing_bytes_of(self, tail: Tail) -> int:
        """Return about how much memory it takes to write a segment of *tail*."""
        row_groups = ROW_GROUPS_IN_MEMORY * self._config.row_group_bytes
        return min(row_groups, tail.memory_bytes)

    async def _write(
        self, topic_log: TopicLog, frames: Sequence[BatchFrame], new: NewObject
    ) -> SegmentEntry:
        identity = SegmentIdentity(
            topic=topic_log.name, topic_id=topic_log.topic_id, epoch=topic_log.epoch
        )
        write = partial(
            write_segment_object, self._config, sealed_at=self._wall_clock()
        )
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, write, frames, identity, new)

    async def _store(
        self, topic_log: TopicLog, new: NewObject, segment: SegmentEntry
    ) -> None:
        if topic_log.policy.durability is not Durability.DURABLE:
            # Otherwise a power failure could leave the segment but lose the producers'
            # sequence numbers in the journal, and messages sent again would be stored
            # twice.
            await self._journal.sync()
        # The object first: readers rely on the objects that the manifest names.  If the
        # broker stops between the two, the object is an orphan.
        await self._objects.put_new(segment.object_name, new)
        await change_manifest(self._manifest, topic_log, added=[segment])

    async def _append_sealed(self, topic_log: TopicLog, segment: SegmentEntry) -> None:
        if topic_log.released_offset < segment.end:
            # The log does this when the segment is uploaded.
            return
        entry = TopicSealed(topic_log.topic_id, Offset(segment.end))
        try:
            await completion(partial(self._journal.append, entry))
        except BrokerError as error:
            # Go on and delete old files, which matters on a full disk.  Recovery reads
            # the manifest, so it does not need the entry.
            log.warning("cannot journal a seal of %s: %s", topic_log.name, error)

    async def trim_journal(self) -> None:
        """Remove the journal files that are not needed any more."""
        await self._journal.trim(self._sealed_offset_of, self._executor)

    def _sealed_offset_of(self, topic_id: TopicId) -> int | None:
        topic_log = self._logs.get(topic_id)
        if topic_log is not None:
            return topic_log.released_offset
        state = self._journal.state.topics.get(topic_id)
        return None if state is None else state.sealed_offset

    async def _apply_all_retention(self) -> None:
        self._retention_applied_at = self._clock()
        for number, topic_log in enumerate(list(self._logs.values()), 1):
            if topic_log.segments and topic_log.refusal is None:
                await self._attempt(topic_log, self.apply_retention(topic_log))
            if number % _TOPICS_AT_ONCE == 0:
                await asyncio.sleep(0)

    def plan_retention(
        self, topic_log: TopicLog, retention: Retention
    ) -> tuple[SegmentEntry, ...]:
        """Return the segments of a topic that *retention* does not keep."""
        return plan_drops(
            topic_log.segments,
            retention,
            tail_bytes=topic_log.tail.byte_count,
            now=self._wall_clock(),
            cursors=topic_log.find_cursors(),
            start_offset=topic_log.start_offset,
            is_held=bool(topic_log.holds),
            deduplication=topic_log.policy.deduplication,
        )

    async def apply_retention(self, topic_log: TopicLog) -> tuple[SegmentEntry, ...]:
        """
        Drop the segments that the topic's retention does not keep; return them.

        A topic that is deleted or fenced meanwhile keeps what it has.

        Durability: A segment is removed from the manifest before its object is
            deleted.  If the broker stops between the two, the object is an orphan.  If
            the object store fails, the deletion is tried again.

        Raises:
            TopicFenced: Another broker writes this log now; nothing was dropped.
            JournalFailed: The cursors are not on disk; nothing was dropped.
        """
        async with topic_log.maintenance:
            # Another topic may use the names of a deleted one.
            is_ours = self._logs.get(topic_log.topic_id) is topic_log
            is_refused = not is_ours or topic_log.refusal is not None
            if is_refused or self._manifest.is_held:
                return ()
            drops = self.plan_retention(topic_log, topic_log.retention)
            if not drops:
                return ()
            # It stays if the outcome of the change is unknown.
            topic_log.drop_end = Offset(drops[-1].end)
            if topic_log.retention.drops_acknowledged:
                # A power failure must not take the cursors back below the drops.
                await self._journal.sync()
            await change_manifest(self._manifest, topic_log, removed=drops)
            topic_log.on_dropped(len(drops))
            log.info(
                "topic %s: retention dropped %d segments (%d messages) up to offset %d",
                topic_log.name,
                len(drops),
                sum(each.count for each in drops),
                drops[-1].end - 1,
            )
            await self._delete_dropped(topic_log, drops)
            return drops

    async def _delete_dropped(
        self, topic_log: TopicLog, drops: Sequence[SegmentEntry]
    ) -> None:
        names = deque(segment.object_name for segment in drops)
        try:
            while names:
                await self._delete_object(names[0])
                names.popleft()
        except BrokerError as error:
            log.warning(
                "topic %s: %d objects of dropped segments are deleted later: %s",
                topic_log.name,
                len(names),
                error,
            )
            self.delete_later(topic_log, names)

    async def _collect_all_orphans(self) -> None:
        while self._searches and self._searches[0][0] <= self._clock():
            _, topic_id = heappop(self._searches)
            if topic_id in self._logs:
                self._opened.append(self._logs[topic_id])
        for _ in range(min(len(self._opened), _TOPICS_AT_ONCE)):
            topic_log = self._opened.popleft()
            if topic_log.refusal is None:
                await self._attempt(topic_log, self._collect_orphans(topic_log))

    async def _run_delayed_deletions(self) -> None:
        now = self._clock()
        for _ in range(len(self._delayed_deletions)):
            if self._delayed_deletions[0].time > now:
                return
            each = self._delayed_deletions.popleft()
            topic_log, end = each.topic_log, each.uploaded_end
            is_open = self._logs.get(topic_log.topic_id) is topic_log
            waits = is_open and topic_log.uploaded_offset < end
            if waits or not await self._attempt(topic_log, self._delete(each)):
                self.delete_later(topic_log, each.names, uploaded_end=end)

    async def _delete(self, retired: _DelayedDeletion) -> None:
        topic_log = retired.topic_log
        async with topic_log.maintenance:
            # A deleted topic has no objects, and another topic may use the names.
            if self._logs.get(topic_log.topic_id) is not topic_log:
                return
            for name in retired.names:
                await self._delete_object(name)

    async def _collect_orphans(self, topic_log: TopicLog) -> None:
        """Delete the old orphans of a topic; schedule another search for the others."""
        async with topic_log.maintenance:
            if self._logs.get(topic_log.topic_id) is not topic_log:
                return
            prefix = object_prefix(self._config.root, topic_log.name)
            known = {segment.object_name for segment in topic_log.segments}
            known.update(*(each.names for each in self._delayed_deletions))
            wait_us: float | None = None
            for name in await self._objects.names(prefix):
                parsed = parse_object_name(name)
                # A broker with a newer epoch may be about to add it to the manifest.
                if name in known or parsed is None or parsed.epoch > topic_log.epoch:
                    continue
                left_us = await self._kept_us(name)
                if left_us is None:
                    continue
                if left_us > 0:
                    wait_us = left_us if wait_us is None else min(wait_us, left_us)
                    continue
                log.info("topic %s: deleting the orphan %s", topic_log.name, name)
                await self._delete_object(name)
        if wait_us is not None:
            time = self._clock() + wait_us / _US_PER_S
            heappush(self._searches, (time, topic_log.topic_id))

    async def _kept_us(self, orphan: str) -> float | None:
        """Return for how many more microseconds to keep *orphan*; None if it is gone"""
        found = await self._objects.stat(orphan)
        if found is None:
            return None
        if found.modified_at is None:
            # A store that does not know ages keeps orphans.
            return float("inf")
        age_us = self._wall_clock() - found.modified_at
        return self._config.orphan_keep_s * _US_PER_S - age_us


def no_room_needed(_: int) -> AbstractAsyncContextManager[None]:
    """Make no room: the local disk has no budget for segments."""
    return nullcontext()


def write_segment_object(
    config: StorageConfig,
    frames: Sequence[BatchFrame],
    identity: SegmentIdentity,
    new: NewObject,
    *,
    sealed_at: int,
) -> SegmentEntry:
    """
    Write consecutive *frames* to *new* as a segment; return its manifest entry.

    Bounds: About two row groups are in memory, whatever the size of the segment.

    Raises:
        CorruptBatch: The body of a frame differs from its header.
        ObjectsUnavailable: The object cannot be written, or read again.
    """
    with new.writing() as file:
        write_frames(file, frames, identity, row_group_bytes=config.row_group_bytes)
    base, end = frames[0].base, frames[-1].end
    with new.reading() as file:
        checksum, byte_count = file_checksum(file)
        earliest, latest = publish_times_of(file)
        part_checksums = part_checksums_of(file)
    # Arrow keeps freed memory for each thread, and this one may not seal again soon.
    pa.default_memory_pool().release_unused()
    return SegmentEntry(
        base=base,
        end=end,
        epoch=identity.epoch,
        count=end - base,
        byte_count=byte_count,
        object_name=object_name(config.root, identity.topic, base, end, identity.epoch),
        first_publish_time=earliest,
        last_publish_time=latest,
        sealed_at=sealed_at,
        checksum=checksum,
        part_checksums=part_checksums,
    )
