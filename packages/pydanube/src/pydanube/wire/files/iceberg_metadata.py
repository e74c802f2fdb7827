"""
The metadata of an Iceberg table whose data files are the segments of a topic.

A table has format version 2 and no delete files.  Segments have no field ids, so the
table has a name mapping.  ``docs/format/segment.md`` describes the objects.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from io import BytesIO
from typing import Any

import pyarrow as pa

from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.segments import SegmentEntry
from pydanube.wire.files.segment_format import SCHEMA

FORMAT_VERSION = 2
PARTITION = "partition"
"""The column with the number of the partition, in tables of partitioned topics."""

MANIFEST_FILES_MAX = 2000
"""The most data files that one manifest lists."""

DIGEST = "danube.segments-digest"
"""The entry of a snapshot's summary that identifies its segments."""
OFFSETS = "danube.offsets"
"""The entry of a snapshot's summary with the offsets of each topic, as JSON."""

_TYPES = {
    pa.int64(): "long",
    pa.int32(): "int",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.timestamp("us", tz="UTC"): "timestamptz",
}
_MAP_KEY = len(SCHEMA) + 1
_MAP_VALUE = len(SCHEMA) + 2
_PARTITION_SOURCE = len(SCHEMA) + 3
_PARTITION_FIELD = 1000
_OFFSET = SCHEMA.get_field_index("offset") + 1
_PUBLISH_TIME = SCHEMA.get_field_index("publish_time") + 1
_UUIDS = uuid.UUID("7c6ff5a4-41f5-4d4b-9b5e-6b3a7d0e5c11")
_EXISTING, _ADDED = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSegments:
    """The segments of a topic or partition that are files of the table."""

    topic: str
    topic_id: int
    partition: int | None
    """The number of the partition; None if the topic is not partitioned."""
    segments: tuple[SegmentEntry, ...]

    @property
    def end(self) -> int:
        """The first offset that is not in the table."""
        return self.segments[-1].end if self.segments else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFile:
    """A manifest, as the manifest list names it."""

    data: bytes
    is_added: bool
    """Whether its files are new in the snapshot."""
    file_count: int
    row_count: int
    partitions: tuple[int, int] | None
    """The lowest and the highest number of a partition."""


def readable_segments(
    segments: Sequence[SegmentEntry], *, must_be_uploaded: bool
) -> tuple[SegmentEntry, ...]:
    """
    Return the segments from the first one on, up to one that engines cannot read.

    With *must_be_uploaded*, engines cannot read a segment without a remote copy.
    """
    if not must_be_uploaded:
        return tuple(segments)
    waiting = (at for at, each in enumerate(segments) if not each.is_uploaded)
    return tuple(segments[: next(waiting, len(segments))])


def digest_of(
    topics: Iterable[TopicSegments], until: dict[str, int] | None = None
) -> str:
    """
    Return a text that identifies the segments of *topics*.

    *until* leaves out the segments of a topic from an offset on.
    """
    found = blake2b(digest_size=16)
    for topic in topics:
        end = None if until is None else until.get(topic.topic, 0)
        for each in topic.segments:
            if end is None or each.base < end:
                found.update(f"{topic.topic_id} {each.object_name}\n".encode())
    return found.hexdigest()


def table_uuid(topics: Sequence[TopicSegments]) -> str:
    """Return the identity of the table; that of a topic created again differs."""
    kind = "topic" if topics[0].partition is None else "partitions"
    return str(uuid.uuid5(_UUIDS, f"{kind} {topics[0].topic_id}"))


