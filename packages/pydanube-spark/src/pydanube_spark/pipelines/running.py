"""
A run of a pipeline with all its queries.

A run ends when all queries are done, when it is asked to stop, or when a query has
failed and has no retries left.  Running micro-batches are finished first, and the next
run continues after them.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from pydanube.model.errors import BrokerError, Conflict
from pydanube_spark.pipelines.building import Query
from pydanube_spark.pipelines.display import Display
from pydanube_spark.pipelines.fan_out import share_queries
from pydanube_spark.pipelines.loading import Pipeline
from pydanube_spark.pipelines.log_files import rotate
from pydanube_spark.pipelines.progress_reporting import (
    ProgressReporter,
    slowest_positions,
)
from pydanube_spark.pipelines.pure.mirrors import sink_name
from pydanube_spark.pipelines.pure.progress import QueryState, RunState, RunStatus
from pydanube_spark.pipelines.queries import RunningQuery, StreamQuery, TableWrite
from pydanube_spark.pipelines.schema_changes import with_columns_of
from pydanube_spark.pipelines.spark_errors import SPARK_ERRORS
from pydanube_spark.pipelines.starting_offsets import (
    fix_starting_offsets,
    read_starting_offsets,
)
from pydanube_spark.pipelines.state import (
    StateDirectory,
    is_alive,
    process_start_time,
    utc_text,
)
from pydanube_spark.pipelines.stop_requests import StopRequest
from pydanube_spark.pipelines.table_discovery import DiscoveredTables
from pydanube_spark.pipelines.validation import validate

POLL_INTERVAL_S = 0.25
COST_INTERVAL_S = 10.0
"""How often a run asks Spark what its tasks have taken."""
START_WAIT_MAX_S = 10.0
"""How long a query waits at most for the one before it to start."""
TABLES_INTERVAL_S = 60.0
"""How often a run that does not end asks which tables its mirrors have."""
LEFTOVER_WAIT_S = 30.0
"""How long to wait for the Spark process of a killed run to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedTables:
    """The tables that the mirrors of a pipeline have now."""

    pipeline: Pipeline
    """The pipeline with these tables."""
    found: DiscoveredTables


class StaggeredStart:
    """
    Starts the queries of a run one after another, also when they are retried.

    Each query starts Python processes, and Spark gives up if one takes more than ten
    seconds.  On a busy machine those of many queries at the same time would.
    """

    def __init__(self, queries: Sequence[RunningQuery]) -> None:
        self._waiting = deque(queries)
        self._started: RunningQuery | None = None
        self._next_at = 0.0

    def poll(self, now: float) -> None:
        """Start the next queries, unless the last one is still starting."""
        while self._waiting and self._is_free(now):
            query = self._waiting.popleft()
            self._take(query, now)
            query.start()

    def admits(self, query: RunningQuery, now: float) -> bool:
        """Return whether *query* may be retried now, unless another one starts."""
        is_admitted = not self._waiting and self._is_free(now)
        if is_admitted:
            self._take(query, now)
        return is_admitted

    def _is_free(self, now: float) -> bool:
        last = self._started
        return last is None or not last.is_starting or now >= self._next_at

    def _take(self, query: RunningQuery, now: float) -> None:
        self._started, self._next_at = query, now + START_WAIT_MAX_S

    def cancel(self) -> None:
        """Stop the queries that have not started."""
        while self._waiting:
            self._waiting.popleft().stop()


