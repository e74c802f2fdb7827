"""
Files of tasks: where segments are, and how new ones come there whole.

A file is written apart from the objects and gets its name when it is complete and
on disk, so that whoever lists the objects sees it whole or not at all.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyarrow import fs

from pydanube.model.errors import Unavailable
from pydanube.wire.files.segment_checksums import file_checksum
from pydanube.wire.files.segment_format import PARTS, part_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydanube.model.descriptions import Segment


@dataclass(frozen=True, slots=True)
class ObjectRoot:
    """Where a broker keeps its objects, as tasks reach it."""

    url: str
    """Without a slash at its end."""

    @classmethod
    def of(cls, segment: Segment) -> ObjectRoot:
        """Below which *segment* is, by its own address."""
        assert segment.url.endswith(f"/{segment.object_name}"), segment.url
        return cls(segment.url[: -len(segment.object_name) - 1])

    def url_of(self, name: str) -> str:
        """Where the object called *name* is."""
        return f"{self.url}/{name}"

    def scratch_url(self, name: str) -> str:
        """Where a file is that is no object; a broker deletes it when it starts."""
        return f"{self.url}/{PARTS}/{name}"


def open_file(url: str) -> Any:
    """
    The file at *url* for reading at random.

    Raises:
        FileNotFoundError: There is none.
    """
    # Not mapped: an error of the disk would be a signal that ends the process.
    filesystem, path = fs.FileSystem.from_uri(url)
    return filesystem.open_input_file(path)


@contextmanager
def new_file(root: ObjectRoot, name: str) -> Iterator[Any]:
    """
    A file to be written, which is the object called *name* when the body is done.

    Durability: Then it is on disk.  If the body fails, nothing is left of it.

    Raises:
        Unavailable: A broker has cleared it away meanwhile.
    """
    filesystem, path = fs.FileSystem.from_uri(root.url_of(name))
    if not isinstance(filesystem, fs.LocalFileSystem):
        # In an object store it is there when it is closed.
        with filesystem.open_output_stream(path) as stream:
            yield stream
        return
    part = f"{path[: -len(name)]}{PARTS}/{part_name(name)}"
    try:
        with open(part, "wb") as file:  # noqa: PTH123  # Arrow needs its kind.
            yield file
            file.flush()
            os.fsync(file.fileno())
        try:
            os.replace(part, path)  # noqa: PTH105
        except FileNotFoundError as error:
            raise _cleared(part) from error
    except BaseException:
        with suppress(FileNotFoundError):
            os.remove(part)  # noqa: PTH107
        raise
    directory = os.open(os.path.dirname(path), os.O_RDONLY)  # noqa: PTH120
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def open_scratch(url: str) -> Any:
    """
    The file at *url*, which an earlier job of the run has written.

    Raises:
        Unavailable: A broker has cleared it away meanwhile.
    """
    try:
        filesystem, path = fs.FileSystem.from_uri(url)
        if isinstance(filesystem, fs.LocalFileSystem):
            # Files are not changed once they are there, so they may be mapped.
            import pyarrow as pa  # noqa: PLC0415

            return pa.memory_map(path)
        return filesystem.open_input_file(path)
    except FileNotFoundError as error:
        raise _cleared(url) from error


def _cleared(name: str) -> Unavailable:
    return Unavailable(
        f"{name} is gone: a broker that starts deletes what runs of maintenance have "
        "not finished; run it again"
    )


def delete_file(url: str) -> None:
    """Remove a file; that there is none does not matter."""
    filesystem, path = fs.FileSystem.from_uri(url)
    with suppress(FileNotFoundError):
        filesystem.delete_file(path)


def checksum_of(url: str) -> tuple[int, int]:
    """The CRC-32C of the file at *url*, and how long it is."""
    with open_file(url) as file:
        return file_checksum(file)
