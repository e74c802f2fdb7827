"""The log of one topic: its tail and its segments."""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field
from typing import TypeAlias

from pydanube.aio.futures import Done, watch
from pydanube.model.errors import (
    BrokerError,
    CorruptSegment,
    ObjectsUnavailable,
    OffsetDropped,
    Overloaded,
    TopicHeld,
)
from pydanube.model.ids import Epoch, Offset, TopicId
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.policy import KEEP_ALL, Durability, Retention, TopicPolicy
from pydanube.model.segments import SegmentEntry
from pydanube.wire.batches import BatchFrame
from pydanube.wire.files.journal_format import Batch, TopicSealed
from pydanube_broker.storage.journal.journal import Journal
from pydanube_broker.storage.pure.offset_changes import OffsetChanges
from pydanube_broker.storage.segments.seal_planning import pressure_bytes
from pydanube_broker.storage.segments.segment_cache import SegmentCache
from pydanube_broker.storage.segments.tail import Tail, held_bytes_of

log = logging.getLogger(__name__)


AHEAD_SEGMENTS_MAX = 16
"""How many segments after the one that is read are considered for reading ahead."""

SEALING_SHARE = 8
"""Sealing counts for at most this fraction (1/8) of ``tail_bytes_max``."""

UNSEALABLE_SHARE = 4
"""A topic whose sealing fails may use this fraction (1/4) of ``tail_bytes_max``."""


