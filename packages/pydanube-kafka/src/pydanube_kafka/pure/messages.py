"""
Kafka's records as messages of the broker, and back.

Attributes whose names begin with ``kafka.`` hold the parts of a record that messages
have no field for; ``docs/format/kafka.md`` describes them.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from pydanube.model.batch import batch_of
from pydanube.model.kafka_records import (
    TOMBSTONE,
    Header,
    attributes_of,
    headers_of,
)
from pydanube.model.positions import TIME_MAX, TIME_MIN
from pydanube.wire.batches import BatchFrame, BatchHeader, encode, encode_payloads
from pydanube_kafka.wire.record_batches import (
    BadRecords,
    Records,
)

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


def _is_null(payload: bytes, attributes: Sequence[tuple[str, str]] | None) -> bool:
    return not payload and attributes is not None and (TOMBSTONE, "true") in attributes
