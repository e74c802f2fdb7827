"""
Files in the object store: opening, writing and deleting them in tasks.

A file is written outside the listed objects and renamed when it is complete and on
disk, so a listing never contains an incomplete file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from pyarrow import fs

from pydanube.model.errors import Unavailable
from pydanube.wire.files.segment_checksums import file_checksum
from pydanube.wire.files.segment_format import PARTS, part_name


@dataclass(frozen=True, slots=True)
class ObjectRoot:
    """The root of a broker's object store."""

    url: str
    """Without a slash at its end."""

    def url_of(self, name: str) -> str:
        """Return the URL of the object *name*."""
        return f"{self.url}/{name}"

    def scratch_url(self, name: str) -> str:
        """Return the URL of a scratch file, which a broker deletes when it starts."""
        return f"{self.url}/{PARTS}/{name}"


def open_file(url: str) -> Any:
    """
    Open the file at *url* for random reads.

    Raises:
        FileNotFoundError: The file does not exist.
    """
    # Not mapped, because a disk error would then kill the process with a signal.
    filesystem, path = fs.FileSystem.from_uri(url)
    return filesystem.open_input_file(path)


@contextmanager
def new_file(root: ObjectRoot, name: str) -> Iterator[Any]:
    """
    Create the object *name*; it exists when the body has ended.

    Durability: At the end of the body the object is on disk.  If the body fails,
        nothing is left.

    Raises:
        Unavailable: A broker that started has deleted the incomplete file.
    """
    filesystem, path = fs.FileSystem.from_uri(root.url_of(name))
    if not isinstance(filesystem, fs.LocalFileSystem):
        # In an object store the object appears when the stream is closed.
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
    Open the scratch file at *url*, which an earlier job of the run has written.

    Raises:
        Unavailable: A broker that started has deleted the file.
    """
    try:
        return open_file(url)
    except FileNotFoundError as error:
        raise _cleared(url) from error


def _cleared(name: str) -> Unavailable:
    return Unavailable(
        f"{name} is gone: a broker that started has deleted the files of unfinished "
        "maintenance runs; run maintenance again"
    )


def delete_file(url: str) -> None:
    """Delete a file if it exists."""
    filesystem, path = fs.FileSystem.from_uri(url)
    with suppress(FileNotFoundError):
        filesystem.delete_file(path)


def checksum_of(url: str) -> tuple[int, int]:
    """Return the CRC-32C and the length of the file at *url*."""
    with open_file(url) as file:
        return file_checksum(file)
