"""
Which schemas the topics have: who decides it, and that nothing of it is deleted.

A topic, or all partitions of a name together, is bound to one subject of the schema
registry.  The binding is in the topic's record.  Whoever binds touches the subject's
record in the same transaction; whoever deletes a subject or version compares it.  So
one of both always notices the other.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from pydanube.broker.schema_validation import (
    SchemaCounts,
    SchemaValidation,
    ValidationBacklog,
)
from pydanube.model.errors import OtherSchema, SchemaInUse, SchemaNotFound
from pydanube.model.schemas import ProducerSchema, SchemaPolicy

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    from pydanube.broker.catalog import Catalog
    from pydanube.broker.topic import Topic
    from pydanube.model.names import TopicName
    from pydanube.model.schemas import SchemaReference, SchemaVersion, TopicSchema
    from pydanube.schemas.registry import SchemaRegistry

USERS_SAID_MAX = 3
"""Of the topics for which a subject cannot be deleted, so many are named."""


class TopicSchemas:
    """The schemas of one broker's topics."""

    def __init__(
        self,
        registry: SchemaRegistry,
        catalog: Catalog,
        tasks: asyncio.TaskGroup,
        clock: Callable[[], float],
    ) -> None:
        self.registry = registry
        self.backlog = ValidationBacklog()
        self._catalog = catalog
        self._tasks = tasks
        self._clock = clock

    # Topics.

    def give(self, topic: Topic, schema: TopicSchema | None) -> None:
        """An open topic keeps to *schema* from now on."""
        previous = topic.schema_validation
        validation = None
        if schema is not None and schema.policy is not SchemaPolicy.NONE:
            if topic.schema_counts is None:
                topic.schema_counts = SchemaCounts(Counter(), Counter())
            validation = SchemaValidation(
                topic.name,
                schema,
                registry=self.registry,
                counts=topic.schema_counts,
                backlog=self.backlog,
                tasks=self._tasks,
                clock=self._clock,
            )
        topic.schema, topic.schema_validation = schema, validation
        if previous is not None:
            previous.move_pending(validation)

    async def of(self, name: TopicName) -> TopicSchema | None:
        """
        What the messages of a topic, a partition or a base name keep to.

        Those of a partition that is not there yet will keep to what the others do.
        """
        stored = await self._catalog.find(name)
        if stored is not None:
            return stored.value.schema
        split = name.split_partition()
        base = name if split is None else split[0]
        partitioned = await self._catalog.find_partitioned(base)
        return None if partitioned is None else partitioned.value.schema

    # Producers.

    async def choose(
        self, name: TopicName, reference: SchemaReference
    ) -> ProducerSchema:
        """
        What a producer of *name* may write that refers to a schema.

        Raises:
            OtherSchema: The topic keeps to another subject or version.
            SchemaNotFound: There is no such subject or version.
        """
        bound = await self.of(name)
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

    # What may be deleted.

    async def delete_version(
        self, topics: Iterable[Topic], subject: str, version: int, *, force: bool
    ) -> None:
        """See ``Broker.delete_schema_version``."""
        await self.registry.delete_version(
            subject,
            version,
            check_unused=None if force else partial(self._object, subject, version),
        )
        for topic in topics:
            if (
                topic.schema_validation is not None
                and topic.schema_validation.schema.subject == subject
            ):
                topic.schema_validation.invalidate(version)

    async def delete_subject(
        self, topics: Iterable[Topic], subject: str, *, force: bool
    ) -> None:
        """See ``Broker.delete_schema_subject``."""
        await self.registry.delete_subject(
            subject, check_unused=None if force else partial(self._object, subject)
        )
        for topic in topics:
            if (
                topic.schema_validation is not None
                and topic.schema_validation.schema.subject == subject
            ):
                topic.schema_validation.invalidate()

    async def _find(
        self, reference: SchemaReference, version: int | None
    ) -> SchemaVersion:
        """That version of the subject, or the latest one."""
        subject, version_min = reference.subject, reference.version_min or 0
        if version is not None:
            found = await self.registry.version(subject, version)
        else:
            found = await self.registry.latest(subject)
        if found.version < version_min:
            raise SchemaNotFound(
                f"Schema not found: {subject} has version {found.version}, and "
                f"{version_min} or later is required"
            )
        return found

    async def _object(self, subject: str, version: int | None = None) -> None:
        """Raises if a topic keeps to the subject, or to that version alone."""
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
        said = ", ".join(users[:USERS_SAID_MAX])
        more = len(users) - USERS_SAID_MAX
        raise SchemaInUse(
            f"{what} is used by {said}" + (f" and {more} more" if more > 0 else "")
        )


def check_schema_reference(
    name: TopicName, bound: TopicSchema | None, reference: SchemaReference
) -> None:
    """
    Let a reference pass that agrees with what a topic is bound to.

    Raises:
        OtherSchema: It does not.
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
