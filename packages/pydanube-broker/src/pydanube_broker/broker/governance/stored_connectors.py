"""
The definitions of connectors in the metadata store, and the reports of workers.

All brokers of a cluster follow the store.  The broker runs no connector: workers list
the definitions, run them with credentials of their own, and report.  A connector acts
for the author of its definition, so ``decide`` tells workers what that principal may do
now.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import msgspec

from pydanube.aio.tasks import TaskScope, task_scope
from pydanube.declarations.pure.literal_secrets import literal_secrets
from pydanube.declarations.pure.problems import dotted
from pydanube.model.errors import (
    AlreadyExists,
    Conflict,
    InvalidRequest,
    NotFound,
    QuotaExceeded,
)
from pydanube.model.names import TopicName, parse_client_name
from pydanube.model.shown_text import excerpt
from pydanube.model.stored_connectors import (
    CONNECTORS_MAX,
    DEFINITION_BYTES_MAX,
    ERROR_CHARACTERS_MAX,
    POSITIONS_SUFFIX,
    REPORTS_MAX,
    ConnectorHealth,
    ConnectorReport,
    StoredConnector,
)
from pydanube.security.permissions import Permission
from pydanube.security.policy import Decision, members_of
from pydanube.security.principals import Principal
from pydanube.security.resources import Resource
from pydanube_broker.broker.governance.access_control import AccessControl
from pydanube_broker.cluster.mirror import Mirror
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.records import ConnectorRecord, ConnectorReportRecord
from pydanube_broker.metadata.store import (
    OPERATIONS_MAX,
    Delete,
    MetadataStore,
    Operation,
    Put,
    Revision,
    retry_on_conflict,
    unchanged,
)

log = logging.getLogger(__name__)

COPY_S = 1.0
"""How long a change waits until this broker lists it; others list it soon."""
DEPTH_MAX = 50
"""How deep a definition is nested at most, as in a file."""
TEXT_CHARACTERS_MAX = 200
"""The longest kind of a connector, name of a worker or state."""


class _Head(msgspec.Struct, frozen=True):
    """The part of a definition that the broker knows."""

    kind: str
    topic: str


class StoredConnectors:
    """The stored connectors of a broker; ``open_stored_connectors`` opens them."""

    def __init__(
        self,
        store: MetadataStore,
        access: AccessControl,
        wall_clock_us: Callable[[], int],
        *,
        connectors_max: int = CONNECTORS_MAX,
    ) -> None:
        self._store = store
        self._access = access
        self._wall_clock_us = wall_clock_us
        self._connectors_max = connectors_max
        self._records = Mirror(keys.CONNECTORS)
        self._reports = Mirror(keys.CONNECTOR_REPORTS)
        self._has_changed = asyncio.Event()

    # Changes.

    async def set(
        self,
        name: str,
        topic: str,
        definition: str,
        author: Principal,
        *,
        expected_revision: int | None = None,
        is_paused: bool | None = None,
    ) -> int:
        """
        Store the definition of a connector, or change it; return its revision.

        With *is_paused*, it is paused or resumed in the same change.

        Durability: On return it is on disk.

        Raises:
            InvalidRequest: The definition is malformed, has a literal secret, or names
                another topic than *topic* or than before.
            Conflict: The connector has not the *expected_revision*.
            QuotaExceeded: There are too many connectors.
        """
        _check_name(name)
        _check_definition(name, topic, definition)
        key = keys.CONNECTORS.key(name)

        async def attempt() -> tuple[int, Revision]:
            stored = await self._store.get(key)
            before = None if stored is None else stored.value
            _check_expected(name, before, expected_revision)
            if before is None:
                if len(self._records.values) >= self._connectors_max:
                    raise QuotaExceeded(
                        f"there are {self._connectors_max} stored connectors, the most "
                        "allowed: delete some"
                    )
                before = ConnectorRecord(
                    definition="", revision=0, changed_at=0, author=author
                )
            elif (former := _head_of(before).topic) != topic:
                raise InvalidRequest(
                    f"the connector {name} has the topic {former}, and a connector "
                    "keeps its topic: delete it first, or choose another name"
                )
            record = msgspec.structs.replace(
                before,
                definition=definition,
                revision=before.revision + 1,
                changed_at=self._wall_clock_us(),
                author=replace(author, expires_at_s=None),
                is_paused=before.is_paused if is_paused is None else is_paused,
            )
            changes: list[Operation] = [Put(key, record)]
            if stored is None:
                # A worker may have reported in the moment of a deletion.
                changes.append(Delete(keys.CONNECTOR_REPORTS.key(name)))
            checks = [unchanged(key, stored)]
            return record.revision, await self._store.transaction(checks, changes)

        number, revision = await retry_on_conflict(attempt)
        await self._until(revision)
        return number

    async def delete(self, name: str, topic: str) -> None:
        """
        Delete the definition of a connector of *topic*; its worker stops it soon.

        Raises:
            InvalidName: A connector cannot have this name.
            NotFound: There is no such connector.
        """
        _check_name(name)
        key = keys.CONNECTORS.key(name)

        async def attempt() -> Revision:
            stored = await self._store.get(key)
            _check_topic(name, topic, None if stored is None else stored.value)
            return await self._store.transaction(
                [unchanged(key, stored)],
                [Delete(key), Delete(keys.CONNECTOR_REPORTS.key(name))],
            )

        await self._until(await retry_on_conflict(attempt))

    async def operate(
        self, name: str, topic: str, *, is_paused: bool | None, is_restarted: bool
    ) -> None:
        """
        Pause a connector of *topic*, resume it, or ask its worker to open it anew.

        Raises:
            InvalidName: A connector cannot have this name.
            NotFound: There is no such connector.
        """
        _check_name(name)
        key = keys.CONNECTORS.key(name)

        async def attempt() -> Revision:
            stored = await self._store.get(key)
            record = _check_topic(name, topic, None if stored is None else stored.value)
            assert stored is not None
            changed = msgspec.structs.replace(
                record,
                is_paused=record.is_paused if is_paused is None else is_paused,
                restarts=record.restarts + is_restarted,
            )
            return await self._store.put(key, changed, expected=stored.revision)

        await self._until(await retry_on_conflict(attempt))

    async def report(self, reports: Sequence[ConnectorReport]) -> None:
        """
        Take over what a worker reports; connectors that are not stored are left out.

        If there are several reports of a connector, the last one is taken.

        Raises:
            InvalidRequest: There are more than ``REPORTS_MAX``.
        """
        if len(reports) > REPORTS_MAX:
            raise InvalidRequest(
                f"{len(reports)} reports in one request: at most {REPORTS_MAX} are "
                "allowed"
            )
        now = self._wall_clock_us()
        puts = [
            Put(
                keys.CONNECTOR_REPORTS.key(each.connector),
                ConnectorReportRecord(report=_bounded(each, now)),
            )
            for each in {each.connector: each for each in reports}.values()
            if each.connector in self._records.values
        ]
        for base in range(0, len(puts), OPERATIONS_MAX):
            await self._store.transaction([], puts[base : base + OPERATIONS_MAX])

    # Questions.

    def list(self, after: str = "") -> Iterator[StoredConnector]:
        """Yield the connectors after *after* with their definitions, by name."""
        for name in sorted(each for each in self._records.values if each > after):
            stored = self._records.values[name]
            yield _describe(name, stored.value, self._report_of(name))

    def find(self, name: str) -> StoredConnector | None:
        """Return the connector *name*, or None if it is not stored."""
        stored = self._records.values.get(name)
        if stored is None:
            return None
        return _describe(name, stored.value, self._report_of(name))

    def decide(
        self, worker: Principal, name: str, permission: Permission, resource: Resource
    ) -> Decision:
        """
        Decide whether *worker* and the author of a connector have *permission*.

        Raises:
            NotFound: The connector is not stored, or *worker* may not know it.
        """
        policy, stored = self._access.policy, self._records.values.get(name)
        if stored is None or not self._may_know(worker, stored.value):
            raise _not_found(name)
        if not self._access.is_enforced:
            return Decision(True, "the broker does not enforce its policy")
        own = policy.decide(worker, permission, resource)
        if not own.allowed:
            return own
        author = stored.value.author
        decision = policy.decide(author, permission, resource)
        if decision.allowed:
            return decision
        who = members_of(author)[0]
        return Decision(False, f"the author of the connector, {who}: {decision.rule}")

    def counts(self) -> Mapping[ConnectorHealth, int]:
        """Return how many connectors of each health there are; empty without any."""
        if not self._records.values:
            return {}
        now = self._wall_clock_us()
        found = Counter(each.health(now) for each in self.list())
        return {each: found[each] for each in ConnectorHealth}

    def _may_know(self, worker: Principal, record: ConnectorRecord) -> bool:
        if not self._access.is_enforced:
            return True
        topic = Resource.topic(TopicName.parse(_head_of(record).topic))
        return self._access.policy.decide(worker, Permission.DESCRIBE, topic).allowed

    def _report_of(self, name: str) -> ConnectorReport | None:
        stored = self._reports.values.get(name)
        return None if stored is None else stored.value.report

    # Following the store.

    async def follow(self, tasks: TaskScope) -> None:
        """Read the definitions and the reports, and follow them until *tasks* end."""
        for mirror in (self._records, self._reports):
            following = mirror.follow(self._store, self._on_change)
            tasks.run(following, "follow the stored connectors")
        while self._records.revision is None or self._reports.revision is None:
            self._has_changed.clear()
            await self._has_changed.wait()

    def _on_change(self) -> None:
        self._has_changed.set()

    async def _until(self, revision: Revision) -> None:
        """Wait until ``list`` has the change *revision*, but not long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(COPY_S):
                while not self._records.has(revision):
                    self._has_changed.clear()
                    await self._has_changed.wait()


