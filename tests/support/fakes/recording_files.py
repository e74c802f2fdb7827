"""A disk that records its operations and can simulate a crash at any point."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random

Disk = dict[str, bytes]
"""The state of the disk after a crash: contents by name."""


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of the disk."""

    kind: str
    """``create``, ``write``, ``truncate``, ``sync``, ``remove``, ``sync_directory``."""
    name: str = ""
    data: bytes = b""
    byte_count: int = 0


class RecordingFiles:
    """
    Files in memory that log every operation on them.

    *fail* decides before each operation whether it fails; a write that
    fails writes the first half of its bytes.
    """

    is_blocking = False

    def __init__(
        self,
        disk: Mapping[str, bytes] | None = None,
        fail: Callable[[Operation], OSError | None] = lambda operation: None,
    ) -> None:
        self.before = dict(disk or {})
        self.operations: list[Operation] = []
        self.fail = fail
        self.contents = {name: bytearray(data) for name, data in self.before.items()}

    def names(self):
        return sorted(self.contents)

    def create(self, name):
        assert name not in self.contents
        self._do(Operation("create", name))
        self.contents[name] = bytearray()
        return _RecordingFile(self, name)

    def append(self, name):
        assert name in self.contents
        return _RecordingFile(self, name)

    def map(self, name):
        if name not in self.contents:
            raise FileNotFoundError(name)
        return memoryview(bytes(self.contents[name]))

    def remove(self, name):
        self._do(Operation("remove", name))
        del self.contents[name]

    def sync_directory(self):
        self._do(Operation("sync_directory"))

    def crash_states(self, count: int) -> Iterator[Disk]:
        """Yield every state after a crash that follows the first *count* operations."""
        seen = set()
        for disk in _possible_disks(self.before, self.operations[:count]):
            key = tuple(sorted(disk.items()))
            if key not in seen:
                seen.add(key)
                yield disk

    def any_crash_state(self, rng: Random) -> Disk:
        """Return one of the states that a crash may leave now."""
        directory = _directory_after(self.before, self.operations)
        unsure = {name: directory.files[name] for name in directory.created}
        unsure |= directory.removed
        files = dict(directory.files)
        for name in sorted(unsure):
            if rng.random() < 0.5:
                files[name] = unsure[name]
            else:
                files.pop(name, None)
        return {name: rng.choice(file.possible()) for name, file in files.items()}

    def _do(self, operation: Operation) -> None:
        error = self.fail(operation)
        if error is not None:
            if operation.kind == "write":
                half = operation.data[: len(operation.data) // 2]
                self.operations.append(Operation("write", operation.name, half))
                self.contents[operation.name] += half
            raise error
        self.operations.append(operation)


class _RecordingFile:
    def __init__(self, files: RecordingFiles, name: str) -> None:
        self._files = files
        self._name = name

    def write(self, buffers):
        data = b"".join(bytes(buffer) for buffer in buffers)
        self._files._do(Operation("write", self._name, data))
        self._files.contents[self._name] += data

    def sync(self):
        self._files._do(Operation("sync", self._name))

    def truncate(self, byte_count):
        self._files._do(Operation("truncate", self._name, byte_count=byte_count))
        del self._files.contents[self._name][byte_count:]

    def close(self):
        pass


_ROOM = bytes(200)


@dataclass
class _File:
    """A file as a crash sees it: what is on disk, and what may be."""

    synced: bytes = b""
    current: bytes = b""
    was_cut: bool = False
    """Cut off since the last sync, so that old and new bytes may be mixed."""
    is_begun: bool = False
    """Its beginning is on disk, so space may be reserved after its end."""
    has_room: bool = False
    """It may end with unwritten zeros."""

    def possible(self) -> list[bytes]:
        """Yield the possible contents: all, nothing or parts of the unsynced data."""
        found = self._written()
        if self.has_room:
            found += [self.current + _ROOM, self.synced + _ROOM]
        return found

    def _written(self) -> list[bytes]:
        synced, current = self.synced, self.current
        if synced == current:
            return [current]
        # Where they begin to differ; everything before is on disk.
        at = len(synced) if current.startswith(synced) else _common(synced, current)
        length = len(current) - at
        found = [synced, current, current[:at]]
        for cut in {1, 7, 31, 33, 60, length - 1, *range(0, length, length // 9 + 1)}:
            if 0 < cut < length:
                # The file grew and was filled from the front,
                found.append(current[: at + cut])
                # or its length came first,
                found.append(current[: at + cut] + bytes(length - cut))
                # or its pages came in the other order.
                found.append(current[:at] + bytes(cut) + current[at + cut :])
        found.append(current[:at] + bytes(length))
        if self.was_cut and len(synced) > len(current):
            found.append(current + synced[len(current) :])
        return found


def _common(a: bytes, b: bytes) -> int:
    return next(
        (at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y),
        min(len(a), len(b)),
    )


@dataclass
class _Directory:
    files: dict[str, _File] = field(default_factory=dict)
    created: set[str] = field(default_factory=set)
    """Created, but not in the directory on disk yet."""
    removed: dict[str, _File] = field(default_factory=dict)
    """Removed, but still in the directory on disk."""


def _possible_disks(before: Mapping[str, bytes], operations) -> Iterator[Disk]:
    directory = _directory_after(before, operations)
    certain = {
        name: file
        for name, file in directory.files.items()
        if name not in directory.created
    }
    # Only one file is written at a time, so files vary one by one.
    for kept in _subsets(directory):
        files = {**certain, **kept}
        for varied in files or [None]:
            if varied is None:
                yield {}
                continue
            for lost in (False, True):
                rest = {
                    name: file.synced if lost else file.current
                    for name, file in files.items()
                }
                for content in files[varied].possible():
                    yield {**rest, varied: content}


def _directory_after(before: Mapping[str, bytes], operations) -> _Directory:
    directory = _Directory(
        {name: _File(d, d, is_begun=bool(d)) for name, d in before.items()}
    )
    for operation in operations:
        _apply(directory, operation)
    return directory


def _subsets(directory: _Directory) -> Iterator[dict[str, _File]]:
    """Files whose creation or removal is not on disk: all, none, and each alone."""
    unsure = {name: directory.files[name] for name in directory.created}
    unsure |= directory.removed
    yield {}
    yield unsure
    for name, file in unsure.items():
        yield {name: file}
    yield {name: directory.files[name] for name in directory.created}


def _apply(directory: _Directory, operation: Operation) -> None:
    files, name = directory.files, operation.name
    match operation.kind:
        case "create":
            files[name] = _File()
            directory.created.add(name)
        case "write":
            files[name].current += operation.data
            files[name].has_room |= files[name].is_begun
        case "truncate":
            files[name].current = files[name].current[: operation.byte_count]
            files[name].was_cut = True
            files[name].has_room = False
        case "sync":
            files[name].is_begun = True
            files[name].synced = files[name].current
            files[name].was_cut = False
        case "remove":
            file = files.pop(name)
            if name in directory.created:
                directory.created.discard(name)
            else:
                directory.removed[name] = file
        case "sync_directory":
            directory.created.clear()
            directory.removed.clear()
