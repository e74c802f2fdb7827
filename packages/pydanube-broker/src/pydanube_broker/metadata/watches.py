"""Watches of stores in the same process: changes wait until they are read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager

from pydanube.model.errors import Closed
from pydanube_broker.metadata.store import Changes, RawChanges, Revision, Stored


class LocalWatch:
    """
    The changes below one prefix that its reader has not seen yet.

    Only the newest value of a path waits, so the memory does not grow beyond one value
    per path, however slow the reader is.
    """

    def __init__(self, prefix: str, *, known: set[str] | None = None) -> None:
        """*known*, which is empty, is filled if the store may miss changes."""
        self._prefix = prefix
        self._known = known
        self._revision = Revision(0)
        self._waiting: dict[str, Stored[bytes] | None] = {}
        self._event = asyncio.Event()
        self._is_closed = False

    def on_change(
        self, revision: Revision, changes: Mapping[str, Stored[bytes] | None]
    ) -> None:
        """Add the *changes* of one transaction; None: deleted."""
        below = {
            path: stored
            for path, stored in changes.items()
            if path.startswith(self._prefix)
        }
        if below:
            self._revision = revision
            self._waiting |= below
            self._remember(below)
            self._event.set()

    def on_present(
        self, revision: Revision, present: Mapping[str, Stored[bytes]]
    ) -> None:
        """Take all values of the store, after changes that were missed."""
        assert self._known is not None, "the store misses nothing"
        gone = dict.fromkeys(self._known - present.keys())
        self.on_change(revision, {**present, **gone})

    def _remember(self, changes: Mapping[str, Stored[bytes] | None]) -> None:
        if self._known is not None:
            for path, stored in changes.items():
                (self._known.discard if stored is None else self._known.add)(path)

    def close(self) -> None:
        """Make the reader raise Closed."""
        self._is_closed = True
        self._event.set()

    async def read(
        self, load: Callable[[], Awaitable[RawChanges]]
    ) -> AsyncIterator[RawChanges]:
        """Yield what *load* returns, and then later changes."""
        first = await load()
        self._remember(first.values)
        self._remember(self._waiting)
        yield first
        while True:
            await self._event.wait()
            if self._is_closed:
                raise Closed("the metadata store is closed")
            self._event.clear()
            waiting, self._waiting = self._waiting, {}
            if self._revision > first.revision:
                yield Changes(self._revision, waiting)


class LocalWatches:
    """All open watches of one store; *may_miss*: it may miss changes."""

    def __init__(self, *, may_miss: bool = False) -> None:
        self._open: dict[LocalWatch, None] = {}
        self._may_miss = may_miss

    @contextmanager
    def watching(self, prefix: str) -> Iterator[LocalWatch]:
        """Collect changes below *prefix* during the body."""
        watch = LocalWatch(prefix, known=set() if self._may_miss else None)
        self._open[watch] = None
        try:
            yield watch
        finally:
            del self._open[watch]

    def __bool__(self) -> bool:
        return bool(self._open)

    def on_change(
        self, revision: Revision, changes: Mapping[str, Stored[bytes] | None]
    ) -> None:
        """Give the *changes* of one transaction to all watches."""
        for watch in self._open:
            watch.on_change(revision, changes)

    def on_present(
        self, revision: Revision, present: Mapping[str, Stored[bytes]]
    ) -> None:
        """Give all values of the store to all watches."""
        for watch in self._open:
            watch.on_present(revision, present)

    def close(self) -> None:
        """End all watches."""
        for watch in self._open:
            watch.close()


def difference(
    known: Mapping[str, Revision], present: Mapping[str, Stored[bytes] | None]
) -> dict[str, Stored[bytes] | None]:
    """Return what has changed from the *known* revisions of paths to *present*."""
    changed = {
        path: stored
        for path, stored in present.items()
        if stored is not None and known.get(path) != stored.revision
    }
    return changed | dict.fromkeys(known.keys() - present.keys())


def revisions_of(values: Mapping[str, Stored[bytes] | None]) -> dict[str, Revision]:
    """Return the revisions of the paths that have a value."""
    return {
        path: stored.revision for path, stored in values.items() if stored is not None
    }
