"""
The format of a segment: its columns, its metadata, its object name.

Storage writes segments when it seals, maintenance when it merges others; both write
the same files.  ``docs/format/segment.md`` is the normative description.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import pyarrow as pa

from pydanube.model.arrow import pc
from pydanube.model.envelope import ATTRIBUTES_TYPE, TIME_TYPE
from pydanube.model.ids import TopicId
from pydanube.model.lazy_dataclasses import dataclass

FORMAT = "1"
SUFFIX = ".parquet"
COMPRESSION_LEVEL = 1

PARTS = ".parts"
"""The directory below the root for objects that are not complete yet."""

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
"""The columns of a segment; every segment has all of them."""

# Payloads rarely repeat: a dictionary of them costs time, and their minimum and maximum
# are useless.
_DICTIONARIES = [
    "key",
    "attributes.key_value.key",
    "attributes.key_value.value",
    "producer",
    "schema_id",
    "schema_version",
]
_LEAVES = [
    name
    for field in SCHEMA
    for name in (
        [f"{field.name}.key_value.key", f"{field.name}.key_value.value"]
        if field.type == ATTRIBUTES_TYPE
        else [field.name]
    )
]
_STATISTICS = [
    "offset",
    "publish_time",
    "key",
    "attributes.key_value.key",
    "producer",
    "schema_id",
    "schema_version",
    "deliver_at",
    "expires_at",
]
_NONE = "none"
_SAMPLE = 4096

_SAVED_MIN = 1 / 8
"""Payloads are compressed if this saves at least so much of a sample."""
_SAMPLE_BYTES = 64 * 1024
_SAMPLE_BYTES_EACH = 4096
_NAME = re.compile(r"(\d{20})-(\d{20})-(\d+)(?:-([0-9a-f]{1,16})\.(\d+))?\.parquet$")


def writer_arguments(first: pa.Table | None = None) -> dict[str, Any]:
    """
    Return the arguments of ``pyarrow.parquet.ParquetWriter`` for a segment.

    *first* is the first row group, if it is known.  If its keys rarely repeat, there is
    no dictionary of keys, which would take a third of the time, and space.  If its
    payloads hardly compress, they are stored as they are: compressing them would take
    half of the time of writing a segment and of reading it.
    """
    dictionaries = [
        name for name in _DICTIONARIES if name != "key" or _repeats_keys(first)
    ]
    codecs = dict.fromkeys(_LEAVES, "zstd")
    if first is not None and not _compresses(first.column("payload")):
        codecs["payload"] = "none"
    return {
        "compression": codecs,
        "compression_level": {
            name: COMPRESSION_LEVEL for name, codec in codecs.items() if codec != "none"
        },
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


def _compresses(payloads: pa.ChunkedArray) -> bool:
    """Return whether compression saves a good part of *payloads*, by a sample."""
    mean = max(1, min(_SAMPLE_BYTES_EACH, payloads.nbytes // max(1, len(payloads))))
    step = max(1, len(payloads) * mean // _SAMPLE_BYTES)
    places = pa.array(range(0, len(payloads), step), pa.int64())
    sample = pc.binary_slice(payloads.take(places), 0, _SAMPLE_BYTES_EACH)
    plain = b"".join(sample.to_pylist())
    codec = pa.Codec("zstd", compression_level=COMPRESSION_LEVEL)
    return len(codec.compress(plain)) <= len(plain) * (1 - _SAVED_MIN)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentIdentity:
    """The topic and the epoch that a segment's metadata names."""

    topic: str
    topic_id: TopicId | int
    epoch: int

    def metadata(
        self, base: int, end: int, count: int, oldest_tombstone: int | None
    ) -> dict[str, str]:
        """Return the metadata of a file with *count* messages of ``base … end``."""
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
    """The decoded key-value metadata of a segment."""

    topic_id: int
    base: int
    end: int
    count: int
    """The number of messages; less than ``end - base`` if offsets are missing."""
    oldest_tombstone: int | None
    """The publish time of the oldest tombstone; None if there is none."""


def read_footer(metadata: Mapping[bytes, bytes] | None) -> SegmentFooter | None:
    """Decode the key-value *metadata* of a file; None if it is not a segment."""
    found = metadata or {}
    try:
        tombstone = found[b"danube.oldest_tombstone"]
        return SegmentFooter(
            topic_id=int(found[b"danube.topic_id"]),
            base=int(found[b"danube.base_offset"]),
            end=int(found[b"danube.end_offset"]),
            count=int(found[b"danube.count"]),
            oldest_tombstone=(None if tombstone == _NONE.encode() else int(tombstone)),
        )
    except (KeyError, ValueError):
        return None


def tombstones_of(table: pa.Table) -> pa.ChunkedArray | None:
    """
    Return which messages of *table*, a segment's columns, are tombstones.

    A tombstone has a key and an empty payload.  Returns None if there is none.
    """
    keys = table.column("key")
    if keys.null_count == table.num_rows:
        return None
    is_empty = pc.equal(pc.binary_length(table.column("payload")), 0)
    if not pc.any(is_empty).as_py():
        return None
    return pc.and_(is_empty, keys.is_valid())


def oldest_tombstone_of(table: pa.Table) -> int | None:
    """Return the publish time of the oldest tombstone in *table*, if there is one."""
    tombstones = tombstones_of(table)
    if tombstones is None:
        return None
    times = table.column("publish_time").filter(tombstones).cast(pa.int64())
    oldest: int | None = pc.min(times).as_py()
    return oldest


def object_prefix(root: str, topic: str) -> str:
    """Return the prefix of the names of all segments of *topic*."""
    return "/".join(part for part in (root.strip("/"), topic.strip("/")) if part) + "/"


def object_name(root: str, topic: str, base: int, end: int, epoch: int) -> str:
    """Return the name of the object with the messages ``base … end`` of *topic*."""
    return f"{object_prefix(root, topic)}{base:020d}-{end:020d}-{epoch}{SUFFIX}"


def part_name(object_name: str) -> str:
    """
    Return the name of the file below ``PARTS`` that becomes the object *object_name*.

    It is short even if the names of the namespace and the topic are long.
    """
    return blake2b(object_name.encode(), digest_size=16).hexdigest()


def rewritten_name(prefix: str, base: int, end: int, epoch: int, run: Run) -> str:
    """
    Return the name of an object that a maintenance run has written.

    No other run and no sealing gives the same name.
    """
    return f"{prefix}{base:020d}-{end:020d}-{epoch}-{run}{SUFFIX}"


@dataclass(frozen=True, slots=True)
class Run:
    """A maintenance run, as named in the names of its objects."""

    nonce: int
    """A random number, so that no two runs write the same objects."""
    started_at: int
    """Seconds since 1970, UTC."""

    def __str__(self) -> str:
        return f"{self.nonce:x}.{self.started_at}"


@dataclass(frozen=True, slots=True)
class ObjectName:
    """The parsed name of a segment's object."""

    base: int
    end: int
    epoch: int
    run: Run | None
    """The maintenance run that wrote the object; None if sealing wrote it."""


def parse_object_name(name: str) -> ObjectName | None:
    """Parse the name of a segment's object; return None if *name* is not one."""
    found = _NAME.search(name)
    if found is None:
        return None
    base, end, epoch, nonce, started_at = found.groups()
    run = None if nonce is None else Run(int(nonce, 16), int(started_at))
    return ObjectName(int(base), int(end), int(epoch), run)
