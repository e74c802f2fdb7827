"""
The format of a journal file: a header, then entries.

A journal is a sequence of numbered files.  Each begins with a header and a
*snapshot*: entries for the state of all topics, cursors and producers.  Any suffix
of the files is a complete journal.  ``docs/format/journal.md`` is the normative
description, with the layout of headers and entries.

A batch entry's checksum stops where the checksum of the frame begins, so that the
journal need not checksum the bytes of a batch again.

An entry carries two positions.  With the first, nothing that only looks like an entry
is taken for one, for example a payload that is a journal itself.  The second
distinguishes damage from a crash: a crash may lose or tear anything that was written
after the last sync, in any order, so a bad entry alone proves nothing.  But if a
complete entry *after* it says that the bad position was on disk already, a crash cannot
be the reason.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import field
from enum import IntEnum
from itertools import chain
from typing import Any, NamedTuple

from pydanube.model.errors import CorruptBatch, CorruptJournal, NewerJournal
from pydanube.model.failures import FailedRange
from pydanube.model.ids import Epoch, Offset, ProducerId, Sequence, TopicId
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.ranges import Range, RangeSet
from pydanube.wire import batches
from pydanube.wire.batches import BatchFrame
from pydanube.wire.buffer import Buffer, padded_size
from pydanube.wire.files.entries import (
    FRAME_CHECKED,
    checksums_of,
    complete_batch_entry,
    complete_entry,
    seed_of,
)

VERSION = 1
FILE_HEADER_BYTES = 48
ENTRY_HEADER_BYTES = 32
BODY_BYTES_MAX = batches.BODY_BYTES_MAX + 1024 * 1024
"""The longest body: a batch with its header and the longest name fits."""
RUNS_MAX = 512
"""How many runs of each producer are kept, unless the broker itself is the producer."""
INTERNAL_PREFIX = "broker/"
"""
The beginning of the names of producers that are brokers; clients cannot use it.

Their sequence numbers are positions in what the messages come from, in any order, so
all of their runs are kept.  See
``pydanube_broker/broker/serving/internal_publishing.py``.
"""

_FILE_MAGIC = b"DANUBEJ\x00"
_FILE_HEADER = struct.Struct("<8sIIQ16s8s")
_ENTRY_MAGIC = b"DjE1"
_ENTRY = struct.Struct("<4sIIB3xQQ")
_BATCH_ENTRY = struct.Struct("<4sIIB3xQQQ")
_FRAME_AT = 8
assert _FILE_HEADER.size == FILE_HEADER_BYTES
assert _ENTRY.size == ENTRY_HEADER_BYTES

Run = tuple[int, int, int]
"""(base sequence, base offset, count) of messages that a producer sent in a row."""


class EntryKind(IntEnum):
    """The kind of an entry; numbers are never reused."""

    TOPIC_OPENED = 1
    BATCH = 2
    CURSOR = 3
    PRODUCER = 4
    PRODUCER_OPENED = 5
    SEALED = 6
    TOPIC_DELETED = 7
    SUBSCRIPTION_DELETED = 8
    PRODUCER_DELETED = 9
    SNAPSHOT_END = 10
    METADATA_REVISION = 11
    TOPIC_ADOPTED = 12
    SHARD_LEFT = 13
    SHARD_FORGOTTEN = 14


@dataclass(frozen=True, slots=True)
class CursorState:
    """A subscription's progress: all below *offset* is acknowledged, and *done*."""

    offset: int
    done: RangeSet = field(default_factory=RangeSet)
    """Must not be changed."""
    generation: int = 1
    """As in ``dispatch.cursor.Cursor``."""
    failures: tuple[FailedRange, ...] = ()
    """Messages that have failed; those that are done do not count."""
    note: str = ""
    """The text that an external reader reported with the offset."""

    @property
    def byte_count(self) -> int:
        """About the size of an entry with it."""
        reasons = sum(len(each.reason) for each in self.failures)
        failures = len(self.failures) * _FAILED.size + reasons
        return self.done.byte_count + failures + len(self.note)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOpened:
    """The broker opened the topic, whose log is as described."""

    topic_id: TopicId
    name: str
    epoch: Epoch
    end_offset: Offset
    sealed_offset: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicAdopted:
    """
    A topic of a shard begins here, with *epoch*.

    It replaces all that the journal has of the topic, also its cursors and producers.
    """

    topic_id: TopicId
    shard: int
    name: str
    epoch: Epoch
    end_offset: Offset
    sealed_offset: Offset


