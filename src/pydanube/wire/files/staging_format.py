"""
A staged part as bytes: a file header, then entries.  Pure.

One file is one part.  It begins with whose part it is; then come topics, each named
before its first batch, and batches; the last entry of a part that is complete says
so.  All numbers are little-endian; every entry begins at a multiple of 8.
``docs/format/staging.md`` is the normative description.

File header, 48 bytes and a description:

====== ===== ========================================================
offset type  field
====== ===== ========================================================
     0 8 B   magic, ``DANUBES`` and a zero byte
     8 u32   format version, 1
    12 u32   CRC-32C of bytes 0…12 and 16 to the end of the description:
             the *seed* of the file's entries
    16 u64   file number
    24 u64   version of the query's output
    32 i64   when the part was begun, microseconds since 1970 UTC
    40 u16   length of the query's name
    42 u16   length of the part's name
    44 u16   length of the part's id
    46 u16   zero
    48       the three of them in UTF-8, padded with zeros to a multiple of 8
====== ===== ========================================================

Entry, 24 bytes and a body:

====== ===== ========================================================
offset type  field
====== ===== ========================================================
     0 4 B   magic, ``DsE1``
     4 u32   CRC-32C, begun with the file's seed, from byte 8 to the end of the
             body; of a batch entry, to byte 52 (the frame's byte 20)
     8 u32   length of the body
    12 u8    kind
    13 3 B   zero
    16 u64   position of the entry in its file
    24       body, padded with zeros to a multiple of 8
====== ===== ========================================================

As in the journal, an entry's own checksum stops where that of the frame begins, so
that the bytes of a batch are not summed once more when they are written.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from pydanube.model.errors import CorruptBatch, CorruptStage
from pydanube.model.ids import TopicId
from pydanube.model.staging import PartKey
from pydanube.wire import batches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydanube.wire.batches import BatchFrame
    from pydanube.wire.buffer import Buffer

VERSION = 1
HEADER_BYTES = 48
ENTRY_HEADER_BYTES = 24
BODY_BYTES_MAX = batches.BODY_BYTES_MAX + 1024 * 1024
"""A batch, its header and the longest name fit; nothing else is nearly so long."""

_MAGIC = b"DANUBES\x00"
_HEADER = struct.Struct("<8sIIQQqHHHH")
_ENTRY_MAGIC = b"DsE1"
_ENTRY = struct.Struct("<4sIIB3xQ")
_CHECKED_FROM = 8
_TOPIC = struct.Struct("<IIQ")
_BATCH = struct.Struct("<II")
_PART_END = struct.Struct("<QQ")
_FRAME_AT = _BATCH.size
_FRAME_CHECKED = 20
_CRC = struct.Struct("<I")
assert _HEADER.size == HEADER_BYTES
assert _ENTRY.size == ENTRY_HEADER_BYTES


class EntryKind(IntEnum):
    """What an entry says; a number is never used twice."""

    TOPIC = 1
    BATCH = 2
    PART_END = 3


@dataclass(frozen=True, slots=True)
class FileHeader:
    """Whose part a file is."""

    number: int
    key: PartKey
    begun_at: int

    def encode(self) -> bytes:
        """The header's bytes, description included."""
        return self._pack(self.seed)

    @property
    def seed(self) -> int:
        """What the checksums of the file's entries begin with."""
        packed = self._pack(0)
        return int(crc32c(packed[16:], crc32c(packed[:12])))

    def _pack(self, crc: int) -> bytes:
        key = self.key
        texts = [text.encode() for text in (key.query, key.name, key.part_id)]
        fixed = _HEADER.pack(
            _MAGIC,
            VERSION,
            crc,
            self.number,
            key.version,
            self.begun_at,
            *map(len, texts),
            0,
        )
        return _padded(fixed + b"".join(texts))


class Topic(NamedTuple):
    """Batches with this number are for this topic."""

    number: int
    topic_id: TopicId
    name: str


class Batch(NamedTuple):
    """A batch for the topic with this number."""

    topic: int
    frame: BatchFrame


