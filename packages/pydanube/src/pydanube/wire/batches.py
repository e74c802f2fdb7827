"""
One batch as bytes: a fixed header, the producer's name, the Arrow body.

The same bytes travel from the producer through the broker's journal and memory
to the consumer.  The checksum does not cover the header's first 16 bytes, where
the broker writes the base offset and the topic's epoch; it changes nothing else.
``docs/format/batch.md`` is the normative description, with the layout of the header.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from enum import IntEnum
from functools import cache
from itertools import chain, starmap
from typing import Any, Protocol

from pydanube.model import arrow
from pydanube.model.arrow import envelope, pa, pc
from pydanube.model.batch import NAMES, TIME_COLUMNS, Column, columns_of, schema_of
from pydanube.model.errors import CorruptBatch, InvalidRequest
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.message_columns import MessageColumns
from pydanube.model.positions import TIME_MAX, TIME_MIN
from pydanube.model.ranges import Range
from pydanube.wire.arrow_body import decompress, read_body, validate
from pydanube.wire.buffer import Buffer, padded_size
from pydanube.wire.checksum import crc32c
from pydanube.wire.column_body import ColumnBody, encode_body
from pydanube.wire.small_batch import (
    SMALL_MESSAGES_MAX,
    SmallBatch,
    decode_small_batch,
    encode_small_batch,
)

VERSION = 1
BODY_BYTES_MAX = 64 * 1024 * 1024
"""The longest body, before compression too: whole batches are held in memory."""
BATCH_MESSAGES_MAX = 65_536
"""
The most messages in one batch.

An empty message takes 4 bytes of a body, which compress to almost nothing; as a row
of a segment or as a Python object it takes a hundred.
"""
MESSAGE_BYTES = 16
"""The offset and the publish time that each decoded message has."""

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
"""Columns of segments are signed, so no number that is stored may be larger."""

# The version and the three zeros after it are read as one number.
_HEADER = struct.Struct("<IIQIBBHIIQQqqQIIII")
_STAMP = struct.Struct("<IQ")
_STAMP_AT = 4
_CRC = struct.Struct("<I")
_CRC_AT = 16
_CHECKED_FROM = 20
# A broker stamps frames without computing their checksums again.
assert _STAMP_AT + _STAMP.size <= _CRC_AT < _CHECKED_FROM
_PRODUCER = struct.Struct("<IQQ")
_PRODUCER_AT = 28
_PLAIN_LENGTH_AT = 80
HEADER_BYTES = _HEADER.size
_HAS_IDS = 1
assert HEADER_BYTES == 88

DIRECT_BYTES_MIN = 128 * 1024
"""Batches from this size on are encoded in place; smaller ones are copied sooner."""


class Codec(IntEnum):
    """The compression of a body as a whole."""

    NONE = 0
    LZ4 = 1
    ZSTD = 2


_CODECS = tuple(Codec)
_TIMED = int(Column.PAYLOAD | Column.PUBLISH_TIME)
_SMALL_COLUMNS = frozenset({int(Column.PAYLOAD), _TIMED})
_ARROW_CODEC = {Codec.LZ4: "lz4", Codec.ZSTD: "zstd"}


@dataclass(slots=True, kw_only=True)
class BatchHeader:
    """The header's fields, as ``docs/format/batch.md`` describes them."""

    count: int = 0
    columns: int = 0
    """The encoder of the batch sets the count and the columns."""
    base_offset: int = 0
    epoch: int = 0
    codec: Codec = Codec.NONE
    producer_id: int = 0
    producer_epoch: int = 0
    base_sequence: int = 0
    first_publish_time: int
    last_publish_time: int
    schema_id: int = 0
    schema_version: int = 0
    producer: str = ""
    has_ids: bool = False
    """Whether the topic is to drop messages whose ids it knows."""


