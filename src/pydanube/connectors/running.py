"""
Connectors side by side in one process, each for itself.

A connector that fails is opened again after a pause; the others do not notice.  Each
has a connection to its broker.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from typing import Any

from pydanube.aio.tasks import task_scope
from pydanube.client.client import connect
from pydanube.connectors.connector import Sink, Source
from pydanube.connectors.failures import error_line, is_transient
from pydanube.connectors.loading import DeclaredConnector
from pydanube.connectors.sink_run import SinkRun, wait_until
from pydanube.connectors.source_run import SourceRun
from pydanube.connectors.status import ConnectorStatus, State

log = logging.getLogger("pydanube.connectors")

CONNECT_WAIT_S = 5.0
"""How long a connector waits for its broker before it counts as a failure."""

Report = Callable[[ConnectorStatus], None]


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
    stop = stop or asyncio.Event()
    runs = [_Run(each, report) for each in connectors]
    async with task_scope() as tasks:
        running = [tasks.start(each.supervise(stop)) for each in runs]
        tasks.run(_report_regularly(runs, interval_s))
        if running:
            await asyncio.wait(running)
        for each in running:
            await each
    return [each.status for each in runs]


class _Run:
    """A connector that is opened again when it fails."""

    def __init__(self, declared: DeclaredConnector, report: Report) -> None:
        self._declared = declared
        self._report = report
        self._reported: tuple[Any, ...] = ()
        self.status = ConnectorStatus(
            connector=declared.name,
            kind=declared.spec.kind,
            topic=declared.spec.topic,
        )

    async def supervise(self, stop: asyncio.Event) -> None:
        """Run the connector until it ends, fails for good or is stopped."""
        policy = self._declared.spec.retries.policy
        status = self.status
        failures = 0
        while not stop.is_set():
            batches = status.batches
            try:
                await self._run_once(stop)
            except Exception as error:  # One connector may fail alone.
                failures = 1 if status.batches > batches else failures + 1
                status.error = self._declared.redact(error_line(error))
                if not is_transient(error) or not policy.allows(failures):
                    log.debug("%s has failed", status.connector, exc_info=error)
                    self._change(State.FAILED)
                    return
                status.retries += 1
                self._change(State.RETRYING)
                pause_s = policy.delay_s(failures, random.random)
                await wait_until(stop, pause_s)
            else:
                if not stop.is_set():
                    self._change(State.FINISHED)
                    return
        self._change(State.STOPPED)

    def report_changes(self) -> None:
        """Report the status if it has changed since the last time."""
        status = self.status
        facts = (status.state, status.messages, status.error, status.retries)
        if facts != self._reported:
            self._reported = facts
            self._report(status)

    def _change(self, state: State) -> None:
        self.status.state = state
        self.report_changes()

    async def _run_once(self, stop: asyncio.Event) -> None:
        declared = self._declared
        connector = declared.kind(declared.options)
        async with connect(declared.broker, wait_s=CONNECT_WAIT_S) as client:
            if isinstance(connector, Source):
                reading = SourceRun(
                    client, declared, connector, self.status, self._change
                )
                await reading.run(stop)
            else:
                assert isinstance(connector, Sink)
                writing = SinkRun(
                    *(client, declared, connector, self.status, self._change),
                    random=random.random,
                )
                await writing.run(stop)


async def _report_regularly(runs: Sequence[_Run], interval_s: float) -> None:
    while True:
        await asyncio.sleep(interval_s)
        for each in runs:
            each.report_changes()
