"""A run of a pipeline as a command: its record, its Spark, its signals, its end."""

from __future__ import annotations

import os
import socket
import sys
import time
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

import typer

from pydanube.declarations.pure.parameters import option_text
from pydanube.declarations.pure.problems import InvalidDeclaration
from pydanube.model.errors import BrokerError
from pydanube_cli.invocation.error_report import SIGNAL_EXIT_CODE
from pydanube_cli.invocation.exit_codes import exit_code_of
from pydanube_cli.invocation.interruption import Interrupted
from pydanube_cli.presentation.output import print_note
from pydanube_spark.pipelines.broker_checks import NoBrokerAnswers
from pydanube_spark.pipelines.pure.progress import RunState, RunStatus
from pydanube_spark.pipelines.pure.run_records import RunRecord
from pydanube_spark.pipelines.run_directory import Entry, run_directory
from pydanube_spark.pipelines.state import StateDirectory, process_start_time, utc_text
from pydanube_spark.pipelines.stop_requests import StopRequest, signals_to

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pydanube_spark.commands.pipeline_process import RunRequest
    from pydanube_spark.pipelines.display import Display
    from pydanube_spark.pipelines.loading import Pipeline
    from pydanube_spark.pipelines.running import ChangedTables

EXIT_FAILED = 1
BROKER_WAIT_S = 5.0
"""How long a run waits for brokers, which may be restarting."""
POLL_INTERVAL_S = 0.25
"""How often a run that waits looks whether it is to stop."""


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
    with (
        pipeline.state.locked(f"{pipeline.name} cannot be run"),
        _recorded(pipeline),
        _metrics(request, pipeline),
    ):
        try:
            _run(pipeline, request)
        except NoBrokerAnswers as error:
            # Not as an invalid file: a broker may answer at the next start.
            print_note(f"error: {error}")
            raise typer.Exit(EXIT_FAILED) from None


def with_mirrored_tables(
    pipeline: Pipeline,
    reload: Callable[[Mapping[str, Sequence[str]]], Pipeline],
    *,
    is_run: bool = False,
) -> Pipeline:
    """
    Return *pipeline* with the tables that its mirrors have now, from *reload*.

    A run remembers them for the other commands, and says what is new.

    Raises:
        InvalidDeclaration: A mirror has no table or too many, or no broker answers.
    """
    if not pipeline.spec.mirrors:
        return pipeline
    # Few pipelines have such mirrors.
    from pydanube import sync  # noqa: PLC0415
    from pydanube_spark.pipelines.table_discovery import (  # noqa: PLC0415
        discover_tables,
        remember_tables,
    )

    found = discover_tables(pipeline, partial(sync.connect, wait_s=BROKER_WAIT_S))
    # Tables that the pipeline cannot have must not be known to the next run.
    loaded = reload(found.tables)
    if is_run:
        for note in remember_tables(pipeline.state, found):
            print_note(f"{pipeline.name}: {note}")
    return loaded


def with_changed_tables(
    pipeline: Pipeline,
    reload: Callable[[Mapping[str, Sequence[str]]], Pipeline],
    wait_s: float = 0.0,
) -> ChangedTables | None:
    """
    Return the tables that the mirrors of *pipeline* have now, and it with them.

    None: they are as in the run, or a broker does not answer in *wait_s*, which may
    change.

    Raises:
        InvalidDeclaration: A mirror has too many, or two of one name.
    """
    if not pipeline.spec.mirrors:
        return None
    from pydanube import sync  # noqa: PLC0415
    from pydanube_spark.pipelines.running import ChangedTables  # noqa: PLC0415
    from pydanube_spark.pipelines.table_discovery import (  # noqa: PLC0415
        discover_tables,
    )

    try:
        found = discover_tables(pipeline, partial(sync.connect, wait_s=wait_s))
    except NoBrokerAnswers:
        return None
    known = pipeline.state.read_mirrored_tables()
    is_same = all(
        set(each) == set(known.get(name, ())) for name, each in found.tables.items()
    )
    if is_same:
        return None
    return ChangedTables(pipeline=reload(found.tables), found=found)


