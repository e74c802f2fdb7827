"""The connectors whose processes a console was given, asked while somebody looks."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from pydanube.aio.tasks import TaskScope
from pydanube_connect.status import ConnectorStatus
from pydanube_console.polling import Poller
from pydanube_console.pure.history import POINTS_MAX

FIRST_WAIT_S = 1.0
"""How long a page waits for the first answers; those that come later are shown then."""


class ConnectorProcess(Protocol):
    """A process that runs connectors; its calls block."""

    @property
    def url(self) -> str:
        """The address of its endpoint."""

    @property
    def token(self) -> str:
        """The token that changes need; empty: only the status can be read."""

    def statuses(self) -> list[ConnectorStatus]:
        """
        Return the status of its connectors.

        Raises:
            BrokerError: It does not answer.
        """

    def act(self, action: str, name: str) -> ConnectorStatus:
        """
        Pause, resume or restart the connector *name*.

        Raises:
            BrokerError: It refuses, or does not answer.
        """


FindConnectors = Callable[[], Sequence[ConnectorProcess]]
"""Returns the processes with connectors; it may block."""


@dataclass(slots=True)
class WatchedConnector:
    """The last status of a connector, and its latest rates."""

    status: ConnectorStatus
    rates: deque[float] = field(default_factory=lambda: deque(maxlen=POINTS_MAX))
    """Messages per second between two answers."""


class ProcessMonitor(Poller):
    """The connectors of one process."""

    def __init__(
        self,
        process: ConnectorProcess,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self.process = process
        self.connectors: dict[str, WatchedConnector] = {}
        """By name; the last ones that are known if the process does not answer."""
        self._clock = clock
        self._answered_at = 0.0

    async def take(self) -> None:
        """Ask for the status of each connector."""
        found = await asyncio.to_thread(self.process.statuses)
        before, now = self._answered_at, self._clock()
        self._answered_at = now
        known, self.connectors = self.connectors, {}
        for each in found:
            watched = known.get(each.connector)
            if watched is None:
                watched = WatchedConnector(each)
            else:
                # A process that was started again counts from 0.
                count = max(0, each.messages - watched.status.messages)
                watched.rates.append(count / max(now - before, 1e-3))
                watched.status = each
            self.connectors[each.connector] = watched

    async def act(self, action: str, name: str) -> None:
        """
        Pause, resume or restart the connector *name*, and ask for its status.

        Raises:
            BrokerError: The process refuses, or does not answer.
        """
        await asyncio.to_thread(self.process.act, action, name)
        await self.attempt()


class ConnectorMonitor(Poller):
    """The processes with connectors, which may begin and end while a console runs."""

    def __init__(self, find: FindConnectors | None, tasks: TaskScope) -> None:
        super().__init__()
        self.is_given = find is not None
        """Whether the console was told where connectors are."""
        self.processes: dict[str, ProcessMonitor] = {}
        """By URL."""
        self._find: FindConnectors = find or list
        self._tasks = tasks
        self._running: dict[str, asyncio.Task[None]] = {}

    async def take(self) -> None:
        """Find the processes."""
        found = {each.url: each for each in await asyncio.to_thread(self._find)}
        for url in self.processes.keys() - found.keys():
            del self.processes[url]
            self._running.pop(url).cancel()
        for url, each in found.items():
            if url in self.processes:
                # Another process may listen there now, with another token.
                self.processes[url].process = each
            else:
                monitor = self.processes[url] = ProcessMonitor(each)
                name = f"status of connectors at {url}"
                self._running[url] = self._tasks.run(monitor.run(), name)
                monitor.watch()

    def watch(self) -> None:
        """Find and ask the processes for some time."""
        super().watch()
        for each in self.processes.values():
            each.watch()

    async def answers(self) -> list[ProcessMonitor]:
        """Return the processes; the first answers are waited for, but not long."""
        await self.first()
        found = [self.processes[url] for url in sorted(self.processes)]
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_WAIT_S):
                for each in found:
                    await each.first()
        return found


def topics_of(processes: Iterable[ProcessMonitor]) -> set[str]:
    """Return the topics of all connectors of *processes*."""
    return {
        each.status.topic
        for process in processes
        for each in process.connectors.values()
    }
