"""`danube pipeline list`, `status`, `logs` and `stop`: the operation of runs."""

from __future__ import annotations

import os
import socket
import time
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer
from msgspec import to_builtins

from pydanube.declarations.pure.parameters import parse_set
from pydanube.model.errors import NotFound, TimedOut
from pydanube.model.positions import to_datetime
from pydanube.model.shown_text import printable
from pydanube_cli.administration.declared_files import exit_on_problems
from pydanube_cli.invocation.declaration import command
from pydanube_cli.presentation.output import (
    Columns,
    Fields,
    OutputFormat,
    Result,
    Table,
    print_line,
)
from pydanube_cli.presentation.quantities import parse_duration
from pydanube_spark.pipelines.loading import locate
from pydanube_spark.pipelines.log_files import follow as follow_log
from pydanube_spark.pipelines.log_files import last_lines
from pydanube_spark.pipelines.pure.progress import RunState
from pydanube_spark.pipelines.pure.run_records import KILLED
from pydanube_spark.pipelines.run_directory import run_directory
from pydanube_spark.pipelines.runs import Run
from pydanube_spark.pipelines.state import StateDirectory, kill, utc_text

POLL_INTERVAL_S = 0.1
KILL_WAIT_S = 10.0
"""How long 'stop' waits for the end of the processes that it has killed."""

Pipeline = Annotated[
    Path,
    typer.Argument(
        metavar="FILE|NAME",
        help="The pipeline file, or the name of a pipeline that was run.",
        show_default=False,
    ),
]

Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Set a parameter of the file, if its name or checkpoints.path has one; "
        "may be repeated.",
    ),
]

RUNS: Columns = {
    "Pipeline": "pipeline",
    "State": "state",
    "Since": "since",
    "Rows": "rows",
    "Lag": "lag",
    "Last batch": "last_batch",
    "Restarts": "restarts",
    "Last error": "last_error",
    "File": "file",
}


def add_to(app: typer.Typer) -> None:
    """Add the commands to *app*."""
    command(
        app,
        "danube pipeline list",
        "danube pipeline list --running --format json",
        name="list",
    )(list_runs)
    command(
        app,
        "danube pipeline status orders.yaml",
        "danube pipeline status orders --format json",
    )(status)
    command(
        app,
        "danube pipeline logs orders",
        "danube pipeline logs orders --follow",
        "danube pipeline logs orders --lines 1000",
    )(logs)
    command(
        app,
        "danube pipeline stop orders.yaml",
        "danube pipeline stop orders --timeout 30s",
    )(stop)


def list_runs(*, running: bool = False) -> Result:
    """
    List the pipelines that you have run on this machine, the latest first.

    A pipeline is listed as long as its state directory exists. The state 'died' means
    that its process was killed, or that the machine was restarted.

    Args:
        running: List only pipelines that are running.
    """
    entries = run_directory().entries()
    found = [Run.of(each.pipeline, each.state) for each in entries]
    rows = [
        _summary(run, entry.file)
        for run, entry in zip(found, entries, strict=True)
        if run.exists and (run.is_running or not running)
    ]
    return Result(rows, Table.of(rows, RUNS))


def status(file: Pipeline, *, settings: Set = None) -> Result:
    """
    Show the progress of a run, or how the last run ended.

    The exit code is 3 if the pipeline was never run.
    """
    run = find_run(file, settings)
    if not run.exists:
        raise NotFound(f"{run.name} was never run: {run.state.path} is empty")
    shown, record, found = run.shown, run.record, run.status
    parts: list[str | Fields | Table] = [Fields(_facts(run))]
    if shown == "died":
        parts.append(
            "Its process no longer exists; 'danube pipeline run' continues where it "
            "stopped."
        )
    if found is not None and found.queries:
        from pydanube_spark.pipelines.display import COLUMNS, cells_of  # noqa: PLC0415

        parts += ["", Table(COLUMNS, [cells_of(each) for each in found.queries])]
    facts: dict[str, Any] = {"pipeline": run.name}
    if found is not None:
        facts |= {name: getattr(found, name) for name in found.__struct_fields__}
    facts |= {"state": shown, "is_running": run.is_running}
    facts["run"] = None if record is None else to_builtins(record)
    return Result(facts, *parts)


def logs(
    file: Pipeline,
    *,
    settings: Set = None,
    lines: Annotated[int, typer.Option(min=0)] = 100,
    follow: bool = False,
) -> None:
    """
    Print the log of Spark and its workers, of the current or last run.

    The lines of 'danube pipeline run' itself are where the program that has started it
    keeps them: 'journalctl --unit NAME' with systemd, 'danube connect logs NAME' for a
    connector.

    Args:
        lines (-n COUNT): How many lines to print from the end of the log.
        follow (--follow -f): Print new lines as they are written, until the run ends.
    """
    run = find_run(file, settings)
    if not run.exists:
        raise NotFound(f"{run.name} was never run: {run.state.path} is empty")
    path = run.state.log_file
    found, position = last_lines(path, lines)
    added = follow_log(
        path,
        position,
        is_over=lambda: not follow or not run.state.is_locked(),
        wait=lambda: time.sleep(POLL_INTERVAL_S),
    )
    for line in chain(found, added):
        print_line(printable(line))