def run_to_end(
    pipeline: Pipeline,
    execute: Callable[[Pipeline], RunState | ChangedTables],
    begin_with: Callable[[ChangedTables], None],
    find_changed_tables: Callable[[Pipeline], ChangedTables | None],
    *,
    is_stop_requested: Callable[[], bool],
    wait: Callable[[float], None] = time.sleep,
) -> RunState:
    """
    Run *pipeline*, and again each time the tables of its mirrors have changed; return
    the last state.

    *execute* runs it once, and returns its last state or the tables of the next run.

    A run that cannot begin again, because a broker does not answer or a topic has gone
    meanwhile, is repeated as the retries of the pipeline say.

    Raises:
        InvalidDeclaration: The first run cannot begin, or a later one after all
            retries.
    """
    retries, failures, is_first = pipeline.spec.retries.policy, 0, True
    while True:
        changed: ChangedTables | None = None
        try:
            ended = execute(pipeline)
            if isinstance(ended, RunState):
                return ended
            changed, failures, is_first = ended, 0, False
        except BrokerError as error:
            failures += 1
            if is_first or not retries.allows(failures):
                raise
            problem = pipeline.redact(str(error))
            print_note(f"{pipeline.name} cannot begin again yet: {problem}")
            waits = max(1, round(retries.delay_s(failures) / POLL_INTERVAL_S))
            for _ in range(waits):
                if is_stop_requested():
                    return RunState.STOPPED
                wait(POLL_INTERVAL_S)
            # If this fails, the next run tells what is wrong.
            with suppress(BrokerError):
                changed = find_changed_tables(pipeline)
        if changed is not None:
            begin_with(changed)
            pipeline = changed.pipeline


@contextmanager
def _recorded(pipeline: Pipeline) -> Iterator[None]:
    """Keep the record of a run while the body runs, and where users find it."""
    state = pipeline.state
    state.clear_stop_request()
    record = RunRecord(
        pipeline=pipeline.name,
        file=str(pipeline.file),
        pid=os.getpid(),
        mark=process_start_time(os.getpid()),
        host=socket.gethostname(),
        since=utc_text(),
    )
    record.follow(state.read_record())
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
        record.end(code, utc_text())
        state.write_record(record)


@contextmanager
def _metrics(request: RunRequest, pipeline: Pipeline) -> Iterator[None]:
    """Serve the metrics of a run while the body runs, if an address is given."""
    own = pipeline.spec.metrics
    listen = request.metrics_listen or (None if own is None else own.listen)
    if listen is None:
        yield
        return
    from pydanube_spark.pipelines.metrics_server import (  # noqa: PLC0415  # Few runs do.
        serving_metrics,
    )

    with serving_metrics(listen, pipeline.state) as url:
        print_note(f"{pipeline.name}: metrics are at {url}")
        yield


def _run(pipeline: Pipeline, request: RunRequest) -> None:
    """
    Run *pipeline* of *request* in this process until it ends or is stopped.

    The run stops if the supervisor, which has started this process, has ended.

    Raises:
        InvalidDeclaration: The pipeline is invalid; nothing was started.
        Interrupted: A signal ended the run.
        typer.Exit: The run failed, and the error has been printed.
    """
    # Importing what a run needs takes a second.
    from pydanube_spark.pipelines.display import display_for  # noqa: PLC0415
    from pydanube_spark.pipelines.running import (  # noqa: PLC0415
        new_status,
        wait_for_leftover,
    )

    state = pipeline.state
    display = display_for(request.output_format, sys.stdout)
    stop_request = StopRequest(parent=request.supervisor)
    with signals_to(stop_request):
        wait_for_leftover(state)
        first_status = new_status(pipeline)
        state.write_status(first_status)
        with _recording_failure(state, first_status):
            pipeline = with_mirrored_tables(pipeline, request.load, is_run=True)
            state.write_graph(pipeline.graph_shown())
            check_brokers_of(pipeline, wait_s=BROKER_WAIT_S)
            display.say(f"{pipeline.name}: starting Spark")
            with (
                spark_for(pipeline, state.log_file) as session,
                signals_to(stop_request),
            ):
                last_state = run_to_end(
                    pipeline,
                    partial(_execute, session, display, stop_request, request.load),
                    partial(_begin_with, state),
                    partial(
                        with_changed_tables, reload=request.load, wait_s=BROKER_WAIT_S
                    ),
                    is_stop_requested=lambda: (
                        stop_request.number is not None or state.is_stop_requested()
                    ),
                )
                ended_by = stop_request.number
            found = state.read_status()
            if found is not None and found.state is not last_state:
                # It was stopped while it could not begin again.
                found.state = last_state
                state.write_status(found)
    if last_state is RunState.FAILED:
        found = state.read_status()
        print_note(f"error: {found.error if found else 'a query has failed'}")
        print_note(f"hint: the log of Spark is {state.log_file}")
        raise typer.Exit(EXIT_FAILED)
    if ended_by is not None:
        raise Interrupted(ended_by)
    display.say(f"{pipeline.name}: {last_state.value}")


