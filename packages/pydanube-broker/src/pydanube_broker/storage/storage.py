"""Storage: the logs of all topics of a broker, over one journal."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from functools import partial

from pydanube.aio.futures import Done, completion
from pydanube.model.descriptions import StorageDescription
from pydanube.model.errors import (
    BrokerError,
    CorruptJournal,
    DiskFull,
    InconsistentDirectory,
    InvalidRequest,
    TopicNotFound,
)
from pydanube.model.ids import Epoch, Offset, TopicId
from pydanube.model.policy import TopicPolicy
from pydanube.model.positions import to_datetime
from pydanube.model.segments import SegmentEntry
from pydanube.objects.addresses import locating_options
from pydanube.objects.store import Objects
from pydanube.wire.buffer import Buffer
from pydanube.wire.files.journal_format import (
    Entry,
    MetadataRevision,
    TopicDeleted,
)
from pydanube.wire.files.segment_format import object_prefix, parse_object_name
from pydanube_broker.storage.config import StorageConfig
from pydanube_broker.storage.journal.journal import Journal
from pydanube_broker.storage.journal.journal_copying import JournalCopy
from pydanube_broker.storage.journal.state import ProgressEntry, TopicState
from pydanube_broker.storage.journal.unsealed import find_unsealed, uploaded_of
from pydanube_broker.storage.pure.by_shard import ByShard
from pydanube_broker.storage.pure.offset_changes import OffsetChanges
from pydanube_broker.storage.remote.store_copying import StoreCopying
from pydanube_broker.storage.remote.tiered_objects import TieredObjects
from pydanube_broker.storage.remote.uploading import Uploader
from pydanube_broker.storage.remote.verification import Verification
from pydanube_broker.storage.segments.idle_logs import IdleLogs
from pydanube_broker.storage.segments.manifest import HoldableManifest, change_manifest
from pydanube_broker.storage.segments.merging import Merger, MergingTimes
from pydanube_broker.storage.segments.replacement import (
    REPLACED_MAX,
    Replacement,
    VerifiedReplacement,
    plan_replacement,
    verify_replacement,
)
from pydanube_broker.storage.segments.seal_planning import (
    small_segments_problem,
)
from pydanube_broker.storage.segments.sealing import Sealer, no_room_needed
from pydanube_broker.storage.segments.segment_cache import SegmentCache
from pydanube_broker.storage.segments.segment_pages import SegmentPages
from pydanube_broker.storage.segments.segments import topic_id_of
from pydanube_broker.storage.segments.topic_log import (
    SegmentTotals,
    TailMemory,
    TopicLog,
)
from pydanube_broker.storage.segments.topic_openings import Leftover, opening_of

log = logging.getLogger(__name__)

PROBLEMS_MAX = 10
"""The most topics named among the problems of storage."""


class Storage:
    """
    The logs of all topics of a broker; see ``open_storage``.

    Threads: It belongs to one event loop.
    """

    def __init__(
        self,
        config: StorageConfig,
        journal: Journal,
        objects: Objects,
        manifest: HoldableManifest,
        *,
        cache: SegmentCache,
        seal_thread: Executor,
        claim_remote: Callable[[bool], Awaitable[None]] | None,
        clock: Callable[[], float],
        wall_clock: Callable[[], int],
        merging: MergingTimes,
    ) -> None:
        self.recovered: list[tuple[TopicId, str]] = [
            (topic_id, topic.name) for topic_id, topic in journal.state.topics.items()
        ]
        """The topics in the journal at the start, with their names."""
        self.journal = journal
        self.logs: ByShard[TopicId, TopicLog] = ByShard()
        """The logs of the open topics."""
        self.segment_totals = SegmentTotals()
        """The segments of ``logs``."""
        self.offset_changes = OffsetChanges()
        """The changes of ``logs``."""
        self.memory = TailMemory(config.seal_bytes, config.tail_bytes_max)
        self.cache = cache
        self.retention_interval_s = config.retention_interval_s
        """How often retention is applied to open topics."""
        self.idle = IdleLogs(
            self.logs,
            journal,
            manifest,
            cache=cache,
            memory=self.memory,
            clock=clock,
            wall_clock=wall_clock,
        )
        """Topics that are not open."""
        self._config = config
        self._objects = objects
        self._tiers = objects if isinstance(objects, TieredObjects) else None
        self.remote = None if self._tiers is None else self._tiers.remote
        """The remote object store, if there is one."""
        self.public_objects = objects if self.remote is None else self.remote
        """The store whose objects other programs read: the remote one, if any."""
        self.uploader: Uploader | None = None
        """Uploads segments, if there is a remote object store."""
        if self._tiers is not None and claim_remote is not None:
            self.uploader = Uploader(
                config.remote,
                self._tiers,
                self.logs,
                journal=journal,
                manifest=manifest,
                claim=claim_remote,
                prefix=object_prefix(config.root, "").lstrip("/"),
                orphan_keep_s=config.orphan_keep_s,
                clock=clock,
                wall_clock=wall_clock,
            )
        uploader = self.uploader
        self._delete = objects.delete if uploader is None else uploader.delete
        self.sealer = Sealer(
            config,
            self.logs,
            self.memory,
            journal=journal,
            objects=objects,
            manifest=manifest,
            executor=seal_thread,
            clock=clock,
            wall_clock=wall_clock,
            on_sealed=None if uploader is None else uploader.add,
            delete=self._delete,
            room=no_room_needed if uploader is None else uploader.evictor.room,
        )
        self.merger = Merger(
            config,
            self.logs,
            objects=objects,
            replace=self.replace_segments,
            may_change=lambda: not (manifest.is_held or journal.reserve.is_released),
            executor=seal_thread,
            clock=clock,
            wall_clock=wall_clock,
            times=merging,
        )
        """Merges small segments while the broker is idle."""
        pages = SegmentPages(manifest, clock)
        claim = None if self.uploader is None else self.uploader.claim
        self.verification = Verification(objects, self.logs, pages=pages, claim=claim)
        self.store_copying: StoreCopying | None = None
        """Copies segments to another store, if there is a remote object store."""
        if self._tiers is not None and claim is not None:
            self.store_copying = StoreCopying(self._tiers, pages=pages, claim=claim)
        self._manifest = manifest
        self._clock = clock
        self._wall_clock = wall_clock
        self._loop = asyncio.get_running_loop()

    async def open_log(
        self,
        topic_id: TopicId,
        name: object,
        epoch: Epoch,
        policy: TopicPolicy,
        *,
        shard: int | None = None,
        is_new: bool = False,
        start_offset: int = 0,
    ) -> TopicLog:
        """
        Open the log of a topic from the journal and the manifest.

        If it *is_new*, it has no segments yet.  *shard* is that of the topic, if the
        broker is in a cluster; then *epoch* is that of the shard.  Segments that are
        not uploaded are removed from the manifest: the journal has their messages, and
        only their writer knows whether their objects are complete.

        Messages before *start_offset* were trimmed.  The log continues there at the
        earliest, even if a lost journal leaves it shorter.

        Durability: The journal's record that it is open, with *epoch*, is on disk on
            return; but in a cluster, a topic that is new to the journal does not wait.

        Raises:
            CorruptJournal: Messages are neither in the journal nor in a segment.
            InconsistentDirectory: The object store has later messages of the topic
                than the journal and the manifest, which must be older copies.
        """
        assert topic_id not in self.logs, f"topic {topic_id} is open already"
        recorded = () if is_new else await self._manifest.load(topic_id)
        state = self.find_state(topic_id)
        if shard is None:
            segments = await self._without_lost(recorded)
        else:
            segments = uploaded_of(recorded)
        frames, sealed_offset, end_offset = find_unsealed(
            topic_id,
            segments,
            state,
            self.journal.recovered.get(topic_id, ()),
            journal_begin=self.journal.first_name,
        )
        if end_offset < start_offset:
            frames, sealed_offset = [], Offset(start_offset)
            end_offset = sealed_offset
        await self._check_objects(topic_id, str(name), recorded, end_offset)
        lost = recorded[len(segments) :]
        if lost:
            if sealed_offset > max(lost[0].base, start_offset):
                raise CorruptJournal(
                    f"topic {topic_id}: the segment {lost[0].object_name} is neither "
                    "on the local disk nor in the remote object store, and the "
                    f"journal has messages from offset {sealed_offset} on"
                )
            log.log(
                logging.WARNING if shard is None else logging.INFO,
                "topic %s: the segments from offset %d on were not uploaded; their "
                "messages are in the journal",
                name,
                lost[0].base,
            )
            # Before the log exists: it seals these messages again, and the new segments
            # would overlap the lost ones.
            await self._manifest.remove_lost(topic_id, epoch, shard=shard, lost=lost)
        topic_log = TopicLog(
            topic_id,
            str(name),
            epoch,
            policy,
            journal=self.journal,
            cache=self.cache,
            memory=self.memory,
            clock=self._clock,
            segments=segments,
            sealed_offset=sealed_offset,
            shard=shard,
            start_offset=start_offset,
            totals=self.segment_totals,
            changes=self.offset_changes,
        )
        opened = opening_of(
            topic_log,
            state,
            end_offset,
            topic_log.released_offset,
        )
        if opened is not None:
            try:
                if shard is not None and state is None:
                    # Its first batch comes later in the journal, so no crash leaves a
                    # batch on disk without this entry.
                    self.journal.append(opened, None, sync=False)
                else:
                    await self._append(opened)
            except BaseException:
                topic_log.discard()
                raise
        # No await from here on: nobody must see a log without its messages.
        topic_log.restore(frames, self._clock())
        # Now the log has them.  If a step above fails, the next attempt needs them.
        self.journal.recovered.pop(topic_id, None)
        assert topic_id not in self.logs, f"topic {topic_id} was opened twice"
        self.logs[topic_id] = topic_log
        if self.uploader is not None:
            self.uploader.add(topic_id, segments)
        self.sealer.on_opened(topic_log)
        return topic_log

    def release_log(self, topic_id: TopicId, reason: BrokerError) -> None:
        """
        Stop serving a topic because of *reason*: another broker may serve it now.

        What is committed stays in the journal and in segments, for the other broker.
        """
        topic_log = self.logs.pop(topic_id)
        if self.uploader is not None:
            self.uploader.on_released(topic_log.segments)
        topic_log.release(reason)

    async def _without_lost(
        self, segments: tuple[SegmentEntry, ...]
    ) -> tuple[SegmentEntry, ...]:
        """
        Return *segments* up to the first one that was lost with the disk.

        From there on, a journal that outlives the disk has the messages.
        """
        if not self.journal.outlives_disk:
            return segments
        for at, segment in enumerate(segments):
            if segment.is_uploaded:
                continue
            if await self._objects.stat(segment.object_name) is None:
                return segments[:at]
        return segments

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
            # It may belong to a deleted topic of the same name.
            if await asyncio.to_thread(_is_of_topic, self._objects, topic_id, name):
                raise InconsistentDirectory(
                    f"topic {topic}: the object {name} has messages up to offset "
                    f"{parsed.end}, the journal and the metadata only up to "
                    f"{end_offset}: they are older than the object store. Restore "
                    "newer ones, or run 'danube recover --from-segments --accept-loss'"
                )

    async def delete_topic(
        self, topic_id: TopicId, leftover: Leftover | None = None
    ) -> None:
        """
        Delete the topic with its messages, segments, cursors and producers.

        If the topic is not open and not in this journal, *leftover* describes it.

        Durability: On return the deletion is durable.  After a failure or a crash,
            parts may be deleted; ``recovered`` names the topic, to delete it again.

        Raises:
            TopicFenced: Another broker writes this log now; nothing was deleted.
            ObjectsUnavailable, MetadataUnavailable, DiskFull: Try again.
        """
        topic_log = self.logs.get(topic_id)
        if topic_log is None:
            await self._delete_history(topic_id, leftover)
            return
        # Before the first await: a batch that is accepted after the deletion has begun
        # would be acknowledged and then removed.
        topic_log.refusal = TopicNotFound(f"the topic {topic_log.name} is deleted")
        async with topic_log.maintenance:
            await self._delete_history(topic_id, None)
            if topic_log.is_released:
                # Its shard left meanwhile, and release_log() has discarded the log.
                return
            self.logs.pop(topic_id, None)
            topic_log.discard()
        await self.sealer.trim_journal()

    async def _delete_history(
        self, topic_id: TopicId, leftover: Leftover | None
    ) -> None:
        topic_log, state = self.logs.get(topic_id), self.find_state(topic_id)
        known = topic_log or leftover or state
        segments = await self._manifest.load(topic_id)
        if segments:
            # The manifest first: readers rely on the objects that it names.  Without a
            # log and a state, the last segment has the newest epoch there is.
            epoch = Epoch(segments[-1].epoch) if known is None else known.epoch
            shard = None if known is None else known.shard
            await self._manifest.change(topic_id, epoch, shard=shard, removed=segments)
        names = {segment.object_name for segment in segments}
        if known is not None:
            names |= await self._find_objects(topic_id, known.name)
        for object_name in sorted(names):
            await self._delete(object_name)
        # Last, so that after a crash ``recovered`` names the topic.
        await self._append(TopicDeleted(topic_id))
        self.journal.recovered.pop(topic_id, None)

    async def _find_objects(self, topic_id: TopicId, topic: str) -> set[str]:
        # Another topic of the same name may exist, so read the topic id in each file.
        names = await self._objects.names(object_prefix(self._config.root, topic))
        is_ours = partial(_is_of_topic, self._objects, topic_id)
        ours = [await asyncio.to_thread(is_ours, name) for name in names]
        return {name for name, mine in zip(names, ours, strict=True) if mine}

    def find_state(self, topic_id: TopicId) -> TopicState | None:
        """Return the committed state of a topic, which must not be changed."""
        return self.journal.state.topics.get(topic_id)

    def must_be_opened(self, topic_id: TopicId) -> bool:
        """
        Return whether a topic is to be opened at once, and not when it is used.

        It has unsealed messages, and keeps its journal files until it is opened or
        deleted; if the journal has lost these messages, open_log() raises.  Or messages
        have failed, so that a subscription may be blocked, which must be reported.
        """
        state = self.find_state(topic_id)
        return bool(self.journal.recovered.get(topic_id)) or (
            state is not None
            and (state.sealed_offset < state.end_offset or state.has_failures)
        )

    def note_metadata_revision(self, revision: int) -> None:
        """
        Record that the metadata store has *revision* on disk.

        Durability: The next sync of the journal covers it.
        """
        # Without the record, only the detection of lost metadata is weaker.
        with suppress(BrokerError):
            self.journal.append(MetadataRevision(revision), None, sync=False)

    def copy_journal(self) -> JournalCopy:
        """
        Return what is committed and not sealed, of all topics.

        Bounds: The copy refers to the tails, so it keeps their messages in memory.
        """
        logs = self.logs.items()
        return JournalCopy(
            snapshot=list(self.journal.state.snapshot()),
            frames=self.journal.recovered
            | {topic_id: each.tail.frames for topic_id, each in logs},
            sealed_offsets={topic_id: each.sealed_offset for topic_id, each in logs},
        )

    def keeping_segments(self) -> AbstractAsyncContextManager[None]:
        """
        Remove no segment during the body, neither by retention nor by deletion.

        Raises:
            BackupRunning: Segments are being kept already.
        """
        return self._manifest.held()

    def check_may_remove(self) -> None:
        """
        Raise if no segment may be removed now.

        Raises:
            BackupRunning: A backup is being made.
        """
        self._manifest.check_not_held()

    async def read_segment(self, segment: SegmentEntry) -> Buffer | None:
        """
        Return all bytes of a segment's object; None if it does not exist.

        Raises:
            ObjectsUnavailable: The object store does not answer.
        """
        return await self._objects.read(segment.object_name)

    def segment_url(self, segment: SegmentEntry) -> str:
        """Return the URL of the local copy of *segment*, or of the remote copy."""
        return self._objects.url(segment.object_name)

    def remote_url(self, segment: SegmentEntry) -> str:
        """Return the URL of the remote copy of *segment*; empty if there is none."""
        if self._tiers is None or not segment.is_uploaded:
            return ""
        return self._tiers.remote.url(segment.object_name)

    @property
    def store_options(self) -> dict[str, str]:
        """The options that say where the remote store is."""
        return locating_options(self._config.remote.options)

    @property
    def objects_url(self) -> str:
        """The URL of the directory where maintenance writes new segments."""
        objects = self._objects
        local = objects.local if isinstance(objects, TieredObjects) else objects
        return local.url("").rstrip("/")

    def save(
        self,
        entry: ProgressEntry,
        done: Done | None = None,
    ) -> None:
        """
        Save a change of the cursors or producers of a topic.

        A producer that is opened again keeps the state that it had under the same id.

        Durability: With *done* it is on disk when *done* gets None.  Without, the next
            sync of the journal covers it.
        """
        error: BrokerError
        if not (entry.topic_id in self.logs or self.find_state(entry.topic_id)):
            error = TopicNotFound(f"topic {entry.topic_id} is not stored here")
        else:
            try:
                self.journal.append(entry, done, sync=done is not None)
            except BrokerError as failure:
                error = failure
            else:
                return
        if done is not None:
            # As after a commit, *done* is not called before this method returns.
            self._loop.call_soon(done, error)

    async def replace_segments(
        self,
        topic_id: TopicId,
        old_names: Sequence[str],
        replacements: Sequence[Replacement],
    ) -> tuple[SegmentEntry, ...]:
        """
        Replace the segments named *old_names* by *replacements*.

        The replacements are read in full and compared with the old segments; then one
        transaction changes the manifest.  The old objects are kept for
        ``replaced_keep_s``, and uploaded ones until the replacements are, too.  If the
        journal outlives the disk, the replacements are uploaded before the transaction,
        and the topic is sealed meanwhile.

        Durability: On return the replacement is durable; on another error than
            MetadataUnavailable, nothing was replaced.

        Raises:
            TopicNotFound: The topic is not open.
            TopicHeld: A retention hold forbids changing its segments.
            SegmentsChanged: The topic does not have the old segments any more, or the
                objects do not exist; plan again.
            InvalidRequest: The objects cannot replace the old segments.
            TopicFenced: Another broker writes this log now.
            MetadataUnavailable: The outcome is unknown.  If they were replaced, this
                is undone before the next change of the topic's segments.
        """
        topic_log = self.logs.get(topic_id)
        if topic_log is None:
            raise TopicNotFound(f"topic {topic_id} is not open here")
        # One more than allowed, so that plan_replacement() refuses too many.
        added = await self._local_bytes_of(replacements[: REPLACED_MAX + 1])
        # The room first, because making it takes the locks of topics.
        async with self.sealer.room(added):
            async with topic_log.maintenance:
                _check_replaceable(topic_log)
                found = [
                    await asyncio.to_thread(
                        verify_replacement,
                        each,
                        partial(self._objects.open, each.object_name),
                    )
                    for each in replacements[: REPLACED_MAX + 1]
                ]
                old, new = self._plan_replacement(topic_log, old_names, found)
                if not self.journal.outlives_disk:
                    await self._replace(topic_log, old, new)
                    return new
            # The journal does not have the messages of the old segments any more.  The
            # upload takes as long as the store is away, and sealing needs the lock.
            uploaded = await self.require_uploader().upload_first(new)
            found = [
                replace(each, entry=entry)
                for each, entry in zip(found, uploaded, strict=True)
            ]
            async with topic_log.maintenance:
                _check_replaceable(topic_log)
                old, new = self._plan_replacement(topic_log, old_names, found)
                await self._replace(topic_log, old, new)
                return new

    def _plan_replacement(
        self,
        topic_log: TopicLog,
        old_names: Sequence[str],
        found: Sequence[VerifiedReplacement],
    ) -> tuple[tuple[SegmentEntry, ...], tuple[SegmentEntry, ...]]:
        return plan_replacement(
            topic_log.segments,
            old_names,
            found,
            topic=topic_log.name,
            topic_id=topic_log.topic_id,
            epoch=topic_log.epoch,
            root=self._config.root,
            now=self._wall_clock(),
        )

    async def _replace(
        self,
        topic_log: TopicLog,
        old: Sequence[SegmentEntry],
        new: Sequence[SegmentEntry],
    ) -> None:
        """Replace the segments *old* by *new*; the caller holds the topic's lock."""
        if self._tiers is not None:
            for each in new:
                await self._tiers.find_local(each.object_name)
        await change_manifest(self._manifest, topic_log, removed=old, added=new)
        # No await until the end: readers get the old segments or the new ones, and
        # the old objects are kept for those that have them open.
        topic_log.on_replaced(old, new)
        if self.uploader is not None:
            self.uploader.on_replaced(old)
            self.uploader.add(topic_log.topic_id, new)
        # The remote copies of messages stay until there are others.
        has_copies = any(each.is_uploaded for each in old)
        self.sealer.delete_later(
            topic_log,
            [each.object_name for each in old],
            uploaded_end=old[-1].end if has_copies else 0,
        )

    async def _local_bytes_of(self, replacements: Sequence[Replacement]) -> int:
        """Return the size of the files that maintenance has written."""
        if self._tiers is None:
            return 0
        local = self._tiers.local
        found = [await local.stat(each.object_name) for each in replacements]
        return sum(each.byte_count for each in found if each is not None)

    def check_disk(self) -> None:
        """
        Raise if the disk is too full to publish or stage messages.

        Raises:
            DiskFull: Only deletions, cursors and metadata may use the reserve; or too
                many segments are not uploaded.
        """
        reserve = self.journal.reserve
        if reserve.is_released:
            raise DiskFull(reserve.refusal)
        if self.journal.refusal:
            raise DiskFull(self.journal.refusal)

    @property
    def has_room(self) -> bool:
        """Whether publishers may continue: the disk and sealing keep up."""
        return self.journal.has_room and self.memory.has_room

    @property
    def problems(self) -> list[str]:
        """
        Descriptions of present problems, for administrators.

        Bounds: At most ``PROBLEMS_MAX`` topics are named.
        """
        problems = []
        memory = self.memory
        if not memory.has_room:
            problems.append(
                f"publishing waits: unsealed messages take {memory.used_bytes} "
                f"bytes of memory, and {memory.sealable_bytes_max} are allowed "
                "(storage.tail_bytes_max, less what topics hold whose sealing fails)"
            )
        if not self.journal.has_room:
            problems.append(
                f"publishing waits: {self.journal.pending_bytes} bytes wait for the "
                "journal (storage.journal.pending_bytes_max)"
            )
        if self.journal.failure is not None:
            problems.append(str(self.journal.failure))
        if self.journal.problem:
            problems.append(self.journal.problem)
        failing = self.sealer.failing
        problems += [
            f"sealing {each.topic} fails since "
            f"{to_datetime(each.since).isoformat(timespec='seconds')}: {each.error}"
            for each in failing[:PROBLEMS_MAX]
        ]
        if len(failing) > PROBLEMS_MAX:
            problems.append(f"sealing {len(failing) - PROBLEMS_MAX} more topics fails")
        if self.uploader is not None:
            problems += self.uploader.problems
        totals = self.segment_totals
        small = small_segments_problem(
            totals.count,
            totals.byte_count,
            lambda: ((len(each.segments), each.name) for each in self.logs.values()),
        )
        return problems if small is None else [*problems, small]

    def describe(self) -> StorageDescription:
        """Describe the segments and their uploads."""
        uploader = self.uploader
        described = StorageDescription(
            remote_url="",
            local_bytes=self.segment_totals.byte_count,
            problems=tuple(self.problems),
            journal_kind=self._config.journal.kind,
            journal_url=self._config.journal_url,
            journal_bytes=self.journal.byte_count,
        )
        if uploader is None:
            return described
        counts, tiers = uploader.counts, uploader.tiers
        return replace(
            described,
            remote_url=uploader.config.url,
            local_bytes=tiers.local_bytes,
            local_bytes_max=uploader.config.local_bytes_max,
            backlog_segments=len(tiers.backlog),
            backlog_bytes=tiers.backlog_bytes,
            backlog_age_s=uploader.oldest_age_s,
            uploads=counts.uploads,
            uploaded_bytes=counts.uploaded_bytes,
            upload_failures=counts.failures,
            evictions=uploader.evictor.count,
            evicted_bytes=uploader.evictor.byte_count,
            is_refusing=bool(self.journal.refusal),
        )

    def require_uploader(self) -> Uploader:
        """
        Return the uploader.

        Raises:
            InvalidRequest: There is no remote object store.
        """
        if self.uploader is None:
            raise InvalidRequest(
                "this broker has no remote object store; set storage.remote.url"
            )
        return self.uploader

    def require_store_copying(self) -> StoreCopying:
        """
        Return what copies segments to another store.

        Raises:
            InvalidRequest: There is no remote object store.
        """
        self.require_uploader()
        assert self.store_copying is not None
        return self.store_copying

    async def wait_for_room(self) -> None:
        """Return when publishers may continue, or the journal has failed."""
        while not self.has_room and self.journal.failure is None:
            await self.journal.wait_for_room()
            await self.memory.wait_for_room()

    @property
    def corrupt_segment_count(self) -> int:
        """The number of segments whose last read failed."""
        return len(self.cache.failing)

    async def _append(self, entry: Entry) -> None:
        await completion(partial(self.journal.append, entry))


def _is_of_topic(objects: Objects, topic_id: TopicId, name: str) -> bool:
    return topic_id_of(partial(objects.open, name)) == topic_id


def _check_replaceable(topic_log: TopicLog) -> None:
    """
    Raise unless the segments of a topic may be changed.

    Raises:
        TopicHeld: A retention hold forbids it.
        BrokerError: The topic accepts nothing more.
    """
    if topic_log.refusal is not None:
        raise topic_log.refusal.with_traceback(None)
    topic_log.check_not_held("its segments must not be changed; release it first")
