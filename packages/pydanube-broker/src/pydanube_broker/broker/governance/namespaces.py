"""
The namespaces of a broker, and what each gives to its topics: limits and retention.

A namespace with topics cannot be deleted.  A transaction that creates a topic compares
the namespace's record and raises the topic id counter; one that deletes a namespace
compares that counter.  One of two concurrent transactions always fails.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from pydanube.aio.locks import SharedLock
from pydanube.model.errors import (
    AlreadyExists,
    InvalidRequest,
    NamespaceInUse,
    NamespaceNotFound,
    RevisionConflict,
)
from pydanube.model.names import (
    DEFAULT_NAMESPACE,
    SYSTEM_NAMESPACE,
    NamespaceName,
    TopicName,
)
from pydanube.model.policy import NamespacePolicy, NamespaceSettings, Retention
from pydanube.model.settings_text import settings_text
from pydanube_broker.broker.publishing.topic import Topic
from pydanube_broker.broker.pure.limits import check_policy
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.key import Prefix
from pydanube_broker.metadata.records import NamespaceRecord
from pydanube_broker.metadata.store import (
    ABSENT,
    Delete,
    MetadataStore,
    Stored,
    retry_on_conflict,
    unchanged,
)

log = logging.getLogger(__name__)

FIRST_NAMESPACES = (DEFAULT_NAMESPACE, SYSTEM_NAMESPACE)
"""The namespaces that always exist."""


class Namespaces:
    """The namespaces of a broker."""

    def __init__(
        self,
        store: MetadataStore,
        *,
        opened: Mapping[TopicName, Topic],
        lock: SharedLock,
        wall_clock_us: Callable[[], int],
    ) -> None:
        self._store = store
        self._opened = opened
        self._lock = lock
        self._wall_clock_us = wall_clock_us

    async def create(
        self,
        name: NamespaceName,
        policy: NamespacePolicy = NamespacePolicy(),  # noqa: B008  # It is immutable.
        *,
        exist_ok: bool = False,
    ) -> None:
        """
        Create a namespace, whose topics have the limits of *policy*.

        Durability: On return it is on disk.

        Raises:
            AlreadyExists: It exists and *exist_ok* is false.  An existing namespace
                keeps its limits.
            InvalidRequest: A limit is out of range.
        """
        check_policy(policy)
        record = NamespaceRecord(created_at=self._wall_clock_us(), policy=policy)
        try:
            await self._store.put(keys.NAMESPACES.key(name), record, expected=ABSENT)
        except RevisionConflict as error:
            if not exist_ok:
                raise AlreadyExists(f"Namespace {name} already exists.") from error
        else:
            log.info("created the namespace %s: %s", name, settings_text(policy))

    async def delete(self, name: NamespaceName) -> None:
        """
        Delete a namespace that has no topics.

        Raises:
            NamespaceNotFound: It does not exist.
            NamespaceInUse: It has topics.
            InvalidRequest: It is one of ``FIRST_NAMESPACES``.
        """
        if name in FIRST_NAMESPACES:
            raise InvalidRequest(f"The namespace {name} cannot be deleted")
        async with self._lock:
            await retry_on_conflict(partial(self._try_delete, name))
        log.info("deleted the namespace %s", name)

    async def _try_delete(self, name: NamespaceName) -> None:
        stored = await self.find(name)
        last_topic_id = await self._store.get(keys.LAST_TOPIC_ID)
        prefixes: list[Prefix[Any]] = [
            keys.PARTITIONED_TOPICS.within(name),
            keys.TOPICS.within(name),
        ]
        for prefix in prefixes:
            paths = await self._store.paths(prefix)
            if paths:
                raise NamespaceInUse(
                    f"The namespace {name} has topics, such as "
                    f"/{name}/{prefix.name_of(paths[0])}; delete them first"
                )
        await self._store.transaction(
            [
                unchanged(keys.NAMESPACES.key(name), stored),
                unchanged(keys.LAST_TOPIC_ID, last_topic_id),
            ],
            [Delete(keys.NAMESPACES.key(name))],
        )

    async def names(self) -> list[NamespaceName]:
        """Return all namespaces, sorted by name."""
        paths = await self._store.paths(keys.NAMESPACES)
        return [NamespaceName(keys.NAMESPACES.name_of(path)) for path in paths]

    async def retentions(self) -> dict[NamespaceName, Retention]:
        """Return the retention of each namespace."""
        stored = await self._store.scan_valid(keys.NAMESPACES)
        return {
            NamespaceName(keys.NAMESPACES.name_of(path)): each.value.retention
            for path, each in stored
        }

    async def find(self, name: NamespaceName) -> Stored[NamespaceRecord]:
        """
        Return the record of a namespace.

        Raises:
            NamespaceNotFound: It does not exist.
        """
        stored = await self._store.get(keys.NAMESPACES.key(name))
        if stored is None:
            raise namespace_not_found(name)
        return stored

    async def policy(self, name: NamespaceName) -> NamespacePolicy:
        """
        Return the limits of the topics in a namespace.

        Raises:
            NamespaceNotFound: It does not exist.
        """
        return (await self.find(name)).value.policy

    async def configure(self, name: NamespaceName, **settings: Any) -> None:
        """
        Change these settings of a namespace, all or none; the others keep their values.

        They are fields of ``NamespaceSettings``, and apply to topics that have none of
        their own, including those that are open.  Connected producers and consumers
        stay, even if there are more than allowed.  The next retention pass applies a
        changed retention.  Of concurrent changes of a setting, the last one wins.

        Durability: On return the changes are on disk.  After a crash, either all of
            them are in effect, or none.

        Raises:
            NamespaceNotFound: It does not exist.
            InvalidRequest: A limit is out of range.
        """
        changed = NamespaceSettings(**settings)
        check_policy(changed.policy)
        changed.retention.check()
        async with self._lock:
            record = await retry_on_conflict(
                partial(self._try_change, name, **settings)
            )
            for topic in self._opened.values():
                if topic.name.namespace == name:
                    if not topic.has_own_limits:
                        topic.set_limits(record.policy, are_own=False)
                    topic.configure(topic.policy, record.retention)
        text = settings_text(settings)
        log.info("changed the settings of the namespace %s: %s", name, text)

    async def _try_change(self, name: NamespaceName, **fields: Any) -> NamespaceRecord:
        """Change *fields* in the record of a namespace, and return the new record."""
        stored = await self.find(name)
        record = msgspec.structs.replace(stored.value, **fields)
        await self._store.put(
            keys.NAMESPACES.key(name), record, expected=stored.revision
        )
        return record


def namespace_not_found(name: NamespaceName) -> NamespaceNotFound:
    """Return the error for a namespace that does not exist, or must not be known."""
    return NamespaceNotFound(
        f"Unable to find the namespace {name}; a topic can be created only in an "
        "existing namespace"
    )
