"""
Record batches of version 2, in bytes.

The layout is that of Kafka's message format.  The decoder is for batches of clients,
which it does not trust: every length is checked against the bytes that there are.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import field, replace

import crc32c

from pydanube.model.kafka_records import HEADERS_MAX, Header
from pydanube.model.lazy_dataclasses import dataclass
from pydanube_kafka.wire.compression import (
    BadCompression,
    Compression,
    compress,
    decompress,
)

MAGIC = 2
RECORDS_MAX = 65_536
"""The most records of a batch, as many as a batch of the broker has messages."""
PLAIN_BYTES_MAX = 48 * 1024 * 1024
"""The longest records of a batch, when decompressed."""
NO_PRODUCER = -1
NO_SEQUENCE = -1

_HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = _HEADER.size
_LENGTH_AT = 8
_MAGIC_AT = 16
_CRC_AT = 17
_CRC = struct.Struct(">I")
_CHECKED_FROM = 21
_COUNTED_FROM = 12
"""The length of a batch counts from here."""
_CODEC_MASK = 0b111
_APPEND_TIME = 0b1000
_TRANSACTIONAL = 0b10000
_CONTROL = 0b100000


class BadRecords(Exception):
    """The bytes are not record batches that this version reads."""


class OldFormat(BadRecords):
    """The records have a format before version 2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """The records of a batch, in columns of the same length."""

    timestamps: Sequence[int]
    """Milliseconds since 1970, UTC."""
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[Sequence[Header]]
    """In order; names may repeat."""

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordBatch:
    """The header of a batch, and its records as bytes."""

    base_offset: int = 0
    last_offset_delta: int = 0
    leader_epoch: int = -1
    codec: Compression = Compression.NONE
    is_append_time: bool = False
    is_transactional: bool = False
    is_control: bool = False
    base_timestamp: int = 0
    max_timestamp: int = 0
    producer_id: int = NO_PRODUCER
    producer_epoch: int = -1
    base_sequence: int = NO_SEQUENCE
    count: int = 0
    body: memoryview = field(default=memoryview(b""), repr=False)
    """The records, compressed by *codec*."""

    def records(self, bytes_max: int = PLAIN_BYTES_MAX) -> Records:
        """
        Return the records.

        Raises:
            BadRecords: The body is damaged, or longer than *bytes_max* when
                decompressed.
        """
        try:
            plain = decompress(self.body, self.codec, bytes_max)
        except BadCompression as error:
            raise BadRecords(str(error)) from error
        records = _decode_records(bytes(plain), self.count, self.base_timestamp)
        if self.is_append_time:
            return replace(records, timestamps=[self.max_timestamp] * self.count)
        return records


def decode_batches(data: bytes | memoryview) -> Iterator[RecordBatch]:
    """
    Yield the batches of *data*, whose records are not decoded yet.

    Raises:
        OldFormat: They have the format 0 or 1.
        BadRecords: They are damaged, or have more than ``RECORDS_MAX`` records.
    """
    view, at = memoryview(data), 0
    while at < len(view):
        left = len(view) - at
        if left <= _MAGIC_AT:
            raise BadRecords(f"a batch of {left} bytes")
        if view[at + _MAGIC_AT] != MAGIC:
            magic = view[at + _MAGIC_AT]
            kind = OldFormat if magic < MAGIC else BadRecords
            raise kind(f"the message format is {magic}; {MAGIC} is needed")
        if left < HEADER_BYTES:
            raise BadRecords(f"a batch of {left} bytes")
        (length,) = struct.unpack_from(">i", view, at + _LENGTH_AT)
        if not HEADER_BYTES - _COUNTED_FROM <= length <= left - _COUNTED_FROM:
            raise BadRecords(f"a batch says that it has {length} bytes")
        end = at + _COUNTED_FROM + length
        yield _decode_header(view[at:end])
        at = end


