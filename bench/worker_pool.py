"""The worker processes of a trial."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bench.servers import clean_environ
from bench.systems.system import ROOT, BenchFailed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from bench.systems.system import System

READY_WAIT_S = 120.0
RESULT_WAIT_S = 600.0
START_DELAY_S = 0.1
"""The time between sending the start time to the workers and the start."""
END_WAIT_S = 5.0

Job = dict[str, Any]


class WorkerPool:
    """Worker processes by name."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._said: queue.Queue[tuple[str, Job | None]] = queue.Queue()
        self._threads: list[threading.Thread] = []

    def start_worker(self, name: str, system: System, endpoint: dict[str, Any]) -> None:
        """Start a worker with the interpreter that has the system's client."""
        with self._log.open("a") as log:
            process = subprocess.Popen(  # noqa: S603  # Our own program.
                [system.python(), "-m", "bench.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
                # The interpreter of another client does not have this project.
                env=clean_environ() | {"PYTHONPATH": os.pathsep.join(sys.path)},
                start_new_session=True,
            )
        self._processes[name] = process
        thread = threading.Thread(target=self._read, args=(name, process), daemon=True)
        thread.start()
        self._threads.append(thread)
        self.send(name, {"system": system.name, "endpoint": endpoint})

    def send(self, name: str, line: Job) -> None:
        """Send a message to a worker."""
        stdin = self._processes[name].stdin
        assert stdin is not None
        try:
            stdin.write(json.dumps(line) + "\n")
            stdin.flush()
        except BrokenPipeError:
            raise BenchFailed(f"the {name} has ended: {self._last_words()}") from None

    def run_job(self, name: str, job: Job) -> Job:
        """Run a job that is not timed in one worker, and return its result."""
        self.send(name, job)
        return self._hear({name}, "result", RESULT_WAIT_S)[name]

    def start(self, jobs: Mapping[str, Job]) -> int:
        """
        Start jobs at the same time, as soon as all workers are ready.

        Return the start time by the monotonic clock.
        """
        for name, job in jobs.items():
            self.send(name, job)
        self._hear(set(jobs), "ready", READY_WAIT_S)
        start_ns = time.monotonic_ns() + int(START_DELAY_S * 1e9)
        for name in jobs:
            self.send(name, {"start_ns": start_ns})
        return start_ns

    def results(self, *names: str) -> dict[str, Job]:
        """Return the results of started jobs."""
        return self._hear(set(names), "result", RESULT_WAIT_S)

    def receive(self, timeout_s: float) -> tuple[str, Job] | None:
        """
        Return the next message of any worker; None after the timeout.

        Raises:
            BenchFailed: A worker has failed or ended.
        """
        try:
            name, line = self._said.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if line is None:
            raise BenchFailed(f"the {name} has ended: {self._last_words()}")
        if "error" in line:
            raise BenchFailed(f"the {name} failed: {line['error']}")
        return name, line

    def stop(self) -> None:
        """Stop all workers."""
        for process in self._processes.values():
            assert process.stdin is not None
            try:
                process.stdin.close()
            except BrokenPipeError:
                continue
        for process in self._processes.values():
            try:
                process.wait(END_WAIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for thread in self._threads:
            thread.join()

    def _read(self, name: str, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                self._said.put((name, json.loads(line)))
        self._said.put((name, None))

    def _hear(self, names: set[str], what: str, timeout_s: float) -> dict[str, Job]:
        """Return the value of *what* that each of *names* sends."""
        heard: dict[str, Job] = {}
        give_up_at = time.monotonic() + timeout_s
        while missing := names - set(heard):
            told = self.receive(max(0.0, give_up_at - time.monotonic()))
            if told is None:
                raise BenchFailed(
                    f"the {' and the '.join(sorted(missing))} gave no {what} within "
                    f"{timeout_s:.0f} s"
                )
            name, line = told
            if what in line:
                heard[name] = line[what]
        return heard

    def _last_words(self) -> str:
        return self._log.read_text(errors="replace").strip()[-500:] or "(nothing)"


@contextmanager
def worker_pool(
    system: System, endpoint: dict[str, Any], log: Path, *names: str
) -> Iterator[WorkerPool]:
    """Run workers with these names while the body runs."""
    workers = WorkerPool(log)
    try:
        for name in names:
            workers.start_worker(name, system, endpoint)
        yield workers
    finally:
        workers.stop()