@dataclass(slots=True)
class Batch:
    """A batch was appended to the topic.  (Not frozen: this is on the hot path.)"""

    topic_id: TopicId
    frame: BatchFrame


@dataclass(frozen=True, slots=True)
class CursorSaved:
    """The cursor of a subscription was saved."""

    topic_id: TopicId
    subscription: str
    cursor: CursorState


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOpened:
    """A producer was opened; its sequence numbers and runs are kept."""

    topic_id: TopicId
    name: str
    producer_id: ProducerId
    epoch: Epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSaved:
    """The complete state of a producer; only in snapshots."""

    topic_id: TopicId
    name: str
    producer_id: ProducerId
    epoch: Epoch
    next_sequence: Sequence
    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class TopicSealed:
    """Messages below *sealed_offset* are in segments; the journal may drop them."""

    topic_id: TopicId
    sealed_offset: Offset


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """The topic and its subscriptions and producers were deleted."""

    topic_id: TopicId


@dataclass(frozen=True, slots=True)
class SubscriptionDeleted:
    """The subscription's cursor was deleted."""

    topic_id: TopicId
    subscription: str


@dataclass(frozen=True, slots=True)
class ProducerDeleted:
    """The state of a producer was deleted."""

    topic_id: TopicId
    name: str


@dataclass(frozen=True, slots=True)
class MetadataRevision:
    """The metadata store has this revision, or a later one, on disk."""

    revision: int


@dataclass(frozen=True, slots=True)
class ShardLeft:
    """The entries of a shard with *epoch* end here; another session continues them."""

    shard: int
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class ShardForgotten:
    """Nobody needs the entries of a shard with *epoch* or an earlier one."""

    shard: int
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class SnapshotEnd:
    """The end of the snapshot at the head of a file, with its number of entries."""

    count: int


Entry = (
    TopicOpened
    | TopicAdopted
    | Batch
    | CursorSaved
    | ProducerOpened
    | ProducerSaved
    | TopicSealed
    | TopicDeleted
    | SubscriptionDeleted
    | ProducerDeleted
    | MetadataRevision
    | ShardLeft
    | ShardForgotten
    | SnapshotEnd
)


@dataclass(frozen=True, slots=True)
class FileHeader:
    """The header of a journal file."""

    number: int
    journal_id: bytes
    version: int = VERSION

    def encode(self) -> bytes:
        """Return the header's bytes."""
        return self._pack(self.seed)

    @property
    def seed(self) -> int:
        """The initial value of the checksums of the file's entries."""
        return seed_of(self._pack(0))

    def _pack(self, crc: int) -> bytes:
        return _FILE_HEADER.pack(
            _FILE_MAGIC, self.version, crc, self.number, self.journal_id, bytes(8)
        )


def decode_file_header(buffer: Buffer) -> FileHeader:
    """
    Return the header at the beginning of a file.

    Raises:
        NewerJournal: The file has a newer format version than this program reads.
        CorruptJournal: The header is truncated or damaged.
    """
    if len(buffer) < FILE_HEADER_BYTES:
        raise CorruptJournal(
            f"expected a file header of {FILE_HEADER_BYTES} bytes, there are "
            f"{len(buffer)}"
        )
    magic, version, crc, number, journal_id, _ = _FILE_HEADER.unpack_from(buffer)
    if magic != _FILE_MAGIC:
        raise CorruptJournal("expected a file header with the magic DANUBEJ")
    header = FileHeader(number, journal_id, version)
    # A newer format may use another checksum, so check the version first.
    if version > VERSION:
        raise NewerJournal(
            f"the file has format version {version}, this program reads {VERSION}"
        )
    if bytes(buffer[:FILE_HEADER_BYTES]) != header.encode():
        raise CorruptJournal(
            f"expected the file header's checksum to be {header.seed:#010x}, it is "
            f"{crc:#010x}"
        )
    return header


