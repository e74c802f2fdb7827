"""A metadata store in memory."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, TypeVar

from pydanube.metadata.store import (
    Comparison,
    Delete,
    Operation,
    Put,
    Revision,
    Stored,
    check,
    conditions,
    encode_changes,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pydanube.metadata.key import Key, Prefix

T = TypeVar("T")


class MemoryStore:
    """A ``MetadataStore`` in memory."""

    def __init__(self) -> None:
        self._entries: dict[str, Stored[bytes]] = {}
        # The paths below each prefix that ends with a slash; and the same sorted, until
        # a path is added or removed.
        self._below: dict[str, dict[str, None]] = {}
        self._in_order: dict[str, list[str]] = {}
        self._revision = Revision(0)

    async def revision(self) -> Revision:
        """Return the current revision."""
        return self._revision

    async def get(self, key: Key[T]) -> Stored[T] | None:
        """Return the value of *key*, or None if it is absent."""
        stored = self._entries.get(key.path)
        if stored is None:
            return None
        return Stored(key.decode(stored.value), stored.revision)

    async def scan(
        self, prefix: Prefix[T], *, after: str = "", limit: int | None = None
    ) -> list[tuple[str, Stored[T]]]:
        """Return paths below *prefix* and values; see ``MetadataStore.scan``."""
        paths = self._in_order.get(prefix.path)
        if paths is None:
            paths = sorted(self._below.get(prefix.path, ()))
            if paths:
                self._in_order[prefix.path] = paths
        begin = bisect_right(paths, after)
        end = None if limit is None else begin + limit
        found = ((path, self._entries[path]) for path in paths[begin:end])
        return [
            (path, Stored(prefix.decode(stored.value), stored.revision))
            for path, stored in found
        ]

    async def put(
        self, key: Key[T], value: T, *, expected: Revision | None = None
    ) -> Revision:
        """Write *value*; see ``MetadataStore.put``."""
        return await self.transaction(conditions(key, expected), [Put(key, value)])

    async def delete(self, key: Key[T], *, expected: Revision | None = None) -> bool:
        """Remove *key*; see ``MetadataStore.delete``."""
        existed = key.path in self._entries
        await self.transaction(conditions(key, expected), [Delete(key)])
        return existed

    async def transaction(
        self, comparisons: Sequence[Comparison], operations: Sequence[Operation]
    ) -> Revision:
        """Make all changes or none; see ``MetadataStore.transaction``."""
        for comparison in comparisons:
            check(comparison, self._entries.get(comparison.key.path))
        return self._apply(operations)

    def copy_from(self, other: MemoryStore) -> None:
        """Replace all entries by those of *other*."""
        self._entries = dict(other._entries)
        self._below = {prefix: dict(paths) for prefix, paths in other._below.items()}
        self._in_order = {}
        self._revision = other._revision

    def _apply(self, operations: Sequence[Operation]) -> Revision:
        revision = Revision(self._revision + 1)
        for path, value in encode_changes(operations).items():
            if value is not None:
                if path not in self._entries:
                    self._add_path(path)
                self._entries[path] = Stored(value, revision)
            elif path in self._entries:
                del self._entries[path]
                self._remove_path(path)
            else:
                continue
            self._revision = revision
        return self._revision

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