class BatchFrame:
    """
    The bytes of one batch, with the decoded header.

    The lengths in the header are known to be valid.  Only ``check`` compares the
    bytes with their checksum, and the body with the header.
    """

    __slots__ = (
        "_end",
        "_rows",
        "body_at",
        "buffer",
        "byte_count",
        "count",
        "header",
        "is_verified",
        "plain_bytes",
    )

    def __init__(self, header: BatchHeader, buffer: Buffer, body_at: int) -> None:
        self.header = header
        self.buffer = buffer
        self.body_at = body_at
        self.count = header.count
        """The number of messages."""
        self.byte_count = len(buffer)
        """The length of the whole frame."""
        self.plain_bytes: int = body_at + _CRC.unpack_from(buffer, _PLAIN_LENGTH_AT)[0]
        """The length that the frame would have without compression."""
        # The end of a frame with gaps, computed when it is first needed.
        self._end = 0
        # The messages, if pieces are cut from the frame; see opened().
        self._rows: pa.RecordBatch | None = None
        self.is_verified = False
        """Whether a broker has checked the frame and need not do so again."""

    @property
    def base(self) -> int:
        """The offset of the first message."""
        return self.header.base_offset

    @property
    def end(self) -> int:
        """The first offset after the last message."""
        header = self.header
        if not header.columns & Column.OFFSET:
            return header.base_offset + header.count
        if not self._end:
            self._end = self.arrow().column("offset")[-1].as_py() + 1
        return self._end

    @property
    def has_gaps(self) -> bool:
        """Whether some offsets are missing, so that a column lists those there are."""
        return bool(self.header.columns & Column.OFFSET)

    @property
    def plain_body_bytes(self) -> int:
        """The length of the body before compression, as the header says."""
        return self.plain_bytes - self.body_at

    @property
    def memory_bytes(self) -> int:
        """About how much memory the decoded messages take."""
        return self.plain_bytes + MESSAGE_BYTES * self.header.count

    def stamp(self, base_offset: int, epoch: int) -> None:
        """Set the batch's offset and epoch; the buffer must be writable."""
        _STAMP.pack_into(self.buffer, _STAMP_AT, epoch, base_offset)
        self.header.base_offset = base_offset
        self.header.epoch = epoch

    def verify_checksum(self) -> None:
        """
        Compare the bytes with their checksum.

        Raises:
            CorruptBatch: The checksum does not match.
        """
        (expected,) = _CRC.unpack_from(self.buffer, _CRC_AT)
        found = crc32c(memoryview(self.buffer)[_CHECKED_FROM:])
        if found != expected:
            raise CorruptBatch(
                f"the batch's checksum is {found:#010x}, its header says "
                f"{expected:#010x}"
            )

    def check(self) -> pa.RecordBatch:
        """
        Verify the checksum and every length inside the body; return the batch.

        A frame that passes is safe to seal, slice and send, even if its producer is
        hostile.

        Raises:
            CorruptBatch: The bytes are not the batch that the header describes.
        """
        self.verify_checksum()
        batch = validate(self._decoded(exactly=True))
        for index in _required_of(self.header.columns):
            if batch.column(index).null_count:
                raise CorruptBatch(f"the column {batch.schema.names[index]} has nulls")
        header = self.header
        _check_time(header.first_publish_time)
        _check_time(header.last_publish_time)
        for column in TIME_COLUMNS:
            if header.columns & column:
                extremes = pc.min_max(batch.column(envelope.FIELDS[column].name))
                for time in extremes.values():
                    # The extremes of nothing but nulls are null.
                    if time.is_valid:
                        _check_time(time.value)
        return batch

    def checked_arrow(self) -> pa.RecordBatch:
        """
        Return the messages after checking every length inside the body.

        Clients, which do not trust the broker, call this after ``verify_checksum``.

        Raises:
            CorruptBatch: The body is not the batch that the header describes.
        """
        return validate(self.arrow())

    def read_columns(self) -> ColumnBody:
        """
        Return the columns, read without Arrow; see ``checked_arrow``.

        Clients, which do not trust the broker, call this after ``verify_checksum``.

        Raises:
            CorruptBatch: The body is compressed, or as ``ColumnBody``.
        """
        header = self.header
        if header.codec is not Codec.NONE:
            raise CorruptBatch(
                f"the broker sent a batch compressed with {header.codec.name}, which "
                "this client did not ask for: it has no pyarrow to decompress it"
            )
        body = memoryview(self.buffer)[self.body_at :]
        return ColumnBody(body, header.columns, header.count)

    def verify(self) -> None:
        """Check the frame as ``check`` does, without Arrow if it is a small batch."""
        small = self.decode_small_batch()
        if small is None:
            self.check()
        else:
            self.verify_small(small)

    def verify_small(self, small: SmallBatch) -> None:
        """
        Check the frame as ``check`` does; *small* are its decoded messages.

        Raises:
            CorruptBatch: The bytes are not the batch that the header describes.
        """
        self.verify_checksum()
        header = self.header
        _check_time(header.first_publish_time)
        _check_time(header.last_publish_time)
        if small.times:
            _check_time(min(small.times))
            _check_time(max(small.times))

    def decode_small_batch(self) -> SmallBatch | None:
        """Return the messages if this is a small batch; see ``wire.small_batch``."""
        header = self.header
        columns = header.columns
        if (
            header.count > SMALL_MESSAGES_MAX
            or columns not in _SMALL_COLUMNS
            or header.codec is not Codec.NONE
        ):
            return None
        return decode_small_batch(
            self.buffer, self.body_at, header.count, has_times=columns == _TIMED
        )

    def arrow(self) -> pa.RecordBatch:
        """
        Return the messages, without a copy if the body is not compressed.

        Raises:
            CorruptBatch: The body is not an Arrow batch of the header's columns
                and count.
        """
        return self._decoded(exactly=False) if self._rows is None else self._rows

    def _decoded(self, *, exactly: bool) -> pa.RecordBatch:
        header = self.header
        body = memoryview(self.buffer)[self.body_at :]
        if header.codec is Codec.NONE:
            return read_body(body, header.columns, header.count)
        codec = _ARROW_CODEC[header.codec]
        plain = decompress(body, codec, self.plain_body_bytes, exactly=exactly)
        return read_body(plain, header.columns, header.count)

    def find_time(self, publish_time: int) -> int | None:
        """
        Return the offset of the first message published at *publish_time* or later.

        If the first and the last message are older, all others are assumed to be.
        The frame must have no gaps.
        """
        header = self.header
        assert not self.has_gaps
        if header.first_publish_time >= publish_time:
            return header.base_offset
        if (
            header.last_publish_time < publish_time
            or not header.columns & Column.PUBLISH_TIME
        ):
            return None
        at = first_at_or_after(self.arrow().column("publish_time"), publish_time)
        return None if at is None else header.base_offset + at

    def ranges(self) -> list[Range]:
        """Return the offsets of the messages, in order."""
        if self.has_gaps:
            return runs_of(self.arrow().column("offset"))
        return [(self.base, self.end)]

    def within(self, base: int, end: int) -> BatchFrame | None:
        """Return the messages with offsets ``base … end``; None if there are none."""
        if not self.has_gaps:
            base, end = max(base, self.base), min(end, self.end)
            return self.take([(base, end)]) if base < end else None
        rows = self.arrow()
        offsets = rows.column("offset")
        inside = pc.and_(pc.greater_equal(offsets, base), pc.less(offsets, end))
        if inside.true_count == len(inside):
            return self
        return self._part(rows.filter(inside), 0) if inside.true_count else None

    def slice(self, base: int, end: int) -> BatchFrame:
        """
        Return the messages with offsets ``base … end`` as a new frame.

        The frame must have no gaps.
        """
        header = self.header
        at = base - header.base_offset
        assert 0 <= at < end - header.base_offset <= header.count
        assert not header.columns & Column.OFFSET
        return self._part(self.arrow().slice(at, end - base), at)

    def _part(self, rows: pa.RecordBatch, at: int) -> BatchFrame:
        """Return *rows*, of which the first is message number *at*, as a frame."""
        first, last = _times(rows, self.header)
        header = replace(
            self.header,
            base_offset=self.header.base_offset + at,
            base_sequence=self.header.base_sequence + at,
            first_publish_time=first,
            last_publish_time=last,
        )
        return encode_rows(rows, header)

    def plain(self) -> BatchFrame:
        """Return the batch without compression; the frame itself if it has none."""
        if self.header.codec is Codec.NONE:
            return self
        return encode(self.arrow(), replace(self.header))

    def opened(self) -> BatchFrame:
        """
        Return the batch without compression, and decoded, to cut many pieces from it.

        The frame itself keeps nothing, so that it takes no more memory.

        Raises:
            CorruptBatch: As ``arrow`` does.
        """
        if self._rows is not None:
            return self
        plain = self.plain()
        opened = BatchFrame(plain.header, plain.buffer, plain.body_at)
        opened.is_verified = plain.is_verified
        opened._rows = plain.arrow()
        return opened

    def take(self, ranges: Sequence[Range]) -> BatchFrame:
        """
        Return the messages with these offsets as a new frame.

        *ranges* are in order, and the frame has a message at each offset in them.
        If they leave a gap, the new frame has the column ``offset``.
        """
        header = self.header
        base, end = ranges[0][0], ranges[-1][1]
        count = end - base
        if len(ranges) > 1:
            count = sum(map(len, starmap(range, ranges)))
        has_gaps = header.columns & Column.OFFSET
        if not has_gaps:
            begin = header.base_offset
            assert begin <= base < end <= begin + header.count
            if count == end - base:
                return self if count == header.count else self.slice(base, end)
        if count == header.count:
            return self
        rows = self.arrow()
        wanted = pa.array(chain.from_iterable(starmap(range, ranges)), pa.int64())
        if has_gaps:
            rows = rows.filter(pc.is_in(rows.column("offset"), wanted))
            assert rows.num_rows == count
            return self._part(rows, 0)
        return self._pick(pc.subtract(wanted, header.base_offset), wanted)

    def _pick(self, indices: pa.Array, offsets: pa.Array) -> BatchFrame:
        """Return the messages at *indices*, which have these *offsets* with gaps."""
        header = self.header
        rows = self.arrow().take(indices)
        schema = schema_of(header.columns | Column.OFFSET)
        arrays = [
            offsets if name == "offset" else rows.column(name) for name in schema.names
        ]
        at = indices[0].as_py()
        return self._part(pa.RecordBatch.from_arrays(arrays, schema=schema), at)


