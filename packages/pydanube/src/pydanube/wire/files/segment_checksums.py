"""
Checksums of the parts of a segment, and a reader that verifies them.

The segment's manifest entry has a CRC-32C of the footer and of each column chunk.  A
reader verifies the footer when it opens the file, and each column chunk when it reads
it, so Arrow parses only verified bytes, and nothing else is read.

Parquet's page checksums do not suffice: they cover neither the footer nor the headers
of the pages.  ``docs/format/segment.md`` is the normative description.
"""

from __future__ import annotations

import io
import struct
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.segments import SegmentEntry
from pydanube.wire.buffer import Buffer
from pydanube.wire.checksum import crc32c
from pydanube.wire.files.segment_format import FORMAT
from pydanube.wire.files.segment_ranges import RangeFile

_READ_BYTES = 4 * 1024 * 1024
_MAGIC = b"PAR1"
# At the end of the file: the length of the footer, and the magic number.
_TRAILER = struct.Struct("<I4s")

UNREADABLE = (
    pa.ArrowException,
    OSError,
    ValueError,
    KeyError,
    IndexError,
    OverflowError,
)
"""The errors that reading a damaged file may raise."""


def is_refused_by_system(error: Exception) -> bool:
    """Return whether the operating system refused to read a file."""
    # Arrow also raises OSError, without a number, for bytes that it cannot parse.
    return isinstance(error, OSError) and (
        type(error) is not OSError or error.errno is not None
    )


class SegmentDamaged(ValueError):
    """A file is not the segment that the manifest describes."""


@dataclass(frozen=True, slots=True)
class _Chunk:
    column: str
    byte_count: int
    checksum: int


class SegmentIndex:
    """A segment's footer, verified, and how to verify the rest of its file."""

    def __init__(self, file: Any, segment: SegmentEntry) -> None:
        """
        Read the footer of *file*, which is open for random access.

        Raises:
            SegmentDamaged: The file does not match its checksums.
            pyarrow.ArrowException, OSError, ValueError: The file cannot be read.
        """
        byte_count = file.size()
        if byte_count != segment.byte_count:
            raise SegmentDamaged(
                f"the file has {byte_count} bytes, the manifest says "
                f"{segment.byte_count}"
            )
        parts = segment.part_checksums
        footer = _read_footer(file, byte_count)
        if parts is not None:
            _compare("the footer", footer, _unpack(parts)[0])
        self._byte_count = byte_count
        self.metadata: pq.FileMetaData = pq.read_metadata(pa.BufferReader(footer))
        found = (self.metadata.metadata or {}).get(b"danube.format", b"none")
        if found != FORMAT.encode():
            raise SegmentDamaged(
                f"the file has format version {found.decode(errors='replace'):.20}; "
                f"this version of pydanube reads {FORMAT}"
            )
        self._chunks = None if parts is None else _index(self.metadata, parts)

    @property
    def is_verified(self) -> bool:
        """Whether the manifest has checksums."""
        return self._chunks is not None

    def open(self, file: Any) -> pq.ParquetFile:
        """
        Return a reader of *file*, whose index this is; *file* stays open.

        Reading raises SegmentDamaged if the bytes do not match their checksum.
        """
        source = file
        if self._chunks is not None:
            source = pa.PythonFile(_VerifiedFile(file, self._chunks), mode="r")
        # Without buffering ahead, each column chunk is read with one call.
        return pq.ParquetFile(
            source,
            metadata=self.metadata,
            pre_buffer=False,
            page_checksum_verification=self._chunks is None,
        )

    @property
    def chunks(self) -> dict[int, _Chunk]:
        """The column chunks by position; none if the manifest has no checksums."""
        return self._chunks or {}

    def chunk_spans(self, index: int) -> list[tuple[int, int]]:
        """Return the positions ``begin … end`` of the column chunks of a row group."""
        group = self.metadata.row_group(index)
        chunks = [group.column(at) for at in range(group.num_columns)]
        begins = [_begin_of(chunk) for chunk in chunks]
        return [
            (begin, begin + chunk.total_compressed_size)
            for begin, chunk in zip(begins, chunks, strict=True)
        ]

    def read_row_group(self, file: Any, index: int, columns: list[str]) -> pa.Table:
        """
        Verify one row group of *file*, and decode *columns* of it.

        All of it is read first, so that Arrow decodes it without calling Python, which
        would wait for the interpreter lock at each column.

        Raises:
            SegmentDamaged: The row group does not match its checksums.
        """
        if self._chunks is None or isinstance(file, RangeFile):
            # What is in memory already is not copied: that would hold the interpreter
            # lock for longer than calling Python at each column.
            return self.open(file).read_row_group(index, columns, use_threads=False)
        spans = self.chunk_spans(index)
        first = min(begin for begin, _ in spans)
        end = max(end for _, end in spans)
        with _borrowed_memory(end - first) as view:
            file.seek(first)
            file.readinto(view)
            for begin, _ in spans:
                chunk = self._chunks[begin]
                at = begin - first
                _compare_chunk(chunk, begin, view[at : at + chunk.byte_count])
            return self._decode(pa.py_buffer(view), first, end, index, columns)

    def _decode(
        self, data: pa.Buffer, first: int, end: int, index: int, columns: list[str]
    ) -> pa.Table:
        """Decode a row group, whose bytes ``first … end`` of the file are *data*."""
        # Positions in the footer are those in the file.  Arrow reads none before
        # *first*: the footer is verified, and so are the spans that it gives.
        source = pa.foreign_buffer(data.address - first, end, data)
        parquet = pq.ParquetFile(
            pa.BufferReader(source), metadata=self.metadata, pre_buffer=False
        )
        return parquet.read_row_group(index, columns, use_threads=False)


