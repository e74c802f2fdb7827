"""
The prefix with which serializers of Confluent's registry name the schema of a value.

It is a zero byte and the id, and for Protobuf also the path to the message in its file.
Messages of the broker have the schema in the header of their batch instead.  Records
therefore lose the prefix if all values of their batch have one, and the batch is
divided where it changes.  They get it back when they are fetched: both from the same
function, so no byte changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.schemas import SchemaType
from pydanube.schemas.pure.confluent_schemas import (
    NAMES,
    SUBJECT_ID_MAX,
    VERSION_BITS,
)
from pydanube_kafka.wire.record_batches import Records, encode_varint

MAGIC = 0
ID_BYTES = 5
"""The length of the zero byte and the id."""
RUNS_MAX = 256
"""The most batches into which one is divided; so many take about 20 ms."""


@dataclass(frozen=True, slots=True)
class ValuePrefix:
    """The prefix of all values of a version of a schema."""

    schema_id: int
    version: int
    data: bytes


def prefix_of(
    schema_id: int, version: int, type_: SchemaType, message_path: Sequence[int]
) -> ValuePrefix | None:
    """Return the prefix of a version; None if its values have none."""
    if type_ not in NAMES or not 0 < schema_id <= SUBJECT_ID_MAX:
        return None
    if not 0 < version < 1 << VERSION_BITS:
        return None
    number = schema_id << VERSION_BITS | version
    data = bytes([MAGIC]) + number.to_bytes(ID_BYTES - 1)
    if type_ is SchemaType.PROTOBUF:
        if not message_path:
            return None
        data += _encode_path(message_path)
    return ValuePrefix(schema_id, version, data)


def _encode_path(path: Sequence[int]) -> bytes:
    # The first message of a file is abbreviated.
    if list(path) == [0]:
        return encode_varint(0)
    return b"".join(map(encode_varint, (len(path), *path)))


def ids_of(values: Sequence[bytes | None]) -> set[int]:
    """
    Return the ids with which values begin.

    They are empty if the first value has none, and at most one more than ``RUNS_MAX``.
    """
    ids = set[int]()
    for value in values:
        if value is None:
            continue
        if len(value) < ID_BYTES or value[0] != MAGIC:
            break
        ids.add(int.from_bytes(value[1:ID_BYTES]))
        if len(ids) > RUNS_MAX:
            break
    return ids


@dataclass(frozen=True, slots=True)
class Run:
    """Records of a batch that follow each other and have the same prefix."""

    prefix: ValuePrefix | None
    """None: they have none, and the run is the whole batch."""
    start: int
    """The number of the first one in the batch."""
    records: Records
    """Without the prefix."""


def divide(records: Records, known: Mapping[int, ValuePrefix]) -> list[Run]:
    """
    Return *records* without their prefixes, divided where the prefix changes.

    *known* has the prefixes by the ids of ``ids_of``.  Nothing is returned if one of
    the values has none of them, or if they change too often.  Nulls have no prefix.  A
    message with a key and without a payload deletes older ones in compacted topics, so
    a value with a key must have more bytes than the prefix.
    """
    bounds, values, at = list[tuple[int, ValuePrefix]](), list["bytes | None"](), 0
    data, length = b"", 0
    for at, (key, value) in enumerate(zip(records.keys, records.values, strict=True)):
        if value is None:
            values.append(None)
            continue
        if not (data and value.startswith(data)):
            prefix = known.get(int.from_bytes(value[1:ID_BYTES]))
            if prefix is None or not value.startswith(prefix.data):
                return []
            # Nulls before the first prefix belong to it.
            bounds.append((at if bounds else 0, prefix))
            data, length = prefix.data, len(prefix.data)
            if len(bounds) > RUNS_MAX:
                return []
        if len(value) == length and key is not None:
            return []
        values.append(value[length:])
    # All are null, and belong to no schema.
    if not bounds:
        return []
    ends = [start for start, _ in bounds[1:]] + [at + 1]
    return [
        Run(
            prefix,
            start,
            Records(
                timestamps=records.timestamps[start:end],
                keys=records.keys[start:end],
                values=values[start:end],
                headers=records.headers[start:end],
            ),
        )
        for (start, prefix), end in zip(bounds, ends, strict=True)
    ]


def with_prefix(records: Records, prefix: ValuePrefix) -> Records:
    """
    Return *records* with the prefix.

    An empty value with a key is null: native clients have published a tombstone.
    """
    data = prefix.data
    values = [
        None if value is None or (not value and key is not None) else data + value
        for key, value in zip(records.keys, records.values, strict=True)
    ]
    return Records(
        timestamps=records.timestamps,
        keys=records.keys,
        values=values,
        headers=records.headers,
    )
