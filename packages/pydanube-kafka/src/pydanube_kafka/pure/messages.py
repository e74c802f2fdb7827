"""
Kafka's records as messages of the broker, and back.

Attributes whose names begin with ``kafka.`` hold the parts of a record that messages
have no field for; ``docs/format/kafka.md`` describes them.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence

import pyarrow as pa

from pydanube.model.batch import batch_of
from pydanube.model.positions import TIME_MAX, TIME_MIN
from pydanube.wire.batches import BatchFrame, BatchHeader, encode, encode_payloads
from pydanube_kafka.wire.record_batches import (
    HEADERS_MAX,
    BadRecords,
    Header,
    Records,
)

TOMBSTONE = "kafka.tombstone"
"""The attribute of a message whose value is null, not empty."""
HEADERS = "kafka.headers"
"""The attribute with headers that attributes cannot hold as they are."""

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
            _attributes_of(value, headers) or None
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
        headers = [_headers_of(dict(each)) if each else _NONE for each in maps]
    timestamps = [time // _US_PER_MS for time in times]
    records = Records(timestamps=timestamps, keys=keys, values=values, headers=headers)
    return records, offsets


def _is_null(payload: bytes, attributes: Sequence[tuple[str, str]] | None) -> bool:
    return not payload and attributes is not None and (TOMBSTONE, "true") in attributes


def _attributes_of(value: bytes | None, headers: Sequence[Header]) -> dict[str, str]:
    attributes, is_exact = dict[str, str](), True
    for name, content in headers:
        try:
            text = None if content is None else content.decode()
        except UnicodeDecodeError:
            text = None
        if text is None or name in attributes or name in (TOMBSTONE, HEADERS):
            is_exact = False
        if text is not None and name not in (TOMBSTONE, HEADERS):
            attributes[name] = text
    if not is_exact:
        attributes[HEADERS] = _encode_headers(headers)
    if value is None:
        attributes[TOMBSTONE] = "true"
    return attributes


def _headers_of(attributes: Mapping[str, str]) -> Sequence[Header]:
    encoded = attributes.get(HEADERS)
    if encoded is not None:
        headers = _decode_headers(encoded)
        if headers is not None:
            return headers
    return [
        (name, text.encode())
        for name, text in attributes.items()
        if name not in (TOMBSTONE, HEADERS)
    ]


def _encode_headers(headers: Sequence[Header]) -> str:
    return json.dumps(
        [
            [name, None if value is None else b64encode(value).decode()]
            for name, value in headers
        ],
        ensure_ascii=False,
        separators=(",", ":"),
    )


def _decode_headers(encoded: str) -> list[Header] | None:
    """Return the headers; None if somebody has written something else there."""
    try:
        pairs = json.loads(encoded)
        headers = [
            (name, None if value is None else b64decode(value, validate=True))
            for name, value in pairs
        ]
    except (ValueError, TypeError, RecursionError):
        return None
    if len(headers) > HEADERS_MAX or not all(
        isinstance(name, str) for name, _ in headers
    ):
        return None
    return headers
