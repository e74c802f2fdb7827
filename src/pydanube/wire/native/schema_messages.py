"""
Conversions between control messages about schemas and types of the model.

A ``…_from_wire`` function raises InvalidRequest if the peer sent an unknown value.
"""

from __future__ import annotations

from pydanube.model.errors import InvalidRequest
from pydanube.model.schemas import (
    Compatibility,
    SchemaPolicy,
    SchemaReference,
    SchemaType,
    SchemaVersion,
    SubjectDescription,
    TopicSchema,
)
from pydanube.wire.pb import stream_pb2 as pb


def schema_version_to_wire(version: SchemaVersion) -> pb.SchemaVersion:
    return pb.SchemaVersion(
        subject=version.subject,
        schema_id=version.schema_id,
        version=version.version,
        type=version.type.value,
        definition=version.definition.encode(),
        message=version.message or "",
        fingerprint=version.fingerprint,
        description=version.description,
        created_at=version.created_at,
        created_by=version.created_by,
        tags=version.tags,
    )


def schema_version_from_wire(message: pb.SchemaVersion) -> SchemaVersion:
    return SchemaVersion(
        subject=message.subject,
        schema_id=message.schema_id,
        version=message.version,
        type=SchemaType.parse(message.type),
        definition=message.definition.decode(),
        message=message.message or None,
        fingerprint=message.fingerprint,
        description=message.description,
        created_at=message.created_at,
        created_by=message.created_by,
        tags=tuple(message.tags),
    )


def subject_to_wire(description: SubjectDescription) -> pb.SubjectDescription:
    return pb.SubjectDescription(
        subject=description.subject,
        schema_id=description.schema_id,
        type=description.type.value,
        compatibility=description.compatibility.value,
        versions=description.versions,
        tags=description.tags,
    )


def subject_from_wire(message: pb.SubjectDescription) -> SubjectDescription:
    return SubjectDescription(
        subject=message.subject,
        schema_id=message.schema_id,
        type=SchemaType.parse(message.type),
        compatibility=Compatibility.parse(message.compatibility),
        versions=tuple(message.versions),
        tags=tuple(message.tags),
    )


def topic_schema_to_wire(schema: TopicSchema) -> pb.TopicSchema:
    return pb.TopicSchema(
        subject=schema.subject,
        policy=schema.policy.value,
        validates_payload=schema.validates_payload,
        version=schema.version or 0,
        version_min=schema.version_min or 0,
    )


def topic_schema_from_wire(message: pb.TopicSchema) -> TopicSchema:
    if not message.subject:
        raise InvalidRequest("to bind a topic to a schema, name the subject")
    return TopicSchema(
        subject=message.subject,
        policy=SchemaPolicy.parse(message.policy or SchemaPolicy.WARN.value),
        validates_payload=message.validates_payload,
        version=message.version or None,
        version_min=message.version_min or None,
    )


def reference_to_wire(reference: SchemaReference) -> pb.SchemaReference:
    return pb.SchemaReference(
        subject=reference.subject,
        version=reference.version or 0,
        version_min=reference.version_min or 0,
    )


def reference_from_wire(message: pb.SchemaReference) -> SchemaReference:
    return SchemaReference(
        subject=message.subject,
        version=message.version or None,
        version_min=message.version_min or None,
    )
