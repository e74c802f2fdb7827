"""Reading one copy of a segment in pieces, and comparing it with the manifest."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from crc32c import crc32c

from pydanube.model.errors import BrokerError
from pydanube.model.segments import SegmentEntry
from pydanube.objects.store import Objects
from pydanube.wire.files.segment_checksums import (
    UNREADABLE,
    PieceVerifier,
    SegmentDamaged,
    SegmentIndex,
)
from pydanube.wire.files.segment_ranges import (
    BytesMissing,
    RangeFile,
    Span,
    footer_span,
)
from pydanube_broker.storage.config import MIB

PIECE_BYTES = 4 * MIB
"""The size of the pieces in which a copy is read."""
FOOTER_BYTES_MAX = 64 * MIB
"""A footer that claims to be longer is damaged."""


async def _go_on(_: int) -> None:
    """Wait for nothing."""


async def find_damage(
    objects: Objects,
    entry: SegmentEntry,
    pace: Callable[[int], Awaitable[None]] = _go_on,
) -> str | None:
    """
    Read the object of *entry* in *objects*; return what is wrong with it, if anything.

    Its length, its checksum and the checksums of its parts are compared, as far as the
    manifest has them.  *pace* is awaited before each read, with its number of bytes.

    Bounds: It takes the memory of a few pieces, and of the footer.

    Raises:
        ObjectsUnavailable: The store does not answer.
    """
    found = await objects.stat(entry.object_name)
    if found is None:
        return "is missing"
    if found.byte_count != entry.byte_count:
        return f"has {found.byte_count} bytes, the manifest says {entry.byte_count}"
    try:
        index = None
        if entry.part_checksums is not None:
            index = await _read_index(objects, entry, pace)
        verifier = PieceVerifier(entry, index)
        for begin in range(0, entry.byte_count, PIECE_BYTES):
            end = min(begin + PIECE_BYTES, entry.byte_count)
            data = await _read(objects, entry, (begin, end), pace)
            await asyncio.to_thread(verifier.update, data)
        verifier.finish()
    except _Gone as gone:
        return str(gone)
    except UNREADABLE as error:
        return f"is damaged: {error}"
    return None


async def copy_segment(entry: SegmentEntry, source: Objects, target: Objects) -> str:
    """
    Copy the object of *entry*, and verify the copy; return the problem, if any.

    Bounds: All of the segment is held in memory.
    """
    try:
        data = await source.read(entry.object_name, 0, entry.byte_count)
        if data is None or len(data) != entry.byte_count:
            return "the copy to replace it with is missing or incomplete"
        checksum = await asyncio.to_thread(crc32c, data)
        if entry.checksum not in {None, checksum}:
            return "the copy to replace it with is damaged"
        await target.put(entry.object_name, data)
        del data
        problem = await find_damage(target, replace(entry, checksum=checksum))
    except BrokerError as error:
        return f"it cannot be copied: {error}"
    return "" if problem is None else f"after it was copied it {problem}"


class _Gone(Exception):
    """The object disappeared, or became shorter."""


async def _read_index(
    objects: Objects, entry: SegmentEntry, pace: Callable[[int], Awaitable[None]]
) -> SegmentIndex:
    span = footer_span(entry)
    while True:
        data = await _read(objects, entry, span, pace)
        try:
            return SegmentIndex(RangeFile(span[0], data, entry.byte_count), entry)
        except BytesMissing as missing:
            # The footer is longer than expected.
            begin, end = missing.span[0], entry.byte_count
            if begin >= span[0] or end - begin > FOOTER_BYTES_MAX:
                raise SegmentDamaged("its footer cannot be read") from missing
            span = begin, end


async def _read(
    objects: Objects,
    entry: SegmentEntry,
    span: Span,
    pace: Callable[[int], Awaitable[None]],
) -> memoryview:
    begin, end = span
    await pace(end - begin)
    data = await objects.read(entry.object_name, begin, end)
    if data is None:
        raise _Gone("is missing")
    view = memoryview(data).cast("B")
    if len(view) != end - begin:
        raise _Gone(f"ends before byte {end}")
    return view
