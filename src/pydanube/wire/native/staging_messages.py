"""Conversions between control messages about staging and types of the model."""

from __future__ import annotations

from typing import Any, TypeVar

from pydanube.model.names import parse_client_name
from pydanube.model.staging import PartKey, StagedPart, StagingDescription
from pydanube.wire.pb import stream_pb2 as pb

OfPart = TypeVar("OfPart", pb.OpenStage, pb.FinishPart, pb.DropPart)


def part_key_to_wire(key: PartKey, message: OfPart) -> OfPart:
    """Set the fields of *message* that name the part *key*; return *message*."""
    message.query = key.query
    message.version = key.version
    message.part = key.name
    message.part_id = key.part_id
    return message


def part_key_from_wire(message: Any) -> PartKey:
    """
    Return the key of the part that *message* names.

    Raises:
        InvalidName: A name is malformed.
    """
    return PartKey(
        query=parse_client_name("query", message.query),
        version=message.version,
        name=parse_client_name("part", message.part),
        part_id=parse_client_name("part id", message.part_id),
    )


def part_from_wire(message: pb.StagedPart) -> StagedPart:
    """Return a part to commit; its length, which the broker knows, is 0."""
    return StagedPart(
        name=parse_client_name("part", message.name),
        part_id=parse_client_name("part id", message.part_id),
        batch_count=message.batch_count,
        message_count=message.message_count,
        byte_count=0,
    )


def staging_to_wire(description: StagingDescription) -> pb.StagingDescription:
    return pb.StagingDescription(
        committed_version=description.committed_version,
        is_finished=description.is_finished,
        part_count=description.part_count,
        byte_count=description.byte_count,
    )


def staging_from_wire(query: str, message: pb.StagingDescription) -> StagingDescription:
    committed = message.HasField("committed_version")
    return StagingDescription(
        query=query,
        committed_version=message.committed_version if committed else None,
        is_finished=message.is_finished,
        part_count=message.part_count,
        byte_count=message.byte_count,
    )