def _execute(
    session: SparkSession,
    display: Display,
    stop_request: StopRequest,
    reload: Callable[[Mapping[str, Sequence[str]]], Pipeline],
    pipeline: Pipeline,
) -> RunState | ChangedTables:
    """
    Run *pipeline* once, and report its cost and its lineage.

    Return its last state, or the tables of the next run, which begins now.
    """
    from pydanube_spark.pipelines.lineage import lineage_of  # noqa: PLC0415
    from pydanube_spark.pipelines.running import PipelineRun  # noqa: PLC0415

    with lineage_of(pipeline) as lineage:
        run = PipelineRun(
            session,
            pipeline,
            display,
            stop_request=stop_request,
            find_changed_tables=partial(with_changed_tables, pipeline, reload),
            poll=lineage.poll if lineage is not None else None,
        )
        last_state = run.execute()
        if run.cost is not None:
            display.say(f"{pipeline.name}: {run.cost}")
        if lineage is not None:
            lineage.state, lineage.error = last_state, run.error
    if last_state is RunState.STARTING and run.changed is not None:
        return run.changed
    return last_state


def _begin_with(state: StateDirectory, changed: ChangedTables) -> None:
    """Remember the tables *changed* for the other commands, and say what is new."""
    from pydanube_spark.pipelines.table_discovery import (  # noqa: PLC0415
        remember_tables,
    )

    for note in remember_tables(state, changed.found):
        print_note(f"{changed.pipeline.name}: {note}")
    state.write_graph(changed.pipeline.graph_shown())


def check_brokers_of(pipeline: Pipeline, wait_s: float = 0.0) -> None:
    """
    Check the brokers of *pipeline* before Spark starts, which takes long.

    A broker that does not answer is asked again for *wait_s*.

    Raises:
        ModuleNotFoundError: Spark is not installed.
        InvalidDeclaration: A broker does not answer, or lacks a topic.
    """
    import pyspark  # noqa: F401, PLC0415

    from pydanube import sync  # noqa: PLC0415
    from pydanube_spark.pipelines.broker_checks import check_brokers  # noqa: PLC0415

    check_brokers(pipeline, partial(sync.connect, wait_s=wait_s))


@contextmanager
def _recording_failure(
    state: StateDirectory, first_status: RunStatus
) -> Iterator[None]:
    """Record the failure of a run that ends before it has started."""
    text = "it ended before it started"
    try:
        yield
    except InvalidDeclaration as invalid:
        text = str(invalid)
        raise
    finally:
        found = state.read_status() or first_status
        if not found.state.is_over:
            found.state, found.error = RunState.FAILED, text
            state.write_status(found)


@contextmanager
def spark_for(pipeline: Pipeline, log_file: Path) -> Iterator[SparkSession]:
    """
    Yield the Spark session that *pipeline* asks for.

    Raises:
        ModuleNotFoundError: Spark is not installed.
        typer.Exit: Spark cannot be started, or was lost; the error has been printed.
    """
    from pydanube_spark import JavaNotFound, session  # noqa: PLC0415
    from pydanube_spark.pipelines.spark_errors import (  # noqa: PLC0415
        SPARK_ERRORS,
        error_message,
    )

    options = pipeline.spec.spark
    log_file.parent.mkdir(parents=True, exist_ok=True)
    config = {
        # The progress of queries comes from these events; more than a hundred would be
        # slow to read.
        "spark.sql.streaming.numRecentProgressUpdates": "30",
        **{name: option_text(value) for name, value in options.settings.items()},
    }
    try:
        spark = session(
            f"danube pipeline {pipeline.name}",
            master=options.master,
            remote=options.remote,
            config=config,
            log_file=log_file,
        )
        try:
            yield spark
        finally:
            spark.stop()
    except (JavaNotFound, *SPARK_ERRORS) as error:
        print_note(f"error: {pipeline.redact(error_message(error))}")
        print_note(f"hint: the log of Spark is {log_file}")
        raise typer.Exit(EXIT_FAILED) from None
