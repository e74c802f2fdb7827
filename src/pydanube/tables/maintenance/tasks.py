"""
The jobs of maintenance: each reads some files and writes some, all by itself.

Compaction by key goes over the topic twice.  ``collect_keys`` reads only keys and
offsets, and writes the last offset of each key that it has seen, spread over buckets
by a hash of the key.  ``find_latest`` puts one bucket together, and writes the offsets
that are the last of their key, in order.  ``rewrite`` then reads segments whole, and
keeps what has no key or an offset among those.

Bounds: ``collect_keys`` and ``find_latest`` hold the different keys of a portion of the
segments or of a bucket, and one row group.  ``rewrite`` holds the row groups of what
it reads and of what it writes, and eight bytes for each key that stays in its group.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pydanube.tables.maintenance.object_files import (
    ObjectRoot,
    checksum_of,
    new_file,
    open_scratch,
)
from pydanube.tables.maintenance.segment_reading import open_checked, read_row_groups
from pydanube.wire.files.segment_format import (
    SCHEMA,
    SegmentIdentity,
    oldest_tombstone_of,
    read_footer,
    tombstones_of,
    writer_arguments,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pydanube.model.descriptions import Segment

ROW_GROUP_BYTES = 8 * 1024 * 1024
"""How much of a topic makes a row group, before it is encoded; as sealing has it."""

_KEYS_MAX = 500_000
"""So many keys are gathered before those that came twice are put together."""

_IPC_BATCH_ROWS = 65_536


# The keys.


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectKeysJob:
    """Find the last offset of each key in some segments."""

    topic: str
    segments: tuple[Segment, ...]
    root: ObjectRoot
    scratch: str
    """What the names of the files it writes begin with."""
    bucket_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentKeys:
    """What is known of one segment after that."""

    object_name: str
    without_key: int
    oldest_tombstone: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectKeysResult:
    """What CollectKeysJob leads to."""

    segments: tuple[SegmentKeys, ...]
    files: tuple[tuple[int, str], ...]
    """For each bucket that is not empty its number and the name of a file."""


def collect_keys(job: CollectKeysJob) -> CollectKeysResult:
    """
    Carry out *job*.

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
    """The highest offset of each key that came along."""

    def __init__(self) -> None:
        self._tables: list[pa.Table] = []
        self._count = 0
        # What is there once each key is.
        self._settled = 0

    def add(self, table: pa.Table) -> None:
        """*table* has the columns ``key``, without nulls, and ``offset``."""
        self._tables.append(_last_of_each(table))
        self._count += self._tables[-1].num_rows
        # Only once it has grown a lot: every time costs as much as all that is there.
        if self._count > max(_KEYS_MAX, 2 * self._settled):
            self.finish()

    def finish(self) -> pa.Table:
        """Each key once."""
        if len(self._tables) != 1:
            empty = pa.table({"key": pa.array([], pa.binary()), "offset": _int64([])})
            self._tables = [_last_of_each(pa.concat_tables([empty, *self._tables]))]
        self._count = self._settled = self._tables[0].num_rows
        return self._tables[0]


def _last_of_each(table: pa.Table) -> pa.Table:
    grouped = table.group_by("key", use_threads=False).aggregate([("offset", "max")])
    return grouped.select(["key", "offset_max"]).rename_columns(["key", "offset"])


def _collect_keys_of(
    topic: str, segment: Segment, latest: _LatestOffsets
) -> SegmentKeys:
    without_key = 0
    with open_checked(topic, segment) as file:
        footer = read_footer(file.metadata.metadata)
        assert footer is not None
        names = ["key", "offset"]
        tombstones: list[int] = []
        if footer.knows_tombstones:
            if footer.oldest_tombstone is not None:
                tombstones.append(footer.oldest_tombstone)
        else:
            names += ["payload", "publish_time"]
        for table in read_row_groups(topic, segment, file, names):
            if not footer.knows_tombstones:
                oldest = oldest_tombstone_of(table)
                tombstones += [] if oldest is None else [oldest]
            nulls = table.column("key").null_count
            without_key += nulls
            if nulls == table.num_rows:
                continue
            if nulls:
                table = table.filter(table.column("key").is_valid())  # noqa: PLW2901
            latest.add(table.select(["key", "offset"]))
    return SegmentKeys(
        object_name=segment.object_name,
        without_key=without_key,
        oldest_tombstone=min(tombstones, default=None),
    )