def encode_entry(
    entry: Entry, *, position: int, synced: int, seed: int
) -> tuple[list[Buffer], int]:
    """
    Return the buffers to write at *position* for *entry*, and their total length.

    The bytes of a batch are not copied.
    """
    assert synced <= position
    if isinstance(entry, Batch):
        frame = entry.frame.buffer
        length = _FRAME_AT + len(frame)
        ids = position, synced, entry.topic_id
        head = _BATCH_ENTRY.pack(_ENTRY_MAGIC, 0, length, EntryKind.BATCH, *ids)
        return complete_batch_entry(bytearray(head), frame, seed)
    kind, body = _encode_body(entry)
    head = _ENTRY.pack(_ENTRY_MAGIC, 0, len(body), kind, position, synced)
    data = complete_entry(head, body, seed)
    return [data], len(data)


class DecodedEntry(NamedTuple):
    """An entry, with its range ``position … end`` in the file."""

    entry: Entry
    position: int
    end: int
    synced: int
    kind: EntryKind


def decode_entry(buffer: memoryview, position: int, seed: int) -> DecodedEntry:
    """
    Return the entry at *position*, which is inside *buffer*; verify both checksums.

    The frame of a batch is a view of *buffer*.

    Raises:
        CorruptJournal: There is no complete entry.  The caller decides whether a crash
            is the reason.
    """
    length, kind, synced = _decode_entry_header(buffer, position)
    body_at = position + ENTRY_HEADER_BYTES
    end = body_at + padded_size(length)
    if end > len(buffer):
        raise CorruptJournal(
            f"expected an entry of {end - position} bytes, the file has "
            f"{len(buffer) - position} more"
        )
    checked_to = body_at + length
    if kind == EntryKind.BATCH:
        checked_to = min(checked_to, body_at + _FRAME_AT + FRAME_CHECKED)
    found, expected = checksums_of(buffer, position, checked_to, seed)
    if found != expected:
        raise CorruptJournal(
            f"expected an entry with checksum {expected:#010x}, it is {found:#010x}"
        )
    body = buffer[body_at : body_at + length]
    try:
        known = EntryKind(kind)
        entry = _decode_body(known, body)
    except (CorruptBatch, OverflowError, struct.error, ValueError) as error:
        raise CorruptJournal(
            f"expected an entry of a known kind and form, kind {kind}: {error}"
        ) from error
    return DecodedEntry(entry, position, end, synced, known)


def _decode_entry_header(buffer: memoryview, position: int) -> tuple[int, int, int]:
    if position + ENTRY_HEADER_BYTES > len(buffer):
        raise CorruptJournal(
            f"expected an entry header of {ENTRY_HEADER_BYTES} bytes, the file has "
            f"{len(buffer) - position} more"
        )
    magic, _, length, kind, at, synced = _ENTRY.unpack_from(buffer, position)
    if magic != _ENTRY_MAGIC:
        raise CorruptJournal("expected an entry, there is no entry's magic")
    if at != position or synced > position:
        raise CorruptJournal(f"expected an entry of position {position}, it says {at}")
    if length > BODY_BYTES_MAX:
        raise CorruptJournal(f"expected an entry, its length {length} is impossible")
    return length, kind, synced


def find_entries(
    buffer: memoryview, position: int, seed: int
) -> Iterator[tuple[int, int]]:
    """
    Search for complete entries from *position* on; yield (position, synced) of each.

    This finds the entries after a damaged one; it reads the rest of the file.
    """
    # Only damaged files are searched, so the time for the copy does not matter.
    rest = bytes(buffer[position:])
    at = rest.find(_ENTRY_MAGIC)
    while at >= 0:
        try:
            found = decode_entry(buffer, position + at, seed)
        except CorruptJournal:
            step = 1
        else:
            yield position + at, found.synced
            step = found.end - found.position
        at = rest.find(_ENTRY_MAGIC, at + step)


