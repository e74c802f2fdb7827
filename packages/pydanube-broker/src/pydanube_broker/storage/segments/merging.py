"""
Merging small segments while the broker is idle.

A topic with little traffic gets a small segment every ten minutes, and readers must
open each of them.  The Merger writes the messages of neighbours to one new segment, as
``danube maintenance run --merge`` does, and has the old ones replaced in the same way:
the new object is read in full, and one transaction changes the manifest.  A crash
leaves at most an orphan.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from crc32c import crc32c

from pydanube.aio.long_work import LongWork
from pydanube.model.errors import (
    BrokerError,
    Conflict,
    CorruptSegment,
    InvalidRequest,
    NotFound,
    NotOwner,
    ObjectsUnavailable,
)
from pydanube.model.ids import TopicId
from pydanube.model.policy import Retention
from pydanube.model.segments import SegmentEntry
from pydanube.objects.store import Objects
from pydanube.wire.files.segment_checksums import (
    UNREADABLE,
    SegmentDamaged,
    SegmentIndex,
)
from pydanube.wire.files.segment_format import (
    SCHEMA,
    Run,
    SegmentIdentity,
    object_prefix,
    rewritten_name,
)
from pydanube.wire.files.segment_writing import write_segment
from pydanube_broker.storage.config import StorageConfig
from pydanube_broker.storage.processor_time import wanted_processor_time
from pydanube_broker.storage.pure.merge_planning import plan_merges
from pydanube_broker.storage.remote.tiered_objects import TieredObjects
from pydanube_broker.storage.segments.replacement import Replacement
from pydanube_broker.storage.segments.topic_log import TopicLog

log = logging.getLogger(__name__)

INTERVAL_S = 60.0
"""How often the Merger looks whether the broker is idle."""
IDLE_LOAD = 0.2
"""An idle process uses, or waits for, at most this share of one processor."""
ROUND_S = 6.0
"""The time after which a round of merges ends, so that they take a tenth of one
processor at most."""

_US_PER_S = 1_000_000

_Facts = tuple[tuple[SegmentEntry, ...], Retention]

Replace = Callable[
    [TopicId, Sequence[str], Sequence[Replacement]],
    Awaitable[tuple[SegmentEntry, ...]],
]


def _random_nonce() -> int:
    return secrets.randbits(64)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergingTimes:
    """
    The times of merging, and the numbers in the names of its objects.

    A simulation has its own, so that a run depends on its seed only.
    """

    interval_s: float = INTERVAL_S
    processor_time: Callable[[], float] = wanted_processor_time
    """Returns the seconds of processor time that the process has used or wanted."""
    new_nonce: Callable[[], int] = _random_nonce
    """Returns a number that no other merge has got."""


class Merger:
    """Merges neighbouring small segments of open topics; see run()."""

    def __init__(
        self,
        config: StorageConfig,
        logs: Mapping[TopicId, TopicLog],
        *,
        objects: Objects,
        replace: Replace,
        may_change: Callable[[], bool],
        executor: Executor,
        clock: Callable[[], float],
        wall_clock: Callable[[], int],
        times: MergingTimes,
    ) -> None:
        """
        *replace* is ``Storage.replace_segments``.

        *may_change* returns whether segments may be replaced now: no backup is being
        made, and the disk is not full.  Files are read and written in *executor*.
        """
        self.merged_count = 0
        """The number of segments that merged ones have replaced."""
        self._config = config
        self._logs = logs
        self._objects = objects
        self._replace = replace
        self._may_change = may_change
        self._executor = executor
        self._clock = clock
        self._wall_clock = wall_clock
        self._times = times
        # The facts of topics in which there was nothing to merge.
        self._settled: dict[TopicId, _Facts] = {}

    async def run(self) -> None:
        """
        Merge segments while the process is idle, forever.

        Whether it is idle is asked every ``interval_s`` of its times.

        Cancellation: Safe at any point; a new object may be left as an orphan.
        """
        processor_time = self._times.processor_time
        while True:
            used_s, began = processor_time(), self._clock()
            await asyncio.sleep(self._times.interval_s)
            if is_idle(processor_time() - used_s, self._clock() - began):
                try:
                    await self.merge_round()
                except OSError as error:
                    # For example, the file of the backup lock cannot be opened.
                    log.warning("small segments are not merged: %s", error)

    async def merge_round(self) -> None:
        """
        Merge small segments of open topics, until ``ROUND_S`` have passed.

        Bounds: A row group that is read, one that is written, and the new object of at
            most ``merge_bytes`` are in memory.
        """
        end = self._clock() + ROUND_S
        if len(self._settled) > len(self._logs):
            self._settled = {
                topic_id: facts
                for topic_id, facts in self._settled.items()
                if topic_id in self._logs
            }
        work = LongWork()
        for topic_log in list(self._logs.values()):
            await work.did()
            facts = topic_log.segments, topic_log.retention
            if (
                not topic_log.is_configured
                or topic_log.holds
                or topic_log.refusal is not None
                or self._is_settled(topic_log.topic_id, facts)
            ):
                continue
            await work.did(len(topic_log.segments))
            groups = plan_merges(
                *facts,
                bytes_max=self._config.merge_bytes,
                may_merge=partial(self._may_merge, topic_log.start_offset),
            )
            if not groups:
                self._settled[topic_log.topic_id] = facts
            for group in groups:
                if self._clock() >= end or not self._may_change():
                    return
                if not await self._attempt(topic_log, group):
                    # It is tried again when the topic has other segments.
                    self._settled[topic_log.topic_id] = facts
                    break

    def _is_settled(self, topic_id: TopicId, facts: _Facts) -> bool:
        known = self._settled.get(topic_id)
        return known is not None and known[0] is facts[0] and known[1] == facts[1]

    def _may_merge(self, start_offset: int, segment: SegmentEntry) -> bool:
        """
        Return whether *segment* has a local copy, and no trimmed messages.

        Merging must not load remote copies, nor keep what was to be removed.
        """
        objects = self._objects
        return segment.base >= start_offset and (
            not isinstance(objects, TieredObjects)
            or objects.is_local(segment.object_name)
        )

    async def _attempt(
        self, topic_log: TopicLog, group: Sequence[SegmentEntry]
    ) -> bool:
        """Merge *group*; return whether to go on with the topic."""
        # A failing topic must not keep the others from being merged.
        try:
            await self._merge(topic_log, group)
        except Exception as error:  # Logged, with its traceback.
            log.warning(
                "topic %s: %d segments from offset %d on are not merged: %s",
                topic_log.name,
                len(group),
                group[0].base,
                error,
                exc_info=None if isinstance(error, BrokerError) else error,
            )
            return False
        self.merged_count += len(group)
        return True

    async def _merge(self, topic_log: TopicLog, group: Sequence[SegmentEntry]) -> None:
        name = rewritten_name(
            object_prefix(self._config.root, topic_log.name),
            group[0].base,
            group[-1].end,
            topic_log.epoch,
            Run(self._times.new_nonce(), self._wall_clock() // _US_PER_S),
        )
        identity = SegmentIdentity(
            topic=topic_log.name, topic_id=topic_log.topic_id, epoch=topic_log.epoch
        )
        loop = asyncio.get_running_loop()
        objects = self._objects
        # A local copy may be evicted meanwhile.
        local = objects.local if isinstance(objects, TieredObjects) else objects
        data, checksum = await loop.run_in_executor(
            self._executor, merge_segments, group, identity, local.open
        )
        await self._objects.put(name, data)
        offered = Replacement(object_name=name, byte_count=data.size, checksum=checksum)
        old = [each.object_name for each in group]
        try:
            await self._replace(topic_log.topic_id, old, [offered])
        except (InvalidRequest, Conflict, NotFound, NotOwner, ObjectsUnavailable):
            # Certainly refused; after other errors the topic may have the object.
            await self._objects.delete(name)
            raise


def is_idle(used_s: float, passed_s: float) -> bool:
    """Return whether a process that used or wanted so much processor time is idle."""
    return used_s <= passed_s * IDLE_LOAD


def merge_segments(
    group: Sequence[SegmentEntry],
    identity: SegmentIdentity,
    open_: Callable[[str], Any],
) -> tuple[pa.Buffer, int]:
    """
    Return one segment with all messages of *group*, and its checksum.

    *open_* opens an object.  All bytes are verified with the checksums of the manifest.

    Raises:
        CorruptSegment: A segment is damaged or missing.
    """
    sink = pa.BufferOutputStream()
    tables = (table for each in group for table in _tables_of(each, open_))
    write_segment(sink, identity, group[0].base, group[-1].end, tables)
    data = sink.getvalue()
    return data, crc32c(data)


def _tables_of(
    segment: SegmentEntry, open_: Callable[[str], Any]
) -> Iterator[pa.Table]:
    try:
        with open_(segment.object_name) as file:
            parquet = SegmentIndex(file, segment).open(file)
            count = parquet.metadata.num_rows
            if count != segment.count or not parquet.schema_arrow.equals(SCHEMA):
                raise SegmentDamaged(
                    f"expected the columns of a segment and {segment.count} messages, "
                    f"it has {count}"
                )
            for at in range(parquet.num_row_groups):
                yield parquet.read_row_group(at, use_threads=False)
    except UNREADABLE as error:
        raise CorruptSegment(f"{segment.object_name}: {error}") from error
