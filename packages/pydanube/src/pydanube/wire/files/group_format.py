"""
The format of an object of the object journal: a header, then entries.

An object holds one group of entries, or is the fence that ends the journal of a
session.  The entries are those of a journal file (``journal_format.py``); their
positions are positions in the object.  ``docs/format/journal.md`` is the normative
description.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum

from pydanube.model.errors import CorruptJournal, NewerJournal
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.wire.buffer import Buffer
from pydanube.wire.files.entries import seed_of
from pydanube.wire.files.journal_format import (
    DecodedEntry,
    Entry,
    decode_entry,
    encode_entry,
)

VERSION = 1
HEADER_BYTES = 72

_MAGIC = b"DANUBEG\x00"
_HEADER = struct.Struct("<8sIIQ16s16sQB7x")
assert _HEADER.size == HEADER_BYTES


class GroupKind(IntEnum):
    """The kind of an object of the journal; numbers are never reused."""

    ENTRIES = 0
    """Entries that continue the group before it."""
    SNAPSHOT = 1
    """A snapshot of the state up to here, and then entries."""
    FENCE = 2
    """The end of the session's journal; it has no entries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupHeader:
    """The header of an object of the journal."""

    number: int
    journal_id: bytes
    """The cluster id."""
    writer: bytes
    """The id of the session that wrote the object."""
    kind: GroupKind
    count: int
    """The number of entries, with those of the snapshot."""
    version: int = VERSION

    def encode(self) -> bytes:
        """Return the header's bytes."""
        return self._pack(self.seed)

    @property
    def seed(self) -> int:
        """The initial value of the checksums of the group's entries."""
        return seed_of(self._pack(0))

    def _pack(self, crc: int) -> bytes:
        return _HEADER.pack(
            _MAGIC,
            self.version,
            crc,
            self.number,
            self.journal_id,
            self.writer,
            self.count,
            self.kind,
        )


def decode_group_header(buffer: Buffer) -> GroupHeader:
    """
    Return the header at the beginning of an object, of which *buffer* is a part.

    Raises:
        NewerJournal: The object has a newer format version than this program reads.
        CorruptJournal: The header is truncated or damaged.
    """
    if len(buffer) < HEADER_BYTES:
        raise CorruptJournal(
            f"expected a group header of {HEADER_BYTES} bytes, there are {len(buffer)}"
        )
    magic, version, crc, number, journal_id, writer, count, kind = _HEADER.unpack_from(
        buffer
    )
    if magic != _MAGIC:
        raise CorruptJournal("expected a group header with the magic DANUBEG")
    # A newer format may use another checksum, so check the version first.
    if version > VERSION:
        raise NewerJournal(
            f"the object has format version {version}, this program reads {VERSION}"
        )
    found = bytes(buffer[:HEADER_BYTES])
    expected = seed_of(found)
    if crc != expected or any(found[-7:]) or kind not in tuple(GroupKind):
        raise CorruptJournal(
            f"expected a group header with checksum {expected:#010x} and a known kind, "
            f"it has checksum {crc:#010x} and kind {kind}"
        )
    return GroupHeader(
        number=number,
        journal_id=journal_id,
        writer=writer,
        kind=GroupKind(kind),
        count=count,
        version=version,
    )


def encode_group(
    entries: Sequence[Entry],
    *,
    number: int,
    journal_id: bytes,
    writer: bytes,
    kind: GroupKind,
    committed_end: int,
) -> bytes:
    """
    Return the object of a group.

    The first entries of a group with a snapshot are the snapshot and its SnapshotEnd.
    All groups before *committed_end* are committed.
    """
    header = GroupHeader(
        number=number,
        journal_id=journal_id,
        writer=writer,
        kind=kind,
        count=len(entries),
    )
    buffers: list[Buffer] = [header.encode()]
    position, seed = HEADER_BYTES, header.seed
    synced = number - committed_end + 1
    if synced > HEADER_BYTES:
        # Readers refuse an entry that was synced beyond its own position.
        synced = 0
    for entry in entries:
        parts, size = encode_entry(entry, position=position, synced=synced, seed=seed)
        buffers += parts
        position += size
    return b"".join(buffers)


def decode_entries(buffer: memoryview, header: GroupHeader) -> Iterator[DecodedEntry]:
    """
    Yield the entries of the object *buffer*, whose header is *header*.

    The frames of batches are views of *buffer*.

    Raises:
        CorruptJournal: The object is truncated or damaged.  A crash cannot be the
            reason, because an object is stored as a whole.
    """
    position, seed = HEADER_BYTES, header.seed
    for _ in range(header.count):
        decoded = decode_entry(buffer, position, seed)
        position = decoded.end
        yield decoded
    if position != len(buffer):
        raise CorruptJournal(
            f"expected a group of {header.count} entries and {position} bytes, there "
            f"are {len(buffer)} bytes"
        )


def committed_end_of(buffer: memoryview, header: GroupHeader) -> int:
    """
    Return the number before which all groups were committed when this one was begun.

    Returns 0 if that is unknown, because many groups were in flight.  All groups before
    a fence are in the store when it is put.

    Raises:
        CorruptJournal: The first entry is damaged.
    """
    if header.kind is GroupKind.FENCE:
        return header.number
    synced = decode_entry(buffer, HEADER_BYTES, header.seed).synced
    return header.number - synced + 1 if synced else 0
