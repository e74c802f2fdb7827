"""
The runs of connectors whose kind is a Spark format.

Each is a pipeline in a process of its own, which the runs of connectors start again
when it fails.  'danube pipeline' finds it as any other.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from pydanube.aio.tasks import task_scope
from pydanube_connect.commands.connector_pipelines import TABLE, pipeline_of
from pydanube_connect.commands.connector_run import ConnectorRun
from pydanube_connect.pure.failures import ConnectorFailed, Transient
from pydanube_connect.running import RunParts
from pydanube_connect.status import ConnectorStatus, State
from pydanube_spark.commands.pipeline_process import start_process
from pydanube_spark.pipelines.log_files import follow, last_lines, rotate
from pydanube_spark.pipelines.pure.progress import QueryState, RunState, RunStatus
from pydanube_spark.pipelines.pure.run_records import EXIT_DONE, FINAL_EXITS
from pydanube_spark.pipelines.state import StateDirectory

PROGRAM = "pydanube_connect.commands.spark_program"
"""The module that such a process runs."""
POLL_S = 0.5
"""How often the process is asked for its status and its lines."""


async def run_spark(parts: RunParts, *, settings: Sequence[str]) -> None:
    """
    Run the pipeline of a connector until it ends, or until it is stopped.

    When it is stopped it completes its micro-batch.  *settings* are those of ``--set``.

    Cancellation: The process is killed; the next one continues after the last
        micro-batch that was written.

    Raises:
        Transient: The process failed, and another one may succeed.
        ConnectorFailed: It failed, and would do so again.
    """
    declared, stop = parts.declared, parts.stop
    state = pipeline_of(declared).state
    if state.is_locked():
        raise Transient(f"another process runs the pipeline {declared.name}")
    request = ConnectorRun(
        file=str(declared.file),
        connector=declared.name,
        settings=list(settings),
        output_format="log",
        supervisor=os.getpid(),
    )
    loop = asyncio.get_running_loop()

    def keep(line: str) -> None:
        loop.call_soon_threadsafe(parts.keep_line, line)

    state.path.mkdir(parents=True, exist_ok=True)
    rotate(state.run_log_file)
    _, begin = last_lines(state.run_log_file, 0)
    with state.run_log_file.open("ab") as output:
        process = start_process(PROGRAM, request, declared.name, output)
    try:
        async with task_scope() as tasks:
            lines = tasks.start(
                asyncio.to_thread(_keep_lines, state.run_log_file, begin, process, keep)
            )
            await _follow(process, state, parts)
            await lines
    finally:
        process.kill()
        process.wait()
    if stop.is_set() or process.returncode == EXIT_DONE:
        return
    found = state.read_status()
    text = f"the process of Spark ended with {process.returncode}"
    if found is not None and found.pid == process.pid and found.error:
        text = found.error
    elif last := last_lines(state.run_log_file, 1)[0]:
        text = last[0].removeprefix("error: ")
    is_final = process.returncode in FINAL_EXITS
    raise ConnectorFailed(text) if is_final else Transient(text)


async def _follow(
    process: subprocess.Popen[bytes], state: StateDirectory, parts: RunParts
) -> None:
    """Take the status of *process* until it ends; stop it with the connector."""
    counts = _Counts(parts.status)
    was_stopped = is_over = False
    shown: State | None = None
    while not is_over:
        is_over = process.poll() is not None
        found = state.read_status()
        if found is not None and found.pid == process.pid:
            counts.take(found)
            new = _state_of(found)
            if new is not None and new is not shown:
                shown = new
                parts.change(new)
        if parts.stop.is_set() and not was_stopped:
            process.terminate()
            was_stopped = True
        await asyncio.sleep(0 if is_over else POLL_S)


class _Counts:
    """The counts of a connector, to which those of its current process are added."""

    def __init__(self, status: ConnectorStatus) -> None:
        self._status = status
        self._messages = status.messages
        self._batches = status.batches

    def take(self, found: RunStatus) -> None:
        """Take the counts of the process."""
        for query in found.queries:
            if query.name == TABLE:
                self._status.messages = self._messages + query.rows
                self._status.batches = self._batches + query.batches
                self._status.last_batch_time = query.last_batch_time
                self._status.lag = query.lag
                self._status.error = query.error or self._status.error


def _state_of(found: RunStatus) -> State | None:
    if found.state is not RunState.RUNNING:
        return None
    is_retrying = any(each.state is QueryState.RETRYING for each in found.queries)
    return State.RETRYING if is_retrying else State.RUNNING


def _keep_lines(
    file: Path,
    begin: int,
    process: subprocess.Popen[bytes],
    keep: Callable[[str], object],
) -> None:
    """Pass on the lines that *process* adds to *file*, until it ends."""
    for line in follow(
        file,
        begin,
        is_over=lambda: process.poll() is not None,
        wait=partial(time.sleep, POLL_S),
    ):
        keep(line)
