"""Operations on subjects, their versions, and the schemas of topics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pydanube.model.errors import InvalidRequest
from pydanube.model.names import TopicName, parse_subject
from pydanube.model.schemas import (
    Compatibility,
    ReferencedVersion,
    SchemaType,
    SchemaVersion,
)
from pydanube.schemas.compatibility import Violation
from pydanube.wire.native.messages import from_wire, to_wire
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.broker.publishing.schema_registry import NewSchema
from pydanube_broker.operations.authorization import visible_subjects
from pydanube_broker.operations.handlers import Call, operation

VERSIONS_BYTES_MAX = 1024 * 1024
"""The maximum size of an answer that has several versions."""
VIOLATIONS_MAX = 1000
"""The maximum number of violations in an answer."""


@operation
async def register_schema(call: Call, m: pb.RegisterSchema) -> pb.SchemaRegistered:
    """Register a version of a subject, or return the same one."""
    new = replace(
        new_schema(m.schema),
        references=[from_wire(ReferencedVersion, each) for each in m.references],
    )
    version, is_new = await call.broker.registry.register(m.subject, new)
    return pb.SchemaRegistered(version=_shown(version), is_new=is_new)


def _shown(version: SchemaVersion) -> pb.SchemaVersion:
    """Return a version for an answer, with the references that the client may see."""
    seen = set(visible_subjects({each.subject for each in version.references}))
    references = tuple(each for each in version.references if each.subject in seen)
    return to_wire(pb.SchemaVersion, replace(version, references=references))


def new_schema(message: pb.NewSchema) -> NewSchema:
    """Return the schema of a request."""
    return NewSchema(
        type=SchemaType.parse(message.type),
        definition=message.definition,
        message=message.message or None,
        description=message.description,
        created_by=message.created_by,
        tags=tuple(message.tags),
    )


@operation
async def get_schema(call: Call, m: pb.GetSchema) -> pb.SchemaVersion:
    """Return a version of a subject, by default the latest."""
    registry, version = call.broker.registry, m.version or None
    if m.subject:
        found = await registry.version(m.subject, version)
    else:
        found = await registry.by_id(m.schema_id, version)
    return _shown(found)


@operation
async def list_schema_versions(
    call: Call, m: pb.ListSchemaVersions
) -> pb.SchemaVersions:
    """Return the versions of a subject with their definitions."""
    parse_subject(m.subject)
    answer = pb.SchemaVersions()
    byte_count = 0
    for version in await call.broker.registry.versions(m.subject):
        if version.version <= m.after:
            continue
        shown = _shown(version)
        byte_count += shown.ByteSize()
        if answer.versions and byte_count > VERSIONS_BYTES_MAX:
            answer.has_more = True
            break
        answer.versions.append(shown)
    return answer


@operation
async def list_subjects(call: Call, _: pb.ListSubjects) -> pb.Subjects:
    """Return the names of the subjects that the client may see."""
    subjects = visible_subjects(await call.broker.registry.subjects())
    return pb.Subjects(subjects=subjects)


@operation
async def describe_subject(call: Call, m: pb.DescribeSubject) -> pb.SubjectDescription:
    """Return a subject: its id, type, compatibility mode and versions."""
    return to_wire(
        pb.SubjectDescription, await call.broker.registry.describe(m.subject)
    )


@operation
async def check_schema(call: Call, m: pb.CheckSchema) -> pb.SchemaChecked:
    """Return why a schema may not become the next version of a subject."""
    mode = Compatibility.parse(m.compatibility) if m.compatibility else None
    violations = await call.broker.registry.check(m.subject, new_schema(m.schema), mode)
    return schema_checked(violations)


def schema_checked(violations: Sequence[Violation]) -> pb.SchemaChecked:
    """Return the answer that has the first *violations*."""
    return pb.SchemaChecked(
        violations=[
            to_wire(
                pb.SchemaViolation,
                each.incompatibility,
                version=each.version,
                direction=each.direction.value,
            )
            for each in violations[:VIOLATIONS_MAX]
        ],
        has_more=len(violations) > VIOLATIONS_MAX,
    )


@operation
async def set_compatibility(call: Call, m: pb.SetCompatibility) -> None:
    """Set the compatibility mode for later versions of a subject."""
    mode = Compatibility.parse(m.compatibility)
    await call.broker.registry.set_compatibility(m.subject, mode)


@operation
async def delete_schema(call: Call, m: pb.DeleteSchema) -> None:
    """Delete a subject, or one version of it; ``force`` if it may be in use."""
    if not m.subject:
        raise InvalidRequest("a subject is deleted, and none is named")
    await call.broker.schemas.delete(m.subject, m.version or None, force=m.force)


@operation
async def get_topic_schema(call: Call, m: pb.GetTopicSchema) -> pb.TopicSchemaAnswer:
    """Return the schema that a topic is bound to."""
    schema = (await call.broker.catalog.get(TopicName.parse(m.topic))).schema
    return pb.TopicSchemaAnswer(schema=to_wire(pb.TopicSchema, schema))