@asynccontextmanager
async def open_stored_connectors(
    store: MetadataStore, access: AccessControl, wall_clock_us: Callable[[], int]
) -> AsyncIterator[StoredConnectors]:
    """Read the stored connectors, and follow them during the body."""
    connectors = StoredConnectors(store, access, wall_clock_us)
    async with task_scope() as tasks:
        await connectors.follow(tasks)
        yield connectors


def _describe(
    name: str, record: ConnectorRecord, report: ConnectorReport | None
) -> StoredConnector:
    head = _head_of(record)
    return StoredConnector(
        name=name,
        kind=head.kind,
        topic=head.topic,
        revision=record.revision,
        restarts=record.restarts,
        is_paused=record.is_paused,
        author=members_of(record.author)[0],
        changed_at=record.changed_at,
        definition=record.definition,
        report=report,
    )


def _head_of(record: ConnectorRecord) -> _Head:
    return msgspec.json.decode(record.definition, type=_Head)


def _check_name(name: str) -> None:
    """
    Raise if a connector cannot have this name.

    Raises:
        InvalidName: It is so.
    """
    parse_client_name("connector", name)
    # Longer than that of the lock of its worker.
    TopicName.parse(f"/default/{name}{POSITIONS_SUFFIX}")


def _check_definition(name: str, topic: str, definition: str) -> None:
    TopicName.parse(topic)
    size = len(definition.encode())
    if size > DEFINITION_BYTES_MAX:
        raise InvalidRequest(
            f"the definition of {name} has {size:,} bytes; at most "
            f"{DEFINITION_BYTES_MAX:,} are allowed"
        )
    try:
        fields = msgspec.json.decode(definition, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidRequest(
            f"the definition of {name} is no JSON object: {error}"
        ) from None
    if _is_deeper(fields, DEPTH_MAX):
        raise InvalidRequest(
            f"the definition of {name} is nested more than {DEPTH_MAX} levels deep"
        )
    kind = fields.get("kind")
    if not isinstance(kind, str) or not 0 < len(kind) <= TEXT_CHARACTERS_MAX:
        raise InvalidRequest(
            f"the definition of {name} has no 'kind' of at most {TEXT_CHARACTERS_MAX} "
            "characters"
        )
    if fields.get("topic") != topic:
        raise InvalidRequest(
            f"the definition of {name} has the topic {fields.get('topic')!r}, and the "
            f"request names {topic}"
        )
    if found := next(literal_secrets(fields.get("options")), None):
        raise InvalidRequest(
            f"options.{dotted(found)} of {name} is a secret in plain text, which "
            "definitions do not store: write ${file:NAME} or ${env:NAME}, and give the "
            "secret to the workers"
        )


def _is_deeper(value: Any, depth: int) -> bool:
    """Return whether *value* has more than *depth* levels of objects and lists."""
    if not isinstance(value, dict | list):
        return False
    parts = value.values() if isinstance(value, dict) else value
    return not depth or any(_is_deeper(each, depth - 1) for each in parts)


def _check_expected(
    name: str, before: ConnectorRecord | None, expected: int | None
) -> None:
    found = 0 if before is None else before.revision
    if expected is None or found == expected:
        return
    if not expected:
        raise AlreadyExists(f"the connector {name} is stored already")
    raise Conflict(
        f"the connector {name} has changed meanwhile: its revision is {found}, not "
        f"{expected}; look at it again"
    )


def _check_topic(
    name: str, topic: str, record: ConnectorRecord | None
) -> ConnectorRecord:
    """Return *record* if it is of *topic*, for which the caller has permissions."""
    if record is None or _head_of(record).topic != topic:
        raise _not_found(name)
    return record


def _bounded(report: ConnectorReport, now: int) -> ConnectorReport:
    """Return *report* of the time *now*, with texts that are not too long."""
    return replace(
        report,
        worker=excerpt(report.worker, TEXT_CHARACTERS_MAX),
        state=excerpt(report.state, TEXT_CHARACTERS_MAX),
        error=excerpt(report.error, ERROR_CHARACTERS_MAX),
        reported_at=now,
    )


def _not_found(name: str) -> NotFound:
    return NotFound(
        f"there is no stored connector {name}: 'danube connect list' lists them"
    )
