"""
A disk with a page cache, which fails, fills up, and loses power.

The states that a crash may leave come from the model with which the crash tests
enumerate all of them (``recording_files``); here one is chosen at random.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING

from support.fakes.recording_files import Disk, Operation, RecordingFiles

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from simulation.loop import Host

_GROWING = ("create", "write")


@dataclass(slots=True)
class PowerCut:
    """A power loss at an operation of the disk."""

    countdown: int
    """The number of operations before it."""
    is_after: bool
    """Whether that operation is completed; it does not return in any case."""
    on_cut: Callable[[], None]


class MachineDisk:
    """
    The disk of a machine, which outlives the processes that use it.

    ``failing`` and ``is_full`` apply until they are changed.  A failed write leaves
    the first half of its bytes.
    """

    def __init__(self, rng: Random, note: Callable[[str], None]) -> None:
        self.failing: set[str] = set()
        """The kinds of operations that fail."""
        self.is_full = False
        self.power_cut: PowerCut | None = None
        self.error_count = 0
        """The number of operations that have failed."""
        self.operation_count = 0
        self._rng = rng
        self._note = note
        self._recorder = _Recorder({}, self)

    def opened_by(self, host: Host) -> ProcessFiles:
        """Return the files of the disk, as the process *host* sees them."""
        return ProcessFiles(host, self)

    def lose_power(self) -> None:
        """Lose power: keep any part of the unsynced data."""
        disk = self._recorder.any_crash_state(self._rng)
        sizes = ", ".join(f"{name[-12:-8]} {len(data)}" for name, data in disk.items())
        self._note(f"is left with {sizes or 'nothing'}")
        self._recorder = _Recorder(disk, self)
        self.power_cut = None

    @property
    def recorder(self) -> RecordingFiles:
        """The content of the page cache."""
        return self._recorder

    def before(self, operation: Operation) -> OSError | None:
        """Return the error of *operation*, or None."""
        self.operation_count += 1
        error: OSError | None = None
        if operation.kind in self.failing:
            error = OSError(errno.EIO, "Input/output error")
        elif self.is_full and operation.kind in _GROWING:
            error = OSError(errno.ENOSPC, "No space left on device")
        self._note(
            f"{operation.kind} {operation.name[-12:-8]} {len(operation.data)}"
            f"{' fails' if error else ''}"
        )
        self.error_count += error is not None
        return error


class _Recorder(RecordingFiles):
    def __init__(self, disk: Disk, machine_disk: MachineDisk) -> None:
        super().__init__(disk, machine_disk.before)


class ProcessFiles:
    """The files of a machine's disk, as one process sees them."""

    is_blocking = True

    def __init__(self, host: Host, disk: MachineDisk) -> None:
        self._host = host
        self._disk = disk

    def names(self):
        self._check()
        return self._disk.recorder.names()

    def create(self, name):
        return self.do(lambda: _ProcessFile(self, self._disk.recorder.create(name)))

    def append(self, name):
        self._find(name)
        return _ProcessFile(self, self._disk.recorder.append(name))

    def map(self, name):
        self._find(name)
        return self._disk.recorder.map(name)

    def remove(self, name):
        self._find(name)
        self.do(lambda: self._disk.recorder.remove(name))

    def sync_directory(self):
        self.do(self._disk.recorder.sync_directory)

    def do(self, work):
        """Do *work*, one operation, unless the power fails."""
        self._check()
        cut = self._disk.power_cut
        if cut is None:
            return work()
        cut.countdown -= 1
        if cut.countdown >= 0:
            return work()
        self._disk.power_cut = None
        if cut.is_after:
            work()
        cut.on_cut()
        raise _dead()

    def _find(self, name):
        self._check()
        if name not in self._disk.recorder.contents:
            raise FileNotFoundError(name)

    def _check(self):
        if not self._host.is_alive:
            raise _dead()


class _ProcessFile:
    def __init__(self, files: ProcessFiles, file) -> None:
        self._files = files
        self._file = file

    def write(self, buffers):
        self._files.do(lambda: self._file.write(buffers))

    def sync(self):
        self._files.do(self._file.sync)

    def truncate(self, byte_count):
        self._files.do(lambda: self._file.truncate(byte_count))

    def close(self):
        pass


def _dead() -> OSError:
    return OSError(errno.EIO, "the process is dead")
