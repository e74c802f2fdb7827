"""
The input of the demo.

Telemetry consists of counters of this machine's processes and devices, without command
lines, environments and users.  The bulk of the messages are the lines of the Python
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
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
        yield pa.record_batch(
            {
                "key": pa.array(keys[at : at + lines_max], pa.binary()),
                "payload": pa.array(payloads[at : at + lines_max], pa.binary()),
            }
        )


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
    """Read this machine's counters: one dict for each process and device."""
    return [*_processes(), *_processors(), *_memory(), *_disks(), *_networks()]


def telemetry_batch(found: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    """Return *found* as JSON messages, keyed by source."""
    return pa.record_batch(
        {
            "key": pa.array([each["source"].encode() for each in found], pa.binary()),
            "payload": pa.array([json.dumps(each).encode() for each in found]),
            "attributes": pa.array(
                [[("kind", each["kind"])] for each in found],
                pa.map_(pa.string(), pa.string()),
            ),
        }
    )


def _processes() -> Iterator[dict[str, Any]]:
    names = ["pid", "name", "cpu_times", "memory_info", "num_threads"]
    for process in psutil.process_iter(names):
        found = process.info
        # None for processes that have just ended or are not accessible.
        if found["cpu_times"] is None or found["memory_info"] is None:
            continue
        yield {
            "source": f"process/{found['pid']}",
            "kind": "process",
            "name": found["name"] or "?",
            "cpu_s": found["cpu_times"].user + found["cpu_times"].system,
            "memory_bytes": found["memory_info"].rss,
            "threads": found["num_threads"],
        }


def _processors() -> Iterator[dict[str, Any]]:
    for number, times in enumerate(psutil.cpu_times(percpu=True)):
        busy_s = sum(times) - times.idle - getattr(times, "iowait", 0.0)
        yield _device("cpu", str(number), cpu_s=busy_s)


def _memory() -> Iterator[dict[str, Any]]:
    found = psutil.virtual_memory()
    yield _device("memory", "ram", memory_bytes=found.total - found.available)


def _disks() -> Iterator[dict[str, Any]]:
    # None without disks, as in some containers.
    for name, found in (psutil.disk_io_counters(perdisk=True) or {}).items():
        yield _device(
            "disk", name, in_bytes=found.read_bytes, out_bytes=found.write_bytes
        )


def _networks() -> Iterator[dict[str, Any]]:
    for name, found in (psutil.net_io_counters(pernic=True) or {}).items():
        yield _device(
            "network", name, in_bytes=found.bytes_recv, out_bytes=found.bytes_sent
        )


def _device(kind: str, name: str, **counters: float) -> dict[str, Any]:
    return {"source": f"{kind}/{name}", "kind": kind, "name": name, **counters}
