"""The handlers of operations on schemas; see ``requests``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydanube.model.errors import InvalidRequest
from pydanube.model.names import TopicName, parse_subject
from pydanube.model.schemas import Compatibility, SchemaType
from pydanube.schemas.registry import NewSchema
from pydanube.servers.native.handlers import BrokerHandler, Handlers
from pydanube.wire.native.schema_messages import (
    schema_version_to_wire,
    subject_to_wire,
    topic_schema_from_wire,
    topic_schema_to_wire,
)
from pydanube.wire.pb import stream_pb2 as pb

if TYPE_CHECKING:
    from pydanube.broker.broker import Broker

VERSIONS_BYTES_MAX = 1024 * 1024
"""The maximum size of the definitions in an answer that has several."""
VIOLATIONS_MAX = 1000
"""The maximum number of violations in an answer."""

SCHEMA_REQUESTS: Handlers[BrokerHandler] = Handlers()


def _new_schema(message: pb.NewSchema) -> NewSchema:
    return NewSchema(
        type=SchemaType.parse(message.type),
        definition=message.definition,
        message=message.message or None,
        description=message.description,
        created_by=message.created_by,
        tags=tuple(message.tags),
    )


@SCHEMA_REQUESTS.handler(pb.RegisterSchema)
async def _register(broker: Broker, m: pb.RegisterSchema) -> pb.SchemaRegistered:
    version, is_new = await broker.registry.register(m.subject, _new_schema(m.schema))
    return pb.SchemaRegistered(version=schema_version_to_wire(version), is_new=is_new)


@SCHEMA_REQUESTS.handler(pb.GetSchema)
async def _get(broker: Broker, m: pb.GetSchema) -> pb.SchemaVersion:
    registry = broker.registry
    if not m.subject:
        found = await registry.by_id(m.schema_id, m.version or None)
    elif m.version:
        found = await registry.version(m.subject, m.version)
    else:
        found = await registry.latest(m.subject)
    return schema_version_to_wire(found)


@SCHEMA_REQUESTS.handler(pb.ListSchemaVersions)
async def _list_versions(broker: Broker, m: pb.ListSchemaVersions) -> pb.SchemaVersions:
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
    return answer


@SCHEMA_REQUESTS.handler(pb.ListSubjects)
async def _list_subjects(broker: Broker, _: pb.ListSubjects) -> pb.Subjects:
    return pb.Subjects(subjects=await broker.registry.subjects())


@SCHEMA_REQUESTS.handler(pb.DescribeSubject)
async def _describe_subject(
    broker: Broker, m: pb.DescribeSubject
) -> pb.SubjectDescription:
    facts = await broker.registry.describe(m.subject)
    return subject_to_wire(facts)


@SCHEMA_REQUESTS.handler(pb.CheckSchema)
async def _check(broker: Broker, m: pb.CheckSchema) -> pb.SchemaChecked:
    mode = Compatibility.parse(m.compatibility) if m.compatibility else None
    violations = await broker.registry.check(m.subject, _new_schema(m.schema), mode)
    return pb.SchemaChecked(
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


@SCHEMA_REQUESTS.handler(pb.SetCompatibility)
async def _set_compatibility(broker: Broker, m: pb.SetCompatibility) -> None:
    mode = Compatibility.parse(m.compatibility)
    await broker.registry.set_compatibility(m.subject, mode)


@SCHEMA_REQUESTS.handler(pb.DeleteSchema)
async def _delete(broker: Broker, m: pb.DeleteSchema) -> None:
    if not m.subject:
        raise InvalidRequest("a subject is deleted, and none is named")
    if m.version:
        await broker.schemas.delete_version(m.subject, m.version, force=m.force)
    else:
        await broker.schemas.delete_subject(m.subject, force=m.force)


@SCHEMA_REQUESTS.handler(pb.BindSchema)
async def _bind(broker: Broker, m: pb.BindSchema) -> None:
    schema = topic_schema_from_wire(m.schema) if m.HasField("schema") else None
    await broker.schemas.bind(TopicName.parse(m.topic), schema)


@SCHEMA_REQUESTS.handler(pb.GetTopicSchema)
async def _topic_schema(broker: Broker, m: pb.GetTopicSchema) -> pb.TopicSchemaAnswer:
    schema = await broker.schemas.get(TopicName.parse(m.topic))
    answer = None if schema is None else topic_schema_to_wire(schema)
    return pb.TopicSchemaAnswer(schema=answer)
