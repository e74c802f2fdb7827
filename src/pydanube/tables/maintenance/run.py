"""
A run of maintenance: topic after topic, with Spark's tasks or with threads.

Everything that a run writes is worth nothing until the broker has put it in the place
of what was there, with one transaction for each group.  So a run may be cut off
anywhere: what it has swapped in stays, the rest is orphans, and the next run goes on
with what it finds.
"""

from __future__ import annotations

import logging
import secrets
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

from pydanube.model.errors import (
    BrokerError,
    Conflict,
    InvalidRequest,
    NotFound,
    TopicHeld,
)
from pydanube.spark.jobs import run_in_threads, run_jobs
from pydanube.tables.maintenance.object_files import ObjectRoot, delete_file
from pydanube.tables.maintenance.planning import (
    SegmentGroup,
    SegmentKeyCounts,
    bucket_count,
    chunk_segments,
    in_portions,
    plan_compaction,
    plan_merge,
)
from pydanube.tables.maintenance.tasks import (
    CollectKeysJob,
    CompactionRule,
    FindLatestJob,
    RewriteJob,
    collect_keys,
    find_latest,
    key_bytes_of,
    rewrite,
)
from pydanube.tables.maintenance.verification import VerifyJob, verify
from pydanube.wire.files.segment_format import Run, SegmentIdentity, rewritten_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from pydanube.client.sync import Client
    from pydanube.model.descriptions import Segment, Segments
    from pydanube.tables.maintenance.tasks import RewriteResult

log = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")

US_PER_S = 1_000_000
NS_PER_S = 1_000_000_000
GRACE_S = 24 * 3600.0
TARGET_BYTES = 128 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceOptions:
    """What is to be done with topics."""

    is_merging: bool = False
    is_compacting: bool = False
    is_verifying: bool = False
    grace_s: float = GRACE_S
    """How old a tombstone is before it is removed."""
    target_bytes: int = TARGET_BYTES
    """How long segments should be."""
    is_plan_only: bool = False
    """Say what would be done, and do nothing of it; keys are read all the same."""


@dataclass(slots=True, kw_only=True)
class TopicReport:
    """What a run has done with one topic."""

    topic: str
    segments_before: int = 0
    segments_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    messages_before: int = 0
    messages_removed: int = 0
    segments_rewritten: int = 0
    """How many segments were replaced; with a plan only, how many would be."""
    read_bytes: int = 0
    """How much was read to rewrite them, decoded."""
    segments_verified: int = 0
    segments_without_checksum: int = 0
    """Of those, how many have none in the manifest."""
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)
    """What verification has found."""
    error: BrokerError | None = None
    """Why the topic is not finished."""


class Runner(Protocol):
    """Who carries jobs out."""

    @property
    def width(self) -> int:
        """How many at a time."""

    def run(self, jobs: Sequence[T], work: Callable[[T], R]) -> list[R]:
        """What *work* makes of *jobs*, in order; see ``spark.jobs.run_jobs``."""


@dataclass(frozen=True, slots=True)
class ThreadRunner:
    """Jobs run in threads of this process."""

    width: int

    def run(self, jobs: Sequence[T], work: Callable[[T], R]) -> list[R]:
        """See Runner."""
        return run_in_threads(self.width, jobs, work)