def _decode_header(view: memoryview) -> RecordBatch:
    (
        base_offset,
        _,
        leader_epoch,
        _,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    ) = _HEADER.unpack_from(view)
    found = crc32c.crc32c(view[_CHECKED_FROM:])
    if found != crc:
        raise BadRecords(f"the checksum is {found:#010x}, the header says {crc:#010x}")
    if not 0 <= count <= RECORDS_MAX:
        raise BadRecords(f"{count} records; a batch has at most {RECORDS_MAX}")
    try:
        codec = Compression(attributes & _CODEC_MASK)
    except ValueError:
        raise BadRecords(f"unknown codec {attributes & _CODEC_MASK}") from None
    return RecordBatch(
        base_offset=base_offset,
        last_offset_delta=last_offset_delta,
        leader_epoch=leader_epoch,
        codec=codec,
        is_append_time=bool(attributes & _APPEND_TIME),
        is_transactional=bool(attributes & _TRANSACTIONAL),
        is_control=bool(attributes & _CONTROL),
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        count=count,
        body=view[HEADER_BYTES:],
    )


def encode_batch(
    records: Records,
    offsets: Sequence[int],
    *,
    codec: Compression = Compression.NONE,
    leader_epoch: int = 0,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
) -> bytes:
    """Return *records*, which have the rising *offsets*, as one batch."""
    attributes = codec | (_TRANSACTIONAL if is_transactional else 0)
    facts = BatchFacts(
        base_offset=offsets[0],
        last_offset=offsets[-1],
        base_timestamp=records.timestamps[0],
        max_timestamp=max(records.timestamps),
        count=len(records),
        attributes=attributes,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
    return pack_batch(compress(_encode_records(records, offsets), codec), facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFacts:
    """The facts in the header of a batch that is written."""

    base_offset: int
    last_offset: int
    base_timestamp: int
    max_timestamp: int
    count: int
    attributes: int = 0
    leader_epoch: int = 0
    producer_id: int = NO_PRODUCER
    producer_epoch: int = -1
    base_sequence: int = NO_SEQUENCE


def pack_batch(body: bytes | memoryview, facts: BatchFacts) -> bytes:
    """Return the records in *body* with their header."""
    batch = bytearray(HEADER_BYTES + len(body))
    _HEADER.pack_into(
        batch,
        0,
        facts.base_offset,
        len(batch) - _COUNTED_FROM,
        facts.leader_epoch,
        MAGIC,
        0,
        facts.attributes,
        facts.last_offset - facts.base_offset,
        facts.base_timestamp,
        facts.max_timestamp,
        facts.producer_id,
        facts.producer_epoch,
        facts.base_sequence,
        facts.count,
    )
    batch[HEADER_BYTES:] = body
    _CRC.pack_into(batch, _CRC_AT, crc32c.crc32c(memoryview(batch)[_CHECKED_FROM:]))
    return bytes(batch)


# Records.


def _decode_records(  # noqa: PLR0912, PLR0915
    data: bytes, count: int, base_timestamp: int
) -> Records:
    """
    Return the records of a batch.

    Most numbers have one byte or two, most records have no key or no headers, and a
    call costs as much as reading one of them: so the frequent cases are written out.
    """
    timestamps, keys = list[int](), list["bytes | None"]()
    values, headers = list["bytes | None"](), list[Sequence[Header]]()
    at, none = 0, ()
    try:
        for number in range(count):
            low, high = data[at], data[at + 1]
            if low >= 0x80 > high:
                low = low & 0x7F | high << 7
                length, at = (low >> 1) ^ -(low & 1), at + 2
            else:
                length, at = _read_varint(data, at)
            end = at + length
            if length <= 0 or end > len(data):
                raise BadRecords(f"record {number} says that it has {length} bytes")
            # After the attributes, which have no meaning.
            at += 1
            low = data[at]
            if low < 0x80:
                delta, at = (low >> 1) ^ -(low & 1), at + 1
            else:
                delta, at = _read_varint(data, at)
            # The offsets of a client are the numbers of its records.
            at += 1 if data[at] < 0x80 else 2
            if data[at - 1] >= 0x80:
                _, at = _read_varint(data, at)
            if data[at] == _NULL_BYTE:
                key, at = None, at + 1
            else:
                key, at = _read_bytes(data, at, end)
            low, high = data[at], data[at + 1]
            if low >= 0x80 > high:
                low = low & 0x7F | high << 7
                stop = at + 2 + (low >> 1)
                if low & 1 or stop > end:
                    value, at = _read_bytes(data, at, end)
                else:
                    value, at = data[at + 2 : stop], stop
            else:
                value, at = _read_bytes(data, at, end)
            if data[at]:
                header_count, at = _read_varint(data, at)
                found, at = _read_headers(data, at, end, header_count)
                headers.append(found)
            else:
                at += 1
                headers.append(none)
            if at != end:
                raise BadRecords(f"record {number} does not end where it says")
            timestamps.append(base_timestamp + delta)
            keys.append(key)
            values.append(value)
    except IndexError:
        raise BadRecords("the records are cut off") from None
    if at != len(data):
        raise BadRecords(f"{len(data) - at} bytes follow the last record")
    return Records(timestamps=timestamps, keys=keys, values=values, headers=headers)


def _read_headers(
    data: bytes, at: int, end: int, count: int
) -> tuple[list[Header], int]:
    if not 0 <= count <= HEADERS_MAX:
        raise BadRecords(f"{count} headers; a record has at most {HEADERS_MAX}")
    headers = list[Header]()
    for _ in range(count):
        name, at = _read_bytes(data, at, end)
        value, at = _read_bytes(data, at, end)
        if name is None:
            raise BadRecords("a header has no name")
        try:
            headers.append((name.decode(), value))
        except UnicodeDecodeError as error:
            raise BadRecords(f"the name of a header is not UTF-8: {error}") from error
    return headers, at


def _read_bytes(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    length, at = _read_varint(data, at)
    if length < 0:
        return None, at
    stop = at + length
    if stop > end:
        raise BadRecords(f"{length} bytes in a record that has {end - at} left")
    return data[at:stop], stop


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    value, shift = byte & 0x7F, 7
    while True:
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise BadRecords("a number is longer than 64 bits")
    return (value >> 1) ^ -(value & 1), at + 1


def _encode_records(records: Records, offsets: Sequence[int]) -> bytes:
    base, base_timestamp = offsets[0], records.timestamps[0]
    parts = list[bytes]()
    for offset, time, key, value, headers in zip(
        offsets,
        records.timestamps,
        records.keys,
        records.values,
        records.headers,
        strict=True,
    ):
        delta = time - base_timestamp
        # Most times differ by less than 64 ms.
        begin = _BEGINS[delta] if 0 <= delta < len(_BEGINS) else b"\0" + _varint(delta)
        number = _varint(offset - base)
        own_key = _NULL if key is None else _sized(key)
        length = _NULL if value is None else _varint(len(value))
        end = _encode_headers(headers) if headers else b"\0"
        size = (
            len(begin) + len(number) + len(own_key) + len(length) + len(value or b"")
        ) + len(end)
        parts += (_varint(size), begin, number, own_key, length, value or b"", end)
    return b"".join(parts)


def _encode_headers(headers: Sequence[Header]) -> bytes:
    return _varint(len(headers)) + b"".join(
        _sized(each) for name, content in headers for each in (name.encode(), content)
    )


def _sized(data: bytes | None) -> bytes:
    return _NULL if data is None else _varint(len(data)) + data


def _varint(value: int) -> bytes:
    if 0 <= value < len(_VARINTS):
        return _VARINTS[value]
    return encode_varint(value)


def encode_varint(value: int) -> bytes:
    """Return *value*, which may be negative, in seven bits of each byte."""
    left, encoded = (value << 1) ^ (value >> 63), bytearray()
    while left > 0x7F:
        encoded.append(left & 0x7F | 0x80)
        left >>= 7
    encoded.append(left)
    return bytes(encoded)


_VARINTS = tuple(encode_varint(value) for value in range(8192))
_BEGINS = tuple(b"\0" + each for each in _VARINTS[:64])
_NULL = encode_varint(-1)
_NULL_BYTE = _NULL[0]