def is_reserved(buffer: memoryview, position: int) -> bool:
    """Return whether all bytes from *position* on are zero: unused reserved space."""
    return not bytes(buffer[position:]).strip(b"\0")


# The bodies of entries.

_U64 = struct.Struct("<Q")
_CURSOR = struct.Struct("<QQQIII")
_FAILED = struct.Struct("<QQIIH")
_PAIR = struct.Struct("<QQ")
_BIT_MAP = struct.Struct("<QI")
_PRODUCER = struct.Struct("<QQIQI")
_RUN = struct.Struct("<QQQ")
_SHARD = struct.Struct("<II")


def _decode_batch(body: memoryview) -> Batch:
    frame = batches.decode(body[_FRAME_AT:])
    frame.verify_checksum()
    return Batch(TopicId(_U64.unpack_from(body)[0]), frame)


def _encode_cursor(entry: CursorSaved) -> bytes:
    cursor = entry.cursor
    ranges, bit_maps = cursor.done.parts()
    numbers = _CURSOR.pack(
        entry.topic_id,
        cursor.offset,
        cursor.generation,
        len(ranges),
        len(bit_maps),
        len(cursor.failures),
    )
    pairs = b"".join(_PAIR.pack(*each) for each in ranges)
    maps = b"".join(
        _BIT_MAP.pack(origin, len(bits)) + bits for origin, bits in bit_maps
    )
    failures = b"".join(map(_encode_failed, cursor.failures))
    # Names have no zero bytes.
    name = entry.subscription + (f"\0{cursor.note}" if cursor.note else "")
    return numbers + pairs + maps + failures + name.encode(errors="replace")


def _encode_failed(failed: FailedRange) -> bytes:
    *numbers, reason = failed
    text = reason.encode(errors="replace")
    return _FAILED.pack(*numbers, len(text)) + text


def _decode_cursor(body: memoryview) -> CursorSaved:
    topic_id, offset, generation, count, map_count, failed_count = _CURSOR.unpack_from(
        body
    )
    ranges, at = _ranges_at(body, _CURSOR.size, count)
    done = RangeSet(ranges)
    for _ in range(map_count):
        origin, length = _BIT_MAP.unpack_from(body, at)
        begin, at = at + _BIT_MAP.size, at + _BIT_MAP.size + length
        done.add_bits(origin, int.from_bytes(_part(body, begin, at), "little"))
    failures = []
    for _ in range(failed_count):
        base, end, attempt, failed, length = _FAILED.unpack_from(body, at)
        begin, at = at + _FAILED.size, at + _FAILED.size + length
        reason = _text(_part(body, begin, at))
        failures.append(FailedRange(base, end, attempt, failed, reason))
    name, _, note = _text(body[at:]).partition("\0")
    state = CursorState(offset, done, generation, tuple(failures), note)
    return CursorSaved(TopicId(topic_id), name, state)


def _ranges_at(body: memoryview, at: int, count: int) -> tuple[Iterator[Range], int]:
    end = at + count * _PAIR.size
    return _PAIR.iter_unpack(_part(body, at, end)), end


def _encode_producer(entry: ProducerSaved) -> bytes:
    numbers = _PRODUCER.pack(
        entry.topic_id,
        entry.producer_id,
        entry.epoch,
        entry.next_sequence,
        len(entry.runs),
    )
    # At once: snapshots have many producers, with many runs each.
    runs = struct.pack(f"<{3 * len(entry.runs)}Q", *chain.from_iterable(entry.runs))
    return numbers + runs + entry.name.encode()


