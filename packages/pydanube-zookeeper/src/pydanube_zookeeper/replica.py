"""
A copy of all values of a cluster, after one of its changes.

The copy is folded from the log: each change in order, and each one once.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping

from pydanube.model.lazy_dataclasses import dataclass
from pydanube_broker.metadata.store import Revision, Stored
from pydanube_zookeeper.pure.nodes import Nodes, Write

_VERSIONS = 2**32


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where the log of changes ends, and where it begins."""

    number: int
    """The number of the newest change."""
    first: int
    """The number of the oldest change in the log."""
    version: int
    """The version of ``head``, which ZooKeeper compares."""
    revision: Revision
    """The revision of the newest change."""

    def next(self, revision: Revision, first: int) -> Position:
        """Return the position after one more change."""
        return Position(
            number=self.number + 1,
            first=first,
            version=_next_version(self.version),
            revision=revision,
        )


def _next_version(version: int) -> int:
    """Return the version after *version*; they are 32-bit numbers with a sign."""
    return (version + 1 + _VERSIONS // 2) % _VERSIONS - _VERSIONS // 2


@dataclass(frozen=True, slots=True)
class NodeChange:
    """A change of one node."""

    node: str
    data: bytes | None
    """None: it is deleted."""
    is_new: bool = False


class Replica:
    """The values of all paths, and the sessions that they belong to."""

    def __init__(
        self,
        position: Position,
        values: Mapping[str, Stored[bytes]] | None = None,
        holders: Mapping[str, str] | None = None,
    ) -> None:
        self.position = position
        self.holders = dict(holders or {})
        """The session of each path that belongs to one."""
        self._values = dict(values or {})
        self._paths = sorted(self._values)

    @property
    def values(self) -> Mapping[str, Stored[bytes]]:
        """The values of all paths."""
        return self._values

    def get(self, path: str) -> Stored[bytes] | None:
        """Return the value of *path*, or None."""
        return self._values.get(path)

    def scan(
        self, prefix: str, after: str = "", limit: int | None = None
    ) -> list[tuple[str, Stored[bytes]]]:
        """Return the paths below *prefix* after *after* in order, with their values."""
        begin = max(bisect_left(self._paths, prefix), bisect_right(self._paths, after))
        # A prefix ends with a slash, and "0" is the next character.
        end = bisect_left(self._paths, prefix[:-1] + "0", begin)
        if limit is not None:
            end = min(end, begin + limit)
        return [(path, self._values[path]) for path in self._paths[begin:end]]

    def paths_of(self, session_id: str) -> list[str]:
        """Return the paths that belong to a session."""
        return [path for path, holder in self.holders.items() if holder == session_id]

    def effective(self, changes: Mapping[str, Write | None]) -> dict[str, Write | None]:
        """Return *changes* without deletions of absent paths."""
        return {
            path: write
            for path, write in changes.items()
            if write is not None or path in self._values
        }

    def apply(
        self, changes: Mapping[str, Write | None], position: Position
    ) -> dict[str, Stored[bytes] | None]:
        """Make the changes of the next position; return the new value of each path."""
        assert position.number == self.position.number + 1, "a change was left out"
        changed: dict[str, Stored[bytes] | None] = {}
        for path, write in changes.items():
            self.holders.pop(path, None)
            if write is None:
                changed[path] = None
                self._remove(path)
                continue
            assert write.value is not None, "the value was not read"
            changed[path] = stored = Stored(write.value, position.revision)
            if path not in self._values:
                insort(self._paths, path)
            self._values[path] = stored
            if write.session_id is not None:
                self.holders[path] = write.session_id
        self.position = position
        return changed

    def node_changes(
        self, nodes: Nodes, changes: Mapping[str, Write | None]
    ) -> list[NodeChange]:
        """Return the changes of nodes that *changes* of paths are made of."""
        found: list[NodeChange] = []
        for path, write in changes.items():
            node = nodes.value(path, self.holders.get(path))
            exists = path in self._values
            if write is None:
                found.append(NodeChange(node, None))
                continue
            written = nodes.value(path, write.session_id)
            if exists and written != node:
                found.append(NodeChange(node, None))
                exists = False
            found.append(NodeChange(written, write.value, is_new=not exists))
        return found

    def _remove(self, path: str) -> None:
        if self._values.pop(path, None) is not None:
            del self._paths[bisect_left(self._paths, path)]