@dataclass(slots=True)
class TailMemory:
    """
    The memory of all tails together, and the event that wakes the sealer.

    All sizes are those of decoded messages, and what their frames take beside; see
    ``Tail.held_bytes``.
    """

    seal_bytes: int
    """The size of the decoded messages at which one tail is sealed, unless its topic's
    policy has another."""
    bytes_max: int
    """The size of all tails from which publishers wait."""
    byte_count: int = 0
    pending_bytes: int = 0
    """The size of messages that are appended but not committed yet."""
    sealing_bytes: int = 0
    """The memory for the row groups that are being decoded and encoded."""
    unsealable_bytes: int = 0
    """The part of ``byte_count`` of topics whose sealing fails."""
    due: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when there may be something to seal."""
    room_check: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the callers of ``wait_for_room`` are to check again."""
    unsealed: dict[TopicId, TopicLog] = field(default_factory=dict)
    """The logs with unsealed messages."""

    @property
    def sealable_bytes(self) -> int:
        """The part of ``byte_count`` of topics that can be sealed."""
        return self.byte_count - self.unsealable_bytes

    @property
    def sealable_bytes_max(self) -> int:
        """
        The limit of ``sealable_bytes``.

        It is at least half of the total, even if other topics cannot be sealed.
        """
        return max(self.bytes_max - self.unsealable_bytes, self.bytes_max // 2)

    @property
    def is_under_pressure(self) -> bool:
        """Whether the largest tails that can be sealed are to be sealed."""
        return self.sealable_bytes >= pressure_bytes(self.sealable_bytes_max)

    @property
    def used_bytes(self) -> int:
        """The part that makes publishers wait: sealable, pending, and for sealing."""
        return self.sealable_bytes + self.pending_bytes + self.sealing_bytes

    @property
    def has_room(self) -> bool:
        """Whether publishers need not wait."""
        return self.used_bytes <= self.sealable_bytes_max

    @contextmanager
    def sealing(self, byte_count: int) -> Iterator[None]:
        """
        Count what sealing takes while the body runs, so that publishers wait for it.

        At most ``1 / SEALING_SHARE`` of the limit, also if several bodies run and wait
        for the one thread that seals: otherwise publishers would have to wait whenever
        something is sealed with a small limit, or much is sealed on request.
        """
        left = self.bytes_max // SEALING_SHARE - self.sealing_bytes
        counted = min(byte_count, left)
        self.sealing_bytes += counted
        try:
            yield
        finally:
            self.sealing_bytes -= counted
            self.on_freed()

    async def wait_for_room(self) -> None:
        """Return when ``has_room``."""
        while not self.has_room:
            self.room_check.clear()
            await self.room_check.wait()

    def on_freed(self) -> None:
        """Wake the callers of ``wait_for_room``, if there is room."""
        if self.has_room:
            self.room_check.set()

    def is_unsealable_full(self, tail_bytes: int) -> bool:
        """Return whether a topic whose sealing fails has used its share of memory."""
        return (
            tail_bytes >= self.bytes_max // UNSEALABLE_SHARE
            or self.unsealable_bytes >= self.bytes_max // 2
        )

    def on_grown(self, tail_bytes: int, size: int, seal_bytes: int) -> None:
        """
        Count a tail that has grown by *size* to *tail_bytes*.

        The sealer is woken if the tail is to be sealed at *seal_bytes*, or memory is
        short.
        """
        was_under_pressure = self.is_under_pressure
        self.byte_count += size
        # Only at the moment of crossing a limit: the sealer also wakes by itself.
        if tail_bytes - size < seal_bytes <= tail_bytes or (
            self.is_under_pressure and not was_under_pressure
        ):
            self.due.set()


@dataclass(slots=True)
class SegmentTotals:
    """The segments of all open logs together, so that nobody needs to add them up."""

    count: int = 0
    byte_count: int = 0

    def change(self, old: Sequence[SegmentEntry], new: Sequence[SegmentEntry]) -> int:
        """Count *new* instead of *old*; return by how many bytes they are longer."""
        change = sum(each.byte_count for each in new)
        change -= sum(each.byte_count for each in old)
        self.count += len(new) - len(old)
        self.byte_count += change
        return change


FindCursors: TypeAlias = "Callable[[], Iterable[int]]"


class TopicLog:
    """
    One topic's messages, from the oldest kept to the newest committed.

    Offsets are assigned without gaps.  Compaction removes messages from segments; their
    offsets are never assigned again.  It keeps the newest sealed message, so there is a
    message after every gap.

    The newest messages are in the tail, the rest in segments; readers need not know the
    difference.  There is one writer.  Frames that a reader holds do not change when
    messages are sealed or dropped.

    ::

        base_offset      sealed_offset           end_offset     next_offset
             | segments       | tail                 | uncommitted   |
    """

    is_configured = False
    """Whether its holds and its retention are known."""
    unsettled: tuple[Sequence[SegmentEntry], Sequence[SegmentEntry]] | None = None
    """Segments, and those that may have replaced them in the manifest."""

    def __init__(
        self,
        topic_id: TopicId,
        name: str,
        epoch: Epoch,
        policy: TopicPolicy,
        *,
        journal: Journal,
        cache: SegmentCache,
        memory: TailMemory,
        clock: Callable[[], float],
        segments: tuple[SegmentEntry, ...],
        sealed_offset: Offset,
        shard: int | None = None,
        start_offset: int = 0,
        totals: SegmentTotals | None = None,
        changes: OffsetChanges | None = None,
    ) -> None:
        """
        *totals* count its segments until it is discarded.

        *changes* note whenever its offsets change, it is opened, or discarded.
        """
        self.topic_id, self.name = topic_id, name
        self.epoch = epoch
        """The epoch of the topic, or in a cluster that of its shard."""
        self.shard = shard
        """Its shard, if the broker is in a cluster."""
        self.is_released = False
        """Whether another broker may serve the topic now."""
        self.policy = policy
        self.seal_bytes = policy.seal_bytes or memory.seal_bytes
        """The size at which its messages are sealed."""
        self.retention = KEEP_ALL
        """The effective retention; ``configure`` sets it when holds and subscriptions
        are known."""
        self.find_cursors: FindCursors = tuple
        """Returns for each subscription an offset below which all messages are
        acknowledged in the journal, though perhaps not on disk."""
        self.drop_end = Offset(0)
        """The end of the segments that were last to be dropped."""
        self.start_offset = Offset(start_offset)
        """Messages before it were trimmed: they cannot be read, even while they are
        stored.  At most the end of the log."""
        self._totals = SegmentTotals() if totals is None else totals
        self._changes = OffsetChanges() if changes is None else changes
        self.segments: tuple[SegmentEntry, ...] = ()
        """
        Sorted by offset, each beginning at the end of the one before; every change
        makes a new tuple.
        """
        self.segment_bytes = 0
        """The length of all segments together."""
        self._replace(0, (), segments)
        self.holds: frozenset[str] = frozenset()
        """While there are any, no segment is dropped or replaced."""
        self.sealed_offset = sealed_offset
        """Older messages are in segments, or were dropped."""
        self.end_offset = sealed_offset
        """The first offset that is not committed; older messages can be read."""
        self.next_offset = sealed_offset
        """The offset of the next batch."""
        self.refusal: BrokerError | None = None
        """The error for all further batches, if it accepts none; reading goes on."""
        self.tail = Tail(sealed_offset)
        """The newest messages, which are not in a segment; to be read only."""
        self.maintenance = asyncio.Lock()
        """Held while segments are added, replaced or dropped."""
        self._journal = journal
        self._cache = cache
        self._memory = memory
        self._seal_failure: str | None = None
        self._clock = clock
        self._sync = policy.durability is Durability.DURABLE
        self._awaiting: deque[tuple[BatchFrame, Done]] = deque()
        self._failing: deque[tuple[BatchFrame, Done]] = deque()
        self._watchers: dict[object, Callable[[], None]] = {}
        self._unwatch_failures = journal.watch_failures(self._on_failures)

    # Writing.

    def append_nowait(self, frame: BatchFrame, done: Done) -> Offset:
        """
        Give *frame* its offset and append it; return its first offset.

        *done* gets None when the batch is committed with the topic's durability and
        readers can see it.  If it gets an error, neither this batch nor any batch
        appended after it is in the log.  After JournalFailed, the journal may have
        them, and a restart or another broker finds them there.  The frame's bytes
        are not copied and must not be changed.

        Ordering: Batches are committed, become visible, and are reported to *done* in
            the order of appending.

        Bounds: None here; await Storage.wait_for_room() before appending a lot.

        Raises:
            TopicFenced: Another broker writes this log now.
            TopicNotFound: The topic was deleted.
            JournalFailed, Closed: The journal accepts no more entries.
            Overloaded: Sealing fails, and the log has used its share of memory.
        """
        if self._seal_failure is not None:
            self._refuse_if_unsealable()
        if self.refusal is not None:
            # The same exception object is raised repeatedly, so drop its traceback.
            raise self.refusal.with_traceback(None)
        base = self.next_offset
        frame.stamp(base, self.epoch)
        self._journal.append(
            Batch(self.topic_id, frame), self._on_written, sync=self._sync
        )
        self._memory.pending_bytes += held_bytes_of(frame)
        self._awaiting.append((frame, done))
        self.next_offset = Offset(base + frame.header.count)
        return base

    def _on_written(self, error: BrokerError | None) -> None:
        if self.is_released:
            return
        if error is not None:
            frame, done = self._failing.popleft()
            self._memory.pending_bytes -= held_bytes_of(frame)
            self._memory.on_freed()
            done(error)
            return
        frame, done = self._awaiting.popleft()
        tail = self.tail
        if not tail.byte_count:
            self._memory.unsealed[self.topic_id] = self
        size = tail.append(frame, self._clock())
        self._memory.pending_bytes -= size
        self.end_offset = Offset(tail.end)
        self._changes.note(self.name)
        self._on_grown(size)
        try:
            done(None)
        finally:
            if self._watchers:
                for watcher in tuple(self._watchers.values()):
                    watcher()

    def _on_failures(self) -> None:
        # All uncommitted batches fail.  Take their offsets back before calling any
        # ``done``, because it may append again at once.
        self._failing.extend(self._awaiting)
        self._awaiting.clear()
        self.next_offset = self.end_offset

    def check_not_held(self, advice: str) -> None:
        """
        Raise if a retention hold forbids changing the segments.

        The error ends with *advice*.

        Raises:
            TopicHeld: There is a hold.
        """
        if self.holds:
            holds = ", ".join(sorted(self.holds))
            raise TopicHeld(f"{self.name} is held by {holds}; {advice}")

    # Reading.

    @property
    def base_offset(self) -> Offset:
        """The first offset that can be read; the end if the log is empty."""
        stored = self.segments[0].base if self.segments else self.tail.base
        return max(Offset(stored), self.start_offset)

    @property
    def first_kept(self) -> Offset:
        """The first offset that can be read and was not to be dropped."""
        return max(self.base_offset, self.drop_end)

    def read_tail(self, offset: int, *, bytes_max: int) -> list[BatchFrame] | None:
        """
        Return frames of the tail from *offset* on; None if *offset* is not in it.

        The first may begin before *offset*.  At the end of the log there are none,
        otherwise at least one, and as many as *bytes_max* allows.
        """
        if offset >= self.end_offset:
            return []
        if offset < self.tail.base or offset < self.start_offset:
            return None
        return self.tail.frames_from(offset, bytes_max)

    async def read(self, offset: int, *, bytes_max: int) -> list[BatchFrame]:
        """
        Return frames from *offset* on, from the tail or a segment; see read_tail().

        If messages are missing, the first may begin after *offset*, and there may be
        gaps between and inside frames.

        Raises:
            OffsetDropped: Retention has dropped *offset*, or it was trimmed.
            CorruptSegment: The segment that holds it is damaged or missing.
            ObjectsUnavailable: The remote store, which alone has it, does not answer.
            NotOwner: Another broker serves the topic now.
        """
        while True:
            self._check_not_released()
            frames = self.read_tail(offset, bytes_max=bytes_max)
            if frames is not None:
                return frames
            at = self._segment_at(offset)
            if at is None or offset < self.start_offset:
                raise self._dropped(offset)
            segment = self.segments[at]
            following = self.segments[at + 1 : at + 1 + AHEAD_SEGMENTS_MAX]
            try:
                frames = await self._cache.read(segment, offset, bytes_max, following)
            except (CorruptSegment, ObjectsUnavailable) as error:
                self._raise_unless_gone(segment, error)
                continue
            if frames:
                return frames
            offset = segment.end

    async def find_time(self, publish_time: int) -> int:
        """
        Return the offset of the first message published at *publish_time* or later.

        Returns the end of the log if there is none.  Producers set publish times, so
        they need not rise with the offsets; the message with the lowest offset counts.
        In the tail, a batch whose first and last message are older is assumed to be
        older.

        Raises:
            CorruptSegment: A segment that may hold it is damaged or missing.
            ObjectsUnavailable: The remote store, which alone has it, does not answer.
            NotOwner: Another broker serves the topic now.
        """
        offset = int(self.start_offset)
        while True:
            self._check_not_released()
            segment = next(
                (
                    each
                    for each in self.segments
                    if each.end > offset and each.last_publish_time >= publish_time
                ),
                None,
            )
            if segment is None:
                found = self.tail.find_time(publish_time)
                if found is None:
                    return self.end_offset
                return max(found, self.start_offset)
            try:
                found = await self._cache.find_time(segment, publish_time)
            except (CorruptSegment, ObjectsUnavailable) as error:
                self._raise_unless_gone(segment, error)
                continue
            if found is not None:
                return max(found, self.start_offset)
            offset = segment.end

    def _check_not_released(self) -> None:
        if self.is_released:
            assert self.refusal is not None
            raise self.refusal.with_traceback(None)

    def _raise_unless_gone(
        self, segment: SegmentEntry, error: CorruptSegment | ObjectsUnavailable
    ) -> None:
        """Raise *error* unless *segment* was dropped or replaced while it was read."""
        if self._segment_of(segment.base) != segment:
            return
        # An error without a retry time recurs with every request, so do not log it.
        # That the object store does not answer is logged once, for all topics.
        is_new = error.retry_at and not error.is_logged
        if is_new and isinstance(error, CorruptSegment):
            error.is_logged = True
            log.error("topic %s: %s", self.name, error)
        raise error

    def estimate_bytes(self, offset: int) -> int:
        """Estimate the stored bytes from *offset* on, without reading."""
        offset = max(offset, self.start_offset)
        byte_count = float(self.tail.bytes_from(offset))
        for segment in reversed(self.segments):
            if segment.end <= offset:
                break
            byte_count += _share(segment, offset) * segment.byte_count
        return int(byte_count)

    def missing_from(self, offset: int) -> int:
        """
        Estimate how many offsets from *offset* on have no message, without reading.

        The result is exact for whole segments; inside one, gaps are assumed to be
        spread evenly.
        """
        kept = max(offset, self.start_offset)
        missing, later, offset = float(kept - offset), int(self.tail.base), kept
        for segment in reversed(self.segments):
            missing += max(0, later - max(segment.end, offset))
            later = segment.base
            if segment.end <= offset:
                break
            if segment.has_gaps:
                gaps = segment.end - segment.base - segment.count
                missing += _share(segment, offset) * gaps
        return int(missing)

    def estimate_time(self, offset: int) -> int | None:
        """
        Estimate when the message at *offset* was published; None if it does not exist.

        In the tail, this is the time of its batch; in a segment, it is interpolated
        between the first and the last time.
        """
        frame = self.tail.find(offset)
        if frame is not None:
            return frame.header.first_publish_time
        segment = self._segment_of(offset)
        if segment is None:
            return None
        span = segment.last_publish_time - segment.first_publish_time
        passed = span * (offset - segment.base) // (segment.end - segment.base)
        return segment.first_publish_time + passed

    def _segment_of(self, offset: int) -> SegmentEntry | None:
        at = self._segment_at(offset)
        return None if at is None else self.segments[at]

    def _segment_at(self, offset: int) -> int | None:
        """Return the index of the segment whose range includes *offset*."""
        segments = self.segments
        at = bisect_right(segments, offset, key=lambda segment: segment.base) - 1
        return at if at >= 0 and offset < segments[at].end else None

    def next_kept(self, offset: int) -> Offset:
        """Return the first readable offset from *offset* on; the end if none is."""
        offset = max(offset, self.start_offset)
        if offset >= self.tail.base or self._segment_of(offset) is not None:
            return Offset(offset)
        later = (segment.base for segment in self.segments if segment.base > offset)
        return Offset(next(later, self.tail.base))

    def _dropped(self, offset: int) -> OffsetDropped:
        return OffsetDropped(
            f"offset {offset} of {self.name} does not exist any more; the next offset "
            f"that exists is {self.next_kept(offset)}"
        )

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call *callback* when end_offset rises; return a function that ends this."""
        return watch(self._watchers, callback)

    def configure(self, policy: TopicPolicy, retention: Retention) -> None:
        """Apply a changed *policy*, and the effective *retention*, from now on."""
        self.policy, self.retention = policy, retention
        self.is_configured = True
        self.seal_bytes = policy.seal_bytes or self._memory.seal_bytes
        if self.tail.byte_count:
            # The tail may be due for sealing now.
            self._memory.due.set()

    def trim(self, offset: int) -> None:
        """Let *offset* be the first that can be read, unless a later one is already."""
        assert offset <= self.end_offset
        if offset > self.start_offset:
            self.start_offset = Offset(offset)
            self._changes.note(self.name)

    def follow_cursors(self, find_cursors: FindCursors) -> None:
        """Let *find_cursors* say what subscriptions have acknowledged."""
        self.find_cursors = find_cursors

    # Methods for storage.

    def restore(self, frames: Sequence[BatchFrame], now: float) -> None:
        """Add the recovered *frames*, before anything is appended."""
        assert self.end_offset == self.next_offset == self.sealed_offset
        if not frames:
            return
        self._memory.unsealed[self.topic_id] = self
        self.tail.end = frames[0].base
        for frame in frames:
            self._on_grown(self.tail.append(frame, now))
        self.end_offset = self.next_offset = Offset(self.tail.end)

    def on_sealed(self, segment: SegmentEntry) -> None:
        """Add *segment* and drop its messages from the tail."""
        self._replace(len(self.segments), (), (segment,))
        self.sealed_offset = Offset(segment.end)
        self._drop_tail(segment.end)

    def on_seal_failed(self, error: Exception) -> None:
        """
        Limit the tail to the share of topics whose sealing fails.

        This lasts until ``on_seal_recovered``; its memory is counted separately.
        """
        if self._seal_failure is None:
            self._memory.unsealable_bytes += self.tail.held_bytes
            # Publishers of other topics need not wait for this topic's memory any more.
            self._memory.on_freed()
        self._seal_failure = str(error)

    def on_seal_recovered(self) -> None:
        """Lift the limit of ``on_seal_failed``."""
        if self._seal_failure is not None:
            self._memory.unsealable_bytes -= self.tail.held_bytes
            self._seal_failure = None

    def on_replaced(
        self, old: Sequence[SegmentEntry], new: Sequence[SegmentEntry]
    ) -> None:
        """Replace the segments *old* by *new*."""
        self._cache.discard(old)
        self._replace(self.segments.index(old[0]), old, new)

    @property
    def uploaded_offset(self) -> Offset:
        """The offset up to which the topic is sealed and all segments are uploaded."""
        bases = (each.base for each in self.segments if not each.is_uploaded)
        return Offset(next(bases, self.sealed_offset))

    def on_uploaded(self, segment: SegmentEntry) -> None:
        """Take over the entry of a segment that is uploaded now."""
        released_offset, at = self.released_offset, self.segments.index(segment)
        self._replace(at, self.segments[at : at + 1], (segment,))
        self._note_released(released_offset)

    def find_segment(self, object_name: str) -> SegmentEntry | None:
        """Return the segment with this name, if the topic has it."""
        return next((s for s in self.segments if s.object_name == object_name), None)

    def on_dropped(self, count: int) -> None:
        """Remove the oldest *count* segments."""
        released_offset = self.released_offset
        self._cache.discard(self.segments[:count])
        self._replace(0, self.segments[:count], ())
        self._note_released(released_offset)

    @property
    def released_offset(self) -> Offset:
        """The end of the messages that the journal need not keep."""
        if self._journal.outlives_disk:
            return self.uploaded_offset
        return self.sealed_offset

    def _note_released(self, before: Offset) -> None:
        """Record that the journal may drop more messages than those up to *before*."""
        if self.released_offset > before:
            # Without the entry, recovery only keeps messages in memory needlessly.
            with suppress(BrokerError):
                entry = TopicSealed(self.topic_id, self.released_offset)
                self._journal.append(entry, None, sync=False)

    def release(self, reason: BrokerError) -> None:
        """
        Stop serving the topic, and release all memory.

        Batches that are not committed get *reason*: this broker does not learn whether
        they will be.  Readers get it, too.
        """
        self.refusal, self.is_released = reason, True
        awaiting, self._awaiting = self._awaiting, deque()
        self.discard()
        for frame, done in awaiting:
            self._memory.pending_bytes -= held_bytes_of(frame)
            self._memory.on_freed()
            done(reason)

    def discard(self) -> None:
        """Release all memory; the log must not be used any more."""
        self._drop_tail(self.tail.end)
        self._cache.discard(self.segments)
        self._totals.change(self.segments, ())
        self._totals = SegmentTotals()
        self._changes.note(self.name)
        self._unwatch_failures()
        # It refers to the topic, which refers to this log.
        self.find_cursors = tuple

    def _replace(
        self, at: int, old: Sequence[SegmentEntry], new: Sequence[SegmentEntry]
    ) -> None:
        """Replace the segments *old*, which are those from index *at* on, by *new*."""
        end = at + len(old)
        assert self.segments[at:end] == tuple(old)
        self.segments = (*self.segments[:at], *new, *self.segments[end:])
        self.segment_bytes += self._totals.change(old, new)
        self._changes.note(self.name)

    def _on_grown(self, size: int) -> None:
        self._memory.on_grown(self.tail.memory_bytes, size, self.seal_bytes)
        if self._seal_failure is not None:
            self._memory.unsealable_bytes += size
            # Publishers of other topics waited for it while it was pending.
            self._memory.on_freed()

    def _drop_tail(self, offset: int) -> None:
        size = self.tail.drop_below(offset)
        self._memory.byte_count -= size
        if self._seal_failure is not None:
            self._memory.unsealable_bytes -= size
        self._memory.on_freed()
        # After a release, a newer log of the topic may be open.
        is_ours = self._memory.unsealed.get(self.topic_id) is self
        if is_ours and not self.tail.byte_count:
            del self._memory.unsealed[self.topic_id]

    def _refuse_if_unsealable(self) -> None:
        held_bytes = self.tail.held_bytes
        if self._memory.is_unsealable_full(held_bytes):
            raise Overloaded(
                f"{self.name} accepts no more messages: its unsealed ones take "
                f"{held_bytes} bytes of memory, and sealing them fails: "
                f"{self._seal_failure}"
            )


def _share(segment: SegmentEntry, offset: int) -> float:
    """Return the fraction of the offsets of *segment* from *offset* on."""
    whole = segment.end - segment.base
    return (segment.end - max(offset, segment.base)) / whole