class SparkRunner:
    """Jobs are tasks of Spark."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        # A few for each slot, so that the last one does not hold up many.
        try:
            self.width = max(1, spark.sparkContext.defaultParallelism)
        except Exception:  # noqa: BLE001  # Spark Connect tells nobody.
            self.width = 8

    def run(self, jobs: Sequence[T], work: Callable[[T], R]) -> list[R]:
        """See Runner."""
        return run_jobs(self._spark, jobs, work)


def new_run() -> Run:
    """A run of its own."""
    return Run(secrets.randbits(64), time.time_ns() // NS_PER_S)


def maintain(
    client: Client,
    topic: str,
    work: MaintenanceOptions,
    runner: Runner,
    *,
    tell: Callable[[str], None],
    run: Run | None = None,
    now_us: int | None = None,
) -> TopicReport:
    """
    Do *work* with *topic*, a topic or one partition; *tell* is told how it goes.

    Durability: Each group of segments is replaced by the broker as a whole, or not at
        all; being cut off leaves what was replaced, and files that the broker deletes.

    Returns: What was done, also when it failed: then ``error`` says why.
    """
    began = time.monotonic()
    report = TopicReport(topic=topic)
    now_us = time.time_ns() // 1000 if now_us is None else now_us
    try:
        found = client.segments(topic)
        _note_before(report, found.segments)
        if found.segments:
            upkeep = _TopicMaintenance(
                client,
                topic,
                found,
                work=work,
                runner=runner,
                tell=tell,
                run=run or new_run(),
                now_us=now_us,
            )
            upkeep.do(report)
        after = found if work.is_plan_only else client.segments(topic)
        report.segments_after = len(after.segments)
        report.bytes_after = sum(each.byte_count for each in after.segments)
    except BrokerError as error:
        report.error = error
    report.seconds = time.monotonic() - began
    return report


def _note_before(report: TopicReport, segments: Sequence[Segment]) -> None:
    report.segments_before = report.segments_after = len(segments)
    report.bytes_before = sum(each.byte_count for each in segments)
    report.bytes_after = report.bytes_before
    report.messages_before = sum(each.count for each in segments)


class _TopicMaintenance:
    """The upkeep of one topic."""

    def __init__(
        self,
        client: Client,
        topic: str,
        found: Segments,
        *,
        work: MaintenanceOptions,
        runner: Runner,
        tell: Callable[[str], None],
        run: Run,
        now_us: int,
    ) -> None:
        self._client = client
        self._topic = topic
        self._found = found
        self._work = work
        self._runner = runner
        self._tell = tell
        self._run = run
        self._now_us = now_us
        self._root = ObjectRoot.of(found.segments[0])
        self._prefix = found.segments[0].object_name.rpartition("/")[0] + "/"
        self._scratch = f"maintenance,{run}"
        self._scratch_files: list[str] = []
        self._superseded = 0

    def do(self, report: TopicReport) -> None:
        """Verify, then compact or merge."""
        work = self._work
        if work.is_verifying and not work.is_plan_only:
            self._verify(report)
            if report.problems:
                # What is damaged must not become the only copy.
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
        holds = self._client.describe_topic(self._topic).holds
        if holds:
            names = ", ".join(hold.name for hold in holds)
            raise TopicHeld(
                f"{self._topic} is held by {names}: its segments stay as they are"
            )

    # Verification.

    def _verify(self, report: TopicReport) -> None:
        jobs = [
            VerifyJob(topic=self._topic, topic_id=self._found.topic_id, segment=each)
            for each in self._found.segments
        ]
        self._tell(f"{self._topic}: verifying {len(jobs)} segments")
        for answer in self._runner.run(jobs, verify):
            report.segments_verified += 1
            report.segments_without_checksum += not answer.has_checksum
            if answer.problem is None:
                continue
            if not self._is_there(answer.object_name):
                # Retention, or another run, was faster.
                continue
            report.problems.append(f"{answer.object_name}: {answer.problem}")

    def _is_there(self, object_name: str) -> bool:
        segments = self._client.segments(self._topic).segments
        return any(each.object_name == object_name for each in segments)

    # Compaction.

    def _plan_compaction(self) -> tuple[list[SegmentGroup], CompactionRule]:
        segments, topic = self._found.segments, self._topic
        key_bytes = sum(key_bytes_of(topic, each) for each in segments)
        buckets = bucket_count(segments, key_bytes)
        chunks = chunk_segments(segments)
        self._tell(f"{topic}: taking the keys of {len(segments)} segments")
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
        # Also when it fails, whatever some of them have written.
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
        counts = self._runner.run(live, find_latest)
        facts = {
            each.object_name: SegmentKeyCounts(
                without_key=each.without_key,
                live=sum(count[number] for count in counts),
                oldest_tombstone=each.oldest_tombstone,
            )
            for number, each in enumerate(
                each for answer in taken for each in answer.segments
            )
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
        done = 0
        for wave in in_portions(groups, self._runner.width):
            jobs = [self._job(group, rule) for group in wave]
            written = set(jobs)
            try:
                answers = self._runner.run(jobs, rewrite)
                for job, group, answer in zip(jobs, wave, answers, strict=True):
                    report.read_bytes += answer.read_bytes
                    if answer.count == group.count and len(group.segments) == 1:
                        # A tombstone that has to stay, and nothing else.
                        continue
                    self._swap(group, answer, report, job, written)
            finally:
                for job in written:
                    _delete(self._root.url_of(job.name))
            done += len(wave)
            self._tell(f"{self._topic}: {done} of {len(groups)} segments written")

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
        # From here on it may be a part of the topic; who deletes it must be sure
        # that it is not.
        written.discard(job)
        try:
            removed = self._client.replace_segments(
                self._topic,
                self._found.topic_id,
                [each.object_name for each in group.segments],
                [(answer.name, answer.byte_count, answer.checksum)],
            )
        except (InvalidRequest, Conflict, NotFound):
            written.add(job)
            raise
        report.messages_removed += removed
        report.segments_rewritten += len(group.segments)


def _delete(url: str) -> None:
    # What is left is an orphan, which the broker deletes.
    with suppress(OSError):
        delete_file(url)
