"""
A worker: it runs its share of the connectors that a broker stores.

All workers consume one topic, ``/system/connectors``.  A shared subscription shows who
is there, from which each worker derives its share (``pure/assignment.py``).  For each
connector there is an exclusive subscription, and its consumer is the lock: only one
worker can hold it, and the broker gives it to another one when the connection of its
holder ends.  A worker that loses a lock stops the connector.  Until it has noticed, the
fences of connectors apply as between any two processes: of two runs of a source with
positions only one commits, and a sink's subscription has one active consumer.

A connector acts for the author of its definition.  Before it runs, and every few
seconds while it does, the worker asks the broker whether both of them may use its
topics.  It asks for a topic that a record chooses when one does, and not again for as
many seconds.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydanube.aio.tasks import TaskScope, task_scope
from pydanube.client.client import Client, connect
from pydanube.declarations.pure.problems import InvalidDeclaration, Problem
from pydanube.model.errors import (
    BrokerError,
    Conflict,
    ConsumerBusy,
    NotFound,
    PermissionDenied,
    SubscriptionInUse,
    SubscriptionNotFound,
)
from pydanube.model.shown_text import excerpt
from pydanube.model.stored_connectors import (
    ERROR_CHARACTERS_MAX,
    REPORT_INTERVAL_S,
    WORKERS_TOPIC,
    ConnectorReport,
    StoredConnector,
)
from pydanube.security.permissions import Permission
from pydanube_connect.definitions import (
    access_to_subject,
    accesses_of,
    accesses_to_publish,
    load_definition,
)
from pydanube_connect.loading import DeclaredConnector
from pydanube_connect.publishing import ensure_topic
from pydanube_connect.pure.assignment import ABSENT_S, Assignment
from pydanube_connect.pure.failures import error_line
from pydanube_connect.pure.permits import Permits
from pydanube_connect.running import ConnectorRuns
from pydanube_connect.sink_run import wait_until
from pydanube_connect.status import State

log = logging.getLogger("pydanube_connect")

POLL_S = 1.0
"""How often a worker looks at the definitions and at the other workers."""
RECHECK_S = 10.0
"""How often it checks again what a connector needs, and for how long a permit holds."""
CONNECT_WAIT_S = 30.0
"""How long a worker waits for its broker at the start."""
PRESENCE = "workers"
"""The subscription of all workers."""
LOCK_PREFIX = "run-"
"""The subscription that is the lock of a connector is this and its name."""


class ConnectorWorker:
    """A worker; ``run`` runs it."""

    def __init__(
        self,
        name: str,
        runs: ConnectorRuns,
        *,
        broker: str,
        directory: Path,
        environment: Mapping[str, str],
        poll_s: float = POLL_S,
        recheck_s: float = RECHECK_S,
        absent_s: float = ABSENT_S,
    ) -> None:
        """
        Create a worker of the broker at the address *broker*.

        Args:
            name: Its name, which no other worker has.
            runs: Runs the connectors; it must be open for more of them.
            broker: The address of the broker.
            directory: The directory to which paths in definitions refer.
            environment: The secrets.
            poll_s: How often it looks at the definitions.
            recheck_s: How often it checks again what a connector needs.
            absent_s: After which time it takes over from a worker that is missing.
        """
        self._name = name
        self._runs = runs
        self._broker = broker
        self._directory = directory
        self._environment = environment
        self._poll_s = poll_s
        self._recheck_s = recheck_s
        self._assignment = Assignment(name, absent_s)
        self.is_enforced = True
        """Whether the broker enforces its access policy."""
        self._shares: dict[str, _Share] = {}
        self._reported: dict[str, tuple[ConnectorReport, float]] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """
        Run the share of the worker until *stop* is set.

        Raises:
            BrokerError: The broker cannot be reached at the start, or the worker may
                not consume the topic of workers.
        """
        async with connect(self._broker, wait_s=CONNECT_WAIT_S) as client:
            await ensure_topic(client, WORKERS_TOPIC)
            async with (
                client.consumer(
                    WORKERS_TOPIC, subscription=PRESENCE, type="shared", name=self._name
                ) as presence,
                task_scope() as tasks,
            ):
                # The topic has no messages: this ends only if the worker may not
                # consume it any more, or another one has its name.
                ending = tasks.start(presence.receive())
                has_removed = False
                while not stop.is_set():
                    if ending.done():
                        await ending
                    try:
                        await self._look(client, tasks)
                        await self._report(client)
                        if not has_removed:
                            await _remove_old_locks(client)
                            has_removed = True
                    except BrokerError as error:
                        # What runs goes on: the locks decide.
                        log.warning("the worker cannot ask its broker: %s", error)
                    await wait_until(stop, self._poll_s)
                for share in self._shares.values():
                    share.stop()
                for share in self._shares.values():
                    await share.ended.wait()
                with suppress(BrokerError):
                    await self._report(client)

    async def _look(self, client: Client, tasks: TaskScope) -> None:
        """Take over new connectors and changes, and give up what others should run."""
        self.is_enforced = (await client.security.who_am_i()).is_enforced
        presence = await client.subscriptions.describe(WORKERS_TOPIC, PRESENCE)
        now = asyncio.get_running_loop().time()
        self._assignment.on_workers(presence.consumers, now)
        stored = {
            each.name: each for each in (await client.connectors.list()).connectors
        }
        for name, share in list(self._shares.items()):
            if share.ended.is_set():
                del self._shares[name]
                self._reported.pop(name, None)
                if name not in stored:
                    with suppress(BrokerError):
                        lock = LOCK_PREFIX + name
                        await client.subscriptions.delete(WORKERS_TOPIC, lock)
            elif name not in stored or not self._assignment.owns(name):
                share.stop()
        for name, each in stored.items():
            if name in self._shares:
                self._shares[name].take(each)
            elif self._assignment.owns(name):
                share = self._shares[name] = _Share(self, client, each)
                tasks.run(share.run(), f"run the connector {name}")

    async def _report(self, client: Client) -> None:
        now = asyncio.get_running_loop().time()
        due = {}
        for name, share in self._shares.items():
            report = share.report()
            if report is None:
                continue
            last, sent_at = self._reported.get(name, (None, 0.0))
            has_changed = last is None or _shown(last) != _shown(report)
            if has_changed or now - sent_at >= REPORT_INTERVAL_S:
                due[name] = report
        if due:
            await client.connectors.report(list(due.values()))
            self._reported |= {name: (each, now) for name, each in due.items()}

    def load(self, stored: StoredConnector) -> DeclaredConnector:
        """
        Return the connector that *stored* defines.

        Raises:
            InvalidDeclaration: It cannot run here.
        """
        return load_definition(stored, self._directory, self._environment, self._broker)

    @property
    def name(self) -> str:
        return self._name

    @property
    def runs(self) -> ConnectorRuns:
        return self._runs

    @property
    def retry_s(self) -> float:
        return self._poll_s

    @property
    def recheck_s(self) -> float:
        return self._recheck_s


async def _remove_old_locks(client: Client) -> None:
    """Remove the locks of connectors that were deleted while no worker had them."""
    described = await client.topics.describe(WORKERS_TOPIC)
    stored = {each.name for each in (await client.connectors.list()).connectors}
    for each in described.subscriptions:
        name = each.subscription.removeprefix(LOCK_PREFIX)
        if name not in {each.subscription, *stored}:
            with suppress(SubscriptionInUse, SubscriptionNotFound):
                await client.subscriptions.delete(WORKERS_TOPIC, each.subscription)


class _Share:
    """A stored connector that a worker has, and its lock."""

    def __init__(
        self, worker: ConnectorWorker, client: Client, stored: StoredConnector
    ) -> None:
        self.ended = asyncio.Event()
        """Whether it runs no more, and the lock is given back."""
        self._worker = worker
        self._client = client
        self._stored = stored
        self._is_stopping = asyncio.Event()
        self._is_held = False
        # What it runs at the moment: the revision and the restarts.
        self._running: StoredConnector | None = None
        self._refusal = ""
        self._refused_at = 0
        self._declared: DeclaredConnector | None = None
        self._permits = Permits(worker.recheck_s)
        self._has_changed = asyncio.Event()

    def stop(self) -> None:
        """Stop the connector after what it has in hand, and give the lock back."""
        self._is_stopping.set()
        self._has_changed.set()

    def take(self, stored: StoredConnector) -> None:
        """Take over changes of the definition."""
        before, self._stored = self._stored, stored
        if replace(before, report=None) != replace(stored, report=None):
            self._has_changed.set()

    def report(self) -> ConnectorReport | None:
        """Return what the broker is told; None: another worker has the lock."""
        if not self._is_held:
            return None
        stored = self._stored
        report = ConnectorReport(
            connector=stored.name,
            worker=self._worker.name,
            revision=stored.revision,
            state=State.STARTING.value,
        )
        if self._refusal:
            return replace(
                report,
                state=State.FAILED.value,
                error=excerpt(self._refusal, ERROR_CHARACTERS_MAX),
                changed_at=self._refused_at,
            )
        status = self._worker.runs.find_status(stored.name)
        if status is None:
            return report
        return replace(
            report,
            revision=stored.revision
            if self._running is None
            else self._running.revision,
            state=status.state.value,
            messages=status.messages,
            lag=status.lag,
            retries=status.retries,
            error=excerpt(status.error or "", ERROR_CHARACTERS_MAX),
            is_degraded=status.is_degraded(time.time_ns() // 1000),
            changed_at=status.changed_at,
        )

    async def run(self) -> None:
        """Take the lock, and run the connector while it is held."""
        try:
            while not self._is_stopping.is_set():
                try:
                    await self._hold()
                except ConsumerBusy:
                    # The other worker has not stopped it yet, or sees other workers.
                    pass
                except BrokerError as error:
                    name = self._stored.name
                    log.warning("the lock of %s is lost: %s", name, error)
                await wait_until(self._is_stopping, self._worker.retry_s)
        finally:
            self.ended.set()

    async def _hold(self) -> None:
        opening = self._client.consumer(
            WORKERS_TOPIC,
            subscription=LOCK_PREFIX + self._stored.name,
            type="exclusive",
            name=self._worker.name,
        )
        async with opening as lock, task_scope() as tasks:
            self._is_held = True
            # The topic has no messages: this returns never, and raises if the lock is
            # lost.
            losing = tasks.start(lock.receive())
            try:
                while not self._is_stopping.is_set() and not losing.done():
                    self._has_changed.clear()
                    await self._apply()
                    changed = tasks.start(self._has_changed.wait())
                    waiting: list[asyncio.Future[Any]] = [losing, changed]
                    has_decided = self._running is not None or self._refusal
                    await asyncio.wait(
                        waiting,
                        timeout=self._worker.recheck_s
                        if has_decided
                        else self._worker.retry_s,
                        return_when=asyncio.FIRST_COMPLETED,
                    )
                    changed.cancel()
            finally:
                await self._end()
                self._is_held = False
            if losing.done():
                await losing

    async def _apply(self) -> None:
        """Run the connector as its definition says now, if it may run."""
        stored, running = self._stored, self._running
        if running is not None and _written(running) != _written(stored):
            await self._end()
            running = None
        try:
            declared = None if running is not None else await self._load(stored)
            await self._check()
        except (BrokerError, InvalidDeclaration) as error:
            if isinstance(error, PermissionDenied | InvalidDeclaration | NotFound):
                await self._end()
                self._refuse(_reason_of(error))
            return
        self._refusal = ""
        runs, name = self._worker.runs, stored.name
        if declared is not None:
            runs.add(replace(declared, permit=self._permit))
            if stored.is_paused:
                runs.pause(name)
        elif running is not None and stored.is_paused:
            with suppress(Conflict):  # It has ended.
                runs.pause(name)
        elif running is not None and (
            running.is_paused or stored.restarts != running.restarts
        ):
            runs.restart(name)
        self._running = stored

    async def _load(self, stored: StoredConnector) -> DeclaredConnector:
        described = await self._client.connectors.describe(stored.name)
        try:
            declared = await asyncio.to_thread(self._worker.load, described)
        except InvalidDeclaration:
            raise
        except Exception as error:  # A class of the user may raise any.
            reason = Problem("", f"it cannot be loaded: {error_line(error)}")
            raise InvalidDeclaration(stored.name, [reason]) from error
        self._declared = declared
        self._permits.clear()
        return declared

    async def _check(self) -> None:
        """
        Raise if the connector may not use its topics.

        Raises:
            PermissionDenied: The worker or the author may not.
        """
        declared = self._declared
        if not self._worker.is_enforced or declared is None:
            return
        await self._require_all(accesses_of(declared))
        await self._require_subject(declared.spec.topic)

    async def _permit(self, topic: str) -> None:
        """
        Raise if the connector may not publish to a topic that a record has chosen.

        Raises:
            PermissionDenied: The worker or the author may not.
        """
        now = asyncio.get_running_loop().time()
        if not self._worker.is_enforced or self._permits.has(topic, now):
            return
        assert self._declared is not None
        await self._require_all(accesses_to_publish(self._declared.spec, topic))
        await self._require_subject(topic)
        self._permits.add(topic, now)

    async def _require_all(self, accesses: Sequence[tuple[Permission, str]]) -> None:
        for permission, topic in accesses:
            await self._require(permission, topic)
        for topic in dict.fromkeys(topic for _, topic in accesses):
            if not await self._client.topics.partitions(topic):
                await self._require(Permission.CREATE, topic)

    async def _require_subject(self, topic: str) -> None:
        assert self._declared is not None
        access = await access_to_subject(self._client, self._declared, topic)
        if access is not None:
            await self._require(*access)

    async def _require(self, permission: Permission, resource: str) -> None:
        found = await self._client.security.check_access(
            permission.value, resource, connector=self._stored.name
        )
        if not found.allowed:
            raise PermissionDenied(
                f"the connector {self._stored.name} may not {permission.value} "
                f"{resource}: {found.rule}"
            )

    def _refuse(self, reason: str) -> None:
        if reason != self._refusal:
            self._refusal, self._refused_at = reason, time.time_ns() // 1000
            log.warning("%s cannot run: %s", self._stored.name, reason)

    async def _end(self) -> None:
        if self._running is not None:
            self._running = None
            await self._worker.runs.remove(self._stored.name)


def _written(stored: StoredConnector) -> tuple[int, int]:
    """Return what differs for another definition, also of a connector made anew."""
    return stored.revision, stored.changed_at


def _reason_of(error: Exception) -> str:
    if isinstance(error, InvalidDeclaration):
        return "; ".join(map(str, error.problems))
    return str(error)


def _shown(report: ConnectorReport) -> ConnectorReport:
    """Return the part of *report* whose changes are told at once."""
    return replace(report, messages=0, lag=None, retries=0)