@contextmanager
def _borrowed_memory(byte_count: int) -> Iterator[memoryview]:
    """
    Lend memory of this length, which was written to before if possible.

    Pages that are new to the process cost more than reading a file into them.
    """
    try:
        memory = _free_memory.pop()
    except IndexError:
        memory = bytearray()
    if len(memory) < byte_count:
        memory = bytearray(byte_count)
    view = memoryview(memory)[:byte_count]
    try:
        yield view
    finally:
        # It fails if Arrow still refers to the memory, which is not used again then.
        with suppress(BufferError):
            view.release()
            if byte_count <= FREE_BYTES_MAX:
                _free_memory.append(memory)


FREE_MEMORY_MAX = 2
"""How many row groups have memory that is kept for the next ones."""
FREE_BYTES_MAX = 16 * 1024 * 1024
"""The most bytes that are kept for each of them."""

_free_memory: deque[bytearray] = deque(maxlen=FREE_MEMORY_MAX)
"""Memory of row groups that nothing refers to; several threads take and add it."""


def release_row_group_memory() -> None:
    """Free the memory that is kept for the next row groups."""
    _free_memory.clear()


class PieceVerifier:
    """
    Verifies the bytes of a segment that are given in pieces, from the beginning on.

    Bounds: The memory does not depend on the size of the pieces or of the segment.
    """

    def __init__(self, segment: SegmentEntry, index: SegmentIndex | None) -> None:
        """Without *index*, which has the places of the column chunks, skip these."""
        self._segment = segment
        self._checksum = 0
        self._position = 0
        chunks = {} if index is None else index.chunks
        # The next one last.
        self._chunks = sorted(chunks.items(), key=itemgetter(0), reverse=True)
        self._chunk_checksum = 0

    def update(self, data: Buffer) -> None:
        """
        Verify the next piece.

        Raises:
            SegmentDamaged: A column chunk that ends in it does not match its checksum.
        """
        view = memoryview(data).cast("B")
        self._checksum = crc32c(view, self._checksum)
        begin, end = self._position, self._position + len(view)
        while self._chunks and self._chunks[-1][0] < end:
            first, chunk = self._chunks[-1]
            last = first + chunk.byte_count
            part = view[max(first, begin) - begin : min(last, end) - begin]
            self._chunk_checksum = crc32c(part, self._chunk_checksum)
            if last > end:
                break
            _compare_checksum(
                _name_of(chunk, first), self._chunk_checksum, chunk.checksum
            )
            self._chunks.pop()
            self._chunk_checksum = 0
        self._position = end

    def finish(self) -> None:
        """
        Verify the whole, after the last piece.

        Raises:
            SegmentDamaged: It does not match its length or checksum.
        """
        segment = self._segment
        if self._position != segment.byte_count:
            raise SegmentDamaged(
                f"the file has {self._position} bytes, the manifest says "
                f"{segment.byte_count}"
            )
        if segment.checksum is not None:
            _compare_checksum("the file", self._checksum, segment.checksum)