class PipelineRun:
    """One run in an existing Spark session."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        display: Display,
        *,
        stop_request: StopRequest | None = None,
        wait: Callable[[float], None] = time.sleep,
        find_changed_tables: Callable[[], ChangedTables | None] = lambda: None,
        tables_interval_s: float = TABLES_INTERVAL_S,
        poll: Callable[[float], None] | None = None,
    ) -> None:
        """
        Prepare the run; the caller holds the lock of the state directory.

        *find_changed_tables* returns the tables that the mirrors have now, if they are
        others.  A run that does not end by itself calls it every *tables_interval_s*,
        and when a query has failed.  *poll* is called with the time of the monotonic
        clock, in each turn of the run, and may take seconds.
        """
        self._spark = spark
        self._pipeline = pipeline
        self._state = pipeline.state
        self._display = display
        self._stop_request = stop_request or StopRequest()
        self._wait = wait
        self._queries: list[RunningQuery] = []
        self._evolved: dict[str, Pipeline] = {}
        """The pipelines from which queries with new columns were built."""
        self._start = StaggeredStart(())
        self._is_stopping = False
        self._find_changed_tables = find_changed_tables
        self._tables_interval_s = tables_interval_s
        self._poll = poll or (lambda _: None)
        self._tables_due: float | None = None
        """When to look for other tables next; None: not in this run."""
        self._failures = 0
        self.changed: ChangedTables | None = None
        """The tables of the next run, which have been checked."""
        self._status = new_status(pipeline)
        self._status.jvm = _jvm_of(spark)
        self._core_seconds_before = _core_seconds(spark)
        self._cost_due = 0.0

    @property
    def error(self) -> str | None:
        """Return the error with which the run has failed."""
        return self._status.error

    @property
    def cost(self) -> str | None:
        """Return what the run has cost as a sentence, if it is known."""
        rows, seconds = self._status.rows, self._status.core_seconds
        if seconds is None or not rows:
            return None
        found = f"{rows:,} rows took {seconds:,.1f} s of Spark's cores"
        each = self._status.core_seconds_per_million_rows
        return found if each is None else f"{found}, {each:,.1f} s for a million"

    def execute(self) -> RunState:
        """
        Run the pipeline to its end, and return its last state.

        The state ``STARTING`` says that the queries were stopped because the tables of
        mirrors have changed, and that the next run, with *changed*, begins now.

        Raises:
            InvalidDeclaration: The pipeline is invalid; no query was started.
            BrokerError: A broker cannot be reached.
        """
        try:
            self._save_status(RunState.STARTING)
            known = read_starting_offsets(self._state.checkpoints)
            queries = validate(self._spark, self._pipeline, known, is_run=True)
            starts = fix_starting_offsets(self._pipeline)
            if starts != known:
                queries = validate(self._spark, self._pipeline, starts, is_run=True)
            self._queries = [
                StreamQuery(query, self._pipeline, self._evolve)
                if query.is_stream
                else TableWrite(query, self._pipeline, self._evolve)
                for query in share_queries(
                    queries, self._pipeline.spec, self._state.checkpoints
                )
            ]
            self._start = StaggeredStart(self._queries)
            if any(each.is_stream and not each.trigger.ends for each in queries):
                self._tables_due = time.monotonic() + self._tables_interval_s
            self._display.begin()
            try:
                with ProgressReporter(self._pipeline) as reporter:
                    return self._watch(reporter)
            finally:
                for each in self._queries:
                    each.stop()
                self._display.end()
        except BaseException as error:
            if not self._status.state.is_over:
                text = str(error) or type(error).__name__
                self._status.error = self._pipeline.redact(text)
                self._save_status(RunState.FAILED)
            raise

    def _evolve(self, name: str, error: BaseException) -> Query | None:
        """Return the query *name* with new columns, if that is what *error* needs."""
        evolved = with_columns_of(self._evolved.get(name, self._pipeline), error)
        if evolved is None:
            return None
        pipeline, note = evolved
        starts = read_starting_offsets(self._state.checkpoints)
        queries = validate(self._spark, pipeline, starts, is_run=True)
        shared = share_queries(queries, pipeline.spec, self._state.checkpoints)
        found = next((each for each in shared if each.name == name), None)
        if found is not None:
            self._evolved[name] = pipeline
            self._display.say(f"{name}: {note}")
        return found

    def _watch(self, reporter: ProgressReporter) -> RunState:
        while True:
            now = time.monotonic()
            self._poll_stop_requests()
            self._poll_tables(now)
            self._start.poll(now)
            for query in self._queries:
                if not query.is_due(now) or self._start.admits(query, now):
                    query.poll(now)
            states = [query.progress.state for query in self._queries]
            if QueryState.FAILED in states:
                self._stop("a query has failed")
            self._show()
            self._poll(now)
            streams = [each for each in self._queries if isinstance(each, StreamQuery)]
            reporter.update(slowest_positions(each.progress for each in streams))
            if all(state.is_over for state in states):
                return self._end(states)
            self._wait(POLL_INTERVAL_S)

    def _poll_stop_requests(self) -> None:
        self._stop_request.poll()
        if self._stop_request.is_immediate:
            for query in self._queries:
                query.stop()
        elif self._stop_request.number is not None:
            self._stop(f"received {signal.Signals(self._stop_request.number).name}")
        elif not self._is_stopping and self._state.is_stop_requested():
            self._stop("stop was requested")

    def _poll_tables(self, now: float) -> None:
        """Stop the queries if mirrors have other tables with which they can go on."""
        if self._is_stopping or self._tables_due is None:
            return
        # The topic of a query that fails may be gone.
        failures = sum(each.progress.failures for each in self._queries)
        if now < self._tables_due and failures == self._failures:
            return
        self._failures = failures
        try:
            found = self._find_changed_tables()
            if found is None:
                self._status.tables_problem = None
            else:
                # A table that cannot be mirrored must not end the others.
                starts = read_starting_offsets(self._state.checkpoints)
                validate(self._spark, found.pipeline, starts)
                self.changed = found
                self._stop("the tables of mirrors have changed")
        except (BrokerError, *SPARK_ERRORS) as error:
            problem = self._pipeline.redact(str(error))
            if problem != self._status.tables_problem:
                self._display.say(f"other tables of mirrors have to wait: {problem}")
            self._status.tables_problem = problem
        self._tables_due = time.monotonic() + self._tables_interval_s

    def _stop(self, why: str) -> None:
        if self._is_stopping:
            return
        self._is_stopping = True
        self._start.cancel()
        if not all(query.progress.state.is_over for query in self._queries):
            self._display.say(f"{why}: finishing the running micro-batches")
        for query in self._queries:
            query.request_stop()

    def _show(self) -> None:
        rotate(self._state.log_file)
        progress = [query.progress for query in self._queries]
        self._display.show(progress)
        self._status.queries = progress
        if (now := time.monotonic()) >= self._cost_due:
            self._cost_due = now + COST_INTERVAL_S
            self._take_cost()
        self._save_status(RunState.STOPPING if self._is_stopping else RunState.RUNNING)

    def _take_cost(self) -> None:
        now, before = _core_seconds(self._spark), self._core_seconds_before
        if now is not None and before is not None:
            self._status.core_seconds = now - before

    def _end(self, states: list[QueryState]) -> RunState:
        self._take_cost()
        if QueryState.FAILED in states:
            failed = self._queries[states.index(QueryState.FAILED)].progress
            self._status.error = f"{failed.name}: {failed.error}"
            state = RunState.FAILED
        elif QueryState.STOPPED in states:
            is_asked = (
                self._stop_request.number is not None or self._state.is_stop_requested()
            )
            begins_again = self.changed is not None and not is_asked
            state = RunState.STARTING if begins_again else RunState.STOPPED
        else:
            state = RunState.DONE
        self._save_status(state)
        return state

    def _save_status(self, state: RunState) -> None:
        self._status.state = state
        self._status.updated = utc_text()
        self._state.write_status(self._status)


def new_status(pipeline: Pipeline) -> RunStatus:
    """Return the status of a run of *pipeline* that starts now in this process."""
    return RunStatus(
        pipeline=pipeline.name,
        not_mirrored=tables_not_mirrored(pipeline),
        file=str(pipeline.file),
        pid=os.getpid(),
        mark=process_start_time(os.getpid()),
        host=socket.gethostname(),
        since=utc_text(),
        updated=utc_text(),
    )


def tables_not_mirrored(pipeline: Pipeline) -> list[str]:
    """
    Return the tables that mirrors of *pipeline* had in an earlier run, by sink.

    Those that a mirror excludes are left out.
    """
    spec, directory = pipeline.spec, pipeline.state.checkpoints
    if not spec.mirrors or not directory.is_dir():
        return []
    prefixes = tuple(f"{name}_" for name in spec.mirrors)
    excluded = {
        sink_name(name, table)
        for name, mirror in spec.mirrors.items()
        for table in mirror.exclude
    }
    names = sorted(path.name for path in directory.iterdir() if path.is_dir())
    return [
        name
        for name in names
        if name.startswith(prefixes)
        and "." not in name
        and name not in spec.sinks
        and name not in excluded
    ]


def wait_for_leftover(
    state: StateDirectory,
    *,
    clock: Callable[[], float] = time.monotonic,
    wait: Callable[[float], None] = time.sleep,
) -> None:
    """
    Wait until the Spark process of an earlier run has ended.

    It outlives a killed run for a moment and may still be writing.

    Raises:
        Conflict: It has not ended in time.
    """
    status = state.read_status()
    leftover = None if status is None or status.state.is_over else status.jvm
    give_up_at = clock() + LEFTOVER_WAIT_S
    while leftover is not None and is_alive(leftover):
        if clock() >= give_up_at:
            raise Conflict(
                f"the Spark process {leftover[0]} of an earlier run is still running "
                f"after {LEFTOVER_WAIT_S:.0f} s; end it, and try again"
            )
        wait(0.1)


def _core_seconds(spark: Any) -> float | None:
    """
    Return the time that the tasks of a session have taken; None if it is not known.

    Spark Connect does not tell, nor does a Spark that has ended, whose queries have a
    better error.
    """
    context = getattr(spark, "_sc", None)
    if context is None:
        return None
    try:
        # Lost executors count, too.
        found: Any = context._jsc.sc().statusStore().executorList(False)  # noqa: SLF001
        total = sum(found.apply(at).totalDuration() for at in range(found.size()))
    except SPARK_ERRORS:
        return None
    return float(total) / 1000


def _jvm_of(spark: Any) -> tuple[int, str] | None:
    """Return the pid and start time of Spark's process, if this process started it."""
    context = getattr(spark, "_sc", None)
    process: Any = getattr(getattr(context, "_gateway", None), "proc", None)
    mark = None if process is None else process_start_time(process.pid)
    return None if mark is None else (process.pid, mark)
