"""Measurements of the machine, to put the figures into perspective."""

from __future__ import annotations

import os
import platform
import tempfile
import time
from typing import TYPE_CHECKING

from pydanube.model.lazy_dataclasses import dataclass
from pydanube_cli.bench.figures import percentile

if TYPE_CHECKING:
    from pathlib import Path

_SYNCS = 200
_COPY_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The machine's cores, and the speed of its disk and memory."""

    cores: int
    python: str
    fdatasync_us: float
    """The median time to sync 400 appended bytes."""
    copy_gb_s: float
    """The speed of copying memory."""


def measure_machine(directory: Path) -> Machine:
    """Measure the machine with files in *directory*, in a fraction of a second."""
    return Machine(
        cores=os.cpu_count() or 1,
        python=platform.python_version(),
        fdatasync_us=_median_sync_us(directory),
        copy_gb_s=_copy_gb_s(),
    )


def _median_sync_us(directory: Path) -> float:
    times = []
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        for _ in range(_SYNCS):
            file.write(bytes(400))
            before = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - before)
    return percentile(sorted(times), 50) * 1e6


def _copy_gb_s() -> float:
    source = bytes(_COPY_BYTES)
    target = memoryview(bytearray(_COPY_BYTES))
    # The first copy allocates the pages.
    target[:] = source
    before = time.perf_counter()
    target[:] = source
    return _COPY_BYTES / (time.perf_counter() - before) / 1e9
