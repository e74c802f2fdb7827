"""
A maintenance run of a topic, with Spark tasks or with threads.

The segments that a run writes take effect when the broker replaces the old ones, in one
transaction for each group.  A run may be interrupted at any point.  The replaced
groups stay, the other new files are orphans, and the next run starts with the segments
that the topic has then.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from pydanube.model.descriptions import Segments
from pydanube.model.errors import (
    BrokerError,
    Conflict,
    CorruptSegment,
    InvalidRequest,
    NotFound,
    SegmentsChanged,
    TopicHeld,
)
from pydanube.sync import Client
from pydanube.wire.files.segment_format import Run, SegmentIdentity, rewritten_name
from pydanube_spark.jobs import Runner
from pydanube_spark.tables.maintenance.object_files import ObjectRoot, delete_file
from pydanube_spark.tables.maintenance.pure.planning import (
    SegmentGroup,
    bucket_count,
    chunk_segments,
    plan_compaction,
    plan_merge,
)
from pydanube_spark.tables.maintenance.segment_jobs import (
    CollectKeysJob,
    CompactionRule,
    FindLatestJob,
    RewriteJob,
    RewriteResult,
    collect_keys,
    find_latest,
    key_bytes_of,
    rewrite,
)
from pydanube_spark.tables.maintenance.verification import VerifyJob, verify

log = logging.getLogger(__name__)

US_PER_S = 1_000_000
NS_PER_S = 1_000_000_000
GRACE_S = 24 * 3600.0
TARGET_BYTES = 128 * 1024 * 1024
ATTEMPTS_MAX = 3
"""How often the run of a topic begins whose segments others drop or replace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceOptions:
    """The options of a run."""

    is_merging: bool = False
    is_compacting: bool = False
    is_verifying: bool = False
    grace_s: float = GRACE_S
    """The age at which a tombstone is removed."""
    target_bytes: int = TARGET_BYTES
    """The desired size of segments."""
    is_plan_only: bool = False
    """Report the plan and change nothing; compaction still reads the keys."""


@dataclass(slots=True, kw_only=True)
class TopicReport:
    """The result of a run for one topic."""

    topic: str
    segments_before: int = 0
    segments_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    messages_before: int = 0
    messages_removed: int = 0
    segments_rewritten: int = 0
    """The number of segments that were replaced, or would be according to the plan."""
    read_bytes: int = 0
    """The decoded size of the messages that were read to rewrite them."""
    segments_verified: int = 0
    segments_without_checksum: int = 0
    """The number of verified segments without a checksum in the manifest."""
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)
    """The problems that verification found."""
    error: BrokerError | None = None
    """Why the run of the topic failed."""


def maintain(
    client: Client,
    topic: str,
    work: MaintenanceOptions,
    runner: Runner,
    *,
    tell: Callable[[str], None],
    now_us: int | None = None,
) -> TopicReport:
    """
    Maintain *topic*, a topic or one partition; *tell* gets progress messages.

    Durability: The broker replaces each group of segments as a whole or not at all.  An
        interrupted run leaves the groups that were replaced, and files that the broker
        deletes.

    Returns: The report; if the run failed, ``error`` says why.
    """
    began = time.monotonic()
    report = TopicReport(topic=topic)
    now_us = time.time_ns() // 1000 if now_us is None else now_us
    try:
        found = client.storage.segments(topic)
        report.segments_before, report.bytes_before = _size_of(found)
        report.segments_after, report.bytes_after = _size_of(found)
        report.messages_before = sum(each.count for each in found.segments)
        for left in reversed(range(ATTEMPTS_MAX)):
            if not found.segments:
                break
            running = _TopicMaintenance(
                client, topic, found, work, runner, tell, now_us
            )
            try:
                running.run(report)
            except (SegmentsChanged, CorruptSegment) as error:
                found = client.storage.segments(topic)
                if not left or not running.lacks_segments(found):
                    raise
                tell(f"{topic}: its segments have changed, so it begins again: {error}")
            else:
                break
        if not work.is_plan_only:
            found = client.storage.segments(topic)
        report.segments_after, report.bytes_after = _size_of(found)
    except BrokerError as error:
        report.error = error
    report.seconds = time.monotonic() - began
    return report


