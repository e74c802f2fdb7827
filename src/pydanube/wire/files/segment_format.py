"""
What a segment is: its columns, its names, how its file is written.

Storage writes segments when it seals, tasks of maintenance when they put others
together; both are the same files.  ``docs/format/segment.md`` is the normative
description.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from pydanube.model.batch import ATTRIBUTES_TYPE, TIME_TYPE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydanube.model.ids import TopicId

FORMAT = "1"
SUFFIX = ".parquet"
COMPRESSION_LEVEL = 1

PARTS = ".parts"
"""Below the root: what is not an object yet, or no part of any topic."""

SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("publish_time", TIME_TYPE, nullable=False),
        pa.field("key", pa.binary()),
        pa.field("payload", pa.binary(), nullable=False),
        pa.field("attributes", ATTRIBUTES_TYPE),
        pa.field("producer", pa.string()),
        pa.field("schema_id", pa.int64(), nullable=False),
        pa.field("schema_version", pa.int32(), nullable=False),
        pa.field("deliver_at", TIME_TYPE),
        pa.field("expires_at", TIME_TYPE),
    ]
)
"""The columns of a segment, all of them always."""

FIRST_SCHEMA = pa.schema(list(SCHEMA)[:-2])
"""What segments had before there were times of delivery and expiry."""

# Payloads rarely repeat: a dictionary of them costs time and is given up late,
# and their smallest and largest say nothing.
_DICTIONARIES = [
    "key",
    "attributes.key_value.key",
    "attributes.key_value.value",
    "producer",
    "schema_id",
    "schema_version",
]
_STATISTICS = [
    "offset",
    "publish_time",
    "key",
    "producer",
    "schema_id",
    "schema_version",
]
_NONE = "none"
_SAMPLE = 4096
_NAME = re.compile(r"(\d{20})-(\d{20})-(\d+)(?:-([0-9a-f]{1,16})\.(\d+))?\.parquet$")


def writer_arguments(first: pa.Table | None = None) -> dict[str, Any]:
    """
    How ``pyarrow.parquet.ParquetWriter`` is to write a segment.

    *first* is what will be written first of it, if that is known: where keys hardly
    ever repeat, a dictionary of them takes a third of the time, and more room.
    """
    dictionaries = [
        name for name in _DICTIONARIES if name != "key" or _repeats_keys(first)
    ]
    return {
        "compression": "zstd",
        "compression_level": COMPRESSION_LEVEL,
        "use_dictionary": dictionaries,
        "write_statistics": _STATISTICS,
        "column_encoding": {"offset": "DELTA_BINARY_PACKED"},
        "write_page_checksum": True,
    }


def _repeats_keys(table: pa.Table | None) -> bool:
    if table is None:
        return True
    sample = table.column("key").slice(0, _SAMPLE)
    return bool(pc.count_distinct(sample).as_py() * 2 <= len(sample))


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentIdentity:
    """What a segment's file says about itself, besides its messages."""

    topic: str
    topic_id: TopicId | int
    epoch: int

    def metadata(
        self, base: int, end: int, count: int, oldest_tombstone: int | None
    ) -> dict[str, str]:
        """The key-value metadata of a file with *count* messages of ``base … end``."""
        return {
            "danube.format": FORMAT,
            "danube.topic": self.topic,
            "danube.topic_id": str(self.topic_id),
            "danube.epoch": str(self.epoch),
            "danube.base_offset": str(base),
            "danube.end_offset": str(end),
            "danube.count": str(count),
            "danube.oldest_tombstone": (
                _NONE if oldest_tombstone is None else str(oldest_tombstone)
            ),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFooter:
    """What a segment's file says about itself, read back."""

    topic_id: int
    base: int
    end: int
    count: int
    """How many messages it has; less than ``end - base`` where offsets are missing."""
    oldest_tombstone: int | None
    """Its publish time; None if there is no tombstone, or nobody has counted them."""
    knows_tombstones: bool
    """Whether somebody has."""


def read_footer(metadata: Mapping[bytes, bytes] | None) -> SegmentFooter | None:
    """What the key-value *metadata* of a file says; None if it is no segment."""
    found = metadata or {}
    # Older files do not say the last two: they have no gaps.
    tombstone = found.get(b"danube.oldest_tombstone")
    try:
        base = int(found[b"danube.base_offset"])
        end = int(found[b"danube.end_offset"])
        return SegmentFooter(
            topic_id=int(found[b"danube.topic_id"]),
            base=base,
            end=end,
            count=int(found.get(b"danube.count", end - base)),
            oldest_tombstone=(
                None if tombstone in (None, _NONE.encode()) else int(tombstone)
            ),
            knows_tombstones=tombstone is not None,
        )
    except (KeyError, ValueError):
        return None


def tombstones_of(table: pa.Table) -> pa.ChunkedArray | None:
    """
    Which messages of *table*, a segment's columns, are tombstones; None: none is.

    A tombstone has a key and an empty payload.
    """
    keys = table.column("key")
    if keys.null_count == table.num_rows:
        return None
    is_empty = pc.equal(pc.binary_length(table.column("payload")), 0)
    if not pc.any(is_empty).as_py():
        return None
    return pc.and_(is_empty, keys.is_valid())


def oldest_tombstone_of(table: pa.Table) -> int | None:
    """The publish time of the oldest tombstone in *table*, if there is one."""
    tombstones = tombstones_of(table)
    if tombstones is None:
        return None
    times = table.column("publish_time").filter(tombstones).cast(pa.int64())
    oldest: int | None = pc.min(times).as_py()
    return oldest


def object_prefix(root: str, topic: str) -> str:
    """What the names of all segments of *topic* begin with."""
    return "/".join(part for part in (root.strip("/"), topic.strip("/")) if part) + "/"


def object_name(root: str, topic: str, base: int, end: int, epoch: int) -> str:
    """The name of the object with the messages ``base … end`` of *topic*."""
    return f"{object_prefix(root, topic)}{base:020d}-{end:020d}-{epoch}{SUFFIX}"


def part_name(object_name: str) -> str:
    """
    The name of the file below ``PARTS`` that becomes the object called *object_name*.

    It is short, however long the names of the namespace and the topic are.
    """
    return blake2b(object_name.encode(), digest_size=16).hexdigest()


def rewritten_name(prefix: str, base: int, end: int, epoch: int, run: Run) -> str:
    """
    The name of an object that a run of maintenance has made of others.

    No other run gives the same name, and sealing gives none of this form.
    """
    return f"{prefix}{base:020d}-{end:020d}-{epoch}-{run}{SUFFIX}"


@dataclass(frozen=True, slots=True)
class Run:
    """A run of maintenance, as it stands in names of objects."""

    nonce: int
    """By chance, so that no two runs write the same objects."""
    started_at: int
    """In seconds since 1970, UTC."""

    def __str__(self) -> str:
        return f"{self.nonce:x}.{self.started_at}"


@dataclass(frozen=True, slots=True)
class ObjectName:
    """What the name of a segment's object says."""

    base: int
    end: int
    epoch: int
    run: Run | None
    """Which run of maintenance has written it; None: sealing has."""


def parse_object_name(name: str) -> ObjectName | None:
    """What *name* says; None if it is not the name of a segment."""
    found = _NAME.search(name)
    if found is None:
        return None
    base, end, epoch, nonce, started_at = found.groups()
    run = None if nonce is None else Run(int(nonce, 16), int(started_at))
    return ObjectName(int(base), int(end), int(epoch), run)
