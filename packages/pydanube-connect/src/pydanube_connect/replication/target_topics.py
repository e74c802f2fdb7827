"""The topics of the target: with the settings, partitions and schemas of the source."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from pydanube.client.client import Client
from pydanube.client.connections.partitions import create_topic
from pydanube.client.messages.schema import schema_of
from pydanube.model.descriptions import TopicDescription
from pydanube.model.errors import IncompatibleSchema, InvalidRequest, SchemaNotFound
from pydanube.model.names import TopicName
from pydanube.model.schemas import (
    Compatibility,
    ReferencedVersion,
    SchemaReference,
    SchemaVersion,
    TopicSchema,
)

SCHEMAS_MAX = 10_000
"""With more versions of schemas, those that were copied are forgotten."""
SUBJECTS_MAX = 1000
"""To how many subjects the schemas of one may refer, directly or through others."""


class TargetTopics:
    """Creates topics and schemas at the target as they are at the source."""

    def __init__(self, source: Client, target: Client) -> None:
        self._source = source
        self._target = target
        self._copied: dict[tuple[int, int], SchemaReference] = {}

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
        await self._copy_subjects(schema.subject)
        # The numbers of versions differ if the source has deleted some.
        binding = replace(schema, version=None, version_min=None)
        await self._target.topics.configure(topic, schema=binding)

    async def copy_schema(self, schema_id: int, version: int) -> SchemaReference | None:
        """
        Return the version at the target of a schema of the source; None: no schema.

        If the target does not have it, all versions of its subject are registered, and
        those of the subjects that they refer to.  Versions that were deleted, but
        are still readable, are registered too.

        Raises:
            PermissionDenied: The client of the source may not read one of the subjects,
                or that of the target may not register them.
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
            await self._copy_subjects(found.subject, found)
        return self._copied.get(key)

    async def _copy_subjects(
        self, subject: str, needed: SchemaVersion | None = None
    ) -> None:
        """Copy all versions of *subject*, and those that they refer to."""
        if len(self._copied) > SCHEMAS_MAX:
            self._copied.clear()
        subjects: dict[str, list[SchemaVersion]] = {}
        pending = [subject]
        while pending:
            name = pending.pop()
            if name in subjects:
                continue
            if len(subjects) >= SUBJECTS_MAX:
                raise InvalidRequest(
                    f"the schemas of {subject} refer to more than {SUBJECTS_MAX} "
                    "subjects, which cannot be replicated"
                )
            versions = await self._source.schemas.versions(name)
            if name == subject and needed is not None and needed not in versions:
                versions.append(needed)
            subjects[name] = await self._with_deleted(versions)
            pending += [to.subject for each in subjects[name] for to in each.references]
        # What others refer to comes first, so that a refusal leaves less behind.
        for name, versions in reversed(subjects.items()):
            await self._copy_versions(name, versions)
        # Subjects may refer to each other, so references need all versions.
        new = dict[tuple[str, int], int]()
        for name, versions in subjects.items():
            for each in versions:
                copy = self._copied[each.schema_id, each.version]
                assert copy.version is not None
                new[name, each.version] = copy.version
        for versions in subjects.values():
            for each in versions:
                references = [
                    replace(to, version=new[to.subject, to.version])
                    for to in each.references
                    if (to.subject, to.version) in new
                ]
                if references:
                    await self._register(each, references)

    async def _with_deleted(self, versions: list[SchemaVersion]) -> list[SchemaVersion]:
        """
        Return *versions* of a subject and those between them that are only readable.

        Messages may have them, and the last version must not come before them.
        """
        found = {each.version: each for each in versions}
        for number in range(1, max(found, default=0)):
            if number not in found:
                with suppress(SchemaNotFound):
                    found[number] = await self._source.schemas.by_id(
                        versions[0].schema_id, number
                    )
        return [found[number] for number in sorted(found)]

    async def _copy_versions(self, subject: str, versions: list[SchemaVersion]) -> None:
        schemas = self._target.schemas
        for each in versions:
            if (each.schema_id, each.version) in self._copied:
                continue
            try:
                new = await self._register(each)
            except IncompatibleSchema:
                # All versions of the source are valid, whatever was allowed when.
                await schemas.set_compatibility(subject, Compatibility.NONE)
                new = await self._register(each)
            self._copied[each.schema_id, each.version] = SchemaReference(
                subject=subject, version=new.version
            )
        if versions:
            mode = await self._source.schemas.compatibility(subject)
            if await schemas.compatibility(subject) is not mode:
                await schemas.set_compatibility(subject, mode)

    async def _register(
        self, version: SchemaVersion, references: Sequence[ReferencedVersion] = ()
    ) -> SchemaVersion:
        return await self._target.schemas.register(
            version.subject,
            schema_of(version),
            description=version.description,
            created_by=version.created_by,
            tags=version.tags,
            references=references,
        )