class _VerifiedFile:
    """A file that verifies each column chunk; only whole chunks can be read."""

    def __init__(self, file: Any, chunks: dict[int, _Chunk]) -> None:
        self._file = file
        self._chunks = chunks
        self._position = 0
        self.closed = False

    def read_buffer(self, byte_count: int) -> pa.Buffer:
        position = self._position
        chunk = self._chunks.get(position)
        if chunk is None or chunk.byte_count != byte_count:
            raise SegmentDamaged(
                f"no column chunk has {byte_count} bytes at position {position}"
            )
        self._file.seek(position)
        data = self._file.read_buffer(byte_count)
        self._position += data.size
        _compare_chunk(chunk, position, data)
        return data

    def seek(self, position: int, whence: int = io.SEEK_SET) -> int:
        # Arrow seeks to the end to find the length of the file.
        begin = self._file.size() if whence == io.SEEK_END else 0
        self._position = begin + position
        return self._position

    def tell(self) -> int:
        return self._position


def part_checksums_of(file: Any) -> bytes:
    """
    Return the checksums of the parts of *file*, as the manifest keeps them.

    The CRC-32C of the footer with the eight bytes after it, then of each column
    chunk, by row group and column; four bytes each, little-endian.

    Raises:
        pyarrow.ArrowException, OSError, ValueError: The file is not a Parquet file.
    """
    footer = _read_footer(file, file.size())
    metadata = pq.read_metadata(pa.BufferReader(footer))
    found = [crc32c(footer)]
    for _, begin, byte_count in _chunks_of(metadata):
        file.seek(begin)
        found.append(crc32c(file.read_buffer(byte_count)))
    return struct.pack(f"<{len(found)}I", *found)


def file_checksum(file: Any) -> tuple[int, int]:
    """Return the CRC-32C of *file*, an open Arrow file, and its length in bytes."""
    file.seek(0)
    checksum = byte_count = 0
    while (data := file.read_buffer(_READ_BYTES)).size:
        checksum = crc32c(data, checksum)
        byte_count += data.size
    return checksum, byte_count


def _read_footer(file: Any, byte_count: int) -> pa.Buffer:
    """Return the footer of *file* with all that follows it."""
    if byte_count < len(_MAGIC) + _TRAILER.size:
        raise SegmentDamaged(f"{byte_count} bytes are too few for a Parquet file")
    file.seek(byte_count - _TRAILER.size)
    footer_bytes, magic = _TRAILER.unpack(file.read(_TRAILER.size))
    begin = byte_count - _TRAILER.size - footer_bytes
    if magic != _MAGIC or begin < len(_MAGIC):
        raise SegmentDamaged("the file does not end with a Parquet footer")
    file.seek(begin)
    return file.read_buffer(byte_count - begin)


def _unpack(part_checksums: bytes) -> tuple[int, ...]:
    if not part_checksums or len(part_checksums) % 4:
        raise SegmentDamaged(
            f"the manifest has {len(part_checksums)} bytes of checksums; expected a "
            "multiple of 4"
        )
    return struct.unpack(f"<{len(part_checksums) // 4}I", part_checksums)


def _chunks_of(metadata: pq.FileMetaData) -> Iterator[tuple[str, int, int]]:
    """Yield the column, position and length of each column chunk."""
    for at in range(metadata.num_row_groups):
        group = metadata.row_group(at)
        for column in range(group.num_columns):
            chunk = group.column(column)
            yield chunk.path_in_schema, _begin_of(chunk), chunk.total_compressed_size


def _begin_of(chunk: pq.ColumnChunkMetaData) -> int:
    begin: int = chunk.data_page_offset
    if chunk.has_dictionary_page:
        begin = min(begin, chunk.dictionary_page_offset)
    return begin


def _index(metadata: pq.FileMetaData, part_checksums: bytes) -> dict[int, _Chunk]:
    checksums = _unpack(part_checksums)[1:]
    chunks = list(_chunks_of(metadata))
    if len(checksums) != len(chunks):
        raise SegmentDamaged(
            f"the file has {len(chunks)} column chunks, the manifest has checksums of "
            f"{len(checksums)}"
        )
    return {
        begin: _Chunk(column, byte_count, checksum)
        for (column, begin, byte_count), checksum in zip(chunks, checksums, strict=True)
    }


def _compare_chunk(chunk: _Chunk, begin: int, data: pa.Buffer | memoryview) -> None:
    _compare(_name_of(chunk, begin), data, chunk.checksum)


def _name_of(chunk: _Chunk, begin: int) -> str:
    return f"the column {chunk.column}, {chunk.byte_count} bytes at position {begin}"


def _compare(what: str, data: pa.Buffer | memoryview, expected: int) -> None:
    _compare_checksum(what, crc32c(data), expected)


def _compare_checksum(what: str, found: int, expected: int) -> None:
    if found != expected:
        raise SegmentDamaged(
            f"{what}: expected the checksum {expected:#010x}, found {found:#010x}"
        )
