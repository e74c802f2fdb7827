"""
The state of the listener in the metadata store: sessions and retained messages.

Changes of one key replace each other until they are written, and all that wait are
written together.
"""

from __future__ import annotations

import asyncio
import logging
from hashlib import sha256
from typing import Any

from pydanube.aio.futures import Done
from pydanube.model.errors import BrokerError, TransactionTooLarge
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.security.principals import Principal
from pydanube_broker.metadata.key import Key
from pydanube_broker.metadata.store import (
    OPERATIONS_MAX,
    Delete,
    MetadataStore,
    Operation,
    Put,
)
from pydanube_mqtt.pure.messages import Message, attributes_of, properties_of
from pydanube_mqtt.pure.retained import RetainedMessages
from pydanube_mqtt.pure.session import Session, SessionLimits, Subscription
from pydanube_mqtt.records import (
    RETAINED,
    SESSIONS,
    MqttRetainedRecord,
    MqttSessionRecord,
    MqttSubscriptionRecord,
)
from pydanube_mqtt.wire.packets import PacketError, SubscriptionOptions
from pydanube_mqtt.wire.topics import TopicFilter

log = logging.getLogger(__name__)

PAGE = 1000


class StateWriter:
    """
    Writes records of sessions and retained messages.

    Bounds: One change for each session and each topic with a retained message waits.
    """

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._waiting: dict[str, tuple[Operation, list[Done]]] = {}
        self._has_work = asyncio.Event()
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    def save(
        self,
        session: Session,
        positions: dict[str, int],
        now_us: int,
        done: Done | None = None,
        *,
        is_connected: bool,
    ) -> None:
        """Write a session; *done* is called when it is on disk."""
        record = MqttSessionRecord(
            client_id=session.client_id,
            principal=session.owner.name,
            method=session.owner.method,
            groups=session.owner.groups,
            expiry_s=session.expiry_s,
            seen_at=now_us,
            is_connected=is_connected,
            subscriptions=tuple(
                MqttSubscriptionRecord(
                    filter=text,
                    qos=each.options.qos,
                    no_local=each.options.no_local,
                    retain_as_published=each.options.retain_as_published,
                    retain_handling=each.options.retain_handling,
                    identifier=each.identifier,
                )
                for text, each in session.subscriptions.items()
            ),
            received=tuple(sorted(session.received)),
            positions=positions,
        )
        key = _session_key(session.client_id)
        self._add(key.path, Put(key, record), done)

    def forget(self, client_id: str) -> None:
        """Delete a session."""
        key = _session_key(client_id)
        self._add(key.path, Delete(key), None)

    def retain(self, message: Message, done: Done) -> None:
        """Write a retained message; *done* is called when it is on disk."""
        record = MqttRetainedRecord(
            topic=message.topic,
            payload=message.payload,
            qos=message.qos,
            publisher=message.publisher,
            expires_at=message.expires_at_us,
            properties=attributes_of(message.properties),
        )
        key = _retained_key(message.topic)
        self._add(key.path, Put(key, record), done)

    def release(self, topic: str, done: Done | None = None) -> None:
        """Delete the retained message of *topic*."""
        key = _retained_key(topic)
        self._add(key.path, Delete(key), done)

    async def run(self) -> None:
        """Write what waits, for ever."""
        while True:
            await self._has_work.wait()
            await self._write_some()
            if not self._waiting:
                self._has_work.clear()
                self._is_idle.set()

    async def flush(self) -> None:
        """Wait until everything is written."""
        await self._is_idle.wait()

    async def _write_some(self) -> None:
        paths = list(self._waiting)[:OPERATIONS_MAX]
        await self._write([self._waiting.pop(path) for path in paths])

    async def _write(self, changes: list[tuple[Operation, list[Done]]]) -> None:
        failure: BrokerError | None = None
        try:
            await self._store.transaction([], [each for each, _ in changes])
        except TransactionTooLarge as error:
            half = len(changes) // 2
            if half:
                await self._write(changes[:half])
                await self._write(changes[half:])
                return
            failure = error
        except BrokerError as error:
            log.warning("sessions and retained messages cannot be written: %s", error)
            failure = error
        for _, callbacks in changes:
            for done in callbacks:
                done(failure)

    def _add(self, path: str, operation: Operation, done: Done | None) -> None:
        _, callbacks = self._waiting.get(path, (None, []))
        if done is not None:
            callbacks.append(done)
        self._waiting[path] = operation, callbacks
        self._is_idle.clear()
        self._has_work.set()


