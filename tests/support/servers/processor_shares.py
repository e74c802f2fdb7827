"""Limits of the processor time of processes, by control groups of Linux (version 1)."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path("/sys/fs/cgroup/cpu")
PERIOD_US = 100_000


@contextmanager
def processor_shares():
    """Yield a function that gives a process a share of one processor."""
    groups = []
    if not os.access(ROOT / "cpu.cfs_quota_us", os.W_OK):
        pytest.skip("needs root and the cpu controller of version 1 of control groups")

    def limit(pid, share):
        group = ROOT / f"pydanube-tests-{os.getpid()}-{len(groups)}"
        group.mkdir()
        groups.append(group)
        (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (group / "cpu.cfs_quota_us").write_text(str(int(share * PERIOD_US)))
        (group / "cgroup.procs").write_text(str(pid))

    try:
        yield limit
    finally:
        for group in groups:
            # A group with processes cannot be removed.
            for pid in (group / "cgroup.procs").read_text().split():
                (ROOT / "cgroup.procs").write_text(pid)
            group.rmdir()
