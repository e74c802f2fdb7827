"""The checks of `danube doctor` that need no broker: the disk, memory and limits."""

from __future__ import annotations

import os
import re
import resource
import shutil
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path

from cryptography import x509

from pydanube_broker.servers.settings.config import BrokerConfig
from pydanube_cli.diagnosis import findings
from pydanube_cli.diagnosis.findings import Finding

SYNC_COUNT = 50
SYNC_BYTES = 4096
MEMORY_FILE = Path("/proc/meminfo")

# macOS has no fdatasync.
_fdatasync = getattr(os, "fdatasync", os.fsync)


def check_machine(config: BrokerConfig, now: datetime) -> Iterator[Finding]:
    """Check this machine for a broker with *config*; nothing stays on its disk."""
    directory = _existing(config.data_dir)
    try:
        syncs_s = measure_syncs(directory)
    except OSError as error:
        yield findings.unreachable(
            "disk latency",
            f"{directory} cannot be written: {error.strerror}",
            "choose another data_dir, or run this command as the broker's user",
        )
    else:
        yield findings.disk_latency(str(directory), syncs_s)
    usage = shutil.disk_usage(directory)
    yield findings.free_space(str(directory), usage.free, usage.total)
    yield findings.open_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    available = available_memory(MEMORY_FILE)
    if available is not None:
        yield findings.memory(available, config.storage.tail_bytes_max)
    yield findings.event_loop(has_uvloop=find_spec("uvloop") is not None)
    if config.tls.certificate_file:
        yield _check_certificate(config.tls.certificate_file, now)


def measure_syncs(directory: Path) -> list[float]:
    """
    Return how many seconds each of some small writes took until it was on disk.

    Raises:
        OSError: *directory* cannot be written.
    """
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        return [_sync(file.fileno()) for _ in range(SYNC_COUNT)]


def available_memory(path: Path) -> int | None:
    """Return the bytes of memory that programs can use, or None if it is not known."""
    try:
        found = re.search(r"^MemAvailable: +(\d+) kB$", path.read_text(), re.MULTILINE)
    except OSError:
        # Only Linux has the file.
        return None
    return None if found is None else int(found[1]) * 1024


def _sync(file: int) -> float:
    begun_at = time.perf_counter()
    os.write(file, b"\0" * SYNC_BYTES)
    _fdatasync(file)
    return time.perf_counter() - begun_at


def _existing(directory: Path) -> Path:
    """Return *directory*, or the nearest directory above it that exists."""
    absolute = directory.absolute()
    return next(each for each in (absolute, *absolute.parents) if each.is_dir())


def _check_certificate(path: str, now: datetime) -> Finding:
    try:
        certificates = x509.load_pem_x509_certificates(Path(path).read_bytes())
    except (OSError, ValueError) as error:
        return findings.unreadable_certificate(path, str(error))
    expires_at = min(each.not_valid_after_utc for each in certificates)
    return findings.certificate(path, expires_at, now)