def _decode_producer(body: memoryview) -> ProducerSaved:
    topic_id, producer_id, epoch, next_sequence, count = _PRODUCER.unpack_from(body)
    name_at = _PRODUCER.size + count * _RUN.size
    return ProducerSaved(
        topic_id=TopicId(topic_id),
        name=_text(body[name_at:]),
        producer_id=ProducerId(producer_id),
        epoch=Epoch(epoch),
        next_sequence=Sequence(next_sequence),
        runs=tuple(_RUN.iter_unpack(_part(body, _PRODUCER.size, name_at))),
    )


def _text(body: memoryview) -> str:
    return str(body, "utf-8")


def _part(body: memoryview, base: int, end: int) -> memoryview:
    if end > len(body):
        raise ValueError(f"the body has {len(body)} bytes, its counts need {end}")
    return body[base:end]


_DECODE: dict[int, Callable[[memoryview], Entry]] = {
    EntryKind.BATCH: _decode_batch,
    EntryKind.CURSOR: _decode_cursor,
    EntryKind.PRODUCER: _decode_producer,
}


class _Layout(NamedTuple):
    """The body of an entry that has numbers, and then perhaps a text."""

    kind: EntryKind
    numbers: struct.Struct
    names: tuple[str, ...]
    """The fields that the numbers are, in order."""
    text: str | None
    """The field with the text; None if there is none."""


_LAYOUTS: dict[type[Any], _Layout] = {
    TopicOpened: _Layout(
        EntryKind.TOPIC_OPENED,
        struct.Struct("<QIQQ"),
        ("topic_id", "epoch", "end_offset", "sealed_offset"),
        "name",
    ),
    TopicAdopted: _Layout(
        EntryKind.TOPIC_ADOPTED,
        struct.Struct("<QIIQQ"),
        ("topic_id", "shard", "epoch", "end_offset", "sealed_offset"),
        "name",
    ),
    ProducerOpened: _Layout(
        EntryKind.PRODUCER_OPENED,
        struct.Struct("<QQI"),
        ("topic_id", "producer_id", "epoch"),
        "name",
    ),
    TopicSealed: _Layout(
        EntryKind.SEALED, struct.Struct("<QQ"), ("topic_id", "sealed_offset"), None
    ),
    TopicDeleted: _Layout(EntryKind.TOPIC_DELETED, _U64, ("topic_id",), None),
    SubscriptionDeleted: _Layout(
        EntryKind.SUBSCRIPTION_DELETED, _U64, ("topic_id",), "subscription"
    ),
    ProducerDeleted: _Layout(EntryKind.PRODUCER_DELETED, _U64, ("topic_id",), "name"),
    MetadataRevision: _Layout(EntryKind.METADATA_REVISION, _U64, ("revision",), None),
    ShardLeft: _Layout(EntryKind.SHARD_LEFT, _SHARD, ("shard", "epoch"), None),
    ShardForgotten: _Layout(
        EntryKind.SHARD_FORGOTTEN, _SHARD, ("shard", "epoch"), None
    ),
    SnapshotEnd: _Layout(EntryKind.SNAPSHOT_END, _U64, ("count",), None),
}
_LAID_OUT = {layout.kind: (type_, layout) for type_, layout in _LAYOUTS.items()}


def _encode_body(entry: Any) -> tuple[EntryKind, bytes]:
    if isinstance(entry, CursorSaved):
        return EntryKind.CURSOR, _encode_cursor(entry)
    if isinstance(entry, ProducerSaved):
        return EntryKind.PRODUCER, _encode_producer(entry)
    kind, numbers, names, text = _LAYOUTS[type(entry)]
    body = numbers.pack(*(getattr(entry, name) for name in names))
    return kind, body if text is None else body + getattr(entry, text).encode()


def _decode_body(kind: EntryKind, body: memoryview) -> Entry:
    decode = _DECODE.get(kind)
    if decode is not None:
        return decode(body)
    type_, (_, numbers, names, text) = _LAID_OUT[kind]
    unpack = numbers.unpack if text is None else numbers.unpack_from
    fields = dict(zip(names, unpack(body), strict=True))
    if text is not None:
        fields[text] = _text(body[numbers.size :])
    entry: Entry = type_(**fields)
    return entry
