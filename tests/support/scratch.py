"""
The scratch directory of a run of the tests: all that it writes.

Temporary files of tests, and of the programs that they start, go there.  A run removes
its directory when it ends, unless tests failed: their files stay until the next run.
A run that was killed leaves its directory locked by nobody, and the next run removes
it, too.

Each worker of pytest-xdist has a directory for temporary files in that of its run, so
what a test file leaves there is known.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from stat import S_ISDIR

PREFIX = "danube-tests-"
VARIABLE = "PYDANUBE_TESTS_DIRECTORY"
"""
The environment variable that tells the workers the directory of their run.

Brokers refuse variables that begin with ``DANUBE_`` and are no settings.
"""
MEMORY = Path("/dev/shm")
LOCK = "lock"
NEW_S = 60
"""The time in which a run locks its directory after it made it."""
FREE_BYTES_MIN = 8 << 30
"""What a run of all tests needs: its own files, and room for the disks of brokers."""
NOT_LEFT = (
    # What Spark's workers and Java keep for their next start.
    *("pydanube-", "hsperfdata_"),
    # What a session of Spark has, which serves several files.
    *("spark-", "artifacts-", "blockmgr-", "lib", "snappy-", ".", "pyspark-"),
)
"""How the names of temporary files begin that no test file has left behind."""


@dataclass
class ScratchDirectory:
    """The directory of a run, and what this process has in it."""

    path: Path
    temporary: Path
    """The directory for temporary files of this process and those that it starts."""
    maker: int | None = None
    """The process that made the directory, and removes it when it ends."""
    has_failed: bool = False
    left: dict[str, list[str]] = field(default_factory=dict)
    """What test files left in ``temporary``, by the names of the files."""
    _known: set[str] = field(default_factory=set)

    @property
    def is_owned(self) -> bool:
        """Whether this process made the directory, and did not only fork from it."""
        return self.maker == os.getpid()

    @property
    def tests(self) -> Path:
        """The directory in which pytest makes those of the tests."""
        return self.path / "t"

    def note_left(self, file: str) -> None:
        """Note what has appeared among the temporary files as left by *file*."""
        found = {
            each.name
            for each in self.temporary.iterdir()
            if not each.name.startswith(NOT_LEFT)
        }
        if new := sorted(found - self._known):
            self.left.setdefault(file, []).extend(new)
        self._known = found

    def remove(self) -> None:
        """Remove the directory if it is owned; if tests failed, leave their files."""
        if self.is_owned:
            _remove_run(self.path, but=self.tests if self.has_failed else None)


def enter_scratch_directory() -> ScratchDirectory:
    """Make the directory of this run, or enter it as one of its workers."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    given = os.environ.get(VARIABLE)
    if worker is not None and given is not None:
        run = ScratchDirectory(Path(given), Path(given) / worker)
    else:
        path = make_locked(Path(tempfile.gettempdir()))
        run = ScratchDirectory(path, path / "main", maker=os.getpid())
        _memory_of(path).mkdir(mode=0o711)
        # After all that others, which come later, remove at the end of the process.
        atexit.register(run.remove)
    # Servers that refuse to run as root have directories there.
    run.temporary.mkdir(exist_ok=True)
    run.temporary.chmod(0o711)
    state = run.path / f"state-{run.temporary.name}"
    state.mkdir(exist_ok=True)
    os.environ.update(
        {
            VARIABLE: str(run.path),
            "TMPDIR": str(run.temporary),
            # Java takes no notice of TMPDIR.
            "SPARK_SUBMIT_OPTS": f"-Djava.io.tmpdir={run.temporary}",
            # Runs of pipelines must not be recorded among those of this user.
            "XDG_STATE_HOME": str(state),
        }
    )
    tempfile.tempdir = None
    return run


def memory_directory() -> Path:
    """Return the directory of the run in memory, or on its disk if there is none."""
    return _memory_of(Path(os.environ[VARIABLE]))


def _memory_of(run: Path) -> Path:
    # TMPDIR may be MEMORY itself.
    return (MEMORY if os.access(MEMORY, os.W_OK) else run) / f"{run.name}-memory"


def make_locked(place: Path) -> Path:
    """Make a directory in *place*, and remove those of runs that were killed."""
    path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
    # It stays open, and with it the lock, until the process ends.
    fcntl.flock(os.open(path / LOCK, os.O_CREAT | os.O_RDWR), fcntl.LOCK_EX)
    path.chmod(0o711)
    # It may take longer than other runs wait for the lock.
    remove_dead(place, now=path.stat().st_ctime)
    return path


def remove_dead(place: Path, *, now: float) -> None:
    """Remove the directories of runs in *place* whose processes have ended."""
    for path in place.glob(f"{PREFIX}*"):
        with suppress(OSError):
            found = path.lstat()
            is_own = S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
            if is_own and now - found.st_ctime > NEW_S and _is_dead(path):
                _remove_run(path)


def _is_dead(path: Path) -> bool:
    """Return whether *path* is the directory of a run, and nobody holds its lock."""
    try:
        descriptor = os.open(path / LOCK, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        # Somebody else has made it.
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def _remove_run(path: Path, *, but: Path | None = None) -> None:
    """Remove the directory of a run; its lock last, which says what it is."""
    shutil.rmtree(_memory_of(path), ignore_errors=True)
    with suppress(OSError):
        for each in path.iterdir():
            if each not in (but, path / LOCK):
                shutil.rmtree(each, ignore_errors=True)
    if but is None:
        shutil.rmtree(path, ignore_errors=True)


def disk_warning(path: Path, *, needed: int = FREE_BYTES_MIN) -> str | None:
    """Return a sentence if the disk of *path* has less room than a run needs."""
    free = shutil.disk_usage(path).free
    if free >= needed:
        return None
    return (
        f"WARNING: {path} has {free / 2**30:.1f} GiB free; a run of all tests needs "
        f"{needed / 2**30:.0f} GiB. Set TMPDIR to a larger disk."
    )