def encode(
    batch: pa.RecordBatch, header: BatchHeader, codec: Codec = Codec.NONE
) -> BatchFrame:
    """
    Return *batch* as a frame with *header*, in a writable buffer.

    This sets the header's count, columns and codec, so that they cannot disagree with
    the body.
    """
    header.count = batch.num_rows
    header.columns = columns_of(batch)
    header.codec = codec
    if codec is Codec.NONE and batch.nbytes >= DIRECT_BYTES_MIN:
        return _encode_plain(batch, header)
    plain = batch.serialize()
    body = (
        plain
        if codec is Codec.NONE
        else pa.compress(plain, codec=_ARROW_CODEC[codec], asbytes=False)
    )
    # A compressed buffer may be longer than its content.
    return _frame_of(header, memoryview(body)[: body.size], plain.size)


class ReadColumns(Protocol):
    """The columns of a batch that was received."""

    def values(self, column: Column) -> list[Any]:
        """
        Return the values of a column that the batch has; times are in microseconds.

        Attributes are lists of pairs.

        Raises:
            CorruptBatch: The column is not what the format requires.
        """


class ArrowColumns:
    """The columns of an Arrow batch."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        self._rows = rows

    def values(self, column: Column) -> list[Any]:
        found = self._rows.column(NAMES[column])
        if column in TIME_COLUMNS:
            # A cast takes ten times as long.
            found = found.view(pa.int64())
        return found.to_pylist()  # type: ignore[no-any-return]


def encode_columns(
    columns: MessageColumns, header: BatchHeader, codec: Codec = Codec.NONE
) -> BatchFrame:
    """
    Return *columns* as a frame, as ``encode`` does; without Arrow if there is none.

    Raises:
        InvalidRequest: A value is not of its column's type, or Arrow is needed to
            compress the body.
    """
    if arrow.is_installed():
        try:
            batch = columns.to_arrow()
        except (ValueError, TypeError) as error:
            raise InvalidRequest(f"invalid batch: {error}") from error
        return encode(batch, header, codec)
    check_codec(codec)
    body = encode_body(columns)
    header.count = len(columns.payloads)
    header.columns = columns.columns()
    header.codec = codec
    return _frame_of(header, body, len(body))


def known_codecs() -> list[Codec]:
    """Return the codecs of bodies that this program decompresses, but for none."""
    return [Codec.LZ4, Codec.ZSTD] if arrow.is_installed() else []


def check_codec(codec: Codec) -> None:
    """
    Raise unless this program can compress bodies with *codec*.

    Raises:
        InvalidRequest: It needs Arrow, which is not installed.
    """
    if codec is not Codec.NONE and codec not in known_codecs():
        raise InvalidRequest(
            f"compression {codec.name.lower()!r} needs pyarrow, which is not "
            "installed: pip install 'pydanube[fast]', or send without compression"
        )


def encode_rows(rows: pa.RecordBatch, header: BatchHeader) -> BatchFrame:
    """
    Return *rows* as a frame with *header*.

    If they have the column ``offset``, the base offset is that of the first row.  If no
    offset is missing, the frame does not have the column.
    """
    at = rows.schema.get_field_index("offset")
    if at >= 0:
        offsets = rows.column(at)
        header.base_offset = offsets[0].as_py()
        if offsets[-1].as_py() - header.base_offset + 1 == rows.num_rows:
            rows = rows.remove_column(at)
    return encode(rows, header)


def runs_of(offsets: pa.Array) -> list[Range]:
    """Return the rising *offsets* as ranges."""
    steps = pc.subtract(offsets.slice(1), offsets.slice(0, len(offsets) - 1))
    lasts = pc.indices_nonzero(pc.not_equal(steps, 1))
    bases = [offsets[0].as_py(), *offsets.take(pc.add(lasts, 1)).to_pylist()]
    ends = [*offsets.take(lasts).to_pylist(), offsets[-1].as_py()]
    return [(base, last + 1) for base, last in zip(bases, ends, strict=True)]


def encode_payloads(
    payloads: Sequence[bytes], header: BatchHeader, times: Sequence[int] = ()
) -> BatchFrame:
    """
    Return *payloads* as a frame, as ``encode`` does; a few of them take less time.

    *times* are the publish times in microseconds since 1970, needed if they differ.
    """
    if len(payloads) > SMALL_MESSAGES_MAX:
        columns = MessageColumns(payloads=payloads, publish_times=times or None)
        return encode_columns(columns, header)
    body = encode_small_batch(payloads, times)
    header.count = len(payloads)
    header.columns = _TIMED if times else Column.PAYLOAD
    header.codec = Codec.NONE
    return _frame_of(header, body, len(body))


def _encode_plain(batch: pa.RecordBatch, header: BatchHeader) -> BatchFrame:
    """
    Return *batch* as a frame without compression, without copying the body.

    Arrow writes it to its place, and releases the interpreter lock meanwhile.
    """
    name = header.producer.encode()
    body_at = HEADER_BYTES + padded_size(len(name))
    body_bytes = pa.ipc.get_record_batch_size(batch)
    # A stream begins with a message about the schema, whose place the header takes.
    schema_bytes = batch.schema.serialize().size
    unused = max(0, schema_bytes - body_at)
    memory = pa.allocate_buffer(unused + body_at + body_bytes)
    view = memoryview(memory).cast("B")[unused:]
    at = unused + body_at - schema_bytes
    sink = pa.FixedSizeBufferWriter(pa.py_buffer(memoryview(memory)[at:]))
    pa.ipc.new_stream(sink, batch.schema, options=_ipc_options()).write_batch(batch)
    assert sink.tell() == schema_bytes + body_bytes
    return _fill_in(header, name, view, body_at, body_bytes)


def _frame_of(header: BatchHeader, body: Buffer, plain_bytes: int) -> BatchFrame:
    name = header.producer.encode()
    body_at = HEADER_BYTES + padded_size(len(name))
    buffer = bytearray(body_at + len(body))
    buffer[body_at:] = body
    return _fill_in(header, name, buffer, body_at, plain_bytes)


def _fill_in(
    header: BatchHeader,
    name: bytes,
    buffer: bytearray | memoryview,
    body_at: int,
    plain_bytes: int,
) -> BatchFrame:
    """Write all that comes before the body, which *buffer* has; return the frame."""
    _HEADER.pack_into(
        buffer,
        0,
        VERSION,
        header.epoch,
        header.base_offset,
        0,
        header.codec,
        header.columns,
        len(name),
        header.count,
        header.producer_epoch,
        header.producer_id,
        header.base_sequence,
        header.first_publish_time,
        header.last_publish_time,
        header.schema_id,
        header.schema_version,
        len(buffer) - body_at,
        plain_bytes,
        _HAS_IDS if header.has_ids else 0,
    )
    buffer[HEADER_BYTES:body_at] = name.ljust(body_at - HEADER_BYTES, b"\0")
    _CRC.pack_into(buffer, _CRC_AT, crc32c(memoryview(buffer)[_CHECKED_FROM:]))
    return BatchFrame(header, buffer, body_at)


def first_at_or_after(times: pa.Array | pa.ChunkedArray, time: int) -> int | None:
    """Return the index of the first of *times* at *time* or later, if there is one."""
    at = pc.index(pc.greater_equal(times.cast(pa.int64()), time), True).as_py()
    return at if at >= 0 else None


def restamp_producer(
    frame: BatchFrame, producer_id: int, producer_epoch: int, base_sequence: int
) -> None:
    """Replace the producer's id, epoch and sequence in an unpublished batch."""
    header = frame.header
    header.producer_id = producer_id
    header.producer_epoch = producer_epoch
    header.base_sequence = base_sequence
    buffer = frame.buffer
    _PRODUCER.pack_into(
        buffer, _PRODUCER_AT, producer_epoch, producer_id, base_sequence
    )
    _CRC.pack_into(buffer, _CRC_AT, crc32c(memoryview(buffer)[_CHECKED_FROM:]))


