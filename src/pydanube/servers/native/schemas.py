"""
How the native protocol answers requests about schemas.

As ``stream_requests``, which these requests are a part of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydanube.model.errors import InvalidRequest
from pydanube.model.names import TopicName, parse_subject
from pydanube.model.schemas import Compatibility, SchemaType
from pydanube.schemas.registry import NewSchema
from pydanube.wire.native.frames import Kind
from pydanube.wire.native.schema_messages import (
    schema_version_to_wire,
    subject_to_wire,
    topic_schema_from_wire,
    topic_schema_to_wire,
)
from pydanube.wire.pb import stream_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pydanube.broker.broker import Broker
    from pydanube.servers.native.requests import Answer

VERSIONS_BYTES_MAX = 1024 * 1024
"""So many bytes of definitions are in an answer, or a single one that is longer."""
VIOLATIONS_MAX = 1000
"""So many reasons are in an answer."""


def _new_schema(message: Any) -> NewSchema:
    return NewSchema(
        type=SchemaType.parse(message.type),
        definition=message.definition,
        message=message.message or None,
        description=message.description,
        created_by=message.created_by,
        tags=tuple(message.tags),
    )


async def _register(broker: Broker, m: Any) -> Answer:
    version, is_new = await broker.registry.register(m.subject, _new_schema(m.schema))
    return Kind.SCHEMA_REGISTERED, pb.SchemaRegistered(
        version=schema_version_to_wire(version), is_new=is_new
    )


async def _get(broker: Broker, m: Any) -> Answer:
    registry = broker.registry
    if not m.subject:
        found = await registry.by_id(m.schema_id, m.version or None)
    elif m.version:
        found = await registry.version(m.subject, m.version)
    else:
        found = await registry.latest(m.subject)
    return Kind.SCHEMA_VERSION, schema_version_to_wire(found)


async def _list_versions(broker: Broker, m: Any) -> Answer:
    parse_subject(m.subject)
    answer = pb.SchemaVersions()
    byte_count = 0
    for version in await broker.registry.versions(m.subject):
        if version.version <= m.after:
            continue
        byte_count += len(version.definition)
        if answer.versions and byte_count > VERSIONS_BYTES_MAX:
            answer.has_more = True
            break
        answer.versions.append(schema_version_to_wire(version))
    return Kind.SCHEMA_VERSIONS, answer


async def _list_subjects(broker: Broker, _: Any) -> Answer:
    return Kind.SUBJECTS, pb.Subjects(subjects=await broker.registry.subjects())


async def _describe_subject(broker: Broker, m: Any) -> Answer:
    facts = await broker.registry.describe(m.subject)
    return Kind.SUBJECT_DESCRIPTION, subject_to_wire(facts)


async def _check(broker: Broker, m: Any) -> Answer:
    mode = Compatibility.parse(m.compatibility) if m.compatibility else None
    violations = await broker.registry.check(m.subject, _new_schema(m.schema), mode)
    return Kind.SCHEMA_CHECKED, pb.SchemaChecked(
        violations=[
            pb.SchemaViolation(
                version=each.version,
                direction=each.direction.value,
                path=each.incompatibility.path,
                rule=each.incompatibility.rule,
                text=each.incompatibility.text,
            )
            for each in violations[:VIOLATIONS_MAX]
        ],
        has_more=len(violations) > VIOLATIONS_MAX,
    )


async def _set_compatibility(broker: Broker, m: Any) -> Answer:
    mode = Compatibility.parse(m.compatibility)
    await broker.registry.set_compatibility(m.subject, mode)
    return None


async def _delete(broker: Broker, m: Any) -> Answer:
    if not m.subject:
        raise InvalidRequest("a subject is deleted, and none is named")
    if m.version:
        await broker.delete_schema_version(m.subject, m.version, force=m.force)
    else:
        await broker.delete_schema_subject(m.subject, force=m.force)
    return None


async def _bind(broker: Broker, m: Any) -> Answer:
    schema = topic_schema_from_wire(m.schema) if m.HasField("schema") else None
    await broker.bind_topic_schema(TopicName.parse(m.topic), schema)
    return None


async def _topic_schema(broker: Broker, m: Any) -> Answer:
    schema = await broker.topic_schema(TopicName.parse(m.topic))
    answer = None if schema is None else topic_schema_to_wire(schema)
    return Kind.TOPIC_SCHEMA, pb.TopicSchemaAnswer(schema=answer)


SCHEMA_REQUESTS: dict[Kind, Callable[[Broker, Any], Awaitable[Answer]]] = {
    Kind.REGISTER_SCHEMA: _register,
    Kind.GET_SCHEMA: _get,
    Kind.LIST_SCHEMA_VERSIONS: _list_versions,
    Kind.LIST_SUBJECTS: _list_subjects,
    Kind.DESCRIBE_SUBJECT: _describe_subject,
    Kind.CHECK_SCHEMA: _check,
    Kind.SET_COMPATIBILITY: _set_compatibility,
    Kind.DELETE_SCHEMA: _delete,
    Kind.BIND_SCHEMA: _bind,
    Kind.GET_TOPIC_SCHEMA: _topic_schema,
}