def _spread(table: pa.Table, bucket_count: int) -> Iterator[tuple[int, pa.Table]]:
    """*table* in parts by a hash of its keys, without those that are empty."""
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
    """Find which offsets are the last of their key, of one bucket."""

    root: ObjectRoot
    files: tuple[str, ...]
    """What CollectKeysJob has written for the bucket."""
    name: str
    """The file to be written."""
    bases: tuple[int, ...]
    """Where segments begin, in order."""


def find_latest(job: FindLatestJob) -> list[int]:
    """How many offsets of each segment that are."""
    latest = _LatestOffsets()
    for name in job.files:
        with pa.ipc.open_file(open_scratch(job.root.scratch_url(name))) as file:
            for at in range(file.num_record_batches):
                latest.add(pa.Table.from_batches([file.get_batch(at)]))
    offsets = latest.finish().column("offset").combine_chunks()
    offsets = offsets.take(pc.sort_indices(offsets))
    _write_ipc(job.root.scratch_url(job.name), pa.table({"offset": offsets}))
    places = _places(offsets, job.bases)
    return [
        end - at for at, end in zip(places, [*places[1:], len(offsets)], strict=True)
    ]


def _places(offsets: pa.Int64Array, bases: Iterable[int]) -> list[int]:
    """Where in *offsets*, which rise, those from each of *bases* on begin."""
    numbers: Any = _numbers(offsets)
    return [bisect_left(numbers, base) for base in bases]


def _numbers(array: pa.Int64Array) -> memoryview:
    """The numbers of *array*, which has no nulls, without a copy."""
    view = memoryview(array.buffers()[1] or b"").cast("q")
    return view[array.offset : array.offset + len(array)]


def _int64(values: Sequence[int]) -> pa.Int64Array:
    return pa.array(values, pa.int64())


# What stays.


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionRule:
    """Which messages stay when compaction by key rewrites segments."""

    live: tuple[str, ...]
    """The files that FindLatestJob has written."""
    tombstones_before: int
    """Tombstones with an earlier publish time are removed."""
    last_offset: int
    """This message stays in any case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteJob:
    """Make one segment of several."""

    identity: SegmentIdentity
    segments: tuple[Segment, ...]
    root: ObjectRoot
    name: str
    """The object to be written."""
    rule: CompactionRule | None
    """None: all messages stay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteResult:
    """The result of a RewriteJob."""

    name: str
    byte_count: int
    checksum: int
    count: int
    """How many messages there are."""
    read_bytes: int
    """What was read, decoded."""


def rewrite(job: RewriteJob) -> RewriteResult:
    """
    Carry out *job*.

    Durability: The object is on disk.  If it fails, there is none.

    Raises:
        CorruptSegment: A segment is damaged, or missing because it was replaced.
    """
    base, end = job.segments[0].base, job.segments[-1].end
    is_kept = None
    if job.rule is not None:
        is_kept = _CompactionFilter(job.root, job.rule, base, end)
    count = read_bytes = 0
    tombstones: list[int] = []
    with new_file(job.root, job.name) as file, _RowGroups(file) as row_groups:
        for segment in job.segments:
            with open_checked(job.identity.topic, segment) as source:
                for table in read_row_groups(job.identity.topic, segment, source):
                    read_bytes += table.nbytes
                    kept = table if is_kept is None else is_kept.keep(table)
                    count += kept.num_rows
                    oldest = oldest_tombstone_of(kept)
                    tombstones += [] if oldest is None else [oldest]
                    row_groups.add(kept)
        row_groups.finish(
            job.identity.metadata(base, end, count, min(tombstones, default=None))
        )
    checksum, byte_count = checksum_of(job.root.url_of(job.name))
    return RewriteResult(
        name=job.name,
        byte_count=byte_count,
        checksum=checksum,
        count=count,
        read_bytes=read_bytes,
    )


