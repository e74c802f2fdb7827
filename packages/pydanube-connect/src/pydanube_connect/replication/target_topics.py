"""The topics of the target: with the settings, partitions and schemas of the source."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from dataclasses import replace

from pydanube.client.client import Client
from pydanube.client.connections.partitions import create_topic
from pydanube.client.messages.schema import schema_of
from pydanube.model.descriptions import TopicDescription
from pydanube.model.errors import InvalidRequest, SchemaNotFound
from pydanube.model.names import TopicName
from pydanube.model.schemas import Compatibility, SchemaReference, TopicSchema

SCHEMAS_MAX = 1024
"""How many versions of schemas are remembered as copied."""


class TargetTopics:
    """Creates topics and schemas at the target as they are at the source."""

    def __init__(self, source: Client, target: Client) -> None:
        self._source = source
        self._target = target
        self._copied: OrderedDict[tuple[int, int], SchemaReference] = OrderedDict()

    async def ensure(self, described: TopicDescription, name: str) -> None:
        """
        Create the topic of the target that *name*, a topic or partition, belongs to.

        Raises:
            InvalidRequest: It has more partitions than that of the source.
        """
        topic, base = TopicName.parse(described.topic), TopicName.parse(name)
        count = None
        if (partition := topic.split_partition()) is not None:
            names = await self._source.topics.partitions(str(partition[0]))
            count = len(names)
            split = base.split_partition()
            assert split is not None
            base = split[0]
        await self._target.namespaces.create(base.namespace, exist_ok=True)
        existing = await self._target.topics.partitions(str(base))
        if not existing:
            await create_topic(
                self._target.requester,
                str(base),
                described.policy,
                count,
                exist_ok=True,
            )
            await self._bind(str(base), described.schema)
        elif count is not None and len(existing) < count:
            await self._target.topics.add_partitions(str(base), count)
        elif len(existing) > (count or 1) or (
            count is None and existing != [str(base)]
        ):
            raise InvalidRequest(
                f"{base} at the target has {len(existing)} partitions, and "
                f"{described.topic} belongs to {count or 1}: replicate it under "
                "another name, with --rename"
            )

    async def _bind(self, topic: str, schema: TopicSchema | None) -> None:
        if schema is None:
            return
        for each in await self._source.schemas.versions(schema.subject):
            await self.copy_schema(each.schema_id, each.version)
        # The numbers of versions differ if the source has deleted some.
        binding = replace(schema, version=None, version_min=None)
        await self._target.topics.configure(topic, schema=binding)

    async def copy_schema(self, schema_id: int, version: int) -> SchemaReference | None:
        """
        Return the version at the target of a schema of the source; None: no schema.

        It is registered if the target does not have it.
        """
        if not schema_id:
            return None
        key = (schema_id, version)
        if key not in self._copied:
            try:
                found = await self._source.schemas.by_id(schema_id, version)
            except SchemaNotFound:
                # It was deleted at the source: nobody can decode the payloads.
                return None
            schemas = self._target.schemas
            mode = await self._source.schemas.compatibility(found.subject)
            # All versions of the source are valid, whatever was allowed when.
            with suppress(SchemaNotFound):
                await schemas.set_compatibility(found.subject, Compatibility.NONE)
            new = await schemas.register(
                found.subject,
                schema_of(found),
                description=found.description,
                created_by=found.created_by,
                tags=found.tags,
            )
            await schemas.set_compatibility(found.subject, mode)
            if len(self._copied) >= SCHEMAS_MAX:
                self._copied.popitem(last=False)
            self._copied[key] = SchemaReference(
                subject=new.subject, version=new.version
            )
        return self._copied[key]
