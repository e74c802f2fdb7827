"""
Kafka's records as messages of the broker, and back.

Attributes whose names begin with ``kafka.`` hold the parts of a record that messages
have no field for; ``docs/format/kafka.md`` describes them.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from pydanube.model.arrow import pc
from pydanube.model.batch import batch_of
from pydanube.model.kafka_records import (
    TOMBSTONE,
    Header,
    attributes_of,
    headers_of,
)
from pydanube.model.positions import TIME_MAX, TIME_MIN
from pydanube.wire.batches import BatchFrame, BatchHeader, encode, encode_payloads
from pydanube_kafka.pure.value_prefix import ValuePrefix, with_prefix
from pydanube_kafka.wire.record_batches import (
    BadRecords,
    Records,
    encode_batch,
)
from pydanube_kafka.wire.record_columns import RECORDS_MIN, encode_columns

_NO_TIME = -1
_US_PER_MS = 1000
_NONE: tuple[Header, ...] = ()


class BadTime(BadRecords):
    """The time of a record is outside of the years 1 to 9999."""


def encode_messages(records: Records, header: BatchHeader, now_us: int) -> BatchFrame:
    """
    Return *records* as a batch with *header*, whose times are set.

    A record without a time has *now_us*.

    Raises:
        BadTime: A time is out of range.
        pyarrow.ArrowException, UnicodeError: The records cannot be stored.
    """
    times = [
        now_us if time == _NO_TIME else time * _US_PER_MS for time in records.timestamps
    ]
    first, last = min(times), max(times)
    if first < TIME_MIN or last > TIME_MAX:
        raise BadTime("a record has a time outside of the years 1 to 9999")
    header.first_publish_time, header.last_publish_time = times[0], times[-1]
    values = records.values
    payloads = [b"" if value is None else value for value in values]
    has_keys = records.keys.count(None) < len(payloads)
    has_attributes = any(records.headers) or values.count(None)
    differing = times if first != last else []
    if not has_keys and not has_attributes:
        return encode_payloads(payloads, header, differing)
    attributes = None
    if has_attributes:
        attributes = [
            attributes_of(value, headers) or None
            for value, headers in zip(values, records.headers, strict=True)
        ]
    batch = batch_of(
        payloads,
        keys=records.keys if has_keys else None,
        attributes=attributes,
        publish_times=differing or None,
    )
    return encode(batch, header)


def decode_messages(frame: BatchFrame) -> tuple[Records, Sequence[int]]:
    """Return the messages of *frame* as records, and their offsets."""
    rows, header = frame.arrow(), frame.header
    names = rows.schema.names
    count = rows.num_rows
    payloads = rows.column("payload").to_pylist()
    keys = rows.column("key").to_pylist() if "key" in names else [None] * count
    if "publish_time" in names:
        times = rows.column("publish_time").cast(pa.int64()).to_pylist()
    else:
        times = [header.first_publish_time] * count
    if "offset" in names:
        offsets: Sequence[int] = rows.column("offset").to_pylist()
    else:
        offsets = range(frame.base, frame.base + count)
    values: Sequence[bytes | None] = payloads
    headers: Sequence[Sequence[Header]] = [_NONE] * count
    if "attributes" in names:
        maps = rows.column("attributes").to_pylist()
        values = [
            None if _is_null(payload, each) else payload
            for payload, each in zip(payloads, maps, strict=True)
        ]
        headers = [headers_of(dict(each)) if each else _NONE for each in maps]
    timestamps = [time // _US_PER_MS for time in times]
    records = Records(timestamps=timestamps, keys=keys, values=values, headers=headers)
    return records, offsets


def encode_for_clients(frame: BatchFrame, prefix: ValuePrefix | None) -> bytes:
    """
    Return *frame* as Kafka clients read it, with *prefix* before its values.

    Raises:
        CorruptBatch: It is damaged.
    """
    columns = _columns_of(frame, prefix) if frame.count >= RECORDS_MIN else None
    epoch = frame.header.epoch
    if columns is not None:
        data = encode_columns(
            *columns, prefix=prefix.data if prefix else b"", leader_epoch=epoch
        )
        if data is not None:
            return data
    records, offsets = decode_messages(frame)
    if prefix is not None:
        records = with_prefix(records, prefix)
    return encode_batch(records, offsets, leader_epoch=epoch)


def _columns_of(
    frame: BatchFrame, prefix: ValuePrefix | None
) -> tuple[pa.Array, pa.Array | None, pa.Array | int, pa.Array | int] | None:
    """Return values, keys, times and offsets; None if messages have more than these."""
    rows, header = frame.arrow(), frame.header
    names = rows.schema.names
    if "attributes" in names:
        return None
    values = rows.column("payload")
    keys = rows.column("key") if "key" in names else None
    if (
        prefix is not None
        and keys is not None
        and pc.min(pc.binary_length(values)).as_py() == 0
    ):
        # Some may be tombstones.
        return None
    times: pa.Array | int = header.first_publish_time // _US_PER_MS
    if "publish_time" in names:
        times_us = rows.column("publish_time").cast(pa.int64())
        if pc.min(times_us).as_py() < 0:
            return None
        times = pc.divide(times_us, _US_PER_MS)
    offsets = rows.column("offset") if "offset" in names else frame.base
    return values, keys, times, offsets


def _is_null(payload: bytes, attributes: Sequence[tuple[str, str]] | None) -> bool:
    return not payload and attributes is not None and (TOMBSTONE, "true") in attributes
