"""What `danube-cli` and `danube-admin` ask of a schema registry over gRPC."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydanube.model.errors import InvalidRequest
from pydanube.wire.pb import schema_registry_pb2 as pb

if TYPE_CHECKING:
    from pathlib import Path

    from google.protobuf.message import Message

    from pydanube.cli.grpc_calls import Caller

SERVICE = pb.DESCRIPTOR.services_by_name["SchemaRegistry"]

TYPES = "json_schema|avro|protobuf|string|number|bytes"
"""As the help of a command shows them."""


async def registry_call(caller: Caller, method: str, request: Message) -> Any:
    """
    The answer of the registry behind *caller*.

    Raises:
        CallFailed: Nobody answers, or the registry says no.
    """
    return await caller.call(SERVICE, method, request)


def definition_of(file: Path | None, text: str | None = None) -> bytes:
    """
    A schema from a file or from the command line.

    Raises:
        InvalidRequest: It is in both, or the file cannot be read.
    """
    if file is not None and text is not None:
        raise InvalidRequest("either --file or --schema has the schema, not both")
    if file is None:
        return (text or "").encode()
    try:
        return file.read_bytes()
    except OSError as error:
        raise InvalidRequest(f"{file} cannot be read: {error.strerror}") from error


def version_document(found: pb.GetSchemaResponse) -> dict[str, Any]:
    """One version as JSON, in the words of the original's tools."""
    return {
        "schema_id": found.schema_id,
        "version": found.version,
        "subject": found.subject,
        "schema_type": found.schema_type,
        "schema_definition": found.schema_definition.decode(errors="replace"),
        "description": found.description,
        "created_at": found.created_at,
        "created_by": found.created_by,
        "tags": list(found.tags),
        "fingerprint": found.fingerprint,
        "compatibility_mode": found.compatibility_mode.upper(),
    }


def registered_document(
    subject: str, answer: pb.RegisterSchemaResponse
) -> dict[str, Any]:
    """What became of a registration as JSON."""
    return {
        "subject": subject,
        "schema_id": answer.schema_id,
        "version": answer.version,
        "is_new_version": answer.is_new_version,
        "fingerprint": answer.fingerprint,
    }


def subject_document(subject: pb.SubjectSummary) -> dict[str, Any]:
    """One subject as JSON."""
    return {
        "subject": subject.subject,
        "schema_type": subject.schema_type,
        "latest_version": subject.latest_version,
        "schema_id": subject.schema_id,
        "compatibility_mode": subject.compatibility_mode.upper(),
        "tags": list(subject.tags),
    }
