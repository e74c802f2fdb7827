"""
The input of the demo.

Telemetry consists of counters of this machine's processes, without command lines,
environments and users.  The bulk of the messages are the lines of the Python
standard library.
"""

from __future__ import annotations

import json
import sysconfig
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

from pydanube.model.batch import batch_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

POSITION_MODULUS = 1009
"""
The prime modulus of offsets in fingerprints.

It is small enough that the fingerprint of many thousand messages fits 64 bits.
"""

SMALL_PACKAGES = frozenset({"asyncio", "collections", "email", "json", "logging"})


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of the standard library, line by line."""

    name: str
    """The path below the library, with slashes."""
    lines: tuple[bytes, ...]
    """Without their line ends; a file of n newlines has n + 1 lines."""

    @property
    def byte_count(self) -> int:
        """Return the size of the file."""
        return sum(map(len, self.lines)) + len(self.lines) - 1


def library_path() -> Path:
    """Return the directory of the standard library."""
    return Path(sysconfig.get_path("stdlib"))


def source_files(*, small: bool) -> list[Path]:
    """Return the standard library's sources, sorted; *small*: of a few packages."""
    found: list[Path] = []
    for entry in library_path().iterdir():
        # Installed packages can be a hundred times larger.
        if entry.name in ("site-packages", "dist-packages"):
            continue
        if small and entry.name not in SMALL_PACKAGES:
            continue
        if entry.is_dir():
            found += entry.rglob("*.py")
        elif entry.suffix == ".py":
            found.append(entry)
    return sorted(path for path in found if path.is_file())


def read_source(path: Path) -> SourceFile:
    """Read the file at *path*."""
    name = path.relative_to(library_path()).as_posix()
    return SourceFile(name, tuple(path.read_bytes().split(b"\n")))


def batches_of(files: Sequence[SourceFile], lines_max: int) -> Iterator[pa.RecordBatch]:
    """Yield the lines of *files* in order, keyed by file, at most *lines_max* each."""
    payloads: list[bytes] = []
    keys: list[bytes] = []
    for file in files:
        payloads += file.lines
        keys += [file.name.encode()] * len(file.lines)
    for at in range(0, len(payloads), lines_max):
        end = at + lines_max
        yield batch_of(payloads[at:end], keys=keys[at:end])


def fingerprint(payloads: Sequence[bytes], offsets: Sequence[int]) -> int:
    """
    Return a number that depends on every message and its offset.

    It is a sum over the messages, so the query can compute it in parts and in any
    order.
    """
    sums = np.fromiter(map(zlib.crc32, payloads), np.int64, len(payloads))
    positions = np.asarray(offsets, np.int64) % POSITION_MODULUS + 1
    return int(sums @ positions)


def sample() -> list[dict[str, Any]]:
    """Read the counters of this machine's processes: one dict for each."""
    names = ["pid", "name", "cpu_times", "memory_info"]
    # None for processes that have just ended or are not accessible.
    return [
        {
            "source": f"process/{found['pid']}",
            "name": found["name"] or "?",
            "cpu_s": found["cpu_times"].user + found["cpu_times"].system,
            "memory_bytes": found["memory_info"].rss,
        }
        for found in (process.info for process in psutil.process_iter(names))
        if found["cpu_times"] is not None and found["memory_info"] is not None
    ]


def telemetry_batch(found: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    """Return *found* as JSON messages, keyed by source."""
    return batch_of(
        [json.dumps(each).encode() for each in found],
        keys=[each["source"].encode() for each in found],
    )
