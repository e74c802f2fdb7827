"""Conversions between messages of Danube's schema registry and types of the model."""

from __future__ import annotations

from pydanube.model.errors import InvalidRequest
from pydanube.model.schemas import (
    Compatibility,
    SchemaReference,
    SchemaType,
    SchemaVersion,
    SubjectDescription,
)
from pydanube.wire.pb import danube_api_pb2
from pydanube.wire.pb import schema_registry_pb2 as pb

_US_PER_S = 1_000_000


def reference_from_wire(
    request: danube_api_pb2.ProducerRequest,
) -> SchemaReference | None:
    """
    Return the writer schema that a producer names, if it names one.

    Raises:
        InvalidRequest: The pinned version is 0.
    """
    if not request.HasField("schema_ref"):
        return None
    reference = request.schema_ref
    which = reference.WhichOneof("version_ref")
    if which == "pinned_version":
        if not reference.pinned_version:
            raise InvalidRequest("the pinned schema version is 0; versions begin at 1")
        return SchemaReference(
            subject=reference.subject, version=reference.pinned_version
        )
    return SchemaReference(
        subject=reference.subject, version_min=reference.min_version or None
    )


def definition_from_wire(request: pb.RegisterSchemaRequest, type_: SchemaType) -> bytes:
    """
    Return the definition to register.

    Strings and bytes have none, although some clients send one.  For numbers, the type
    in the request may tell integers from floating-point numbers.
    """
    text = request.schema_definition
    if type_ in {SchemaType.STRING, SchemaType.BYTES}:
        return b""
    if type_ is SchemaType.NUMBER and text not in {b"int64", b"float64"}:
        is_float = request.schema_type.strip().lower() in {"float", "double"}
        return b"float64" if is_float else b""
    return text


def version_to_wire(
    found: SchemaVersion, compatibility: Compatibility
) -> pb.GetSchemaResponse:
    return pb.GetSchemaResponse(
        schema_id=found.schema_id,
        version=found.version,
        subject=found.subject,
        schema_type=found.type.value,
        schema_definition=found.definition.encode(),
        description=found.description,
        created_at=found.created_at // _US_PER_S,
        created_by=found.created_by,
        tags=found.tags,
        fingerprint=found.fingerprint,
        compatibility_mode=compatibility.value,
    )


def version_info_to_wire(found: SchemaVersion) -> pb.SchemaVersionInfo:
    return pb.SchemaVersionInfo(
        version=found.version,
        created_at=found.created_at // _US_PER_S,
        created_by=found.created_by,
        description=found.description,
        fingerprint=found.fingerprint,
        schema_id=found.schema_id,
    )


def subject_to_wire(subject: SubjectDescription) -> pb.SubjectSummary:
    """Return a summary; its latest version is 0 if all versions are deleted."""
    return pb.SubjectSummary(
        subject=subject.subject,
        schema_type=subject.type.value,
        latest_version=max(subject.versions, default=0),
        compatibility_mode=subject.compatibility.value,
        schema_id=subject.schema_id,
        tags=subject.tags,
    )