@dataclass(frozen=True, slots=True)
class SavedSession:
    """A session as it was written."""

    session: Session
    positions: dict[str, int]
    seen_at_us: int | None
    """When its client was connected last; None: it was when the broker crashed."""


async def load_sessions(
    store: MetadataStore, limits: SessionLimits
) -> list[SavedSession]:
    """Return the sessions in *store*."""
    return [
        SavedSession(
            _session_of(record, limits),
            record.positions,
            None if record.is_connected else record.seen_at,
        )
        for record in await _scan(store, SESSIONS)
    ]


async def load_groups(store: MetadataStore) -> set[str]:
    """Return the filters of the shared subscriptions of all sessions in *store*."""
    return {
        each.filter
        for record in await _scan(store, SESSIONS)
        for each in record.subscriptions
        if each.filter.startswith("$share/")
    }


async def load_retained(store: MetadataStore) -> list[Message]:
    """Return the retained messages in *store*."""
    return [_retained_of(record) for record in await _scan(store, RETAINED)]


async def follow_retained(
    store: MetadataStore, retained: RetainedMessages, begun: asyncio.Event
) -> None:
    """
    Keep *retained* as *store* has it, which other processes change, too, for ever.

    *begun* is set when it has all that is there at the beginning.
    """
    topics: dict[str, str] = {}
    async with store.watch(RETAINED) as watched:
        async for changes in watched:
            for path, stored in changes.values.items():
                if stored is not None:
                    topics[path] = stored.value.topic
                    retained.put(_retained_of(stored.value))
                elif (topic := topics.pop(path, None)) is not None:
                    retained.remove(topic)
            begun.set()


def _retained_of(record: MqttRetainedRecord) -> Message:
    return Message(
        record.topic,
        record.payload,
        qos=record.qos,
        retain=True,
        properties=properties_of(record.properties),
        expires_at_us=record.expires_at,
        publisher=record.publisher,
    )


async def _scan(store: MetadataStore, prefix: Any) -> list[Any]:
    found: list[Any] = []
    after = ""
    while True:
        page = await store.scan_valid(prefix, after=after, limit=PAGE)
        found += [stored.value for _, stored in page]
        if len(page) < PAGE:
            return found
        after = page[-1][0]


def _session_of(record: MqttSessionRecord, limits: SessionLimits) -> Session:
    session = Session(
        client_id=record.client_id,
        owner=Principal(record.principal, record.method, record.groups),
        limits=limits,
        expiry_s=record.expiry_s,
        received=set(record.received),
    )
    for each in record.subscriptions:
        try:
            parsed = TopicFilter.parse(each.filter)
        except PacketError as error:
            log.warning("leaving out a subscription of %r: %s", record.client_id, error)
            continue
        options = SubscriptionOptions(
            each.filter,
            each.qos,
            each.no_local,
            each.retain_as_published,
            each.retain_handling,
        )
        session.subscriptions[each.filter] = Subscription(
            parsed, options, each.identifier
        )
    return session


def _session_key(client_id: str) -> Key[MqttSessionRecord]:
    return SESSIONS.key(_digest(client_id))


def _retained_key(topic: str) -> Key[MqttRetainedRecord]:
    return RETAINED.key(_digest(topic))


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()
