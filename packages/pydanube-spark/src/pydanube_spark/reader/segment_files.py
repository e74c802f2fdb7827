"""Reading of segments in tasks; all reads are verified with checksums."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyarrow import fs

from pydanube.model.descriptions import Segment
from pydanube.model.errors import CorruptSegment, InvalidConfig, ObjectsUnavailable
from pydanube.wire.files.segment_checksums import (
    UNREADABLE,
    SegmentDamaged,
    SegmentIndex,
)
from pydanube.wire.files.segment_format import SCHEMA


class NoAccess(ObjectsUnavailable):
    """This process cannot read a segment that exists."""

    code = "no_access"


class SegmentFile:
    """An open segment, whose reads are verified with its checksums."""

    def __init__(self, file: Any, segment: Segment) -> None:
        """
        Read the footer of *file*.

        Raises:
            SegmentDamaged: It is not that of *segment*.
            OSError, pyarrow.ArrowException, ValueError: The file cannot be read.
        """
        self._file = file
        self._index = SegmentIndex(file, segment)
        self.parquet = self._index.open(file)
        """The reader of the file."""
        if self.parquet.metadata.num_rows != segment.count:
            raise SegmentDamaged(
                f"it has {self.parquet.metadata.num_rows} messages, the manifest says "
                f"{segment.count}"
            )

    def expect(self, groups: Iterable[int], names: Sequence[str] | None) -> None:
        """Request columns of row groups ahead, which will be read in this order."""
        expect = getattr(self._file, "expect", None)
        if expect is None:
            # Files of this machine need no requests.
            return
        tops = [self._top_of(column) for column in range(self._column_count)]
        wanted = [at for at, top in enumerate(tops) if names is None or top in names]
        spans = []
        for group in groups:
            chunks = self._index.chunk_spans(group)
            spans += sorted(chunks[at] for at in wanted)
        expect(spans)

    @property
    def _column_count(self) -> int:
        return int(self.parquet.metadata.num_columns)

    def _top_of(self, column: int) -> str:
        """Return the name of the column of the schema that a Parquet column is in."""
        path: str = self.parquet.schema.column(column).path
        return path.partition(".")[0]


def open_file_of(segment: Segment) -> Any:
    """
    Open the local file of *segment* if it is on this machine, or its remote copy.

    Raises:
        FileNotFoundError: There is no copy; the segment may have been replaced.
        NoAccess: There is a copy that this process cannot read.
    """
    path = _local_path(segment.url)
    if path is not None:
        try:
            # Not mapped, because a disk error would then kill the process.
            return pa.OSFile(path)
        except FileNotFoundError:
            if not segment.remote_url:
                raise
        except PermissionError as error:
            if not segment.remote_url:
                raise NoAccess(f"{segment.url} cannot be read: {error}") from error
    # Importing this takes long, and most tasks read local files.
    from pydanube_spark.reader.remote_files import open_remote  # noqa: PLC0415

    url = segment.remote_url or segment.url
    try:
        return open_remote(replace(segment, remote_url=url))
    except FileNotFoundError:
        raise
    except (ObjectsUnavailable, InvalidConfig, ImportError, OSError) as error:
        raise NoAccess(f"{url} cannot be read: {error}") from error


def _local_path(url: str) -> str | None:
    if not url.startswith("file:"):
        return None
    _, path = fs.FileSystem.from_uri(url)
    return str(path)


@contextmanager
def open_segment(segment: Segment) -> Iterator[SegmentFile]:
    """
    Open *segment* and verify all reads with its checksums.

    Raises:
        FileNotFoundError, NoAccess: As ``open_file_of``.
        OSError, pyarrow.ArrowException, ValueError: The file is damaged or unreadable.
    """
    with open_file_of(segment) as file:
        yield SegmentFile(file, segment)


@contextmanager
def open_existing_segment(topic: str, segment: Segment) -> Iterator[SegmentFile]:
    """
    Open *segment*, which must exist, and check its columns, too.

    Raises:
        CorruptSegment: The file is missing, unreadable or another one.
        NoAccess: This process cannot read it.
    """
    with ExitStack() as stack:
        try:
            with reading_segment(topic, segment):
                file = stack.enter_context(open_segment(segment))
                if not file.parquet.schema_arrow.equals(SCHEMA):
                    raise SegmentDamaged("it has unknown columns")
        except FileNotFoundError as error:
            raise _corrupt(topic, segment, "it is missing") from error
        yield file


def read_row_groups(
    topic: str,
    segment: Segment,
    file: SegmentFile,
    names: list[str] | None = None,
) -> Iterator[pa.Table]:
    """
    Yield the row groups with the columns *names*, or with all columns.

    Raises:
        CorruptSegment: A row group is damaged or unreadable.
    """
    groups = range(file.parquet.num_row_groups)
    file.expect(groups, names)
    for index in groups:
        with reading_segment(topic, segment):
            table = file.parquet.read_row_group(index, names, use_threads=False)
        yield table


@contextmanager
def reading_segment(
    topic: str, segment: Segment, offsets: tuple[int, int] | None = None
) -> Iterator[None]:
    """
    Name *segment* in errors of the body, which reads its *offsets*; None: all.

    Raises:
        CorruptSegment: The file is damaged or unreadable.
        FileNotFoundError: The file does not exist.
        NoAccess: The object store does not answer, or refuses.
    """
    try:
        yield
    except (FileNotFoundError, NoAccess):
        raise
    except ObjectsUnavailable as error:
        raise NoAccess(f"{segment.url} cannot be read: {error}") from error
    except UNREADABLE as error:
        raise _corrupt(topic, segment, error, offsets) from error


def _corrupt(
    topic: str,
    segment: Segment,
    problem: object,
    offsets: tuple[int, int] | None = None,
) -> CorruptSegment:
    base, end = offsets or (segment.base, segment.end)
    return CorruptSegment(
        f"{topic}: the segment {segment.url}, offsets {base} to {end}, cannot be read: "
        f"{problem}",
        offsets=(base, end),
    )