class PartEnd(NamedTuple):
    """The part is complete, and has so much."""

    batch_count: int
    message_count: int


Entry = Topic | Batch | PartEnd


def decode_file_header(buffer: Buffer) -> tuple[FileHeader, int]:
    """
    The header at the beginning of a file, and where it ends.

    Raises:
        CorruptStage: It is cut short, damaged, or of another version.
    """
    if len(buffer) < HEADER_BYTES:
        raise CorruptStage(
            f"expected a file header of {HEADER_BYTES} bytes, there are {len(buffer)}"
        )
    magic, version, _, number, of_query, begun_at, *lengths, _ = _HEADER.unpack_from(
        buffer
    )
    if magic != _MAGIC:
        raise CorruptStage("expected a file header with the magic DANUBES")
    if version != VERSION:
        raise CorruptStage(
            f"the file has format version {version}, this program reads {VERSION}"
        )
    at, texts = HEADER_BYTES, []
    for length in lengths:
        texts.append(bytes(buffer[at : at + length]))
        at += length
    try:
        query, name, part_id = (text.decode() for text in texts)
    except UnicodeDecodeError as error:
        raise CorruptStage("the file header names no part") from error
    key = PartKey(query=query, version=of_query, name=name, part_id=part_id)
    header = FileHeader(number, key, begun_at)
    encoded = header.encode()
    if bytes(buffer[: len(encoded)]) != encoded:
        raise CorruptStage("the file header does not match its checksum")
    return header, len(encoded)


def encode_topic(topic: Topic, position: int, seed: int) -> bytes:
    """The entry that names *topic*, to be written at *position*."""
    fixed = _TOPIC.pack(topic.number, 0, topic.topic_id)
    return _encode(EntryKind.TOPIC, fixed + topic.name.encode(), position, seed)


def encode_part_end(end: PartEnd, position: int, seed: int) -> bytes:
    """The last entry of a complete part, to be written at *position*."""
    return _encode(EntryKind.PART_END, _PART_END.pack(*end), position, seed)


def encode_batch(
    topic: int, frame: BatchFrame, position: int, seed: int
) -> tuple[list[Buffer], int]:
    """
    The buffers to write at *position* for a batch, and how long they are together.

    The batch's bytes are not copied: its frame's own buffer is among them.
    """
    buffer = frame.buffer
    length = _FRAME_AT + len(buffer)
    head = _ENTRY.pack(_ENTRY_MAGIC, 0, length, EntryKind.BATCH, position)
    fixed = _BATCH.pack(topic, 0)
    crc = crc32c(fixed, crc32c(head[_CHECKED_FROM:], seed))
    crc = crc32c(bytes(buffer[:_FRAME_CHECKED]), crc)
    size = size_of_batch(frame)
    buffers: list[Buffer] = [head[:4] + _CRC.pack(crc) + head[8:] + fixed, buffer]
    padding = size - ENTRY_HEADER_BYTES - length
    if padding:
        buffers.append(bytes(padding))
    return buffers, size


def size_of_batch(frame: BatchFrame) -> int:
    """How many bytes the entry of a batch takes."""
    return ENTRY_HEADER_BYTES + ((_FRAME_AT + frame.byte_count + 7) & ~7)


def read_entries(
    buffer: memoryview, position: int, seed: int
) -> Iterator[tuple[Entry, int]]:
    """
    The entries from *position* on, each with where it ends.

    The frames are views of *buffer*, and have not been compared with their checksums.

    Raises:
        CorruptStage: What follows is no entry; so at the end of a file that is torn.
    """
    while position < len(buffer):
        kind, body, end = _read_entry(buffer, position, seed)
        yield _decode(kind, body, position), end
        position = end


