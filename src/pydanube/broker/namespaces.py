"""
The namespaces, and the limits that each gives to its topics.

A namespace that has a topic cannot be deleted.  Whoever creates a topic, compares
that its namespace is as it was, and raises the counter of topic numbers; whoever
deletes a namespace, compares that counter.  So one of both always notices the other.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from pydanube.broker.limits import check_policy
from pydanube.metadata import keys
from pydanube.metadata.records import NamespaceRecord
from pydanube.metadata.store import ABSENT, Delete
from pydanube.metadata.transactions import settled, unchanged
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
    check_new_namespace,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydanube.metadata.key import Prefix
    from pydanube.metadata.store import MetadataStore, Stored
    from pydanube.model.policy import NamespacePolicy

FIRST_NAMESPACES = (DEFAULT_NAMESPACE, SYSTEM_NAMESPACE)
"""Those that every store has from its first day, and always."""


class Namespaces:
    """What the metadata store knows of namespaces."""

    def __init__(self, store: MetadataStore, wall_clock_us: Callable[[], int]) -> None:
        self._store = store
        self._wall_clock_us = wall_clock_us

    async def create(
        self, name: NamespaceName, policy: NamespacePolicy, *, exist_ok: bool
    ) -> None:
        """Make the namespace; see ``Broker.create_namespace``."""
        check_new_namespace(name)
        check_policy(policy)
        record = NamespaceRecord(created_at=self._wall_clock_us(), policy=policy)
        try:
            await self._store.put(keys.namespace(name), record, expected=ABSENT)
        except RevisionConflict as error:
            if not exist_ok:
                raise AlreadyExists(f"Namespace {name} already exists.") from error

    async def delete(self, name: NamespaceName) -> None:
        """Remove the namespace; see ``Broker.delete_namespace``."""
        if name in FIRST_NAMESPACES:
            raise InvalidRequest(f"The namespace {name} is always there")
        await settled(partial(self._try_delete, name))

    async def _try_delete(self, name: NamespaceName) -> None:
        stored = await self.find(name)
        last_topic_id = await self._store.get(keys.LAST_TOPIC_ID)
        prefixes: list[Prefix[Any]] = [
            keys.partitioned_topics_of(name),
            keys.topics_of(name),
        ]
        for prefix in prefixes:
            topics = await self._store.scan(prefix)
            if topics:
                raise NamespaceInUse(
                    f"The namespace {name} has topics, such as "
                    f"/{name}/{prefix.name_of(topics[0][0])}; delete them first"
                )
        await self._store.transaction(
            [
                unchanged(keys.namespace(name), stored),
                unchanged(keys.LAST_TOPIC_ID, last_topic_id),
            ],
            [Delete(keys.namespace(name))],
        )

    async def names(self) -> list[NamespaceName]:
        """Every namespace, by name."""
        stored = await self._store.scan(keys.NAMESPACES)
        return [NamespaceName(keys.NAMESPACES.name_of(path)) for path, _ in stored]

    async def find(self, name: NamespaceName) -> Stored[NamespaceRecord]:
        """
        What is recorded of the namespace.

        Raises:
            NamespaceNotFound: There is none.
        """
        stored = await self._store.get(keys.namespace(name))
        if stored is None:
            raise NamespaceNotFound(
                f"Unable to find the namespace {name}; a topic can be created only in "
                "an existing namespace"
            )
        return stored

    async def set_policy(self, name: NamespaceName, policy: NamespacePolicy) -> None:
        """Give the topics of the namespace other limits."""
        check_policy(policy)

        async def attempt() -> None:
            stored = await self.find(name)
            record = msgspec.structs.replace(stored.value, policy=policy)
            await self._store.put(
                keys.namespace(name), record, expected=stored.revision
            )

        await settled(attempt)
