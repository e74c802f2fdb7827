"""
Uploading: copying sealed segments to the remote object store.

A segment is sealed (it has a local copy), then uploaded (it has both copies), and in
the end evicted (it has a remote copy).  The manifest says whether a segment is
uploaded; the local store, whether there is a local copy.  The Uploader

1. reads the local copy and compares it with the checksum in the manifest,
2. puts it into the remote store under the same name,
3. reads the remote copy back and compares it,
4. records in the manifest that the segment is uploaded.

There is no other state, so after a crash an upload is repeated, with the same bytes and
the same name.  Segments that are dropped or replaced meanwhile are deleted from the
remote store.  If the store does not answer, uploads are repeated forever.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import field, replace

from crc32c import crc32c

from pydanube.model.errors import (
    BrokerError,
    CorruptSegment,
    ObjectsUnavailable,
    TopicFenced,
)
from pydanube.model.histograms import Histogram
from pydanube.model.ids import TopicId
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.retry import RetryPolicy
from pydanube.model.segments import SegmentEntry
from pydanube.wire.buffer import Buffer
from pydanube_broker.storage.config import MIB, RemoteConfig
from pydanube_broker.storage.journal.journal import Journal
from pydanube_broker.storage.pure.upload_planning import (
    SegmentTiers,
    TrackedSegment,
    TransferPace,
    plan_uploads,
)
from pydanube_broker.storage.remote.evicting import Evictor
from pydanube_broker.storage.remote.remote_orphans import RemoteOrphans
from pydanube_broker.storage.remote.segment_copies import find_damage
from pydanube_broker.storage.remote.tiered_objects import TieredObjects
from pydanube_broker.storage.segments.manifest import Manifest, change_manifest
from pydanube_broker.storage.segments.topic_log import TopicLog

log = logging.getLogger(__name__)

UPLOAD_MEMORY_BYTES_MAX = 256 * MIB
"""The size of the segments that are uploaded at the same time, if there are several."""
PROBLEMS_MAX = 10
"""The most segments named among the problems of uploading."""
LOG_INTERVAL_S = 10.0
"""Failures are logged at most once in this time."""

_RETRIES = RetryPolicy(first_s=1.0, max_s=60.0)
# How often idle workers look at the clock.
_WAKE_S = 1.0
_PLAN_COUNT = 1000


@dataclass(slots=True)
class _Failure:
    """The consecutive failures of one segment."""

    count: int
    retry_at: float
    error: str
    is_local: bool
    """Whether the local copy is the problem, not the remote store."""


@dataclass(slots=True)
class UploadCounts:
    """Counts since the broker started."""

    uploads: int = 0
    uploaded_bytes: int = 0
    failures: int = 0
    seconds: Histogram = field(default_factory=Histogram)
    """The time of each upload, without waiting for the rate limit."""


class Uploader:
    """
    Uploads segments, and has local copies evicted; see run().

    Bounds: At most ``concurrency`` uploads and ``UPLOAD_MEMORY_BYTES_MAX``, or one
        larger segment.
    """

    def __init__(
        self,
        config: RemoteConfig,
        objects: TieredObjects,
        logs: Mapping[TopicId, TopicLog],
        *,
        journal: Journal,
        manifest: Manifest,
        claim: Callable[[bool], Awaitable[None]],
        prefix: str,
        orphan_keep_s: float,
        clock: Callable[[], float],
        wall_clock: Callable[[], int],
    ) -> None:
        """
        *claim* raises if the remote store is not this cluster's; its argument says
        whether segments were uploaded before.
        """
        self.counts = UploadCounts()
        self.tiers = SegmentTiers()
        self.loaded = asyncio.Event()
        """Set when the segments of topics that are not open are known, too."""
        self.outage = ""
        """The error of the remote store; empty while it answers."""
        self.config = config
        self.objects = objects
        self.evictor = Evictor(
            config.local_bytes_max, objects, self.tiers, logs, manifest
        )
        self.uploading: dict[str, TrackedSegment] = {}
        """The segments that are being uploaded, by name."""
        self._logs = logs
        self._journal = journal
        self._manifest = manifest
        self._claim_store = claim
        self._clock = clock
        self._wall_clock = wall_clock
        self._pace = TransferPace(config.upload_bytes_per_s)
        self._planned: deque[TrackedSegment] = deque()
        self._plan_next_at = float("-inf")
        self._deleting: str | None = None
        self._failures: dict[str, _Failure] = {}
        # The failed requests since the last answer, and since the start.
        self._outage_count = 0
        self._outages = 0
        self._retry_at = float("-inf")
        self._log_next_at = float("-inf")
        self._has_uploads = False
        self._claiming = asyncio.Lock()
        self._due = asyncio.Event()
        self._deletions_due = asyncio.Event()
        self._changed = asyncio.Event()
        self.orphans = RemoteOrphans(
            objects.remote,
            logs,
            prefix=prefix,
            keep_s=orphan_keep_s,
            journal=journal,
            manifest=manifest,
            is_busy=self.uploading.__contains__,
            wall_clock=wall_clock,
        )

    async def run(self) -> None:
        """
        Upload segments, evict local copies and delete remote ones, forever.

        Cancellation: Safe at any point; unfinished work is repeated.
        """
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._load(), name="list local segments")
            tasks.create_task(self.evictor.run(), name="evict local segments")
            tasks.create_task(self._delete_all(), name="delete remote segments")
            tasks.create_task(self._find_orphans(), name="find remote orphans")
            for _ in range(self.config.concurrency):
                tasks.create_task(self._upload_all(), name="upload segments")

    def add(self, topic_id: TopicId, entries: Iterable[SegmentEntry]) -> None:
        """Take over segments that are new, or those of a topic that was opened."""
        for entry in entries:
            self._has_uploads |= entry.is_uploaded
            is_local = self.objects.is_local(entry.object_name)
            self.tiers.add(topic_id, entry, is_local=is_local)
        self._on_changed()
        self.wake()

    def on_released(self, entries: Iterable[SegmentEntry]) -> None:
        """Forget segments that are not uploaded: another broker serves their topic."""
        for entry in entries:
            if not entry.is_uploaded:
                self.tiers.remove(entry.object_name)
                self._failures.pop(entry.object_name, None)
        self._on_changed()

    def on_replaced(self, entries: Iterable[SegmentEntry]) -> None:
        """Do not upload these segments any more; they are deleted later."""
        for entry in entries:
            self.tiers.on_obsolete(entry.object_name)
        self._on_changed()

    async def delete(self, object_name: str) -> None:
        """Delete an object from both stores, and forget the segment in it."""
        await self.objects.delete(object_name)
        self.tiers.remove(object_name)
        self._failures.pop(object_name, None)
        self._on_changed()
        self._deletions_due.set()

    def wake(self) -> None:
        """Look for segments to upload now."""
        self._plan_next_at = float("-inf")
        self._due.set()
        self._deletions_due.set()

    def unopened_topics(self) -> set[TopicId]:
        """Return the topics that must be opened before their segments are uploaded."""
        topics = {segment.topic_id for segment in self.tiers.backlog.values()}
        return topics - self._logs.keys()

    async def upload_now(self, topic_ids: set[TopicId] | None = None) -> None:
        """
        Repeat failed uploads at once, and return when the present backlog is uploaded.

        *topic_ids* limits the backlog; None stands for all topics.

        Raises:
            ObjectsUnavailable: An upload has failed; it will be repeated.  Or a topic
                is not open, and must be opened first.
        """
        await self.loaded.wait()
        waiting = {
            name
            for name, segment in self.tiers.backlog.items()
            if topic_ids is None or segment.topic_id in topic_ids
        }
        outages = self._outages
        failures = {name: self._failure_count(name) for name in waiting}
        self._retry_at = float("-inf")
        for failure in self._failures.values():
            failure.retry_at = float("-inf")
        self.wake()
        while waiting := waiting & self.tiers.backlog.keys():
            # The store is away for all segments, whichever upload has noticed it.
            is_away = self._outages > outages
            failed = [n for n in waiting if self._failure_count(n) > failures[n]]
            if is_away or failed:
                reasons = [self.outage, *(self._failures[n].error for n in failed)]
                raise ObjectsUnavailable(
                    f"not everything is uploaded: {next(filter(None, reasons), '')}"
                )
            stuck = [name for name in waiting if self._is_stuck(name)]
            if len(stuck) == len(waiting):
                raise ObjectsUnavailable(
                    f"{len(stuck)} segments cannot be uploaded because their topics "
                    f"cannot be opened, such as {min(stuck)}; the broker's log says why"
                )
            self._changed.clear()
            await self._changed.wait()

    def _failure_count(self, name: str) -> int:
        failure = self._failures.get(name)
        return 0 if failure is None else failure.count

    def _is_stuck(self, name: str) -> bool:
        """Return whether a segment's topic is not open, or fenced or being deleted."""
        topic_log = self._logs.get(self.tiers.backlog[name].topic_id)
        return topic_log is None or topic_log.refusal is not None

    async def upload_first(
        self, entries: Iterable[SegmentEntry]
    ) -> tuple[SegmentEntry, ...]:
        """
        Upload segments before the manifest names them; return their entries.

        Cancellation: What was uploaded stays as orphans.

        Raises:
            CorruptSegment: A local copy is damaged.
            ObjectsUnavailable: The remote store does not answer.
            InconsistentDirectory: The remote store belongs to another cluster.
        """
        await self.claim()
        uploaded = []
        for entry in entries:
            await self._copy(entry)
            self.counts.uploads += 1
            uploaded.append(replace(entry, is_uploaded=True))
        return tuple(uploaded)

    async def evict(self, topic_ids: set[TopicId] | None = None) -> tuple[int, int]:
        """
        Evict the local copies of all uploaded segments of some topics, or of all.

        Topics with retention holds keep their local copies.  Returns the number and the
        size of the copies.

        Raises:
            ObjectsUnavailable: The remote store does not answer, so it is not certain
                that it is the right one.
        """
        await self.claim()
        held = await self._manifest.held_topics()
        chosen = [
            segment
            for segment in self.tiers.cached.values()
            if segment.topic_id not in held
            and (topic_ids is None or segment.topic_id in topic_ids)
        ]
        return await self.evictor.evict(chosen)

    @property
    def local_bytes(self) -> int:
        """The size of the segments on the local disk."""
        return self.tiers.local_bytes

    @property
    def oldest_age_s(self) -> float:
        """The time since the oldest segment was sealed that is not uploaded."""
        sealed_at = self.tiers.oldest_sealed_at
        if sealed_at is None:
            return 0.0
        return max(0.0, (self._wall_clock() - sealed_at) / 1_000_000)

    @property
    def problems(self) -> list[str]:
        """Descriptions of present problems, for administrators."""
        problems = []
        if self._journal.refusal:
            problems.append(self._journal.refusal)
        if self.outage:
            count = len(self.tiers.backlog)
            waiting = (
                f"{count} segments wait for their upload" if count else "uploading"
            )
            problems.append(f"{waiting}: {self.outage}")
        failing = self._local_problems()
        problems += failing[:PROBLEMS_MAX]
        if len(failing) > PROBLEMS_MAX:
            count = len(failing) - PROBLEMS_MAX
            problems.append(f"{count} more segments cannot be uploaded")
        return problems

    def _local_problems(self) -> list[str]:
        return [each.error for each in self._failures.values() if each.is_local]

    # Tracking.

    async def _load(self) -> None:
        """Find the local copies, and the segments of topics that are not open."""
        failures = 0
        while True:
            try:
                await self.objects.list_local()
                async for topic_id, entry in self._manifest.transferable_segments():
                    self._has_uploads |= entry.is_uploaded
                    if topic_id in self._logs:
                        continue
                    is_local = self.objects.is_local(entry.object_name)
                    self.tiers.add(topic_id, entry, is_local=is_local)
            except BrokerError as error:
                failures += 1
                log.warning("the segments cannot be listed: %s", error)
                await asyncio.sleep(_RETRIES.delay_s(failures))
            else:
                break
        # The logs were opened before it was known which of their segments are local.
        for topic_log in self._logs.values():
            self.add(topic_log.topic_id, topic_log.segments)
        self.loaded.set()
        self._on_changed()

    def _on_changed(self) -> None:
        """Refuse or accept messages, and evict, as the sizes require."""
        self._changed.set()
        limit = self.evictor.bytes_max
        refusal = ""
        if self.tiers.backlog_bytes > limit:
            refusal = (
                "publishing is refused: segments that are not uploaded take more than "
                f"storage.remote.local_bytes_max, {limit} bytes; it resumes when "
                f"{self.config.url} has more of them"
            )
        if bool(refusal) != bool(self._journal.refusal):
            log.warning("%s", refusal or "segments are uploaded: publishing resumes")
        self._journal.refusal = refusal
        self.evictor.check()

    # Uploading.

    async def _upload_all(self) -> None:
        while True:
            segment = self._next_segment()
            if segment is None:
                await _wait(self._due)
                continue
            self.uploading[segment.object_name] = segment
            try:
                await self._attempt(segment)
            finally:
                del self.uploading[segment.object_name]
                self._due.set()

    def _next_segment(self) -> TrackedSegment | None:
        """Return the next segment to upload; None if there is none at the moment."""
        now = self._clock()
        if now < self._retry_at:
            return None
        if not self._planned and now >= self._plan_next_at:
            eligible = (s for s in self.tiers.backlog.values() if self._is_due(s, now))
            self._planned.extend(plan_uploads(eligible, _PLAN_COUNT))
            if not self._planned:
                self._plan_next_at = now + _WAKE_S
        uploading_bytes = sum(each.byte_count for each in self.uploading.values())
        while self._planned:
            segment = self._planned[0]
            if self._is_due(segment, now):
                if (
                    self.uploading
                    and uploading_bytes + segment.byte_count > UPLOAD_MEMORY_BYTES_MAX
                ):
                    return None
                return self._planned.popleft()
            self._planned.popleft()
        return None

    def _is_due(self, segment: TrackedSegment, now: float) -> bool:
        name = segment.object_name
        topic_log = self._logs.get(segment.topic_id)
        failure = self._failures.get(name)
        return (
            self.tiers.backlog.get(name) is segment
            and name not in self.uploading
            and name != self._deleting
            and topic_log is not None
            and topic_log.refusal is None
            and (failure is None or failure.retry_at <= now)
        )

    async def _attempt(self, segment: TrackedSegment) -> None:
        try:
            await self.claim()
            await self._upload(segment)
        except TopicFenced as error:
            log.warning("%s is not uploaded: %s", segment.object_name, error)
        except CorruptSegment as error:
            self._on_failure(segment, error, is_local=True)
        except Exception as error:  # noqa: BLE001  # Logged, with its traceback.
            self._on_outage(str(error))
            self._on_failure(segment, error, is_local=False)
        else:
            self._failures.pop(segment.object_name, None)
            self._on_answer()
        self._on_changed()

    async def claim(self) -> None:
        """Raise unless the remote store is known to belong to this cluster."""
        async with self._claiming:
            if not self.evictor.is_allowed:
                await self.loaded.wait()
                await self._claim_store(self._has_uploads)
                self.evictor.is_allowed = True
                self.evictor.check()

    async def _upload(self, segment: TrackedSegment) -> None:
        topic_log = self._logs[segment.topic_id]
        name = segment.object_name
        entry = topic_log.find_segment(name)
        if entry is None:
            self.tiers.on_obsolete(name)
            return
        if entry.is_uploaded:
            self.add(topic_log.topic_id, [entry])
            return
        await self._copy(entry)
        await self._record(topic_log, segment, entry)

    async def _copy(self, entry: SegmentEntry) -> None:
        """Copy a segment to the remote store, and verify the copy."""
        name, data = entry.object_name, await self._read_local(entry)
        if data is None:
            await self._verify_lost(entry)
            return
        size, checksum = len(data), await asyncio.to_thread(crc32c, data)
        if size != entry.byte_count or entry.checksum not in (None, checksum):
            raise CorruptSegment(
                f"{name} cannot be uploaded: the local copy is damaged, it has "
                f"{size} bytes and the checksum {checksum:#010x}; restore it from "
                "a backup"
            )
        await asyncio.sleep(self._pace.delay_s(size, self._clock()))
        begun_at = self._clock()
        self.objects.remote_deletions.pop(name, None)
        await self.objects.remote.put(name, data)
        del data
        self.counts.uploaded_bytes += size
        await self._verify_remote(entry, checksum)
        self.counts.seconds.observe(self._clock() - begun_at)

    async def _read_local(self, entry: SegmentEntry) -> Buffer | None:
        try:
            return await self.objects.local.read(entry.object_name)
        except ObjectsUnavailable as error:
            raise CorruptSegment(
                f"{entry.object_name} cannot be uploaded: {error}"
            ) from error

    async def _verify_lost(self, entry: SegmentEntry) -> None:
        """
        Check the remote copy of a segment without a local copy.

        Maintenance may have written the object to the remote store.
        """
        found = await self.objects.remote.stat(entry.object_name)
        if found is None or entry.checksum is None:
            raise CorruptSegment(
                f"{entry.object_name} cannot be uploaded: its local copy is missing; "
                "restore it from a backup"
            )
        await self._verify_remote(entry, entry.checksum)

    async def _verify_remote(self, entry: SegmentEntry, checksum: int) -> None:
        """
        Read the remote copy, and compare it.

        Raises:
            ObjectsUnavailable: It differs, or cannot be read.
        """
        expected = replace(entry, checksum=checksum, part_checksums=None)
        problem = await find_damage(self.objects.remote, expected)
        if problem is not None:
            raise ObjectsUnavailable(
                f"after its upload, the remote copy of {entry.object_name} {problem}"
            )

    async def _record(
        self, topic_log: TopicLog, segment: TrackedSegment, entry: SegmentEntry
    ) -> None:
        """Record in the manifest that a segment is uploaded, if it still exists."""
        name = segment.object_name
        async with topic_log.maintenance:
            if topic_log.is_released:
                # An earlier change with an unknown outcome may have recorded it.  If
                # not, the remote copy is an orphan.
                return
            is_open = self._logs.get(topic_log.topic_id) is topic_log
            if not is_open or topic_log.find_segment(name) is None:
                # Another topic may have the name now.
                if self.tiers.find(name) in (None, segment):
                    self.tiers.on_obsolete(name)
                    self.objects.delete_remote(name)
                    self._deletions_due.set()
                return
            uploaded = replace(entry, is_uploaded=True)
            await change_manifest(self._manifest, topic_log, added=[uploaded])
            topic_log.on_uploaded(uploaded)
            is_local = self.objects.is_local(name)
            self.tiers.add(topic_log.topic_id, uploaded, is_local=is_local)
            self._has_uploads = True
            self.counts.uploads += 1

    def _on_outage(self, error: str) -> None:
        """Pause all work with the remote store; uploads fail together, so count once"""
        self.outage = error
        self._outages += 1
        now = self._clock()
        if now >= self._retry_at:
            self._outage_count += 1
            self._retry_at = now + _RETRIES.delay_s(self._outage_count)

    def _on_answer(self) -> None:
        self.outage = ""
        self._outage_count = 0

    def _on_failure(
        self, segment: TrackedSegment, error: Exception, *, is_local: bool
    ) -> None:
        self.counts.failures += 1
        now = self._clock()
        before = self._failures.get(segment.object_name)
        count = 1 if before is None else before.count + 1
        retry_at = now + _RETRIES.delay_s(count)
        self._failures[segment.object_name] = _Failure(
            count, retry_at, str(error), is_local
        )
        if now >= self._log_next_at:
            self._log_next_at = now + LOG_INTERVAL_S
            log.warning(
                "%s is not uploaded (failure %d in a row; %d segments wait): %s",
                segment.object_name,
                count,
                len(self.tiers.backlog),
                error,
                exc_info=None if isinstance(error, BrokerError) else error,
            )

    # Deleting.

    async def _find_orphans(self) -> None:
        """Search for orphans once the store is known to be the right one."""
        failures = 0
        while not self.evictor.is_allowed:
            try:
                await self.claim()
            except BrokerError as error:
                failures += 1
                self._on_outage(str(error))
                if failures == 1:
                    log.warning("the remote store cannot be used: %s", error)
                await asyncio.sleep(_RETRIES.delay_s(failures))
        self._on_answer()
        await self.orphans.run()

    async def _delete_all(self) -> None:
        while True:
            name = None
            if self._clock() >= self._retry_at:
                names = self.objects.remote_deletions
                name = next(
                    (each for each in names if each not in self.uploading), None
                )
            if name is None:
                await _wait(self._deletions_due)
                continue
            self._deleting = name
            try:
                await self.claim()
                if name in self.objects.remote_deletions:
                    await self.objects.remote.delete(name)
                    self.objects.remote_deletions.pop(name, None)
                self._on_answer()
            except BrokerError as error:
                self._on_outage(str(error))
            finally:
                self._deleting = None


async def _wait(due: asyncio.Event) -> None:
    """Return when *due* is set, or it is time to look at the clock."""
    due.clear()
    with suppress(TimeoutError):
        async with asyncio.timeout(_WAKE_S):
            await due.wait()
