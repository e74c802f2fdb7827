"""
A batch of messages as Arrow data: the columns of the envelope.

Version 1 of the envelope has eight columns.  A column that is null for every
message is omitted, and so is ``publish_time`` if all messages of the batch have the
same.  ``offset`` is present only if the offsets have gaps, ``producer`` only if the
messages come from several producers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import cache
from itertools import accumulate, chain

from pydanube.model.arrow import envelope, pa, pc
from pydanube.model.deduplication import (
    DEDUPLICATION_ID,
    ID_CHARACTERS_MAX,
    check_id,
)
from pydanube.model.errors import InvalidRequest


class Column(IntEnum):
    """The columns that a batch may have, as bits of a field of its header."""

    PUBLISH_TIME = 1
    KEY = 2
    PAYLOAD = 4
    ATTRIBUTES = 8
    OFFSET = 16
    PRODUCER = 32
    DELIVER_AT = 64
    EXPIRES_AT = 128


NAMES: dict[Column, str] = {column: column.name.lower() for column in Column}
"""The names of the columns, in their order in a batch; see ``envelope.FIELDS``."""

# The columns that users may publish; only the broker sets the others.
_PUBLISHED = tuple(
    name
    for column, name in NAMES.items()
    if column not in (Column.OFFSET, Column.PRODUCER)
)

TIME_COLUMNS = (Column.PUBLISH_TIME, Column.DELIVER_AT, Column.EXPIRES_AT)

_COLUMN_OF_NAME = {name: column for column, name in NAMES.items()}


@cache
def schema_of(columns: int) -> pa.Schema:
    """Return the Arrow schema of a batch that has *columns*."""
    return pa.schema(
        [field for column, field in envelope.FIELDS.items() if column & columns]
    )


def columns_of(batch: pa.RecordBatch) -> int:
    """Return the columns that *batch*, a batch of the envelope, has."""
    columns = 0
    for name in batch.schema.names:
        columns |= _COLUMN_OF_NAME[name]
    return columns


def batch_of(
    payloads: Sequence[bytes],
    *,
    keys: Sequence[bytes | None] | None = None,
    attributes: Sequence[Mapping[str, str] | None] | None = None,
    publish_times: Sequence[int] | None = None,
    producers: Sequence[str | None] | None = None,
    deliver_at: Sequence[int | None] | None = None,
    expires_at: Sequence[int | None] | None = None,
) -> pa.RecordBatch:
    """
    Return a batch of the envelope with one message for each of *payloads*.

    The other sequences are as long as *payloads*, or None if no message has a value.
    Times are microseconds since 1970, UTC.
    """
    maps = None if attributes is None else _maps_of(attributes)
    columns = 0
    arrays = []
    for column, values in (
        (Column.PUBLISH_TIME, publish_times),
        (Column.KEY, keys),
        (Column.PAYLOAD, payloads),
        (Column.ATTRIBUTES, maps),
        (Column.PRODUCER, producers),
        (Column.DELIVER_AT, deliver_at),
        (Column.EXPIRES_AT, expires_at),
    ):
        if values is not None:
            columns |= column
            arrays.append(
                values
                if values is maps
                else pa.array(values, envelope.FIELDS[column].type)
            )
    return pa.RecordBatch.from_arrays(arrays, schema=schema_of(columns))


def _maps_of(attributes: Sequence[Mapping[str, str] | None]) -> pa.MapArray:
    # From flat columns: lists of pairs would be objects of each message.
    offsets: list[int | None] = [0]
    offsets += accumulate(0 if each is None else len(each) for each in attributes)
    present = [each for each in attributes if each is not None]
    if len(present) < len(attributes):
        for number, each in enumerate(attributes):
            if each is None:
                offsets[number] = None
    names = list(chain.from_iterable(present))
    values = list(chain.from_iterable(each.values() for each in present))
    return pa.MapArray.from_arrays(
        pa.array(offsets, pa.int32()),
        pa.array(names, pa.string()),
        pa.array(values, pa.string()),
    )


def conform(table: pa.RecordBatch | pa.Table) -> list[pa.RecordBatch]:
    """
    Convert a user's Arrow data to batches of the envelope.

    ``payload`` is required; ``key``, ``attributes``, ``publish_time``, ``deliver_at``
    and ``expires_at`` are optional.  Strings and large or dictionary-encoded types are
    cast; times are timestamps with a time zone, of any unit; columns that contain only
    nulls are dropped.

    Raises:
        InvalidRequest: A column is missing, unknown, of a type that cannot be
            cast, or null where the envelope does not allow it; or as
            ``check_attributes``.
    """
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    unknown = [name for name in table.schema.names if name not in _PUBLISHED]
    if unknown or "payload" not in table.schema.names:
        raise InvalidRequest(
            f"a batch has the columns {', '.join(_PUBLISHED)}, of which only payload "
            f"is required, not {', '.join(table.schema.names) or 'none'}"
        )
    if len(set(table.schema.names)) != len(table.schema.names):
        raise InvalidRequest(
            "the batch has two columns of the same name: "
            f"{', '.join(table.schema.names)}"
        )
    columns = 0
    arrays = []
    for column, field in envelope.FIELDS.items():
        if field.name not in table.schema.names:
            continue
        array = table.column(field.name)
        if column in TIME_COLUMNS:
            _check_time_type(field.name, array.type)
        if not field.nullable and array.null_count:
            raise InvalidRequest(f"the column {field.name} must not contain nulls")
        if field.nullable and array.null_count == len(array):
            continue
        columns |= column
        arrays.append(_cast(array, field))
    conforming = pa.Table.from_arrays(arrays, schema=schema_of(columns))
    check_attributes(conforming)
    batches: list[pa.RecordBatch] = conforming.to_batches()
    return batches


def check_attributes(batch: pa.RecordBatch | pa.Table) -> None:
    """
    Raise if a message of *batch* has attributes that no message may have.

    Clients check it before they publish, and brokers whatever they receive.

    Raises:
        InvalidRequest: A value is null, or the id is empty or too long.
    """
    if NAMES[Column.ATTRIBUTES] not in batch.schema.names:
        return
    attributes = batch.column(NAMES[Column.ATTRIBUTES])
    chunks = attributes.chunks if isinstance(batch, pa.Table) else [attributes]
    base = 0
    for chunk in chunks:
        _check_values(base, chunk)
        ids = pc.map_lookup(chunk, pa.scalar(DEDUPLICATION_ID), "last")
        if ids.null_count < len(ids):
            lengths = pc.min_max(pc.utf8_length(ids)).as_py()
            if lengths["min"] < 1 or lengths["max"] > ID_CHARACTERS_MAX:
                for each in ids.drop_null().to_pylist():
                    check_id(each)
        base += len(chunk)


def _check_values(base: int, attributes: pa.MapArray) -> None:
    """Refuse null values; *base* is the index of the first message in its batch."""
    if not len(attributes) or not attributes.items.null_count:
        return
    # Slices have all items, and null maps may have some that are hidden.
    for at, pairs in enumerate(attributes.to_pylist(), base):
        for name, value in pairs or ():
            if value is None:
                raise InvalidRequest(
                    f"the attribute {name!r:.80} of message {at} of the batch is null: "
                    "attributes are texts; leave it out"
                )


def _check_time_type(name: str, found: pa.DataType) -> None:
    """
    Refuse types that are not instants.

    A number has no unit, and a time without a time zone depends on the machine.
    """
    value = found.value_type if pa.types.is_dictionary(found) else found
    if pa.types.is_null(value):
        return
    if not pa.types.is_timestamp(value):
        raise InvalidRequest(
            f"the column {name} must be timestamps with a time zone, not {found}: cast "
            "it to the timestamps of its unit, for example "
            "pa.timestamp('ms', tz='UTC')"
        )
    if value.tz is None:
        raise InvalidRequest(
            f"the column {name} has timestamps without a time zone ({found}): "
            "pyarrow.compute.assume_timezone gives them one"
        )


def _cast(array: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    try:
        return array.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidRequest(
            f"the column {field.name} must be {field.type}, not {array.type}: {error}"
        ) from error


def attributes_of(value: Sequence[tuple[str, str | None]] | None) -> dict[str, str]:
    """
    Return the attributes of a message from its value in the Arrow column.

    An attribute whose value is null is none.
    """
    found: dict[str, str | None] = dict(value or ())
    return {name: each for name, each in found.items() if each is not None}
