"""One topic's log, made of tail and segments."""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pydanube.model.errors import CorruptSegment, OffsetDropped, Overloaded
from pydanube.model.ids import Epoch, Offset, TopicId
from pydanube.model.policy import Durability
from pydanube.storage.tail import Tail
from pydanube.wire.files.journal_format import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pydanube.model.errors import BrokerError
    from pydanube.model.policy import TopicPolicy
    from pydanube.storage.journal import Done, Journal
    from pydanube.storage.manifest import SegmentEntry
    from pydanube.storage.segment_cache import SegmentCache
    from pydanube.wire.batches import BatchFrame

log = logging.getLogger(__name__)


UNSEALABLE_SHARE = 4
"""A topic whose sealing fails gets this part of ``tail_bytes_max``."""


@dataclass(slots=True)
class TailMemory:
    """
    How much all tails take together, and who is to know when it is much.

    All numbers are those of decoded messages, see ``BatchFrame.memory_bytes``.
    """

    seal_bytes: int
    """A tail that reaches this makes a segment."""
    pressure_bytes: int
    """All tails together: from here on memory is short."""
    bytes_max: int
    """All tails together: from here on publishers wait."""
    byte_count: int = 0
    pending_bytes: int = 0
    """What was appended and is not committed yet, as it will count."""
    unsealable_bytes: int = 0
    """How much of it belongs to topics whose sealing fails."""
    due: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when there may be something to seal."""
    unsealed: dict[TopicId, TopicLog] = field(default_factory=dict)
    """The logs that have something in memory."""

    @property
    def sealable_bytes(self) -> int:
        """How much belongs to topics that can be sealed."""
        return self.byte_count - self.unsealable_bytes

    @property
    def sealable_bytes_max(self) -> int:
        """
        How much of these there may be.

        Half of the limit is theirs, however much is stuck.
        """
        return max(self.bytes_max - self.unsealable_bytes, self.bytes_max // 2)

    @property
    def has_room(self) -> bool:
        """Whether publishers need not wait."""
        return self.sealable_bytes + self.pending_bytes <= self.sealable_bytes_max

    def is_unsealable_full(self, tail_bytes: int) -> bool:
        """Whether a topic whose sealing fails has all the memory that it gets."""
        return (
            tail_bytes >= self.bytes_max // UNSEALABLE_SHARE
            or self.unsealable_bytes >= self.bytes_max // 2
        )

    def on_grown(self, tail_bytes: int, size: int) -> None:
        """A tail has grown by *size* to *tail_bytes*."""
        before = self.byte_count
        self.byte_count = before + size
        # At the moment of crossing only: the sealer looks again by itself.
        if (
            tail_bytes - size < self.seal_bytes <= tail_bytes
            or before < self.pressure_bytes <= self.byte_count
        ):
            self.due.set()


class TopicLog:
    """
    One topic's messages, from the oldest kept to the newest committed.

    Offsets are given without gaps, but segments that were compacted have lost some
    messages; their offsets are never given again.  The newest message that is in a
    segment stays, so there is a message behind every gap.

    A reader need not know where a message is: the last ones are in memory, the
    rest is in segments.  There is one writer.  Frames that a reader holds stay
    as they are, whatever is sealed or dropped meanwhile.

    ::

        base_offset      sealed_offset           end_offset     next_offset
             | segments       | tail                 | on the way    |
    """

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
    ) -> None:
        self.topic_id = topic_id
        self.name = name
        self.epoch = epoch
        self.policy = policy
        self.segments = segments
        """
        Sorted, each from where the one before it ends; a new tuple whenever they
        change.
        """
        self.holds: frozenset[str] = frozenset()
        """While there are any, no segment is dropped or replaced."""
        self.sealed_offset = sealed_offset
        """What is older stands in segments, or was dropped."""
        self.end_offset = sealed_offset
        """The first offset that is not committed; what is older can be read."""
        self.next_offset = sealed_offset
        """What the next batch gets."""
        self.refusal: BrokerError | None = None
        """Why the log takes no batch any more."""
        self.maintenance = asyncio.Lock()
        """Held by whoever changes what the log consists of: one at a time."""
        self._journal = journal
        self._cache = cache
        self._memory = memory
        self._seal_failure: str | None = None
        self._clock = clock
        self._tail = Tail(sealed_offset)
        self._sync = policy.durability is Durability.DURABLE
        self._awaiting: deque[tuple[BatchFrame, Done]] = deque()
        self._failing: deque[tuple[BatchFrame, Done]] = deque()
        self._watchers: dict[object, Callable[[], None]] = {}
        self._unwatch_failures = journal.watch_failures(self._on_failures)

    # Writing.

    def append_nowait(self, frame: BatchFrame, done: Done) -> Offset:
        """
        Give *frame* its offset and send it on its way; return its first offset.

        *done* is called later, with None when the batch is committed at the
        topic's durability and readers see it, or with the error: then nothing of
        it is in the log, and nothing of what was appended behind it is either.
        The frame's bytes are not copied; they must not change any more.

        Ordering: Batches are committed, shown and told in the order of appending.

        Bounds: None here; ask Storage.room() before appending much.

        Raises:
            TopicFenced: Another broker writes this log now.
            TopicNotFound: The topic is deleted.
            JournalFailed, Closed: The journal takes nothing any more.
            Overloaded: Sealing fails, and the log has all the memory that it gets.
        """
        if self._seal_failure is not None:
            self._refuse_if_unsealable()
        if self.refusal is not None:
            # One error is raised many times, and must not collect where.
            raise self.refusal.with_traceback(None)
        base = self.next_offset
        frame.stamp(base, self.epoch)
        self._journal.append(
            Batch(self.topic_id, frame), self._on_written, sync=self._sync
        )
        self._memory.pending_bytes += frame.memory_bytes
        self._awaiting.append((frame, done))
        self.next_offset = Offset(base + frame.header.count)
        return base

    def _on_written(self, error: BrokerError | None) -> None:
        if error is not None:
            frame, done = self._failing.popleft()
            self._memory.pending_bytes -= frame.memory_bytes
            done(error)
            return
        frame, done = self._awaiting.popleft()
        tail = self._tail
        if not tail.byte_count:
            self._memory.unsealed[self.topic_id] = self
        size = tail.append(frame, self._clock())
        self._memory.pending_bytes -= size
        self.end_offset = Offset(tail.end)
        self._on_grown(size)
        try:
            done(None)
        finally:
            if self._watchers:
                for watcher in tuple(self._watchers.values()):
                    watcher()

    def _on_failures(self) -> None:
        # All that is on the way fails.  The offsets are taken back before anybody
        # is told, because who is told may append again at once.
        self._failing.extend(self._awaiting)
        self._awaiting.clear()
        self.next_offset = self.end_offset

    # Reading.

    @property
    def base_offset(self) -> Offset:
        """The first offset that can be read; the end, if there is none."""
        return Offset(self.segments[0].base if self.segments else self._tail.base)

    @property
    def tail_bytes(self) -> int:
        """How long the frames in memory are together."""
        return self._tail.byte_count

    @property
    def tail_memory_bytes(self) -> int:
        """How much memory the messages of these frames take when decoded."""
        return self._tail.memory_bytes

    @property
    def tail_time(self) -> float | None:
        """When the oldest batch in memory came; None if there is none."""
        return self._tail.oldest_time

    @property
    def segment_bytes(self) -> int:
        """How long all segments are together."""
        return sum(segment.byte_count for segment in self.segments)

    def read_tail(self, offset: int, *, bytes_max: int) -> list[BatchFrame] | None:
        """
        Frames from *offset* on that are in memory; None if *offset* is not.

        The first may begin before *offset*.  There are none at the end of the log,
        otherwise at least one, and as many as *bytes_max* allows.
        """
        if offset >= self.end_offset:
            return []
        if offset < self._tail.base:
            return None
        return self._tail.frames_from(offset, bytes_max)

    async def read(self, offset: int, *, bytes_max: int) -> list[BatchFrame]:
        """
        Frames from *offset* on, wherever they are; see read_tail().

        Where messages are missing, the first may begin behind *offset*, and there may
        be gaps between frames and inside of them.

        Raises:
            OffsetDropped: Retention has dropped *offset*.
            CorruptSegment: The segment that holds it is damaged or missing.
        """
        while True:
            frames = self.read_tail(offset, bytes_max=bytes_max)
            if frames is not None:
                return frames
            segment = self._segment_of(offset)
            if segment is None:
                raise self._dropped(offset)
            try:
                frames = await self._cache.read(segment, offset, bytes_max)
            except CorruptSegment as error:
                # It may be gone because it was dropped or replaced while we read.
                if segment in self.segments:
                    self._log_once(error)
                    raise
                continue
            if frames:
                return frames
            offset = segment.end

    async def find_time(self, publish_time: int) -> int:
        """
        The offset of the first message published at *publish_time* or later.

        The end of the log if there is none.  Publish times are the producers', who
        may disagree; the first is the one with the lowest offset.  Of a batch in
        memory only the first and the last message are looked at, and where both
        are older, all are taken to be.

        Raises:
            CorruptSegment: A segment that may hold it is damaged or missing.
        """
        offset = 0
        while True:
            segment = next(
                (
                    each
                    for each in self.segments
                    if each.end > offset and each.last_publish_time >= publish_time
                ),
                None,
            )
            if segment is None:
                found = self._tail.find_time(publish_time)
                return self.end_offset if found is None else found
            try:
                found = await self._cache.find_time(segment, publish_time)
            except CorruptSegment as error:
                # It may be gone because it was dropped or replaced while we read.
                if segment in self.segments:
                    self._log_once(error)
                    raise
                continue
            if found is not None:
                return found
            offset = segment.end

    def _log_once(self, error: CorruptSegment) -> None:
        # One that the cache does not remember comes again with every request.
        if error.retry_at and not error.is_logged:
            error.is_logged = True
            log.error("topic %s: %s", self.name, error)

    def estimate_bytes(self, offset: int) -> int:
        """About how many bytes are stored from *offset* on; nothing is read."""
        byte_count = float(self._tail.bytes_from(offset))
        for segment in reversed(self.segments):
            if segment.end <= offset:
                break
            byte_count += _share(segment, offset) * segment.byte_count
        return int(byte_count)

    def missing_from(self, offset: int) -> int:
        """
        How many offsets from *offset* on have no message; nothing is read.

        Exact for whole segments; inside of one, as if they were spread evenly.
        """
        missing, later = 0.0, int(self._tail.base)
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
        About when the message at *offset* was published; None if it is not there.

        In memory it is the time of its batch.  In a segment it is taken from the
        first and the last time in it, as if messages had come evenly.
        """
        frame = self._tail.find(offset)
        if frame is not None:
            return frame.header.first_publish_time
        segment = self._segment_of(offset)
        if segment is None:
            return None
        span = segment.last_publish_time - segment.first_publish_time
        passed = span * (offset - segment.base) // (segment.end - segment.base)
        return segment.first_publish_time + passed

    def _segment_of(self, offset: int) -> SegmentEntry | None:
        segments = self.segments
        at = bisect_right(segments, offset, key=lambda segment: segment.base) - 1
        return segments[at] if at >= 0 and offset < segments[at].end else None

    def next_kept(self, offset: int) -> Offset:
        """The first offset from *offset* on that can be read; the end, if none can."""
        if offset >= self._tail.base or self._segment_of(offset) is not None:
            return Offset(offset)
        later = (segment.base for segment in self.segments if segment.base > offset)
        return Offset(next(later, self._tail.base))

    def _dropped(self, offset: int) -> OffsetDropped:
        return OffsetDropped(
            f"offset {offset} of {self.name} is not kept any more; the first that is "
            f"there is {self.next_kept(offset)}"
        )

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call *callback* whenever end_offset rose; returns what ends that."""
        key = object()
        self._watchers[key] = callback

        def unwatch() -> None:
            self._watchers.pop(key, None)

        return unwatch

    # What storage does with a log.

    def restore(self, frames: Sequence[BatchFrame], now: float) -> None:
        """Take over what recovery found; before anything is appended."""
        assert self.end_offset == self.next_offset == self.sealed_offset
        if not frames:
            return
        self._memory.unsealed[self.topic_id] = self
        self._tail.end = frames[0].base
        for frame in frames:
            self._on_grown(self._tail.append(frame, now))
        self.end_offset = self.next_offset = Offset(self._tail.end)

    def unsealed(self, bytes_max: int) -> list[BatchFrame]:
        """The oldest committed frames that are not sealed, of about *bytes_max*."""
        return self._tail.frames_from(self._tail.base, bytes_max)

    def on_sealed(self, segment: SegmentEntry) -> None:
        """*segment* is part of the topic's history: memory may forget it."""
        self.segments = (*self.segments, segment)
        self.sealed_offset = Offset(segment.end)
        self._drop_tail(segment.end)

    def on_seal_failed(self, error: Exception) -> None:
        """
        Take batches as far as the share of topics whose sealing fails goes.

        Until ``on_seal_recovered``; the memory counts apart from that of others.
        """
        if self._seal_failure is None:
            self._memory.unsealable_bytes += self._tail.memory_bytes
        self._seal_failure = str(error)

    def on_seal_recovered(self) -> None:
        """Sealing succeeds again."""
        if self._seal_failure is not None:
            self._memory.unsealable_bytes -= self._tail.memory_bytes
            self._seal_failure = None

    def on_replaced(
        self, old: Sequence[SegmentEntry], new: Sequence[SegmentEntry]
    ) -> None:
        """*new* are part of the topic's history in the place of *old*."""
        at = self.segments.index(old[0])
        end = at + len(old)
        assert self.segments[at:end] == tuple(old)
        self._cache.discard(old)
        self.segments = (*self.segments[:at], *new, *self.segments[end:])

    def on_dropped(self, count: int) -> None:
        """The oldest *count* segments are no longer part of the topic's history."""
        self._cache.discard(self.segments[:count])
        self.segments = self.segments[count:]

    def refuse(self, error: BrokerError) -> None:
        """Take no batch any more; reading goes on."""
        self.refusal = error

    def discard(self) -> None:
        """Give back all memory; the log is not used any more."""
        self._drop_tail(self._tail.end)
        self._cache.discard(self.segments)
        self._unwatch_failures()

    def _on_grown(self, size: int) -> None:
        if self._seal_failure is not None:
            self._memory.unsealable_bytes += size
        self._memory.on_grown(self._tail.memory_bytes, size)

    def _drop_tail(self, offset: int) -> None:
        size = self._tail.drop_below(offset)
        self._memory.byte_count -= size
        if self._seal_failure is not None:
            self._memory.unsealable_bytes -= size
        if not self._tail.byte_count:
            self._memory.unsealed.pop(self.topic_id, None)

    def _refuse_if_unsealable(self) -> None:
        memory_bytes = self._tail.memory_bytes
        if self._memory.is_unsealable_full(memory_bytes):
            raise Overloaded(
                f"{self.name} takes no more messages: its unsealed ones take "
                f"{memory_bytes} bytes of memory, and sealing them fails: "
                f"{self._seal_failure}"
            )


def _share(segment: SegmentEntry, offset: int) -> float:
    """Which part of the offsets of *segment* is not below *offset*."""
    whole = segment.end - segment.base
    return (segment.end - max(offset, segment.base)) / whole