def _size_of(found: Segments) -> tuple[int, int]:
    """Return the number of segments, and their bytes."""
    return len(found.segments), sum(each.byte_count for each in found.segments)


@dataclass
class _TopicMaintenance:
    """The maintenance of one topic."""

    _client: Client
    _topic: str
    _found: Segments
    _work: MaintenanceOptions
    _runner: Runner
    _tell: Callable[[str], None]
    _now_us: int

    def __post_init__(self) -> None:
        first = self._found.segments[0]
        self._root = ObjectRoot(self._found.objects_url)
        self._prefix = first.object_name.rpartition("/")[0] + "/"
        self._run = Run(secrets.randbits(64), time.time_ns() // NS_PER_S)
        self._scratch = f"maintenance,{self._run}"
        self._scratch_files: list[str] = []
        self._superseded = 0
        self._replaced: set[str] = set()

    def lacks_segments(self, found: Segments) -> bool:
        """Return whether others have dropped or replaced segments of this run."""
        planned = {each.object_name for each in self._found.segments}
        has = {each.object_name for each in found.segments}
        return not planned <= has | self._replaced

    def run(self, report: TopicReport) -> None:
        """Verify, then compact or merge."""
        work = self._work
        if work.is_verifying and not work.is_plan_only:
            self._verify(report)
            if report.problems:
                # Damaged messages must not replace the original.
                return
        if not (work.is_compacting or work.is_merging):
            return
        if not work.is_plan_only:
            self._refuse_held()
        try:
            if work.is_compacting:
                groups, rule = self._plan_compaction()
            else:
                segments = self._found.segments
                groups, rule = plan_merge(segments, work.target_bytes), None
            if work.is_plan_only:
                report.segments_rewritten = sum(len(each.segments) for each in groups)
                report.messages_removed = self._superseded
                self._tell_plan(groups)
            else:
                self._rewrite(groups, rule, report)
        finally:
            for name in self._scratch_files:
                _delete(self._root.scratch_url(name))

    def _refuse_held(self) -> None:
        holds = self._client.topics.describe(self._topic).holds
        if holds:
            names = ", ".join(hold.name for hold in holds)
            raise TopicHeld(
                f"{self._topic} has retention holds, so its segments must not change: "
                f"{names}"
            )

    # Verification.

    def _verify(self, report: TopicReport) -> None:
        jobs = [
            VerifyJob(topic=self._topic, topic_id=self._found.topic_id, segment=each)
            for each in self._found.segments
        ]
        self._tell(f"{self._topic}: verifying {len(jobs)} segments")
        report.segments_verified = report.segments_without_checksum = 0
        for job, problem in zip(jobs, self._runner.run(jobs, verify), strict=True):
            name = job.segment.object_name
            report.segments_verified += 1
            report.segments_without_checksum += job.segment.checksum is None
            # Retention or another run may have removed the segment.
            if problem is not None and self._is_there(name):
                report.problems.append(f"{name}: {problem}")

    def _is_there(self, object_name: str) -> bool:
        segments = self._client.storage.segments(self._topic).segments
        return any(each.object_name == object_name for each in segments)

    # Compaction.

    def _plan_compaction(self) -> tuple[list[SegmentGroup], CompactionRule]:
        segments, topic = self._found.segments, self._topic
        key_bytes = sum(key_bytes_of(topic, each) for each in segments)
        buckets = bucket_count(segments, key_bytes)
        chunks = chunk_segments(segments)
        self._tell(f"{topic}: reading the keys of {len(segments)} segments")
        jobs = [
            CollectKeysJob(
                topic=topic,
                segments=chunk,
                root=self._root,
                scratch=f"{self._scratch},keys,{number}",
                bucket_count=buckets,
            )
            for number, chunk in enumerate(chunks)
        ]
        # Registered first, so that the files are deleted if a job fails.
        self._scratch_files += [
            f"{job.scratch},{bucket}.arrow" for job in jobs for bucket in range(buckets)
        ]
        taken = self._runner.run(jobs, collect_keys)
        files = [pair for each in taken for pair in each.files]
        live = [
            FindLatestJob(
                root=self._root,
                files=tuple(name for number, name in files if number == bucket),
                name=f"{self._scratch},live,{bucket}.arrow",
                bases=tuple(each.base for each in segments),
            )
            for bucket in sorted({number for number, _ in files})
        ]
        self._scratch_files += [job.name for job in live]
        lives = self._runner.run(live, find_latest)
        counts = [each for answer in taken for each in answer.segments]
        facts = {
            segment.object_name: replace(
                counts[number], live=sum(each[number] for each in lives)
            )
            for number, segment in enumerate(segments)
        }
        self._superseded = sum(
            each.count - facts[each.object_name].remaining for each in segments
        )
        tombstones_before = self._now_us - int(self._work.grace_s * US_PER_S)
        groups = plan_compaction(
            segments,
            facts,
            self._work.target_bytes,
            is_merging=self._work.is_merging,
            tombstones_before=tombstones_before,
        )
        rule = CompactionRule(
            live=tuple(job.name for job in live),
            tombstones_before=tombstones_before,
            last_offset=segments[-1].end - 1,
        )
        return groups, rule

    def _tell_plan(self, groups: Iterable[SegmentGroup]) -> None:
        for group in groups:
            self._tell(
                f"{self._topic}: would make one segment of {len(group.segments)}, "
                f"{group.base} … {group.end}, {group.byte_count} bytes"
            )

    # Rewriting.

    def _rewrite(
        self,
        groups: Sequence[SegmentGroup],
        rule: CompactionRule | None,
        report: TopicReport,
    ) -> None:
        for done in range(0, len(groups), self._runner.width):
            wave = groups[done : done + self._runner.width]
            jobs = [self._job(group, rule) for group in wave]
            written = set(jobs)
            try:
                answers = self._runner.run(jobs, rewrite)
                for job, group, answer in zip(jobs, wave, answers, strict=True):
                    report.read_bytes += answer.read_bytes
                    if answer.count == group.count and len(group.segments) == 1:
                        # Only the last tombstone could be removed, and it must stay.
                        continue
                    self._swap(group, answer, report, job, written)
            finally:
                for job in written:
                    _delete(self._root.url_of(job.name))
            count = done + len(wave)
            self._tell(f"{self._topic}: {count} of {len(groups)} segments written")

    def _job(self, group: SegmentGroup, rule: CompactionRule | None) -> RewriteJob:
        epoch = self._found.epoch
        identity = SegmentIdentity(
            topic=self._topic, topic_id=self._found.topic_id, epoch=epoch
        )
        name = rewritten_name(self._prefix, group.base, group.end, epoch, self._run)
        return RewriteJob(
            identity=identity,
            segments=group.segments,
            root=self._root,
            name=name,
            rule=rule,
        )

    def _swap(
        self,
        group: SegmentGroup,
        answer: RewriteResult,
        report: TopicReport,
        job: RewriteJob,
        written: set[RewriteJob],
    ) -> None:
        # From here on the new segment may belong to the topic, so it is deleted only
        # if the broker has certainly refused it.
        written.discard(job)
        try:
            removed = self._client.storage.replace_segments(
                self._topic,
                self._found.topic_id,
                [each.object_name for each in group.segments],
                [(answer.name, answer.byte_count, answer.checksum)],
            )
        except (InvalidRequest, Conflict, NotFound):
            written.add(job)
            raise
        self._replaced.update(each.object_name for each in group.segments)
        report.messages_removed += removed
        report.segments_rewritten += len(group.segments)


def _delete(url: str) -> None:
    # If this fails, the file is an orphan, which the broker deletes.
    with suppress(OSError):
        delete_file(url)