def snapshot_id_of(name: str) -> int:
    """Return the positive id of the snapshot whose objects begin with *name*."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest()) >> 1 or 1


def encode_manifests(
    topics: Sequence[TopicSegments],
    *,
    urls: dict[str, str],
    snapshot_id: int,
    sequence_number: int,
    parent: dict[str, Any] | None,
) -> list[ManifestFile]:
    """
    Return the manifests of a snapshot: those of new files are separate.

    Args:
        topics: The data files.
        urls: The URL of each object.
        snapshot_id: The id of the snapshot.
        sequence_number: Its sequence number.
        parent: The snapshot before it, if its files are still files of the table.
    """
    known = {} if parent is None else ends_of(parent)
    found = []
    for is_added in (False, True):
        files = [
            (topic.partition, each)
            for topic in topics
            for each in topic.segments
            if each.count and (each.base >= known.get(topic.topic, 0)) is is_added
        ]
        origin = (snapshot_id, sequence_number)
        if not is_added and parent is not None:
            origin = (parent["snapshot-id"], parent["sequence-number"])
        for begin in range(0, len(files), MANIFEST_FILES_MAX):
            part = files[begin : begin + MANIFEST_FILES_MAX]
            numbers = [number for number, _ in part if number is not None]
            found.append(
                ManifestFile(
                    data=_encode_manifest(part, urls, origin, is_added=is_added),
                    is_added=is_added,
                    file_count=len(part),
                    row_count=sum(each.count for _, each in part),
                    partitions=(min(numbers), max(numbers)) if numbers else None,
                )
            )
    return found


def _encode_manifest(
    files: Sequence[tuple[int | None, SegmentEntry]],
    urls: dict[str, str],
    origin: tuple[int, int],
    *,
    is_added: bool,
) -> bytes:
    is_partitioned = files[0][0] is not None
    snapshot_id, sequence_number = origin
    entries = (
        {
            "status": _ADDED if is_added else _EXISTING,
            "snapshot_id": snapshot_id,
            "sequence_number": sequence_number,
            "file_sequence_number": sequence_number,
            "data_file": _data_file(partition, each, urls[each.object_name]),
        }
        for partition, each in files
    )
    return _encode(
        _manifest_schema(is_partitioned=is_partitioned),
        entries,
        {
            "schema": json.dumps(_schema(is_partitioned=is_partitioned)),
            "schema-id": "0",
            "partition-spec": json.dumps(_spec(is_partitioned=is_partitioned)),
            "partition-spec-id": "0",
            "format-version": str(FORMAT_VERSION),
            "content": "data",
        },
    )


def _data_file(partition: int | None, entry: SegmentEntry, url: str) -> dict[str, Any]:
    lower = {_PUBLISH_TIME: entry.first_publish_time}
    upper = {_PUBLISH_TIME: entry.last_publish_time}
    if not entry.has_gaps:
        # Engines take a bound for the minimum or the maximum.
        lower[_OFFSET], upper[_OFFSET] = entry.base, entry.end - 1
    return {
        "content": 0,
        "file_path": url,
        "file_format": "PARQUET",
        "partition": {} if partition is None else {PARTITION: partition},
        "record_count": entry.count,
        "file_size_in_bytes": entry.byte_count,
        "lower_bounds": _bounds(lower),
        "upper_bounds": _bounds(upper),
    }


def _bounds(values: dict[int, int]) -> list[dict[str, Any]]:
    return [
        {"key": field, "value": value.to_bytes(8, "little", signed=True)}
        for field, value in sorted(values.items())
    ]


def encode_manifest_list(
    manifests: Sequence[tuple[str, ManifestFile]],
    *,
    snapshot_id: int,
    sequence_number: int,
    parent: dict[str, Any] | None,
) -> bytes:
    """Return the manifest list of a snapshot with *manifests*, by their URL."""
    rows = []
    for url, each in manifests:
        count = each.file_count, each.row_count
        added, existing = (count, (0, 0)) if each.is_added else ((0, 0), count)
        oldest = sequence_number
        if not each.is_added and parent is not None:
            oldest = parent["sequence-number"]
        summary = None
        if each.partitions is not None:
            lowest, highest = (n.to_bytes(4, "little") for n in each.partitions)
            summary = [
                {
                    "contains_null": False,
                    "contains_nan": False,
                    "lower_bound": lowest,
                    "upper_bound": highest,
                }
            ]
        rows.append(
            {
                "manifest_path": url,
                "manifest_length": len(each.data),
                "partition_spec_id": 0,
                "content": 0,
                "sequence_number": sequence_number,
                "min_sequence_number": oldest,
                "added_snapshot_id": snapshot_id,
                "added_files_count": added[0],
                "existing_files_count": existing[0],
                "deleted_files_count": 0,
                "added_rows_count": added[1],
                "existing_rows_count": existing[1],
                "deleted_rows_count": 0,
                "partitions": summary,
            }
        )
    metadata = {
        "snapshot-id": str(snapshot_id),
        "parent-snapshot-id": "null" if parent is None else str(parent["snapshot-id"]),
        "sequence-number": str(sequence_number),
        "format-version": str(FORMAT_VERSION),
    }
    return _encode(_MANIFEST_LIST, rows, metadata)


def new_snapshot(
    topics: Sequence[TopicSegments],
    *,
    snapshot_id: int,
    sequence_number: int,
    parent: dict[str, Any] | None,
    timestamp_ms: int,
    manifest_list: str,
) -> dict[str, Any]:
    """Return a snapshot of the table; *parent* is the one before it."""
    segments = [each for topic in topics for each in topic.segments if each.count]
    offsets = {
        topic.topic: [topic.segments[0].base, topic.end]
        for topic in topics
        if topic.segments
    }
    has_all = parent is None or holds_all_of(topics, parent)
    snapshot = {
        "snapshot-id": snapshot_id,
        "sequence-number": sequence_number,
        "timestamp-ms": timestamp_ms,
        "manifest-list": manifest_list,
        "schema-id": 0,
        "summary": {
            "operation": "append" if has_all else "overwrite",
            "total-data-files": str(len(segments)),
            "total-records": str(sum(each.count for each in segments)),
            "total-files-size": str(sum(each.byte_count for each in segments)),
            "total-delete-files": "0",
            "total-position-deletes": "0",
            "total-equality-deletes": "0",
            DIGEST: digest_of(topics),
            OFFSETS: json.dumps(offsets),
        },
    }
    if parent is not None:
        snapshot["parent-snapshot-id"] = parent["snapshot-id"]
    return snapshot


def holds_all_of(topics: Sequence[TopicSegments], snapshot: dict[str, Any]) -> bool:
    """Return whether *topics* have all files of *snapshot*, and perhaps later ones."""
    digest = digest_of(topics, ends_of(snapshot))
    return bool(snapshot["summary"][DIGEST] == digest)


def ends_of(snapshot: dict[str, Any]) -> dict[str, int]:
    """Return the first offset of each topic that is not in *snapshot*."""
    offsets = json.loads(snapshot["summary"][OFFSETS])
    return {topic: end for topic, (_, end) in offsets.items()}


def encode_metadata(
    topics: Sequence[TopicSegments],
    *,
    topic: str,
    location: str,
    updated_ms: int,
    snapshots: Sequence[dict[str, Any]],
) -> bytes:
    """Return the metadata file of the table of *topic* with these *snapshots*."""
    is_partitioned = topics[0].partition is not None
    metadata: dict[str, Any] = {
        "format-version": FORMAT_VERSION,
        "table-uuid": table_uuid(topics),
        "location": location,
        "last-sequence-number": max(
            (s["sequence-number"] for s in snapshots), default=0
        ),
        "last-updated-ms": updated_ms,
        "last-column-id": _PARTITION_SOURCE,
        "current-schema-id": 0,
        "schemas": [_schema(is_partitioned=is_partitioned)],
        "default-spec-id": 0,
        "partition-specs": [
            {"spec-id": 0, "fields": _spec(is_partitioned=is_partitioned)}
        ],
        "last-partition-id": _PARTITION_FIELD,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": {
            "danube.topic": topic,
            # The files belong to the topic.
            "gc.enabled": "false",
            "schema.name-mapping.default": json.dumps(_name_mapping()),
        },
        "snapshots": list(snapshots),
        "snapshot-log": [
            {"snapshot-id": each["snapshot-id"], "timestamp-ms": each["timestamp-ms"]}
            for each in snapshots
        ],
        "metadata-log": [],
    }
    if snapshots:
        current = snapshots[-1]["snapshot-id"]
        metadata["current-snapshot-id"] = current
        metadata["refs"] = {"main": {"snapshot-id": current, "type": "branch"}}
    return json.dumps(metadata).encode()


def _schema(*, is_partitioned: bool) -> dict[str, Any]:
    fields = [
        {
            "id": number,
            "name": field.name,
            "required": not field.nullable,
            "type": _TYPES.get(field.type) or _map_type(),
        }
        for number, field in enumerate(SCHEMA, 1)
    ]
    if is_partitioned:
        fields.append(
            {
                "id": _PARTITION_SOURCE,
                "name": PARTITION,
                # Required columns have to be in the files.
                "required": False,
                "type": "int",
            }
        )
    return {"type": "struct", "schema-id": 0, "fields": fields}


def _map_type() -> dict[str, Any]:
    return {
        "type": "map",
        "key-id": _MAP_KEY,
        "key": "string",
        "value-id": _MAP_VALUE,
        "value": "string",
        "value-required": False,
    }


def _spec(*, is_partitioned: bool) -> list[dict[str, Any]]:
    if not is_partitioned:
        return []
    return [
        {
            "name": PARTITION,
            "transform": "identity",
            "source-id": _PARTITION_SOURCE,
            "field-id": _PARTITION_FIELD,
        }
    ]


def _name_mapping() -> list[dict[str, Any]]:
    mapping: list[dict[str, Any]] = []
    for number, field in enumerate(SCHEMA, 1):
        mapping.append({"field-id": number, "names": [field.name]})
        if field.type not in _TYPES:
            mapping[-1]["fields"] = [
                {"field-id": _MAP_KEY, "names": ["key"]},
                {"field-id": _MAP_VALUE, "names": ["value"]},
            ]
    return mapping


def _encode(
    schema: dict[str, Any], records: Iterable[Any], metadata: dict[str, str]
) -> bytes:
    # Brokers start faster without it, and few are asked for tables.
    import fastavro  # noqa: PLC0415

    sink = BytesIO()
    fastavro.writer(sink, schema, records, codec="deflate", metadata=metadata)
    return sink.getvalue()


def _field(number: int, name: str, kind: Any, *, optional: bool = False) -> Any:
    if optional:
        return {
            "name": name,
            "type": ["null", kind],
            "default": None,
            "field-id": number,
        }
    return {"name": name, "type": kind, "field-id": number}


def _bounds_type(key: int, value: int) -> dict[str, Any]:
    """Return the Avro type of a map from field ids to values."""
    fields = [_field(key, "key", "int"), _field(value, "value", "bytes")]
    items = {"type": "record", "name": f"k{key}_v{value}", "fields": fields}
    return {"type": "array", "logicalType": "map", "items": items}


def _manifest_schema(*, is_partitioned: bool) -> dict[str, Any]:
    partition = [_field(_PARTITION_FIELD, PARTITION, "int", optional=True)]
    data_file = [
        _field(134, "content", "int"),
        _field(100, "file_path", "string"),
        _field(101, "file_format", "string"),
        _field(
            102,
            "partition",
            {
                "type": "record",
                "name": "r102",
                "fields": partition if is_partitioned else [],
            },
        ),
        _field(103, "record_count", "long"),
        _field(104, "file_size_in_bytes", "long"),
        _field(125, "lower_bounds", _bounds_type(126, 127), optional=True),
        _field(128, "upper_bounds", _bounds_type(129, 130), optional=True),
    ]
    return {
        "type": "record",
        "name": "manifest_entry",
        "fields": [
            _field(0, "status", "int"),
            _field(1, "snapshot_id", "long", optional=True),
            _field(3, "sequence_number", "long", optional=True),
            _field(4, "file_sequence_number", "long", optional=True),
            _field(
                2, "data_file", {"type": "record", "name": "r2", "fields": data_file}
            ),
        ],
    }


_SUMMARY = {
    "type": "record",
    "name": "r508",
    "fields": [
        _field(509, "contains_null", "boolean"),
        _field(518, "contains_nan", "boolean", optional=True),
        _field(510, "lower_bound", "bytes", optional=True),
        _field(511, "upper_bound", "bytes", optional=True),
    ],
}
_MANIFEST_LIST = {
    "type": "record",
    "name": "manifest_file",
    "fields": [
        _field(500, "manifest_path", "string"),
        _field(501, "manifest_length", "long"),
        _field(502, "partition_spec_id", "int"),
        _field(517, "content", "int"),
        _field(515, "sequence_number", "long"),
        _field(516, "min_sequence_number", "long"),
        _field(503, "added_snapshot_id", "long"),
        _field(504, "added_files_count", "int"),
        _field(505, "existing_files_count", "int"),
        _field(506, "deleted_files_count", "int"),
        _field(512, "added_rows_count", "long"),
        _field(513, "existing_rows_count", "long"),
        _field(514, "deleted_rows_count", "long"),
        _field(
            507,
            "partitions",
            {"type": "array", "items": _SUMMARY, "element-id": 508},
            optional=True,
        ),
    ],
}