class _RowGroups:
    """The row groups of a new segment; small tables are written together."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._writer: pq.ParquetWriter | None = None
        self._tables: list[pa.Table] = []
        self._byte_count = 0

    def add(self, table: pa.Table) -> None:
        """Write *table*, with what came before if that is not enough."""
        if not table.num_rows:
            return
        size = table.nbytes
        if self._byte_count and self._byte_count + size > ROW_GROUP_BYTES * 5 // 4:
            self.flush()
        self._tables.append(table)
        self._byte_count += size

    def flush(self) -> None:
        """Write what is gathered."""
        if self._tables:
            table = pa.concat_tables(self._tables)
            self._open(table).write_table(table, row_group_size=table.num_rows)
            self._tables.clear()
            self._byte_count = 0

    def finish(self, metadata: dict[str, str]) -> None:
        """Write what is left, and what the file says of itself."""
        self.flush()
        self._open(None).add_key_value_metadata(metadata)

    def _open(self, first: pa.Table | None) -> pq.ParquetWriter:
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._file, SCHEMA, **writer_arguments(first)
            )
        return self._writer

    def __enter__(self) -> _RowGroups:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()


class _CompactionFilter:
    """Which messages stay, of ``base … end``."""

    def __init__(
        self, root: ObjectRoot, rule: CompactionRule, base: int, end: int
    ) -> None:
        self._survival = rule
        parts = [_live_in(root.scratch_url(name), base, end) for name in rule.live]
        offsets = pa.concat_arrays([_int64([]), *parts])
        self._live = offsets.take(pc.sort_indices(offsets))

    def keep(self, table: pa.Table) -> pa.Table:
        """What stays of *table*."""
        keys = table.column("key")
        if keys.null_count == table.num_rows:
            return table
        offsets = table.column("offset")
        limits = offsets[0].as_py(), offsets[-1].as_py() + 1
        at, end = _places(self._live, limits)
        mask = pc.is_in(offsets, self._live.slice(at, end - at))
        tombstones = tombstones_of(table)
        if tombstones is not None:
            times = table.column("publish_time").cast(pa.int64())
            is_old = pc.less(times, self._survival.tombstones_before)
            is_last = pc.equal(offsets, self._survival.last_offset)
            is_over = pc.and_not(pc.and_(tombstones, is_old), is_last)
            mask = pc.and_not(mask, is_over)
        mask = pc.or_(mask, keys.is_null())
        return table if pc.all(mask).as_py() else table.filter(mask)


def _live_in(url: str, base: int, end: int) -> pa.Int64Array:
    """The offsets ``base … end`` of a file of FindLatestJob."""
    parts = [_int64([])]
    with pa.ipc.open_file(open_scratch(url)) as file:
        for at in range(file.num_record_batches):
            offsets = file.get_batch(at).column(0)
            if not len(offsets) or offsets[-1].as_py() < base:
                continue
            if offsets[0].as_py() >= end:
                break
            first, last = _places(offsets, (base, end))
            parts.append(offsets.slice(first, last - first))
    return pa.concat_arrays(parts)


# Small things.


def _write_ipc(url: str, table: pa.Table) -> None:
    from pyarrow import fs  # noqa: PLC0415

    filesystem, path = fs.FileSystem.from_uri(url)
    with (
        filesystem.open_output_stream(path) as stream,
        pa.ipc.new_file(stream, table.schema) as writer,
    ):
        writer.write_table(table, max_chunksize=_IPC_BATCH_ROWS)


def key_bytes_of(topic: str, segment: Segment) -> int:
    """What the keys of a segment take, as far as its footer says."""
    at = SCHEMA.get_field_index("key")
    with open_checked(topic, segment) as file:
        groups = [file.metadata.row_group(n) for n in range(file.num_row_groups)]
        return sum(group.column(at).total_uncompressed_size for group in groups)
