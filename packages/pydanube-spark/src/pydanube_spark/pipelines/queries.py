"""
The queries of a run.

``StreamQuery`` is a streaming query of Spark; ``TableWrite`` writes rows once in a run,
because none of their sources is a stream.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812

from pydanube.model.errors import BrokerError, InvalidConfig
from pydanube_spark.pipelines.batch_caching import Write, checked_first
from pydanube_spark.pipelines.building import Query
from pydanube_spark.pipelines.expectations import BROKEN
from pydanube_spark.pipelines.loading import Pipeline
from pydanube_spark.pipelines.pure import formats
from pydanube_spark.pipelines.pure.modes import mode_problem, write_mode
from pydanube_spark.pipelines.pure.progress import (
    QueryProgress,
    QueryState,
    key_of,
    unseen,
)
from pydanube_spark.pipelines.pure.spec import Mode, Sink, TriggerKind
from pydanube_spark.pipelines.spark_errors import (
    SPARK_ERRORS,
    error_message,
    is_slow_start,
)
from pydanube_spark.pipelines.write_numbers import take_number
from pydanube_spark.pure.sink_options import APP_ID
from pydanube_spark.reader.decoding import NEWER_VERSION

_STARTING = ("Initializing", "Getting offsets")
"""How the status of a query begins before its source has answered."""


Evolve = Callable[[str, BaseException], Query | None]
"""Returns a query with the columns that an error says it lacks; None: other errors."""


class _RetriedQuery:
    """The progress of a query, and its retries."""

    def __init__(
        self, query: Query, pipeline: Pipeline, evolve: Evolve = lambda *_: None
    ) -> None:
        """
        Prepare *query*.

        *evolve* returns the query of a name again after an error about new columns.
        """
        self.progress = QueryProgress(name=query.name, writes_to=query.writes_to)
        self._query = query
        self._evolve = partial(evolve, query.name)
        self._retries = pipeline.spec.retries.policy
        self._slow_start_retries = pipeline.spec.spark.slow_starts.policy
        self._redact = pipeline.redact
        self._failures_in_a_row = 0
        self._slow_starts = 0
        """The failures of slow starts, which use up no retries."""
        self._evolved_for: set[str] = set()
        """The errors since the last progress after which the query got new columns."""
        self._retry_at: float | None = None
        self._is_stop_requested = False

    def start(self) -> None:
        """Start the query, or continue it after a failure."""
        raise NotImplementedError

    def _fail(self, error: BaseException, now: float | None) -> None:
        """Record *error*, and plan a retry; without *now* there is none."""
        message = error_message(error)
        # An error that comes again needs something else than a start with new columns.
        is_new = message not in self._evolved_for
        if is_new and now is not None and not self._is_stop_requested:
            evolved = None
            try:
                evolved = self._evolve(error)
            except (BrokerError, *SPARK_ERRORS) as failure:
                error = failure
            if evolved is not None:
                self._evolved_for.add(message)
                self._query = evolved
                self.progress.state = QueryState.RETRYING
                self._retry_at = now
                return
        is_slow = is_slow_start(error)
        if is_slow:
            self._slow_starts += 1
        else:
            self._failures_in_a_row += 1
        self.progress.failures += 1
        self.progress.error = self._redact(error_message(error))
        self.progress.last_error_time = time.time_ns() // 1000
        retries, count = self._retries, self._failures_in_a_row
        if is_slow:
            retries, count = self._slow_start_retries, self._slow_starts
        # The same rows would break the expectation, or have new columns, again.
        is_final = any(each in self.progress.error for each in (BROKEN, NEWER_VERSION))
        may_retry = not is_final and retries.allows(count)
        if not may_retry or now is None or self._is_stop_requested:
            self.progress.state = QueryState.FAILED
            return
        self.progress.state = QueryState.RETRYING
        self._retry_at = now + retries.delay_s(count)

    def is_due(self, now: float) -> bool:
        """Return whether ``poll`` will retry the query."""
        is_waiting = self.progress.state is QueryState.RETRYING
        return (
            is_waiting
            and not self._is_stop_requested
            and self._retry_at is not None
            and now >= self._retry_at
        )

    def _retry_if_due(self, now: float) -> None:
        if self._is_stop_requested:
            self.progress.state = QueryState.STOPPED
        elif self.is_due(now):
            self._retry_at = None
            self.start()


class StreamQuery(_RetriedQuery):
    """A streaming query."""

    def __init__(
        self, query: Query, pipeline: Pipeline, evolve: Evolve = lambda *_: None
    ) -> None:
        super().__init__(query, pipeline, evolve)
        self._name = f"{pipeline.name}.{query.name}"
        self._checkpoint = pipeline.state.checkpoints / query.name
        self._handle: Any = None
        self._last_report: tuple[str, int, str] | None = None
        self._is_unfinished = False
        """Whether the micro-batch that ran at the stop request may still be running."""

    def start(self) -> None:
        """Start the query, or resume it from its checkpoint."""
        self.progress.state = QueryState.RUNNING
        try:
            self._handle = self._start()
        except (BrokerError, *SPARK_ERRORS) as error:
            self._on_failure(error, None)

    @property
    def is_starting(self) -> bool:
        """Return whether Spark still starts processes for the query."""
        handle = self._handle
        if handle is None or not handle.isActive:
            return False
        return str(handle.status["message"]).startswith(_STARTING)

    def poll(self, now: float) -> None:
        """Update the progress; restart the query if a retry is due."""
        if self.progress.state is QueryState.RETRYING:
            self._retry_if_due(now)
        if self.progress.state is not QueryState.RUNNING or self._handle is None:
            return
        is_active = self._handle.isActive
        if self._take_reports():
            self._failures_in_a_row = self._slow_starts = 0
            self._evolved_for.clear()
            self._is_unfinished = False
        if not is_active:
            self._on_end(now)
        elif self._is_stop_requested and not (self._is_unfinished and self._is_busy()):
            self.stop()

    def request_stop(self) -> None:
        """Request a stop after the running micro-batch; ``poll`` performs it."""
        if not self._is_stop_requested and self._handle is not None:
            self._is_unfinished = True
        self._is_stop_requested = True

    def stop(self) -> None:
        """Stop the query immediately."""
        if self.progress.state.is_over:
            return
        if self._handle is not None:
            try:
                self._handle.stop()
                self._take_reports()
            except SPARK_ERRORS as error:
                self.progress.error = self._redact(error_message(error))
        self.progress.state = QueryState.STOPPED

    def _start(self) -> Any:
        sink, options = self._query.sink, self._query.options
        mode, checkpoint = sink.mode.value, self._checkpoint
        writer = (
            self._query.frame.writeStream.queryName(self._name)
            .outputMode(mode)
            .option("checkpointLocation", str(checkpoint))
        )
        trigger = self._query.trigger
        if trigger.kind is TriggerKind.AVAILABLE_NOW:
            writer = writer.trigger(availableNow=True)
        elif trigger.kind is TriggerKind.EVERY:
            interval = f"{trigger.every_s * 1000:.0f} milliseconds"
            writer = writer.trigger(processingTime=interval)
        if self._query.function is not None:
            write: Write = self._query.function
            write = checked_first(write) if self._query.checked_steps else write
            return writer.foreachBatch(write).start()
        name = sink.format_name
        if not formats.is_plain_stream(name, mode):
            write = batch_writer(name, sink.mode, options, checkpoint)
            # The tasks of such a format write rows that stay if the micro-batch fails.
            is_checked = self._query.checked_steps and name in formats.BATCH_ONLY
            write = checked_first(write) if is_checked else write
            return writer.foreachBatch(write).start()
        if sink.partition_by:
            writer = writer.partitionBy(*sink.partition_by)
        return writer.format(name).options(**options).start()

    def _take_reports(self) -> bool:
        """Return whether a micro-batch was completed since the last call."""
        last = self._handle.lastProgress
        if last is None or key_of(last) == self._last_report:
            return False
        reports = unseen(self._handle.recentProgress, self._last_report)
        self._last_report = key_of(last)
        return self.progress.on_reports(reports)

    def _is_busy(self) -> bool:
        status = self._handle.status
        return bool(status["isTriggerActive"] and status["isDataAvailable"])

    def _on_end(self, now: float) -> None:
        error = self._handle.exception()
        if error is not None:
            self._on_failure(error, now)
            return
        is_complete = self._query.trigger.ends and not self._is_stop_requested
        self.progress.state = QueryState.DONE if is_complete else QueryState.STOPPED

    def _on_failure(self, error: BaseException, now: float | None) -> None:
        self._handle = None
        self._last_report = None
        self._fail(error, now)


class TableWrite(_RetriedQuery):
    """
    A write of bounded rows, in its own thread.

    A repeated write has the same number, so sinks of this package write it once.
    """

    def __init__(
        self, query: Query, pipeline: Pipeline, evolve: Evolve = lambda *_: None
    ) -> None:
        super().__init__(query, pipeline, evolve)
        self._checkpoints = pipeline.state.checkpoints
        self._identity: dict[str, str] | None = None
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    @property
    def is_starting(self) -> bool:
        return False

    def start(self) -> None:
        self.progress.state = QueryState.RUNNING
        self._error = None
        self._thread = threading.Thread(target=self._write, name=self._query.name)
        self._thread.start()

    def poll(self, now: float) -> None:
        if self.progress.state is QueryState.RETRYING:
            self._retry_if_due(now)
        thread = self._thread
        if self.progress.state is not QueryState.RUNNING or thread is None:
            return
        if thread.is_alive():
            return
        thread.join()
        if self._error is None:
            self.progress.state = QueryState.DONE
        else:
            self._fail(self._error, now if may_repeat(self._query.sink) else None)

    def request_stop(self) -> None:
        """Prevent retries; a running write is finished, as a micro-batch is."""
        self._is_stop_requested = True

    def stop(self) -> None:
        # A write cannot be cancelled; it is lost with the session.
        if not self.progress.state.is_over:
            self.progress.state = QueryState.STOPPED

    def _write(self) -> None:
        query = self._query
        is_checked = bool(query.checked_steps)
        try:
            # Sets the session of this thread, where Spark looks up formats.
            query.frame.sparkSession.createDataFrame([], "nothing int")
            if query.function is not None:
                write: Write = query.function
                (checked_first(write) if is_checked else write)(query.frame, 0)
                self._take_broken()
                return
            observed = Observation()
            frame = query.frame.observe(observed, F.count(F.lit(1)).alias("rows"))
            # Spark's own formats remove old rows before they compute the new ones;
            # ours change nothing if a batch write fails.
            is_safe = query.sink.format_name in formats.OURS
            write = (
                self._save if is_safe or not is_checked else checked_first(self._save)
            )
            write(frame, 0)
            self.progress.rows = observed.get["rows"]
            self._take_broken()
        except Exception as error:  # noqa: BLE001  # This query fails alone.
            self._error = error

    def _save(self, frame: DataFrame, _number: int) -> None:
        query = self._query
        if self._identity is None:
            self._identity = self._take_identity()
        writer = frame.write.format(query.sink.format_name)
        writer = writer.mode(query.sink.mode.value)
        writer = writer.options(**query.options, **self._identity)
        if query.sink.partition_by:
            writer = writer.partitionBy(*query.sink.partition_by)
        writer.save()

    def _take_broken(self) -> None:
        self.progress.broken = {}
        for step, counts in self._query.observations.items():
            self.progress.add_broken(step, counts.get)

    def _take_identity(self) -> dict[str, str]:
        """Return the options that identify this write, unless the user has set them."""
        own = {name.lower() for name in self._query.options}
        name = self._query.sink.format_name
        if name not in formats.OURS or any(map(APP_ID.has_name, own)):
            return {}
        found = take_number(self._checkpoints, self._query.name)
        return {"appId": found.app, "batchId": str(found.number)}


def may_repeat(sink: Sink) -> bool:
    """
    Return whether a failed batch write to *sink* can be repeated.

    Spark's formats may have written a part of the rows, which a repeated append would
    write again.
    """
    is_complete = sink.mode is Mode.OVERWRITE
    return sink.python is not None or sink.format_name in formats.OURS or is_complete


RunningQuery = StreamQuery | TableWrite
"""One query of a run."""


def batch_writer(
    name: str,
    mode: Mode,
    options: Mapping[str, str],
    checkpoint: Path,
    *,
    app_suffix: str = "",
) -> Write:
    """
    Return a function that writes a micro-batch as a table, with its batch id.

    In the mode ``complete`` each micro-batch replaces all rows.  Several sinks of one
    query have different values of *app_suffix*, because they may share a table.

    Raises:
        InvalidConfig: The sink would add changed rows beside the old ones.
    """
    found = mode_problem(name, mode, options)
    if found is not None:
        raise InvalidConfig(f"mode {mode.value}: {found}")
    names = {each.lower() for each in options}
    given = dict(options)
    if mode is Mode.COMPLETE and "truncate" not in names:
        # The table keeps its indexes and privileges if the database can truncate it.
        given["truncate"] = "true"

    def write(batch: DataFrame, batch_id: int) -> None:
        more: dict[str, str] = {}
        if name in formats.OURS:
            more["batchId"] = str(batch_id)
            if not any(map(APP_ID.has_name, names)):
                more["appId"] = query_id(checkpoint) + app_suffix
        writer = batch.write.format(name).mode(write_mode(mode))
        writer.options(**given, **more).save()

    return write


def query_id(checkpoint: Path) -> str:
    """Return the id that a query keeps with its checkpoint."""
    return str(json.loads((checkpoint / "metadata").read_text("utf-8"))["id"])
