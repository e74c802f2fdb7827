"""A metadata store in memory."""

from __future__ import annotations

from bisect import bisect_right
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from pydanube_broker.metadata.sessions import Session
from pydanube_broker.metadata.store import (
    Changes,
    Comparison,
    MetadataStore,
    Operation,
    RawChanges,
    Revision,
    Stored,
    check,
    encode_changes,
    sessions_of,
)
from pydanube_broker.metadata.watches import LocalWatches

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence


class MemoryStore(MetadataStore):
    """A ``MetadataStore`` in memory."""

    def __init__(self) -> None:
        self._entries: dict[str, Stored[bytes]] = {}
        # The paths below each prefix that ends with a slash; and the same sorted, until
        # a path is added or removed.
        self._below: dict[str, dict[str, None]] = {}
        self._in_order: dict[str, list[str]] = {}
        self._revision = Revision(0)
        self._sessions: dict[str, Session] = {}
        """The session of each path that belongs to one."""
        self._session_count = 0
        self._watches = LocalWatches()

    async def revision(self) -> Revision:
        """See MetadataStore."""
        return self._revision

    async def _get(self, path: str) -> Stored[bytes] | None:
        return self._entries.get(path)

    async def _scan(
        self, prefix: str, after: str, limit: int | None
    ) -> list[tuple[str, Stored[bytes]]]:
        paths = self._in_order.get(prefix)
        if paths is None:
            paths = sorted(self._below.get(prefix, ()))
            if paths:
                self._in_order[prefix] = paths
        begin = bisect_right(paths, after)
        end = None if limit is None else begin + limit
        return [(path, self._entries[path]) for path in paths[begin:end]]

    async def _change(
        self, comparisons: Sequence[Comparison], operations: Sequence[Operation]
    ) -> tuple[Revision, list[str]]:
        for comparison in comparisons:
            check(comparison, self._entries.get(comparison.key.path))
        sessions = sessions_of(operations)
        applied = self._apply(operations)
        for operation in operations:
            self._sessions.pop(operation.key.path, None)
        self._sessions |= sessions
        return applied

    @asynccontextmanager
    async def open_session(self, _: float) -> AsyncIterator[Session]:
        """See MetadataStore; only ``lose`` ends the session during the body."""
        self._session_count += 1
        session = Session(f"session-{self._session_count}")
        try:
            yield session
        finally:
            self.lose(session)

    def lose(self, session: Session) -> None:
        """End *session* and delete its keys, as if its TTL had passed."""
        session.end()
        self.expire(session)

    def expire(self, session: Session) -> None:
        """Delete the keys of *session*, although its holder does not know it yet."""
        paths = [path for path, owner in self._sessions.items() if owner is session]
        for path in paths:
            del self._sessions[path]
        self._write_all(dict.fromkeys(paths))

    @asynccontextmanager
    async def _watch(self, prefix: str) -> AsyncIterator[AsyncIterator[RawChanges]]:
        async def load() -> RawChanges:
            values = dict(await self._scan(prefix, "", None))
            return Changes(self._revision, values)

        with self._watches.watching(prefix) as watch:
            yield watch.read(load)

    def copy_from(self, other: MemoryStore) -> None:
        """Replace all entries by those of *other*."""
        self._entries = dict(other._entries)
        self._below = {prefix: dict(paths) for prefix, paths in other._below.items()}
        self._in_order = {}
        self._revision = other._revision
        self._sessions = dict(other._sessions)

    def _apply(self, operations: Sequence[Operation]) -> tuple[Revision, list[str]]:
        return self._write_all(encode_changes(operations))

    def _write_all(
        self, changes: Mapping[str, bytes | None]
    ) -> tuple[Revision, list[str]]:
        revision = Revision(self._revision + 1)
        changed = []
        for path, value in changes.items():
            if value is not None:
                if path not in self._entries:
                    self._add_path(path)
                self._entries[path] = Stored(value, revision)
            elif path in self._entries:
                del self._entries[path]
                self._remove_path(path)
            else:
                continue
            changed.append(path)
            self._revision = revision
        if changed:
            if self._on_change is not None:
                self._on_change(revision, changed)
            self._watches.on_change(
                revision, {path: self._entries.get(path) for path in changed}
            )
        return self._revision, changed

    def _add_path(self, path: str) -> None:
        for prefix in _prefixes_of(path):
            self._below.setdefault(prefix, {})[path] = None
            self._in_order.pop(prefix, None)

    def _remove_path(self, path: str) -> None:
        for prefix in _prefixes_of(path):
            below = self._below[prefix]
            del below[path]
            if not below:
                del self._below[prefix]
            self._in_order.pop(prefix, None)


def _prefixes_of(path: str) -> Iterator[str]:
    """Yield the prefixes of *path* that end with a slash, except the root."""
    at = path.find("/", 1)
    while at >= 0:
        yield path[: at + 1]
        at = path.find("/", at + 1)
