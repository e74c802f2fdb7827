"""
The metadata of an Iceberg table whose data files are the segments of a topic.

A table has format version 2 and no delete files.  Segments have no field ids, so the
table has a name mapping.  ``docs/format/segment.md`` describes the objects.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from io import BytesIO
from typing import Any, NamedTuple

import pyarrow as pa

from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.segments import SegmentEntry
from pydanube.wire.buffer import Buffer
from pydanube.wire.files.segment_format import SCHEMA

FORMAT_VERSION = 2
PARTITION = "partition"
"""The column with the number of the partition, in tables of partitioned topics."""

MANIFEST_FILES_MAX = 2000
"""The most data files that one manifest lists."""
SMALL_MANIFESTS_MAX = 16
"""The most manifests with less than half of that; then they are merged."""

DIGEST = "danube.segments-digest"
"""The entry of a snapshot's summary that identifies its segments."""
OFFSETS = "danube.offsets"
"""The entry of a snapshot's summary with the offsets of each topic, as JSON."""
MANIFESTS = "danube.manifests"
"""The entry of a snapshot's summary with the URLs of its manifests, as JSON."""

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


class Origin(NamedTuple):
    """The snapshot that added a data file."""

    snapshot_id: int
    sequence_number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFile:
    """A manifest: the data files that it lists, and what the manifest list says."""

    row: dict[str, Any]
    """Its entry in the manifest list."""
    files: Mapping[str, Origin]
    """The URLs of its data files."""
    data: bytes
    """Its content; empty if it has been read from the object store."""

    @property
    def url(self) -> str:
        """Its address."""
        return str(self.row["manifest_path"])


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