def decode(buffer: Buffer) -> BatchFrame:
    """
    Return the frame that fills *buffer*, without decoding its body.

    Raises:
        CorruptBatch: The header is invalid, or its lengths do not add up to the
            buffer's.
    """
    if len(buffer) < HEADER_BYTES:
        raise CorruptBatch(f"a batch of {len(buffer)} bytes is shorter than its header")
    (
        version,
        epoch,
        base_offset,
        _crc,
        codec,
        columns,
        name_length,
        count,
        producer_epoch,
        producer_id,
        base_sequence,
        first_publish_time,
        last_publish_time,
        schema_id,
        schema_version,
        body_length,
        plain_length,
        flags,
    ) = _HEADER.unpack_from(buffer)
    body_at = HEADER_BYTES + padded_size(name_length)
    if version != VERSION or flags & ~_HAS_IDS:
        raise CorruptBatch(
            f"a batch of format version {version}; this program reads {VERSION}"
        )
    if body_at + body_length != len(buffer):
        raise CorruptBatch(
            f"the header describes {body_at + body_length} bytes, there are "
            f"{len(buffer)}"
        )
    if codec > Codec.ZSTD or plain_length > BODY_BYTES_MAX:
        raise CorruptBatch(f"codec {codec} or length {plain_length} is out of bounds")
    if codec == Codec.NONE and plain_length != body_length:
        raise CorruptBatch("an uncompressed body has two lengths")
    if not count or not columns & Column.PAYLOAD:
        raise CorruptBatch(f"count {count} or columns {columns:#x} are impossible")
    if (
        base_sequence + count > INT64_MAX
        or schema_id > INT64_MAX
        or schema_version > INT32_MAX
    ):
        raise CorruptBatch("a sequence, schema id or schema version is out of bounds")
    try:
        name = str(buffer[HEADER_BYTES : HEADER_BYTES + name_length], "utf-8")
    except UnicodeDecodeError as error:
        raise CorruptBatch("the producer's name is not UTF-8") from error
    header = BatchHeader(
        count=count,
        columns=columns,
        base_offset=base_offset,
        epoch=epoch,
        codec=_CODECS[codec],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        first_publish_time=first_publish_time,
        last_publish_time=last_publish_time,
        schema_id=schema_id,
        schema_version=schema_version,
        producer=name,
        has_ids=bool(flags & _HAS_IDS),
    )
    return BatchFrame(header, buffer, body_at)


@cache
def _ipc_options() -> pa.ipc.IpcWriteOptions:
    return pa.ipc.IpcWriteOptions()


@cache
def _required_of(columns: int) -> tuple[int, ...]:
    """Return the indexes of the columns that must not have nulls."""
    fields = enumerate(schema_of(columns))
    return tuple(index for index, field in fields if not field.nullable)


def _check_time(time: int) -> None:
    if not TIME_MIN <= time <= TIME_MAX:
        raise CorruptBatch("a time is not between the years 1 and 9999")


def _times(rows: pa.RecordBatch, header: BatchHeader) -> tuple[int, int]:
    if not header.columns & Column.PUBLISH_TIME:
        return header.first_publish_time, header.last_publish_time
    times = rows.column("publish_time")
    return times[0].value, times[-1].value
