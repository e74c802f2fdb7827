"""
The format of the file of a staged part: a header, then entries.

One file is one part.  The header names the part.  A topic entry comes before the first
batch of each topic, and the last entry of a complete part marks its end.
``docs/format/staging.md`` is the normative description, with the layout of headers and
entries.

As in the journal, a batch entry's checksum stops where that of the frame begins.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import field
from enum import IntEnum
from typing import NamedTuple

from pydanube.model.errors import CorruptBatch, CorruptStage
from pydanube.model.ids import TopicId
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.staging import PartKey
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
HEADER_BYTES = 48
ENTRY_HEADER_BYTES = 24
BODY_BYTES_MAX = batches.BODY_BYTES_MAX + 1024 * 1024
"""The longest body: a batch with its header and the longest name fits."""

_MAGIC = b"DANUBES\x00"
_HEADER = struct.Struct("<8sIIQQqHHHH")
_ENTRY_MAGIC = b"DsE1"
_ENTRY = struct.Struct("<4sIIB3xQ")
_BATCH_ENTRY = struct.Struct("<4sIIB3xQII")
_TOPIC = struct.Struct("<IIQ")
_BATCH = struct.Struct("<II")
_PART_END = struct.Struct("<QQ")
_FRAME_AT = _BATCH.size
assert _HEADER.size == HEADER_BYTES
assert _ENTRY.size == ENTRY_HEADER_BYTES


class EntryKind(IntEnum):
    """The kind of an entry; numbers are never reused."""

    TOPIC = 1
    BATCH = 2
    PART_END = 3


@dataclass(frozen=True, slots=True)
class FileHeader:
    """The header of a part's file."""

    number: int
    key: PartKey
    begun_at: int

    def encode(self) -> bytes:
        """Return the header's bytes, description included."""
        return self._pack(self.seed)

    @property
    def seed(self) -> int:
        """The initial value of the checksums of the file's entries."""
        return seed_of(self._pack(0))

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
        packed = fixed + b"".join(texts)
        return packed + bytes(-len(packed) % 8)


class Topic(NamedTuple):
    """A topic of the part; batch entries refer to it by number."""

    number: int
    topic_id: TopicId
    name: str


class Batch(NamedTuple):
    """A batch for the topic with this number."""

    topic: int
    frame: BatchFrame


class PartEnd(NamedTuple):
    """The end of a complete part, with the size of its content."""

    batch_count: int
    message_count: int


Entry = Topic | Batch | PartEnd


def decode_file_header(buffer: Buffer) -> tuple[FileHeader, int]:
    """
    Return the header at the beginning of a file, and its length.

    Raises:
        CorruptStage: The header is truncated, damaged, or of another version.
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
        raise CorruptStage("the file header's names are not UTF-8") from error
    key = PartKey(query=query, version=of_query, name=name, part_id=part_id)
    header = FileHeader(number, key, begun_at)
    encoded = header.encode()
    if bytes(buffer[: len(encoded)]) != encoded:
        raise CorruptStage("the file header does not match its checksum")
    return header, len(encoded)


def encode_topic(topic: Topic, position: int, seed: int) -> bytes:
    """Return the entry for *topic*, to be written at *position*."""
    fixed = _TOPIC.pack(topic.number, 0, topic.topic_id)
    return _encode(EntryKind.TOPIC, fixed + topic.name.encode(), position, seed)


def encode_part_end(end: PartEnd, position: int, seed: int) -> bytes:
    """Return the last entry of a complete part, to be written at *position*."""
    return _encode(EntryKind.PART_END, _PART_END.pack(*end), position, seed)


def encode_batch(
    topic: int, frame: BatchFrame, position: int, seed: int
) -> tuple[list[Buffer], int]:
    """
    Return the buffers to write at *position* for a batch, and their total length.

    The bytes of the batch are not copied.
    """
    length = _FRAME_AT + frame.byte_count
    head = _BATCH_ENTRY.pack(
        _ENTRY_MAGIC, 0, length, EntryKind.BATCH, position, topic, 0
    )
    return complete_batch_entry(bytearray(head), frame.buffer, seed)


def read_entries(
    buffer: memoryview, position: int, seed: int
) -> Iterator[tuple[Entry, int]]:
    """
    Yield the entries from *position* on, each with its end.

    The frames are views of *buffer*, and their own checksums are not verified.

    Raises:
        CorruptStage: No complete entry follows, for example at a torn end.
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
        raise CorruptStage(f"the entry at {position} is truncated")
    magic, _, length, kind, stated = _ENTRY.unpack_from(buffer, position)
    if magic != _ENTRY_MAGIC or stated != position:
        raise CorruptStage(f"there is no entry at {position}")
    end = at + padded_size(length)
    if length > BODY_BYTES_MAX or end > len(buffer):
        raise CorruptStage(f"the entry at {position} is truncated")
    checked_to = at + length
    if kind == EntryKind.BATCH:
        checked_to = min(checked_to, at + _FRAME_AT + FRAME_CHECKED)
    found, expected = checksums_of(buffer, position, checked_to, seed)
    if found != expected:
        raise CorruptStage(f"the entry at {position} does not match its checksum")
    return kind, buffer[at : at + length], end


def _decode(kind: int, body: memoryview, position: int) -> Entry:
    # The checksum matches, so this is invalid only if another program wrote it.
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
    raise CorruptStage(f"the entry at {position} has the unknown kind {kind}")


@dataclass(slots=True)
class PartContent:
    """The content of a part, summed up over its entries."""

    header: FileHeader
    end: int
    """The end of the last complete entry."""
    topics: list[Topic] = field(default_factory=list)
    """By number."""
    message_counts: list[int] = field(default_factory=list)
    """The number of messages of each topic, by topic number."""
    batch_count: int = 0
    is_finished: bool = False
    damage: str | None = None
    """The error after ``end``, if there is one."""

    @property
    def message_count(self) -> int:
        """The number of messages in the part."""
        return sum(self.message_counts)

    def add(self, entry: Entry, end: int) -> None:
        """
        Add the next entry.

        Raises:
            CorruptStage: The entry is not allowed after those before it.
        """
        if self.is_finished:
            raise CorruptStage("an entry follows the end of the part")
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
                    raise CorruptStage(
                        "the part does not have the content that its end describes"
                    )
                self.is_finished = True
        self.end = end


def read_part(buffer: memoryview, *, verifies: bool) -> PartContent:
    """
    Return the content of the file *buffer*, up to its last complete entry.

    With *verifies*, the checksums of the batches are verified, too.

    Raises:
        CorruptStage: The header is damaged.
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
    return complete_entry(head, body, seed)
