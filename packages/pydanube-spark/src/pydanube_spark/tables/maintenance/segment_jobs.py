"""
The jobs of maintenance, each of which reads and writes files itself.

Compaction by key reads the topic twice.  ``collect_keys`` reads only keys and offsets,
and writes the last offset of each key to buckets by a hash of the key.
``find_latest`` joins one bucket of all jobs, and writes the offsets that are the last
of their key, in order.  ``rewrite`` then reads whole segments, and keeps the messages
without a key and those offsets.

Bounds: ``collect_keys`` and ``find_latest`` hold the distinct keys of their segments or
bucket, and one row group.  ``rewrite`` holds one row group that it reads, one that it
writes, and eight bytes for each key that stays in its group.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from pydanube.model.descriptions import Segment
from pydanube.wire.files.segment_format import (
    SCHEMA,
    SegmentIdentity,
    read_footer,
    tombstones_of,
)
from pydanube.wire.files.segment_writing import write_segment
from pydanube_spark.reader.segment_files import open_existing_segment, read_row_groups
from pydanube_spark.tables.maintenance.object_files import (
    ObjectRoot,
    checksum_of,
    new_file,
    open_scratch,
)
from pydanube_spark.tables.maintenance.pure.planning import SegmentKeyCounts

_KEYS_MAX = 500_000
"""How many keys are collected before duplicates are removed."""

_IPC_BATCH_ROWS = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectKeysJob:
    """A job that finds the last offset of each key in some segments."""

    topic: str
    segments: tuple[Segment, ...]
    root: ObjectRoot
    scratch: str
    """The prefix of the names of the files that it writes."""
    bucket_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectKeysResult:
    """The result of a CollectKeysJob."""

    segments: tuple[SegmentKeyCounts, ...]
    """One for each segment of the job; ``live`` is not known yet."""
    files: tuple[tuple[int, str], ...]
    """The number and the file name of each bucket that is not empty."""


def collect_keys(job: CollectKeysJob) -> CollectKeysResult:
    """
    Run *job*.

    Raises:
        CorruptSegment: A segment is damaged or missing.
    """
    latest = _LatestOffsets()
    segments = [
        _collect_keys_of(job.topic, segment, latest) for segment in job.segments
    ]
    files = []
    for bucket, table in _spread(latest.finish(), job.bucket_count):
        name = f"{job.scratch},{bucket}.arrow"
        _write_ipc(job.root.scratch_url(name), table)
        files.append((bucket, name))
    return CollectKeysResult(segments=tuple(segments), files=tuple(files))


class _LatestOffsets:
    """The highest offset of each key so far."""

    def __init__(self) -> None:
        self._tables: list[pa.Table] = []
        self._count = 0
        # The number of distinct keys when duplicates were last removed.
        self._distinct = 0

    def add(self, table: pa.Table) -> None:
        """Add *table* with the columns ``key``, without nulls, and ``offset``."""
        self._tables.append(_last_of_each(table))
        self._count += self._tables[-1].num_rows
        # Removing duplicates processes all rows, so it waits until they have doubled.
        if self._count > max(_KEYS_MAX, 2 * self._distinct):
            self.finish()

    def finish(self) -> pa.Table:
        """Remove duplicates, and return each key with its highest offset."""
        if len(self._tables) != 1:
            empty = pa.table({"key": pa.array([], pa.binary()), "offset": _int64([])})
            self._tables = [_last_of_each(pa.concat_tables([empty, *self._tables]))]
        self._count = self._distinct = self._tables[0].num_rows
        return self._tables[0]


def _last_of_each(table: pa.Table) -> pa.Table:
    grouped = table.group_by("key", use_threads=False).aggregate([("offset", "max")])
    return grouped.select(["key", "offset_max"]).rename_columns(["key", "offset"])


def _collect_keys_of(
    topic: str, segment: Segment, latest: _LatestOffsets
) -> SegmentKeyCounts:
    without_key = 0
    with open_existing_segment(topic, segment) as file:
        footer = read_footer(file.parquet.metadata.metadata)
        assert footer is not None
        for table in read_row_groups(topic, segment, file, ["key", "offset"]):
            nulls = table.column("key").null_count
            without_key += nulls
            if nulls == table.num_rows:
                continue
            if nulls:
                table = table.filter(table.column("key").is_valid())  # noqa: PLW2901
            latest.add(table.select(["key", "offset"]))
    return SegmentKeyCounts(
        without_key=without_key, oldest_tombstone=footer.oldest_tombstone
    )


def _spread(table: pa.Table, bucket_count: int) -> Iterator[tuple[int, pa.Table]]:
    """Partition *table* by a hash of its keys, and yield the buckets with rows."""
    if not table.num_rows:
        return
    if bucket_count == 1:
        yield 0, table
        return
    keys = table.column("key").to_pylist()
    buckets = pa.array([crc32(key) % bucket_count for key in keys], pa.int32())
    for bucket in range(bucket_count):
        part = table.filter(pc.equal(buckets, bucket))
        if part.num_rows:
            yield bucket, part


@dataclass(frozen=True, slots=True, kw_only=True)
class FindLatestJob:
    """A job that finds the offsets in one bucket that are the last of their key."""

    root: ObjectRoot
    files: tuple[str, ...]
    """The files that CollectKeysJob has written for the bucket."""
    name: str
    """The file to write."""
    bases: tuple[int, ...]
    """The first offsets of the segments, in order."""


def find_latest(job: FindLatestJob) -> list[int]:
    """Run *job*, and return the number of those offsets in each segment."""
    latest = _LatestOffsets()
    for name in job.files:
        with pa.ipc.open_file(open_scratch(job.root.scratch_url(name))) as file:
            for at in range(file.num_record_batches):
                latest.add(pa.Table.from_batches([file.get_batch(at)]))
    offsets = latest.finish().column("offset").combine_chunks()
    offsets = offsets.take(pc.sort_indices(offsets))
    _write_ipc(job.root.scratch_url(job.name), pa.table({"offset": offsets}))
    starts = _indices_of(offsets, job.bases)
    return [
        end - at for at, end in zip(starts, [*starts[1:], len(offsets)], strict=True)
    ]


def _indices_of(offsets: pa.Int64Array, bases: Iterable[int]) -> list[int]:
    """Return the index in the sorted *offsets* of the first one from each base on."""
    numbers: Any = _numbers(offsets)
    return [bisect_left(numbers, base) for base in bases]


def _numbers(array: pa.Int64Array) -> memoryview:
    """Return a view of the numbers of *array*, which has no nulls."""
    view = memoryview(array.buffers()[1] or b"").cast("q")
    return view[array.offset : array.offset + len(array)]


def _int64(values: Sequence[int]) -> pa.Int64Array:
    return pa.array(values, pa.int64())


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionRule:
    """The rule for messages that stay in compaction by key."""

    live: tuple[str, ...]
    """The files that FindLatestJob has written."""
    tombstones_before: int
    """Tombstones with an earlier publish time are removed."""
    last_offset: int
    """The message that always stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteJob:
    """A job that makes one segment of several."""

    identity: SegmentIdentity
    segments: tuple[Segment, ...]
    root: ObjectRoot
    name: str
    """The object to write."""
    rule: CompactionRule | None
    """None: all messages stay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteResult:
    """The result of a RewriteJob."""

    name: str
    byte_count: int
    checksum: int
    count: int
    """The number of messages."""
    read_bytes: int
    """The decoded size of the messages that were read."""


def rewrite(job: RewriteJob) -> RewriteResult:
    """
    Run *job*.

    Durability: On return the object is on disk.  If the job fails, there is no object.

    Raises:
        CorruptSegment: A segment is damaged, or missing because it was replaced.
    """
    base, end = job.segments[0].base, job.segments[-1].end
    compaction = None
    if job.rule is not None:
        compaction = _CompactionFilter(job.root, job.rule, base, end)
    read_bytes = 0

    def kept() -> Iterator[pa.Table]:
        nonlocal read_bytes
        for segment in job.segments:
            with open_existing_segment(job.identity.topic, segment) as source:
                for table in read_row_groups(job.identity.topic, segment, source):
                    read_bytes += table.nbytes
                    yield table if compaction is None else compaction.keep(table)

    with new_file(job.root, job.name) as file:
        count = write_segment(file, job.identity, base, end, kept())
    checksum, byte_count = checksum_of(job.root.url_of(job.name))
    return RewriteResult(
        name=job.name,
        byte_count=byte_count,
        checksum=checksum,
        count=count,
        read_bytes=read_bytes,
    )


class _CompactionFilter:
    """Removes the messages of ``base … end`` that compaction drops."""

    def __init__(
        self, root: ObjectRoot, rule: CompactionRule, base: int, end: int
    ) -> None:
        self._survival = rule
        parts = [_live_in(root.scratch_url(name), base, end) for name in rule.live]
        offsets = pa.concat_arrays([_int64([]), *parts])
        self._live = offsets.take(pc.sort_indices(offsets))

    def keep(self, table: pa.Table) -> pa.Table:
        """Return the messages of *table* that stay."""
        keys = table.column("key")
        if keys.null_count == table.num_rows:
            return table
        offsets = table.column("offset")
        limits = offsets[0].as_py(), offsets[-1].as_py() + 1
        at, end = _indices_of(self._live, limits)
        mask = pc.is_in(offsets, self._live.slice(at, end - at))
        tombstones = tombstones_of(table)
        if tombstones is not None:
            times = table.column("publish_time").cast(pa.int64())
            is_old = pc.less(times, self._survival.tombstones_before)
            is_last = pc.equal(offsets, self._survival.last_offset)
            is_expired = pc.and_not(pc.and_(tombstones, is_old), is_last)
            mask = pc.and_not(mask, is_expired)
        mask = pc.or_(mask, keys.is_null())
        return table if pc.all(mask).as_py() else table.filter(mask)


def _live_in(url: str, base: int, end: int) -> pa.Int64Array:
    """Read the offsets ``base … end`` of a file of FindLatestJob."""
    parts = [_int64([])]
    with pa.ipc.open_file(open_scratch(url)) as file:
        for at in range(file.num_record_batches):
            offsets = file.get_batch(at).column(0)
            if not len(offsets) or offsets[-1].as_py() < base:
                continue
            if offsets[0].as_py() >= end:
                break
            first, last = _indices_of(offsets, (base, end))
            parts.append(offsets.slice(first, last - first))
    return pa.concat_arrays(parts)


def _write_ipc(url: str, table: pa.Table) -> None:
    filesystem, path = fs.FileSystem.from_uri(url)
    with (
        filesystem.open_output_stream(path) as stream,
        pa.ipc.new_file(stream, table.schema) as writer,
    ):
        writer.write_table(table, max_chunksize=_IPC_BATCH_ROWS)


def key_bytes_of(topic: str, segment: Segment) -> int:
    """Return the size of the keys of a segment according to its footer."""
    at = SCHEMA.get_field_index("key")
    with open_existing_segment(topic, segment) as file:
        metadata = file.parquet.metadata
        groups = [metadata.row_group(n) for n in range(metadata.num_row_groups)]
        return sum(group.column(at).total_uncompressed_size for group in groups)
