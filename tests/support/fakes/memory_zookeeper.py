"""A ZooKeeper in memory, and clients of it that get no answer when a test says so."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from enum import Enum
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from kazoo.exceptions import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
)

from pydanube.model.errors import MetadataUnavailable
from pydanube_zookeeper.client import NoAnswer
from pydanube_zookeeper.multi_read import MultiRead

if TYPE_CHECKING:
    from collections.abc import Callable


class Fate(Enum):
    """What becomes of a transaction."""

    ANSWERED = "answered"
    LOST = "lost"
    """It is not executed, and its client gets no answer."""
    UNANSWERED = "unanswered"
    """It is executed, and its client gets no answer."""
    LATE = "late"
    """Its client gets no answer, and it is executed before the next transaction."""
    CANCELLED = "cancelled"
    """Its caller is cancelled, and it is executed before the next transaction."""


@dataclass
class Node:
    """A node and the fields of its state that are used."""

    data: bytes
    czxid: int
    mzxid: int
    version: int = 0

    def copy(self) -> Node:
        return Node(self.data, self.czxid, self.mzxid, self.version)


@dataclass
class MemoryZookeeper:
    """The nodes, and the transactions that are still under way."""

    nodes: dict[str, Node] = field(default_factory=dict)
    zxid: int = 0
    late: list[list[tuple[Any, ...]]] = field(default_factory=list)
    written: list[tuple[str, bytes, int]] = field(default_factory=list)
    """All nodes that were ever created or set, with their data and their zxids."""
    watchers: dict[str, list[Callable[[object], None]]] = field(default_factory=dict)

    def execute_late(self) -> None:
        late, self.late = self.late, []
        for operations in late:
            self.execute(operations)

    def execute(self, operations: list[tuple[Any, ...]]) -> list[Any]:
        """Make all *operations* or none; return the results as kazoo does."""
        self.zxid += 1
        nodes = {path: node.copy() for path, node in self.nodes.items()}
        results: list[Any] = []
        for at, operation in enumerate(operations):
            try:
                results.append(self._apply(nodes, *operation))
            except (BadVersionError, NodeExistsError, NoNodeError) as error:
                rest = len(operations) - at - 1
                return [
                    *(RolledBackError() for _ in range(at)),
                    error,
                    *(RuntimeInconsistency() for _ in range(rest)),
                ]
        self.nodes = nodes
        self.written += [
            (path, data, self.zxid)
            for kind, path, data, _ in operations
            if kind in {"create", "set"}
        ]
        for _, path, *_ in operations:
            for watcher in self.watchers.pop(path, []):
                watcher(None)
        return results

    def _apply(
        self, nodes: dict[str, Node], kind: str, path: str, value: Any, version: int
    ) -> Any:
        if (kind == "create") is (path in nodes):
            raise NodeExistsError if kind == "create" else NoNodeError
        if kind == "create":
            nodes[path] = Node(value, self.zxid, self.zxid)
            return path
        node = nodes[path]
        if version not in {-1, node.version}:
            raise BadVersionError
        if kind == "delete":
            del nodes[path]
        if kind == "set":
            node.data, node.mzxid, node.version = value, self.zxid, node.version + 1
            return node.copy()
        return True


class MemoryClient:
    """A client with the interface of ``ZookeeperClient``."""

    acl = None

    def __init__(self, zookeeper: MemoryZookeeper) -> None:
        self.fates: list[Fate] = []
        """Those of the next transactions; later ones are answered."""
        self.attempts_max = 3
        """An operation fails when this many transactions got no answer."""
        self._pauses = 0
        self._kazoo = _Kazoo(zookeeper, self)

    async def ask(self, *requests: Any, deadline: float | None = None) -> list[Any]:
        return await self.ask_once(*requests, deadline=deadline)

    async def ask_once(self, *requests: Any, deadline: float | None) -> list[Any]:
        results = []
        for request in requests:
            # Others may come between the requests.
            await asyncio.sleep(0)
            results.append(request(self._kazoo))
        return results

    async def pause(self, _: float) -> None:
        self._pauses += 1
        # Others get many turns.
        for _ in range(50):
            await asyncio.sleep(0)
        if self._pauses >= self.attempts_max:
            raise self.unavailable()

    def new_deadline(self, _: float | None = None) -> float:
        self._pauses = 0
        # Far away; an operation that waits for it hangs.
        return asyncio.get_running_loop().time() + 20.0

    def unavailable(self) -> MetadataUnavailable:
        return MetadataUnavailable("no answer")

    def calling(self, callback: Callable[[], None]) -> Callable[[object], None]:
        return lambda _: callback()


class _Kazoo:
    """The methods of kazoo that are used; they return results instead of futures."""

    def __init__(self, zookeeper: MemoryZookeeper, client: MemoryClient) -> None:
        self._zookeeper = zookeeper
        self._client = client
        self.handler = SimpleNamespace(async_result=list)

    def sync_async(self, path: str) -> str:
        return path

    def get_async(self, path: str, watch: Any = None) -> tuple[bytes, Node]:
        if path not in self._zookeeper.nodes:
            raise NoNodeError
        if watch is not None:
            self._zookeeper.watchers.setdefault(path, []).append(watch)
        node = self._zookeeper.nodes[path]
        return node.data, node.copy()

    def exists_async(self, path: str) -> Node | None:
        node = self._zookeeper.nodes.get(path)
        return None if node is None else node.copy()

    def get_children_async(self, path: str) -> list[str]:
        prefix = f"{path}/"
        return [
            each.removeprefix(prefix)
            for each in self._zookeeper.nodes
            if each.startswith(prefix)
        ]

    def create_async(self, path: str, acl: object) -> str:
        (result,) = self._zookeeper.execute([("create", path, b"", -1)])
        if isinstance(result, Exception):
            raise result
        return path

    def _call(self, request: MultiRead, result: list[Any]) -> None:
        for path in request.paths:
            node = self._zookeeper.nodes.get(path)
            result.append(None if node is None else (node.data, node.copy()))

    def transaction(self) -> _Transaction:
        return _Transaction(self._zookeeper, self._client)


class _Transaction:
    def __init__(self, zookeeper: MemoryZookeeper, client: MemoryClient) -> None:
        self._zookeeper = zookeeper
        self._client = client
        self._operations: list[tuple[Any, ...]] = []

    def create(self, path: str, data: bytes = b"", acl: object = None) -> None:
        self._operations.append(("create", path, data, -1))

    def delete(self, path: str) -> None:
        self._operations.append(("delete", path, None, -1))

    def set_data(self, path: str, data: bytes, version: int = -1) -> None:
        self._operations.append(("set", path, data, version))

    def check(self, path: str, version: int) -> None:
        self._operations.append(("check", path, None, version))

    def commit_async(self) -> list[Any]:
        fates = self._client.fates
        fate = fates.pop(0) if fates else Fate.ANSWERED
        self._zookeeper.execute_late()
        if fate in {Fate.LATE, Fate.CANCELLED}:
            self._zookeeper.late.append(self._operations)
        if fate is Fate.CANCELLED:
            raise asyncio.CancelledError
        if fate in {Fate.LOST, Fate.LATE}:
            raise NoAnswer
        results = self._zookeeper.execute(self._operations)
        if fate is Fate.UNANSWERED:
            raise NoAnswer
        return results
