"""
Runs of pipelines: in the foreground, in the background, and supervised.

A run holds the lock of the run and keeps its record.  It either runs the pipeline
itself, or it supervises workers: processes that run the pipeline once.  It supervises
if it is detached or submitted, or if the file has ``restart`` or ``schedule``.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NoReturn

import msgspec
import typer

from pydanube.cli.commands.pipeline_runs import (
    EXIT_FAILED,
    run_pipeline,
)
from pydanube.cli.declared_files import exit_on_problems
from pydanube.cli.error_report import SIGNAL_EXIT_CODE
from pydanube.cli.interruption import Interrupted
from pydanube.cli.output import OutputFormat, print_line, print_note
from pydanube.cli.pipeline_process import (
    Role,
    RunRequest,
    start_command,
    start_process,
)
from pydanube.declarations.sections import parse_duration
from pydanube.model.errors import BrokerError, TimedOut
from pydanube.pipelines.broker_checks import NoBrokerAnswers
from pydanube.pipelines.loading import Pipeline
from pydanube.pipelines.log_files import last_lines, rotate
from pydanube.pipelines.restarts import RestartRules
from pydanube.pipelines.run_directory import Entry, run_directory
from pydanube.pipelines.run_records import Phase, RunRecord
from pydanube.pipelines.schedules import parse_schedule
from pydanube.pipelines.state import StateDirectory, process_start_time
from pydanube.pipelines.stop_requests import StopRequest, signals_to
from pydanube.pipelines.supervising import Supervisor, iso, utc_now
from pydanube.servers.errors import exit_code_of

START_WAIT_S = 30.0
"""How long ``--detach`` waits until the process in the background has begun."""


def run_here(request: RunRequest) -> None:
    """
    Run as *request* says until the run ends.

    Raises:
        InvalidDeclaration: The pipeline is invalid; nothing was started.
        Conflict: The pipeline is already running.
        Interrupted: A signal ended the run.
        typer.Exit: The run failed, and the error has been printed.
    """
    pipeline = request.load()
    rules = rules_of(pipeline, is_once=request.is_once)
    is_supervised = (
        request.is_detached
        or bool(request.submit)
        or rules.policy is not None
        or rules.schedule is not None
    )
    state = pipeline.state
    with state.run_locked(f"{pipeline.name} cannot be run"):
        record = _new_record(pipeline, is_detached=request.is_detached)
        with (
            _alerts(pipeline),
            _recorded(state, record, pipeline),
            _metrics(request, pipeline),
        ):
            if is_supervised:
                _supervise(request, pipeline, record, rules)
            else:
                run_pipeline(
                    pipeline, request.output_format, supervisor=request.supervisor
                )


def run_supervised(request: RunRequest) -> None:
    """Run as the process in the background that ``start_detached`` has started."""
    with exit_on_problems(OutputFormat.TABLE):
        run_here(request)


def run_worker(request: RunRequest) -> None:
    """
    Run the pipeline once, in a process that a supervisor has started.

    Raises:
        typer.Exit: The run failed, and the error has been printed.
    """
    with exit_on_problems(OutputFormat.TABLE), _failing_without_a_broker():
        output = "log" if request.is_detached else request.output_format
        run_pipeline(request.load(), output, supervisor=request.supervisor)


def run_connector(request: RunRequest) -> None:
    """
    Run the pipeline of a connector once, for the process that runs connectors.

    Raises:
        Conflict: The pipeline is already running.
        typer.Exit: The run failed, and the error has been printed.
    """
    with exit_on_problems(OutputFormat.TABLE), _failing_without_a_broker():
        run_here(request)


@contextmanager
def _failing_without_a_broker() -> Iterator[None]:
    """Exit as after a failure if no broker answers: it may at the next start."""
    try:
        yield
    except NoBrokerAnswers as error:
        print_note(f"error: {error}")
        raise typer.Exit(EXIT_FAILED) from None


def start_detached(request: RunRequest) -> None:
    """
    Start the run of *request* in the background, and return when it has begun.

    Raises:
        InvalidDeclaration: The file is invalid.
        Conflict: The pipeline is already running.
        TimedOut: The process did not begin.
        typer.Exit: The process ended, and its last messages have been printed.
    """
    pipeline = request.load()
    state = pipeline.state
    with (
        state.run_locked(f"{pipeline.name} cannot be run"),
        state.locked(f"{pipeline.name} cannot be run"),
    ):
        rotate(state.run_log_file)
    with state.run_log_file.open("ab") as log:
        process = start_process(request, Role.SUPERVISOR, pipeline.name, log)
    give_up_at = time.monotonic() + START_WAIT_S
    while (record := state.read_record()) is None or record.pid != process.pid:
        code = process.poll()
        if code is not None:
            for line in last_lines(state.run_log_file, 10)[0]:
                print_note(line)
            raise typer.Exit(code if code > 0 else EXIT_FAILED)
        if time.monotonic() >= give_up_at:
            raise TimedOut(
                f"process {process.pid} has not begun after {START_WAIT_S:.0f} s; its "
                f"log is {state.run_log_file}"
            )
        time.sleep(0.05)
    print_line(
        f"{pipeline.name}: runs as process {process.pid}; 'danube pipeline logs "
        f"{pipeline.name} --follow' shows its log"
    )


def rules_of(pipeline: Pipeline, *, is_once: bool = False) -> RestartRules:
    """Return the restarts and the schedule of *pipeline*; none with *is_once*."""
    spec = pipeline.spec
    restart, schedule = spec.restart, spec.schedule
    if is_once or (restart is None and schedule is None):
        return RestartRules()
    return RestartRules(
        policy=None if restart is None else restart.policy,
        reset_after_s=0.0 if restart is None else parse_duration(restart.reset_after),
        schedule=None
        if schedule is None
        else parse_schedule(schedule.cron, schedule.timezone),
    )


def _supervise(
    request: RunRequest, pipeline: Pipeline, record: RunRecord, rules: RestartRules
) -> NoReturn:
    stop_request = StopRequest()
    with signals_to(stop_request):
        code = Supervisor(
            pipeline.state,
            record,
            rules,
            _starter(request, pipeline),
            stop_request=stop_request,
            say=partial(_say, is_logged=request.is_detached),
        ).run()
    if stop_request.number is not None:
        raise Interrupted(stop_request.number)
    raise typer.Exit(code if code >= 0 else SIGNAL_EXIT_CODE - code)


def _starter(
    request: RunRequest, pipeline: Pipeline
) -> Callable[[], subprocess.Popen[bytes]]:
    if request.submit:
        return lambda: start_command(request.submit, request.submit_environment)
    worker = msgspec.structs.replace(request, supervisor=os.getpid())
    return lambda: start_process(worker, Role.WORKER, pipeline.name)


def _say(text: str, *, is_logged: bool) -> None:
    print_line(f"{iso(utc_now())} {text}" if is_logged else text)


@contextmanager
def _recorded(
    state: StateDirectory, record: RunRecord, pipeline: Pipeline
) -> Iterator[None]:
    """Keep the record of a run while the body runs, and where users find it."""
    state.clear_stop_request()
    state.write_record(record)
    entry = Entry(
        pipeline=record.pipeline,
        file=record.file,
        state_directory=str(state.path.resolve()),
    )
    run_directory().add(entry)
    code = EXIT_FAILED
    try:
        yield
        code = 0
    except typer.Exit as end:
        code = end.exit_code
        raise
    except Interrupted as interrupted:
        code = SIGNAL_EXIT_CODE + interrupted.number
        raise
    except BrokerError as error:
        code = exit_code_of(error)
        raise
    finally:
        if record.starts == 0:
            record.exit_code = code
            record.last_success = iso(utc_now()) if code == 0 else record.last_success
        record.phase, record.ended = Phase.ENDED, iso(utc_now())
        record.next_start = None
        state.write_record(record)


@contextmanager
def _alerts(pipeline: Pipeline) -> Iterator[None]:
    """Send the alerts of a run, also that it has failed, if the file has any."""
    if pipeline.spec.alerts is None:
        yield
        return
    from pydanube.pipelines.alerting import (  # noqa: PLC0415  # Few runs do.
        sending_alerts,
    )

    with sending_alerts(pipeline):
        yield


@contextmanager
def _metrics(request: RunRequest, pipeline: Pipeline) -> Iterator[None]:
    """Serve the metrics of a run while the body runs, if an address is given."""
    own = pipeline.spec.metrics
    listen = request.metrics_listen or (None if own is None else own.listen)
    if listen is None:
        yield
        return
    from pydanube.pipelines.metrics_server import (  # noqa: PLC0415  # Few runs do.
        serving_metrics,
    )

    with serving_metrics(listen, pipeline.state) as url:
        print_note(f"{pipeline.name}: metrics are at {url}")
        yield


def _new_record(pipeline: Pipeline, *, is_detached: bool) -> RunRecord:
    state = pipeline.state
    last = state.read_record()
    log_file = state.run_log_file if is_detached else state.log_file
    return RunRecord(
        pipeline=pipeline.name,
        file=str(pipeline.file),
        pid=os.getpid(),
        mark=process_start_time(os.getpid()),
        host=socket.gethostname(),
        since=iso(utc_now()),
        log_file=str(Path(log_file).resolve()),
        is_detached=is_detached,
        last_success=None if last is None else last.last_success,
    )
