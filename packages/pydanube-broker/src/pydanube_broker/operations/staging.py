"""Operations on staged parts and versions, and on transactions."""

from __future__ import annotations

from pydanube.model.errors import InvalidRequest
from pydanube.model.names import parse_client_name
from pydanube.model.staging import PartKey, StagedPart, TransactionAcks
from pydanube.wire.native.messages import (
    RANGES_MAX,
    from_wire,
    ranges_from_wire,
    to_wire,
)
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.broker.serving.subscriptions import NOTE_LENGTH_MAX
from pydanube_broker.operations.handlers import Call, operation


@operation
async def finish_part(call: Call, m: pb.FinishPart) -> pb.PartFinished:
    """End a part of a staged version."""
    byte_count = await call.broker.staging.finish_part(
        part_key_of(m), m.batch_count, m.message_count
    )
    return pb.PartFinished(byte_count=byte_count)


def part_key_of(message: pb.OpenStage | pb.FinishPart | pb.DropPart) -> PartKey:
    """
    Return the key of the part that *message* names.

    Raises:
        InvalidName: A name is malformed.
    """
    key = from_wire(PartKey, message)
    parse_client_name("query", key.query)
    _check_part(key)
    return key


@operation
async def drop_part(call: Call, m: pb.DropPart) -> None:
    """Drop a part of a staged version."""
    await call.broker.staging.drop_part(part_key_of(m))


@operation
async def commit_staged(call: Call, m: pb.CommitStaged) -> pb.StagedCommitted:
    """Publish the messages of a staged version, or commit a transaction."""
    query = parse_client_name("query", m.query)
    # The broker knows the length of its parts.
    parts = [from_wire(StagedPart, each, byte_count=0) for each in m.parts]
    for part in parts:
        _check_part(part)
    acks = [
        TransactionAcks(
            topic=each.topic,
            subscription=each.subscription,
            consumer_id=each.consumer_id,
            ranges=tuple(ranges_from_wire(each.ranges, RANGES_MAX)),
            note=each.note,
        )
        for each in m.acks
    ]
    if any(len(each.note) > NOTE_LENGTH_MAX for each in acks):
        raise InvalidRequest(f"a note has at most {NOTE_LENGTH_MAX} characters")
    commit = await call.broker.staging.commit(
        query, m.version, parts, is_transaction=m.is_transaction, acks=acks
    )
    return to_wire(pb.StagedCommitted, commit)


def _check_part(part: PartKey | StagedPart) -> None:
    parse_client_name("part", part.name)
    parse_client_name("part id", part.part_id)


@operation
async def begin_transaction(call: Call, m: pb.BeginTransaction) -> pb.TransactionBegun:
    """Return the version of a new transaction."""
    query = parse_client_name("query", m.query)
    version = await call.broker.staging.begin_transaction(query)
    return pb.TransactionBegun(version=version)


@operation
async def drop_staged(call: Call, m: pb.DropStaged) -> None:
    """Drop a staged version."""
    await call.broker.staging.drop_version(
        parse_client_name("query", m.query), m.version
    )


@operation
async def release_query(call: Call, m: pb.ReleaseQuery) -> None:
    """Release a query from the principal that owns it."""
    await call.broker.staging.release(parse_client_name("query", m.query))


@operation
async def describe_staging(call: Call, m: pb.DescribeStaging) -> pb.StagingDescription:
    """Return the versions and parts of a query."""
    query = parse_client_name("query", m.query)
    facts = await call.broker.staging.describe(
        query, counts_parts=not m.is_progress_only
    )
    return to_wire(pb.StagingDescription, facts)
