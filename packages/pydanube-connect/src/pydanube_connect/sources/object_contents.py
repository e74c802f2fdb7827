"""The contents of objects: blocks of text, decompressed if necessary, and rows."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from typing import Any, TypeVar

import pyarrow as pa

from pydanube.objects.store import Objects
from pydanube_connect.pure.failures import Transient

READ_BYTES = 4 * 1024 * 1024
ROWS_MAX = 1000
"""How many rows of Parquet are decoded together."""
GROUP_BYTES_MAX = 1024 * 1024 * 1024
"""The largest row group; a part of it is in memory."""

T = TypeVar("T")


Rows = tuple[pa.Schema, list[dict[str, Any]], int]
"""The columns, rows, and the size of their values."""


class InvalidObject(Exception):
    """An object that does not have the format that it should have."""


class ObjectCompression(Enum):
    """The compression of objects."""

    AUTO = "auto"
    NONE = "none"
    GZIP = "gzip"
    ZSTD = "zstd"


_BY_SUFFIX = {".gz": ObjectCompression.GZIP, ".zst": ObjectCompression.ZSTD}


def codec_of(name: str, compression: ObjectCompression) -> str | None:
    """Return the codec of the object *name*, or None."""
    if compression is ObjectCompression.AUTO:
        _, dot, suffix = name.rpartition(".")
        compression = _BY_SUFFIX.get(dot + suffix, ObjectCompression.NONE)
    return None if compression is ObjectCompression.NONE else compression.value


async def blocks_of(
    objects: Objects, name: str, offset: int, codec: str | None
) -> AsyncGenerator[bytes]:
    """
    Yield the text of an object from *offset* on; nothing if it does not exist.

    Raises:
        InvalidObject: It is not compressed by *codec*.
    """
    if codec is not None:
        async for block in _in_thread(_decompressed(objects, name, offset, codec)):
            yield block
        return
    while found := await objects.read(name, offset, offset + READ_BYTES):
        offset += len(found)
        yield bytes(found)


async def rows_of(objects: Objects, name: str, offset: int) -> AsyncGenerator[Rows]:
    """
    Yield the rows of a Parquet file from *offset* on.

    Raises:
        InvalidObject: It is not a Parquet file, or has too large row groups.
    """
    async for found in _in_thread(_decoded(objects, name, offset)):
        yield found


async def _in_thread(iterator: Iterator[T]) -> AsyncGenerator[T]:
    """Yield the items of an iterator that blocks."""
    loop = asyncio.get_running_loop()
    thread = ThreadPoolExecutor(1, thread_name_prefix="objects")
    try:
        while (
            item := await loop.run_in_executor(thread, next, iterator, None)
        ) is not None:
            yield item
    finally:
        # What is under way ends by itself, and nobody waits for it.
        thread.shutdown(wait=False)


def _decompressed(
    objects: Objects, name: str, offset: int, codec: str
) -> Iterator[bytes]:
    file = _opened(objects, name)
    if file is None:
        return
    with file:
        buffered = io.BufferedReader(file, READ_BYTES)
        try:
            stream = pa.CompressedInputStream(pa.PythonFile(buffered, mode="r"), codec)
            while block := stream.read(READ_BYTES):
                if offset < len(block):
                    yield block[offset:]
                offset = max(0, offset - len(block))
        except (OSError, pa.ArrowException) as error:
            raise InvalidObject(
                f"it is not compressed with {codec}: {error}"
            ) from error


def _decoded(objects: Objects, name: str, offset: int) -> Iterator[Rows]:
    import pyarrow.parquet as pq  # noqa: PLC0415  # It takes long to import.

    file = _opened(objects, name)
    if file is None:
        return
    with file:
        try:
            parquet = pq.ParquetFile(pa.PythonFile(file, mode="r"))
            for group in range(parquet.num_row_groups):
                facts = parquet.metadata.row_group(group)
                count, size = facts.num_rows, max(1, facts.total_byte_size)
                if offset >= count:
                    offset -= count
                    continue
                if size > GROUP_BYTES_MAX:
                    raise InvalidObject(
                        f"its row group {group} has {size:,} bytes, and at most "
                        f"{GROUP_BYTES_MAX:,} are read"
                    )
                rows_max = max(1, min(ROWS_MAX, READ_BYTES * count // size))
                batches = parquet.iter_batches(
                    rows_max, row_groups=[group], use_threads=False
                )
                for batch in batches:
                    rest = batch.slice(min(offset, batch.num_rows))
                    offset = max(0, offset - batch.num_rows)
                    if rest.num_rows:
                        yield rest.schema, _rows_in(rest), rest.nbytes
        except (OSError, pa.ArrowException) as error:
            raise InvalidObject(f"it is not a Parquet file: {error}") from error


def _rows_in(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    try:
        return _in_microseconds(batch).to_pylist()  # type: ignore[no-any-return]
    except (ValueError, OverflowError) as error:
        # Such as a time after the year 9999.
        raise InvalidObject(f"a row has a value that JSON has not: {error}") from error


def _in_microseconds(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return *batch* with the times that Python and JSON have."""
    for number, field in enumerate(batch.schema):
        if pa.types.is_timestamp(field.type) and field.type.unit == "ns":
            kind = pa.timestamp("us", field.type.tz)
            times = batch.column(number).cast(kind, safe=False)
            batch = batch.set_column(number, field.name, times)
    return batch


def _opened(objects: Objects, name: str) -> _StoredFile | None:
    try:
        return _StoredFile(objects.open(name))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Transient(str(error)) from error


class _StoredFile(io.RawIOBase):
    """
    A file whose errors are those of the store.

    Errors of the content are OSErrors of Arrow.
    """

    def __init__(self, file: Any) -> None:
        super().__init__()
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        try:
            count: int = self._file.readinto(target)
        except OSError as error:
            raise Transient(str(error)) from error
        return count

    def seek(self, position: int, whence: int = io.SEEK_SET) -> int:
        found: int = self._file.seek(position, whence)
        return found

    def tell(self) -> int:
        found: int = self._file.tell()
        return found

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()
