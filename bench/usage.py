"""The processor time and memory of all processes of a server."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterable

SAMPLE_INTERVAL_S = 0.1


class Meter:
    """Measures processes and their children while its context is open."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._pids = tuple(pids)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._cpu_began_s = 0.0
        self.cpu_s = 0.0
        self.peak_bytes = 0

    def __enter__(self) -> Meter:
        self._cpu_began_s = processor_s(self._pids)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self.cpu_s = processor_s(self._pids) - self._cpu_began_s

    def _watch(self) -> None:
        while True:
            self.peak_bytes = max(self.peak_bytes, memory_bytes(self._pids))
            if self._ended.wait(SAMPLE_INTERVAL_S):
                return


class ProcessorTimes:
    """
    The processor seconds of a process and of all that it has started.

    Processes count that ended without anyone having waited for them, like Python
    processes of Spark, as far as they were seen: it looks every SAMPLE_INTERVAL_S.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._used: dict[tuple[int, float], float] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> ProcessorTimes:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def total_s(self) -> float:
        """Return the seconds up to now."""
        with self._lock:
            for process in _tree([self._pid]):
                try:
                    times, began = process.cpu_times(), process.create_time()
                except psutil.Error:
                    continue
                self._used[process.pid, began] = times.user + times.system
            return sum(self._used.values())

    def _watch(self) -> None:
        while not self._ended.wait(SAMPLE_INTERVAL_S):
            self.total_s()


def processor_s(pids: Iterable[int]) -> float:
    """Return the CPU seconds of these processes and their children, also ended ones."""
    total = 0.0
    for process in _tree(pids):
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        # Includes children that have ended.
        total += times.user + times.system
        total += times.children_user + times.children_system
    return total


def memory_bytes(pids: Iterable[int]) -> int:
    """Return the resident memory of these processes and their children."""
    total = 0
    for process in _tree(pids):
        try:
            total += process.memory_info().rss
        except psutil.Error:
            continue
    return total


def _tree(pids: Iterable[int]) -> list[psutil.Process]:
    processes = {}
    for pid in pids:
        try:
            process = psutil.Process(pid)
            family = [process, *process.children(recursive=True)]
        except psutil.Error:
            continue
        processes.update({each.pid: each for each in family})
    return list(processes.values())
