"""The interface to an object store: named, immutable objects."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import pyarrow as pa

from pydanube.model.lazy_dataclasses import dataclass
from pydanube.wire.buffer import Buffer


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """The size of an object, and when it was stored."""

    byte_count: int
    modified_at: int | None
    """
    When it was stored: microseconds since 1970, UTC.

    None if the store does not know, such as Redis.
    """


class NewObject(Protocol):
    """
    An object that is written in pieces, before it has a name and is stored.

    Threads: One thread at a time may use it, which may not be that of the event loop.
    """

    def writing(self) -> AbstractContextManager[Any]:
        """
        Open a pyarrow file to write the object to, once and from the beginning on.

        Durability: When the context ends, what was written to a file is on disk.

        Raises:
            ObjectsUnavailable: The file cannot be written.
        """

    def reading(self) -> AbstractContextManager[Any]:
        """
        Open what was written as a pyarrow file for random access.

        Raises:
            ObjectsUnavailable: The file cannot be read, or it was discarded.
        """

    def discard(self) -> None:
        """
        Remove what was written, also while it is; does nothing if it is stored.

        It raises nothing: a file that cannot be removed stays until the next start.
        """


class NewObjectInMemory(NewObject):
    """An object that is written to memory."""

    def __init__(self) -> None:
        self.data: pa.Buffer | None = None
        """The bytes that were written; None before and after."""

    @contextmanager
    def writing(self) -> Iterator[Any]:
        sink = pa.BufferOutputStream()
        yield sink
        self.data = sink.getvalue()

    @contextmanager
    def reading(self) -> Iterator[Any]:
        yield pa.BufferReader(self.data)

    def discard(self) -> None:
        self.data = None


class Objects(Protocol):
    """
    Objects by name; names have slashes like paths.

    Raises: Every coroutine raises ObjectsUnavailable if the store does not answer or
        refuses.  The outcome of a failed put() or put_if_absent() is unknown: it may
        still happen, even later.
    """

    supports_put_if_absent: bool = True
    """Whether put_if_absent() works; otherwise it raises InvalidRequest."""

    supports_listing: bool = True
    """Whether names() works; otherwise it raises InvalidRequest."""

    async def put(self, name: str, data: Buffer | pa.Buffer) -> None:
        """
        Store an object; replace an existing one of the same name.

        Durability: On return the object is durable.  Until then, and after a crash or a
            cancellation, either all of it is stored or nothing.
        """

    def new_object(self) -> NewObject:
        """Return an object to be written in pieces, and then given to put_new()."""
        return NewObjectInMemory()

    async def put_new(self, name: str, new: NewObject) -> None:
        """
        Store an object that new_object() of this store has returned, like put().

        The caller discards it if this fails.

        Bounds: A store in a local directory does not read the object into memory.
        """
        assert isinstance(new, NewObjectInMemory)
        assert new.data is not None
        await self.put(name, new.data)

    async def put_if_absent(self, name: str, data: Buffer | pa.Buffer) -> bool:
        """
        Store an object unless there is one of this name; return whether it was stored.

        Of several writers at the same time, exactly one stores its object.

        Durability: As put().
        """

    async def read(
        self, name: str, begin: int = 0, end: int | None = None
    ) -> Buffer | None:
        """
        Return the bytes ``begin … end`` of an object; None if it does not exist.

        Without *end*, all bytes from *begin* on.  Bytes after its end are left out.
        """

    def open(self, name: str) -> Any:
        """
        Open an object as a pyarrow file for random access; call this in a thread.

        Raises:
            FileNotFoundError: The object does not exist.
            OSError: It cannot be read; the methods of the file raise this, too.
        """

    async def delete(self, name: str) -> None:
        """Remove an object, if it exists."""

    async def names(
        self, prefix: str, *, after: str = "", count_max: int | None = None
    ) -> list[str]:
        """
        Return the names that begin with *prefix*, sorted by their characters.

        Only those that are greater than *after*, and at most *count_max*.
        """

    async def stat(self, name: str) -> ObjectInfo | None:
        """Return what is known about an object; None if it does not exist."""

    def url(self, name: str) -> str:
        """Return the URL at which other programs can read the object."""


def wall_clock_us() -> int:
    """Return the time: microseconds since 1970, UTC."""
    return time.time_ns() // 1000