def next_manifests(
    topics: Sequence[TopicSegments],
    known: Sequence[ManifestFile],
    *,
    urls: Mapping[str, str],
    origin: Origin,
    new_url: Callable[[int], str],
) -> list[ManifestFile]:
    """
    Return the manifests of a snapshot that follows one with the manifests *known*.

    Those of which every file is still a file of the table stay as they are, unless so
    many are small that they are merged.  New files are in manifests of their own.

    Args:
        topics: The data files.
        known: The manifests of the snapshot before it.
        urls: The URL of each object.
        origin: The id and the sequence number of the snapshot.
        new_url: Returns the URL of the first, second, … manifest that is new.
    """
    files = {
        urls[each.object_name]: (topic.partition, each)
        for topic in topics
        for each in topic.segments
        if each.count
    }
    kept = [each for each in known if each.files.keys() <= files.keys()]
    small = [each for each in kept if len(each.files) < MANIFEST_FILES_MAX // 2]
    if len(small) > SMALL_MANIFESTS_MAX:
        kept = [each for each in kept if len(each.files) >= MANIFEST_FILES_MAX // 2]
    listed = {url for each in kept for url in each.files}
    origins = {url: found for each in known for url, found in each.files.items()}
    # In the order of the topics, so that a manifest has few partitions.
    others = [url for url in files if url not in listed]
    existing = [url for url in others if url in origins]
    added = [url for url in others if url not in origins]
    for some in (existing, added):
        for begin in range(0, len(some), MANIFEST_FILES_MAX):
            part = some[begin : begin + MANIFEST_FILES_MAX]
            new = sum(1 for each in kept if each.data)
            entries = [(url, *files[url], origins.get(url, origin)) for url in part]
            kept.append(_manifest(new_url(new), entries, origin))
    return kept


_Entry = tuple[str, int | None, SegmentEntry, Origin]


def _manifest(url: str, entries: Sequence[_Entry], origin: Origin) -> ManifestFile:
    """Return a new manifest; its files are added if they have the same *origin*."""
    is_added = entries[0][3] == origin
    data = _encode_manifest(entries, is_added=is_added)
    count = len(entries), sum(each.count for _, _, each, _ in entries)
    added, existing = (count, (0, 0)) if is_added else ((0, 0), count)
    partitions = [number for _, number, _, _ in entries if number is not None]
    row = {
        "manifest_path": url,
        "manifest_length": len(data),
        "partition_spec_id": 0,
        "content": 0,
        "sequence_number": origin.sequence_number,
        "min_sequence_number": min(each[3].sequence_number for each in entries),
        "added_snapshot_id": origin.snapshot_id,
        "added_files_count": added[0],
        "existing_files_count": existing[0],
        "deleted_files_count": 0,
        "added_rows_count": added[1],
        "existing_rows_count": existing[1],
        "deleted_rows_count": 0,
        "partitions": _range_of(partitions) if partitions else None,
    }
    return ManifestFile(
        row=row, files={each[0]: each[3] for each in entries}, data=data
    )


def _range_of(partitions: Sequence[int]) -> list[dict[str, Any]]:
    return [
        {
            "contains_null": False,
            "contains_nan": False,
            "lower_bound": min(partitions).to_bytes(4, "little"),
            "upper_bound": max(partitions).to_bytes(4, "little"),
        }
    ]


def _encode_manifest(entries: Sequence[_Entry], *, is_added: bool) -> bytes:
    is_partitioned = entries[0][1] is not None
    records = (
        {
            "status": _ADDED if is_added else _EXISTING,
            "snapshot_id": origin.snapshot_id,
            "sequence_number": origin.sequence_number,
            "file_sequence_number": origin.sequence_number,
            "data_file": _data_file(partition, each, url),
        }
        for url, partition, each, origin in entries
    )
    return _encode(
        _manifest_schema(is_partitioned=is_partitioned),
        records,
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
    manifests: Iterable[ManifestFile], origin: Origin, parent: dict[str, Any] | None
) -> bytes:
    """Return the manifest list of the snapshot *origin* with *manifests*."""
    metadata = {
        "snapshot-id": str(origin.snapshot_id),
        "parent-snapshot-id": "null" if parent is None else str(parent["snapshot-id"]),
        "sequence-number": str(origin.sequence_number),
        "format-version": str(FORMAT_VERSION),
    }
    return _encode(_MANIFEST_LIST, [each.row for each in manifests], metadata)


def decode_manifest_list(data: Buffer) -> list[dict[str, Any]]:
    """
    Return the entries of a manifest list that ``encode_manifest_list`` has made.

    Raises:
        ValueError: It is not one.
    """
    return _decode(data, "manifest_file")


def decode_manifest(row: dict[str, Any], data: Buffer) -> ManifestFile:
    """
    Return the manifest of an entry of a manifest list.

    Raises:
        ValueError: It is not one.
    """
    files = {
        each["data_file"]["file_path"]: Origin(
            each["snapshot_id"], each["sequence_number"]
        )
        for each in _decode(data, "manifest_entry")
    }
    return ManifestFile(row=row, files=files, data=b"")


def new_snapshot(
    topics: Sequence[TopicSegments],
    manifests: Iterable[ManifestFile],
    *,
    origin: Origin,
    parent: dict[str, Any] | None,
    timestamp_ms: int,
    manifest_list: str,
) -> dict[str, Any]:
    """
    Return a snapshot of the table; *parent* is the one before it.

    *manifest_list* is the URL of the list of its *manifests*.
    """
    segments = [each for topic in topics for each in topic.segments if each.count]
    offsets = {
        topic.topic: [topic.segments[0].base, topic.end]
        for topic in topics
        if topic.segments
    }
    has_all = parent is None or holds_all_of(topics, parent)
    snapshot = {
        "snapshot-id": origin.snapshot_id,
        "sequence-number": origin.sequence_number,
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
            MANIFESTS: json.dumps([each.url for each in manifests]),
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


def _decode(data: Buffer, name: str) -> list[dict[str, Any]]:
    import fastavro  # noqa: PLC0415

    try:
        reader: Any = fastavro.reader(BytesIO(data))
        if reader.writer_schema["name"] == name:
            return list(reader)
    except Exception as error:
        # fastavro raises arbitrary exceptions for malformed data.
        raise ValueError(f"not a file with records {name}: {error!r}") from error
    raise ValueError(f"not a file with records {name}")


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
