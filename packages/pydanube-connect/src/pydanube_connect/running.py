"""
Connectors side by side in one process, each for itself.

A connector that fails is opened again after a pause; the others do not notice.  Each
has a connection to its broker.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pydanube.aio.tasks import task_scope
from pydanube.client.client import connect
from pydanube.client.connections.telemetry import Telemetry
from pydanube.declarations.pure.sections import parse_duration
from pydanube.model.errors import Conflict, NotFound
from pydanube.model.suggestions import did_you_mean
from pydanube_connect.connector import Sink, Source
from pydanube_connect.loading import DeclaredConnector
from pydanube_connect.pure.failures import ConnectorFailed, error_line, is_transient
from pydanube_connect.pure.retry_after import delay_asked_s
from pydanube_connect.run_log import LogLine, RunLog, current_connector
from pydanube_connect.sink_run import SinkRun, wait_until
from pydanube_connect.sinks.spark import SparkSink
from pydanube_connect.source_run import SourceRun
from pydanube_connect.status import ConnectorStatus, State

log = logging.getLogger("pydanube_connect")

CONNECT_WAIT_S = 5.0
"""How long a connector waits for its broker before it counts as a failure."""

Report = Callable[[ConnectorStatus], None]


@dataclass(frozen=True, slots=True)
class RunParts:
    """A connector whose kind is a Spark format, and the state of its run."""

    declared: DeclaredConnector
    status: ConnectorStatus
    change: Callable[[State], None]
    """Called with the new state of the connector."""
    keep_line: Callable[[str], None]
    """Adds a line to those that 'danube connect logs' shows."""
    stop: asyncio.Event


RunSpark = Callable[[RunParts], Awaitable[None]]
"""Run a connector whose kind is a Spark format until ``stop`` is set."""


async def refuse_spark(parts: RunParts) -> None:
    """
    Run no Spark.

    Raises:
        ConnectorFailed: Always.
    """
    raise ConnectorFailed(
        f"Spark writes to {parts.status.kind}: use 'danube connect run'"
    )


async def run_connectors(
    connectors: Sequence[DeclaredConnector],
    report: Report,
    *,
    stop: asyncio.Event | None = None,
    interval_s: float = 10.0,
) -> list[ConnectorStatus]:
    """
    Run *connectors* until all have ended, or until *stop* is set; return their status.

    After *stop*, each publishes or writes what it has in hand.

    Args:
        connectors: The connectors; their names differ.
        report: Called with the status of a connector when its state changes, and each
            *interval_s* if its counts have changed.
        stop: Set it to stop all of them.
        interval_s: See *report*.
    """
    runs = ConnectorRuns(connectors, report, interval_s=interval_s)
    await runs.run(stop or asyncio.Event())
    return runs.statuses


class ConnectorRuns:
    """Connectors that run side by side, and can be paused and started again."""

    def __init__(
        self,
        connectors: Sequence[DeclaredConnector],
        report: Report,
        *,
        interval_s: float = 10.0,
        run_spark: RunSpark = refuse_spark,
        telemetry: Telemetry | None = None,
        is_open: bool = False,
    ) -> None:
        """
        Prepare them; see ``run_connectors``.

        *telemetry* traces their batches.  With *is_open*, ``run`` waits for more of
        them until it is stopped.
        """
        self._log = RunLog({})
        self._report = report
        self._run_spark = run_spark
        self._telemetry = telemetry
        self._is_open = is_open
        self._runs: dict[str, _Run] = {}
        self._running: dict[str, asyncio.Future[None]] = {}
        self._interval_s = interval_s
        self._has_changed = asyncio.Event()
        for each in connectors:
            self.add(each)

    @property
    def statuses(self) -> list[ConnectorStatus]:
        """The status of each, which changes while they run."""
        return [each.status for each in self._runs.values()]

    async def run(self, stop: asyncio.Event) -> None:
        """Run all of them until each has ended, or until *stop* is set."""
        log.addFilter(self._log)
        try:
            await self._run(stop)
        finally:
            log.removeFilter(self._log)

    async def _run(self, stop: asyncio.Event) -> None:
        async with task_scope() as tasks:
            tasks.run(self._stop_after(stop))
            tasks.run(_report_regularly(self._runs, self._interval_s))
            running = self._running
            while True:
                self._has_changed.clear()
                for name, each in self._runs.items():
                    if each.is_due:
                        running[name] = tasks.start(each.supervise())
                pending = [each for each in running.values() if not each.done()]
                if not pending and (stop.is_set() or not self._is_open):
                    break
                changed = tasks.start(self._has_changed.wait())
                waiting: list[asyncio.Future[Any]] = [*pending, changed]
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
            for task in running.values():
                await task

    def add(self, declared: DeclaredConnector) -> None:
        """Run another connector, of another name than those that there are."""
        assert declared.name not in self._runs
        self._log.open(declared.name, declared.redact)
        self._runs[declared.name] = _Run(
            declared, self._report, self._log, self._run_spark, self._telemetry
        )
        self._has_changed.set()

    async def remove(self, name: str) -> None:
        """
        Stop the connector *name* after what it has in hand, and forget it.

        Cancellation: It is stopped, and not forgotten.
        """
        run = self._runs[name]
        run.stop()
        task = self._running.get(name)
        if task is not None:
            await asyncio.wait([task])
            del self._running[name]
        del self._runs[name]
        self._log.close(name)

    def find_status(self, name: str) -> ConnectorStatus | None:
        """Return the status of the connector *name*, or None if there is none."""
        run = self._runs.get(name)
        return None if run is None else run.status

    def log_lines(self, name: str, after: int = 0) -> list[LogLine]:
        """
        Return the last lines of the connector *name*, after the number *after*.

        Raises:
            NotFound: There is no such connector.
        """
        self._find(name)
        return self._log.lines_of(name, after)

    async def _stop_after(self, stop: asyncio.Event) -> None:
        await stop.wait()
        for each in self._runs.values():
            each.stop()
        self._has_changed.set()

    def pause(self, name: str) -> ConnectorStatus:
        """
        Pause the connector *name* after what it has in hand, and close its connections.

        Raises:
            NotFound: There is no such connector.
            Conflict: It has ended.
        """
        run = self._find(name)
        run.pause()
        return run.status

    def resume(self, name: str) -> ConnectorStatus:
        """
        Run the paused connector *name* from where it stopped.

        Raises:
            NotFound: There is no such connector.
            Conflict: It has ended.
        """
        run = self._find(name)
        run.resume()
        return run.status

    def restart(self, name: str) -> ConnectorStatus:
        """
        Open the connector *name* anew, also if it has failed or finished.

        Raises:
            NotFound: There is no such connector.
        """
        run = self._find(name)
        run.restart()
        self._has_changed.set()
        return run.status

    def _find(self, name: str) -> _Run:
        if name not in self._runs:
            raise NotFound(
                f"there is no connector {name}{did_you_mean(name, self._runs)}"
            )
        return self._runs[name]


class _Run:
    """A connector that is opened again when it fails."""

    def __init__(
        self,
        declared: DeclaredConnector,
        report: Report,
        run_log: RunLog,
        run_spark: RunSpark,
        telemetry: Telemetry | None,
    ) -> None:
        self._log = run_log
        self._telemetry = telemetry
        self._run_spark = run_spark
        self._declared = declared
        self._report = report
        self._reported: tuple[Any, ...] = ()
        self.is_due = True
        """Whether ``supervise`` is to be called."""
        self._is_stopping = False
        self._is_paused = False
        # Ends what runs at the moment; the next round has a new one.
        self._halt = asyncio.Event()
        self.status = ConnectorStatus(
            connector=declared.name,
            kind=declared.spec.kind,
            topic=declared.spec.topic,
            unhealthy_after_s=parse_duration(declared.spec.unhealthy_after),
        )

    def stop(self) -> None:
        """End the connector for good."""
        self._is_stopping = True
        self._halt.set()

    def pause(self) -> None:
        """Pause it."""
        self._check_not_over()
        self._is_paused = True
        self._halt.set()

    def resume(self) -> None:
        """Run it again after ``pause``."""
        self._check_not_over()
        if self._is_paused:
            self.restart()

    def restart(self) -> None:
        """Open it anew."""
        if self._is_stopping:
            raise Conflict(f"{self._declared.name} is stopping")
        self._is_paused = False
        if self.status.state.is_over:
            self.is_due = True
        else:
            self._halt.set()

    def _check_not_over(self) -> None:
        if self.status.state.is_over and not self.is_due:
            raise Conflict(
                f"{self._declared.name} has {self.status.state.value}; 'danube connect "
                f"restart {self._declared.name}' runs it again"
            )

    async def supervise(self) -> None:
        """Run the connector until it ends, fails for good or is stopped."""
        self.is_due = False
        current_connector.set(self._declared.name)
        self.status.state = State.STARTING
        failures = 0
        while not self._is_stopping:
            halt = self._halt = asyncio.Event()
            if self._is_paused:
                self._change(State.PAUSED)
                await halt.wait()
                failures = 0
                continue
            batches = self.status.batches
            try:
                await self._run_once(halt)
            except Exception as error:  # One connector may fail alone.
                log.debug("%s has failed", self.status.connector, exc_info=error)
                failures = 1 if self.status.batches > batches else failures + 1
                if not await self._is_retried(error, failures, halt):
                    return
            else:
                if not halt.is_set():
                    self._change(State.FINISHED)
                    return
        self._change(State.STOPPED)

    async def _is_retried(
        self, error: Exception, failures: int, halt: asyncio.Event
    ) -> bool:
        """Note *error*, and return whether to run again, after a pause."""
        policy = self._declared.spec.retries.policy
        status = self.status
        status.error = self._declared.redact(error_line(error))
        if not is_transient(error) or not policy.allows(failures):
            self._change(State.FAILED)
            return False
        status.retries += 1
        self._change(State.RETRYING)
        delay_s = policy.delay_s(failures, random.random)
        await wait_until(halt, max(delay_s, delay_asked_s(error)))
        return True

    def report_changes(self) -> None:
        """Report the status if it has changed since the last time."""
        status = self.status
        facts = (
            status.state,
            status.error,
            status.retries,
            status.messages,
            status.dead_letters,
            status.refused,
            status.dropped,
        )
        if facts != self._reported:
            self._reported = facts
            self._report(status)

    def _change(self, state: State) -> None:
        self.status.enter(state, time.time_ns() // 1000)
        self._log.add(self._declared.name, self.status.summary())
        self.report_changes()

    async def _run_once(self, stop: asyncio.Event) -> None:
        declared = self._declared
        if issubclass(declared.kind, SparkSink):
            keep_line = partial(self._log.add, declared.name)
            await self._run_spark(
                RunParts(declared, self.status, self._change, keep_line, stop)
            )
            return
        connector = declared.make()
        async with connect(declared.broker, wait_s=CONNECT_WAIT_S) as client:
            if isinstance(connector, Source):
                reading = SourceRun(
                    client,
                    declared,
                    connector,
                    self.status,
                    self._change,
                    telemetry=self._telemetry,
                )
                await reading.run(stop)
            else:
                assert isinstance(connector, Sink)
                writing = SinkRun(
                    client,
                    declared,
                    connector,
                    self.status,
                    self._change,
                    random=random.random,
                    telemetry=self._telemetry,
                )
                await writing.run(stop)


async def _report_regularly(runs: Mapping[str, _Run], interval_s: float) -> None:
    while True:
        await asyncio.sleep(interval_s)
        for each in runs.values():
            each.report_changes()