def _read_entry(
    buffer: memoryview, position: int, seed: int
) -> tuple[int, memoryview, int]:
    at = position + ENTRY_HEADER_BYTES
    if at > len(buffer):
        raise CorruptStage(f"the entry at {position} is cut short")
    magic, crc, length, kind, stated = _ENTRY.unpack_from(buffer, position)
    if magic != _ENTRY_MAGIC or stated != position:
        raise CorruptStage(f"there is no entry at {position}")
    end = at + ((length + 7) & ~7)
    if length > BODY_BYTES_MAX or end > len(buffer):
        raise CorruptStage(f"the entry at {position} is cut short")
    body = buffer[at : at + length]
    summed = body if kind != EntryKind.BATCH else body[: _FRAME_AT + _FRAME_CHECKED]
    head = buffer[position + _CHECKED_FROM : at]
    if crc32c(summed, crc32c(head, seed)) != crc:
        raise CorruptStage(f"the entry at {position} does not match its checksum")
    return kind, body, end


def _decode(kind: int, body: memoryview, position: int) -> Entry:
    # It matches its checksum, so only another program can have written nonsense.
    try:
        if kind == EntryKind.BATCH:
            topic, _ = _BATCH.unpack_from(body)
            return Batch(topic, batches.decode(body[_FRAME_AT:]))
        if kind == EntryKind.TOPIC:
            number, _, topic_id = _TOPIC.unpack_from(body)
            return Topic(number, TopicId(topic_id), str(body[_TOPIC.size :], "utf-8"))
        if kind == EntryKind.PART_END:
            return PartEnd(*_PART_END.unpack_from(body))
    except (struct.error, UnicodeDecodeError, CorruptBatch) as error:
        raise CorruptStage(f"the entry at {position} is damaged: {error}") from error
    raise CorruptStage(f"the entry at {position} is of the unknown kind {kind}")


@dataclass(slots=True)
class PartContent:
    """What the entries of a part come to."""

    header: FileHeader
    end: int
    """Where the last whole entry ends."""
    topics: list[Topic] = field(default_factory=list)
    """By number."""
    message_counts: list[int] = field(default_factory=list)
    """Of each topic, by number."""
    batch_count: int = 0
    is_finished: bool = False
    damage: str | None = None
    """What is wrong behind ``end``, if anything is."""

    @property
    def message_count(self) -> int:
        """How many messages the part has."""
        return sum(self.message_counts)

    def add(self, entry: Entry, end: int) -> None:
        """
        Take note of the next entry.

        Raises:
            CorruptStage: It does not follow from those before it.
        """
        if self.is_finished:
            raise CorruptStage("something follows the end of the part")
        match entry:
            case Topic():
                if entry.number != len(self.topics):
                    raise CorruptStage(f"the topic {entry.number} is out of order")
                self.topics.append(entry)
                self.message_counts.append(0)
            case Batch(topic, frame):
                if topic >= len(self.topics):
                    raise CorruptStage(f"a batch is for the unknown topic {topic}")
                if frame.header.base_sequence != self.message_counts[topic]:
                    raise CorruptStage("a batch does not continue its topic")
                self.message_counts[topic] += frame.count
                self.batch_count += 1
            case PartEnd(batch_count, message_count):
                if (batch_count, message_count) != (
                    self.batch_count,
                    self.message_count,
                ):
                    raise CorruptStage("the part does not have what its end says")
                self.is_finished = True
        self.end = end


def read_part(buffer: memoryview, *, verifies: bool) -> PartContent:
    """
    What the file *buffer* holds, as far as it is whole.

    With *verifies*, batches are compared with their checksums, too.

    Raises:
        CorruptStage: Not even the header is whole.
    """
    header, at = decode_file_header(buffer)
    content = PartContent(header, at)
    try:
        for entry, end in read_entries(buffer, at, header.seed):
            if verifies and isinstance(entry, Batch):
                entry.frame.verify_checksum()
            content.add(entry, end)
    except (CorruptStage, CorruptBatch) as error:
        content.damage = str(error)
    return content


def _encode(kind: EntryKind, body: bytes, position: int, seed: int) -> bytes:
    head = _ENTRY.pack(_ENTRY_MAGIC, 0, len(body), kind, position)
    crc = crc32c(body, crc32c(head[_CHECKED_FROM:], seed))
    return _padded(head[:4] + _CRC.pack(crc) + head[8:] + body)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)