def stop(file: Pipeline, *, settings: Set = None, timeout: str = "10m") -> None:
    """
    End a run after its current micro-batches, and wait until it has ended.

    A run that has not ended after --timeout is killed. This is safe: the next run
    repeats the interrupted micro-batches. systemd and Kubernetes start a killed run
    again, but not one that has ended by itself. The exit code is 3 if the pipeline is
    not running, and 9 if it cannot be killed, because it runs on another machine.

    Args:
        timeout (DURATION): How long to wait until the run is killed; 0s requests the
            stop without waiting.
    """
    timeout_s = parse_duration(timeout)
    run = find_run(file, settings)
    if not run.is_running:
        raise NotFound(f"{run.name} is not running")
    run.state.request_stop()
    if not timeout_s:
        print_line("asked to stop")
        return
    if _wait_for_end(run.state, timeout_s):
        print_line(f"{run.name} has stopped")
        return
    if not _kill_processes(run.state):
        raise TimedOut(
            f"{run.name} is still running; it stops after its current micro-batches"
        )
    print_line(f"{run.name} was killed, because it had not stopped after {timeout}")


def find_run(file: Path, settings: list[str] | None) -> Run:
    """
    Return the current or last run of a pipeline, by its file or its name.

    Raises:
        NotFound: There is neither such a file nor such a pipeline.
        Conflict: Several pipelines have this name.
    """
    is_name = file.name == str(file) and not file.suffix and not file.exists()
    if is_name:
        entry = run_directory().find(str(file))
        return Run.of(entry.pipeline, entry.state)
    with exit_on_problems(OutputFormat.TABLE):
        name, state = locate(file, parse_set(settings or ()), os.environ)
    return Run.of(name, state)


def _summary(run: Run, file: str) -> dict[str, Any]:
    record, found = run.record, run.status
    queries = [] if found is None else found.queries
    lags = [each.lag for each in queries if each.lag is not None]
    batches = [each.last_batch_time for each in queries if each.last_batch_time]
    return {
        "pipeline": run.name,
        "state": run.shown,
        "file": file,
        "since": record and record.since,
        "ended": record and record.ended,
        "pid": record and record.pid,
        "host": record and record.host,
        "rows": 0 if found is None else found.rows,
        "core_seconds": found and found.core_seconds,
        "core_seconds_per_million_rows": found and found.core_seconds_per_million_rows,
        "lag": sum(lags) if lags else None,
        "last_batch": to_datetime(max(batches)).isoformat(timespec="seconds")
        if batches
        else None,
        "restarts": record and record.restarts,
        "exit_code": record and record.exit_code,
        "last_error": run.last_error,
        "log_file": str(run.state.log_file),
        "state_directory": str(run.state.path),
    }


def _facts(run: Run) -> list[tuple[str, object]]:
    record, found = run.record, run.status
    facts: list[tuple[str, object]] = [("Pipeline", run.name), ("State", run.shown)]
    if record is not None:
        facts += [
            ("Process", f"{record.pid} on {record.host}"),
            ("Since", record.since),
            ("Updated", found and found.updated),
            ("Core seconds", found and _rounded(found.core_seconds)),
            (
                "Core seconds for a million rows",
                found and _rounded(found.core_seconds_per_million_rows),
            ),
            ("Restarts", record.restarts),
            ("Last exit code", record.exit_code),
            ("Last success", record.last_success),
            ("Ended", record.ended),
        ]
    if found is not None and found.not_mirrored:
        facts.append(("Not mirrored any more", ", ".join(found.not_mirrored)))
    if found is not None and found.tables_problem is not None:
        facts.append(("Tables that wait", found.tables_problem))
    return [*facts, ("Log", run.state.log_file), ("Last error", run.last_error)]


def _rounded(number: float | None) -> str | None:
    return None if number is None else f"{number:,.1f}"


def _wait_for_end(state: StateDirectory, timeout_s: float) -> bool:
    """Return whether the run has ended within *timeout_s*."""
    give_up_at = time.monotonic() + timeout_s
    while state.is_locked():
        if time.monotonic() >= give_up_at:
            return False
        time.sleep(POLL_INTERVAL_S)
    return True


def _kill_processes(state: StateDirectory) -> bool:
    """Kill the processes of a run, and return whether it has ended."""
    record, found = state.read_record(), state.read_status()
    if record is None or record.mark is None or record.host != socket.gethostname():
        return False
    is_killed = kill((record.pid, record.mark))
    if found is not None:
        kill(found.jvm)
    if not is_killed or not _wait_for_end(state, KILL_WAIT_S):
        return False
    record.end(KILLED, utc_text())
    state.write_record(record)
    if found is not None and not found.state.is_over:
        found.state = RunState.STOPPED
        found.error = "killed, because it had not stopped in time"
        state.write_status(found)
    return True
