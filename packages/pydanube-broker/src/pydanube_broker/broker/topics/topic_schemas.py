"""
The schemas of topics: binding topics to subjects, and protecting subjects in use.

A topic, or all partitions of a base name together, is bound to one subject of the
schema registry.  The topic's record has the binding.  A transaction that binds a topic
also writes the subject's record; one that deletes a subject or version compares that
record.  One of two concurrent transactions always fails.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial

from pydanube.aio.locks import SharedLock
from pydanube.model.errors import (
    OtherSchema,
    SchemaInUse,
    SchemaNotFound,
)
from pydanube.model.names import TopicName
from pydanube.model.schemas import (
    ProducerSchema,
    SchemaPolicy,
    SchemaReference,
    SchemaVersion,
    TopicSchema,
)
from pydanube.model.settings_text import settings_text
from pydanube_broker.broker.governance.catalog import Catalog
from pydanube_broker.broker.publishing.schema_registry import SchemaRegistry
from pydanube_broker.broker.publishing.schema_validation import (
    SchemaCounts,
    SchemaValidation,
    ValidationBacklog,
)
from pydanube_broker.broker.publishing.topic import Topic

log = logging.getLogger(__name__)

USERS_SHOWN_MAX = 3
"""The number of topics that an error names if they prevent a deletion."""


class TopicSchemas:
    """The schemas of one broker's topics."""

    def __init__(
        self,
        registry: SchemaRegistry,
        catalog: Catalog,
        *,
        opened: Mapping[TopicName, Topic],
        lock: SharedLock,
        tasks: asyncio.TaskGroup,
        clock: Callable[[], float],
    ) -> None:
        self.backlog = ValidationBacklog()
        self._registry = registry
        self._catalog = catalog
        self._opened = opened
        self._lock = lock
        self._tasks = tasks
        self._clock = clock

    # Topics.

    async def bind_first(self, topic: Topic, reference: SchemaReference) -> None:
        """
        Bind a topic without a schema to the one that a producer refers to.

        Raises:
            OtherSchema: The topic is bound to another subject or version.
        """
        if topic.schema is None:
            async with self._lock:
                if topic.schema is None:
                    await self._bind(topic, TopicSchema(subject=reference.subject))
        check_schema_reference(topic.name, topic.schema, reference)

    def apply(self, topic: Topic, schema: TopicSchema | None) -> None:
        """Validate messages of an open topic by *schema* from now on."""
        previous = topic.schema_validation
        validation = None
        if schema is not None and schema.policy is not SchemaPolicy.NONE:
            if topic.schema_counts is None:
                topic.schema_counts = SchemaCounts(Counter(), Counter())
            validation = SchemaValidation(
                topic.name,
                schema,
                registry=self._registry,
                counts=topic.schema_counts,
                backlog=self.backlog,
                tasks=self._tasks,
                clock=self._clock,
            )
        topic.schema, topic.schema_validation = schema, validation
        if previous is not None:
            previous.move_pending(validation)

    async def _bind(self, topic: Topic, schema: TopicSchema) -> None:
        records = await self._catalog.configure(topic.name, schema=schema)
        log.info("bound %s to %s", topic.name, settings_text(schema))
        for each in filter(None, map(self._opened.get, records)):
            self.apply(each, schema)

    async def _find_bound(self, name: TopicName) -> TopicSchema | None:
        """Return the schema of a topic or base name, or of a new partition of one."""
        stored = await self._catalog.find(name)
        if stored is not None:
            return stored.value.schema
        split = name.split_partition()
        base = name if split is None else split[0]
        partitioned = await self._catalog.find_partitioned(base)
        return None if partitioned is None else partitioned.value.schema

    # Producers.

    async def resolve(
        self, name: TopicName, reference: SchemaReference
    ) -> ProducerSchema:
        """
        Return the schema that a producer of the topic *name* may write.

        Raises:
            OtherSchema: The topic is bound to another subject or version.
            SchemaNotFound: There is no such subject or version.
        """
        bound = await self._find_bound(name)
        check_schema_reference(name, bound, reference)
        only = reference.version or (None if bound is None else bound.version)
        try:
            found = await self._find(reference, only)
        except SchemaNotFound as error:
            raise SchemaNotFound(
                f"Failed to assign schema '{reference.subject}' to topic '{name}': "
                f"{error}. Ensure schema is registered first."
            ) from error
        return ProducerSchema(
            reference=reference, schema_id=found.schema_id, version=found.version
        )

    async def assign(self, topic: Topic, reference: SchemaReference) -> ProducerSchema:
        """Call ``resolve`` and ``bind_first``; return the schema of the producer."""
        resolved = await self.resolve(topic.name, reference)
        await self.bind_first(topic, reference)
        return resolved

    # Deleting.

    async def delete(
        self,
        subject: str,
        version: int | None = None,
        *,
        force: bool = False,
        keep_readable: bool = False,
    ) -> None:
        """
        Delete a version of a subject, or the subject with all its versions.

        Their numbers and ids are never used again.  Messages of deleted versions are
        kept, and cannot be decoded any more, unless *keep_readable* is true.  A topic
        that is bound to a deleted subject rejects all messages, or logs warnings, until
        a subject of this name is registered again.

        Raises:
            SchemaNotFound: There is no such subject or version.
            SchemaInUse: A topic is bound to the subject, or accepts only this version,
                or other schemas refer to it, and *force* is false.
        """
        check = None if force else partial(self._check_unused, subject, version)
        await self._registry.delete(
            subject, version, keep_readable=keep_readable, check_unused=check
        )
        what = "all versions" if version is None else f"version {version}"
        log.info("deleted %s of the schema %s", what, subject)
        self._invalidate(subject, version)

    def _invalidate(self, subject: str, version: int | None = None) -> None:
        for topic in self._opened.values():
            validation = topic.schema_validation
            if validation is not None and validation.schema.subject == subject:
                validation.invalidate(version)

    async def _find(
        self, reference: SchemaReference, version: int | None
    ) -> SchemaVersion:
        """Return that version of the subject, or the latest one."""
        subject, version_min = reference.subject, reference.version_min or 0
        found = await self._registry.version(subject, version)
        if found.version < version_min:
            raise SchemaNotFound(
                f"Schema not found: {subject} has version {found.version}, and "
                f"{version_min} or later is required"
            )
        return found

    async def _check_unused(self, subject: str, version: int | None = None) -> None:
        """Raise if a topic is bound to the subject, or only to that version."""
        schemas = [
            (name, record.schema) for name, record in await self._catalog.records()
        ]
        partitioned = await self._catalog.partitioned()
        schemas += [(name, record.schema) for name, record in partitioned.items()]
        users = [
            str(name)
            for name, schema in schemas
            if schema is not None
            and schema.subject == subject
            and version in {None, schema.version}
        ]
        if not users:
            return
        what = f"The schema subject '{subject}'"
        if version is not None:
            what = f"Version {version} of the schema subject '{subject}'"
        shown = ", ".join(users[:USERS_SHOWN_MAX])
        more = len(users) - USERS_SHOWN_MAX
        raise SchemaInUse(
            f"{what} is used by {shown}" + (f" and {more} more" if more > 0 else "")
        )


def check_schema_reference(
    name: TopicName, bound: TopicSchema | None, reference: SchemaReference
) -> None:
    """
    Raise if a producer refers to another schema than the topic's.

    Raises:
        OtherSchema: The subject or the version differs.
    """
    if bound is None:
        return
    if bound.subject != reference.subject:
        raise OtherSchema(
            f"Topic '{name}' uses schema subject '{bound.subject}', cannot use "
            f"'{reference.subject}'. Only admin can change topic schema."
        )
    if bound.version is not None and reference.version not in {None, bound.version}:
        raise OtherSchema(
            f"Topic '{name}' uses version {bound.version} of the schema subject "
            f"'{bound.subject}', cannot use version {reference.version}. Only admin "
            "can change topic schema."
        )
