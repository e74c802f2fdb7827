"""
Staging over the native protocol.

A stage is a channel, like a producer.  Operations on a whole part or version do not
belong to a channel.
"""

from __future__ import annotations

import asyncio

from pydanube.broker.broker import Broker
from pydanube.broker.staged_parts import Stage
from pydanube.model.errors import BrokerError
from pydanube.model.names import parse_client_name
from pydanube.model.staging import PartKey, StagedPart, TransactionAcks
from pydanube.servers.native.link import Channel, ClientLink
from pydanube.servers.native.requests import REQUESTS
from pydanube.wire.native.connection import ReceivedFrame
from pydanube.wire.native.kinds import Kind
from pydanube.wire.native.messages import (
    RANGES_MAX,
    from_wire,
    ranges_from_wire,
    to_wire,
)
from pydanube.wire.pb import stream_pb2 as pb


class StageChannel(Channel):
    """One stage of one connection; implements ``StagePort``."""

    __slots__ = ("_next_sequence", "stage")

    def __init__(self, link: ClientLink, number: int) -> None:
        super().__init__(link, number)
        self.stage: Stage | None = None
        self._next_sequence: int | None = None

    def on_frame(self, frame: ReceivedFrame) -> None:
        """Stage a batch."""
        batch, link = frame.batch, self._link
        assert batch is not None
        link.charge_received(batch.byte_count)
        if self.stage is not None:
            if batch.plain_bytes > link.batch_bytes_max:
                self.stage.refuse(link.too_long(batch))
            else:
                self.stage.take(batch)
        link.pause_without_room("staging", link.broker.staging.files)

    def staged(self, next_sequence: int) -> None:
        if self._next_sequence is None:
            # Batches that are written together are acknowledged in one frame.
            asyncio.get_running_loop().call_soon(self._send_progress)
        self._next_sequence = next_sequence

    def close(self, reason: BrokerError) -> None:
        self._send_progress()
        self.stage = None
        self._link.close_channel(self._number, reason)

    def leave(self) -> None:
        stage, self.stage = self.stage, None
        self._next_sequence = None
        if stage is not None:
            stage.leave()

    def _send_progress(self) -> None:
        next_sequence, self._next_sequence = self._next_sequence, None
        if next_sequence is not None and self.stage is not None:
            self._link.send_on(
                self._number, Kind.STAGED, pb.Staged(next_sequence=next_sequence)
            )


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


def _check_part(part: PartKey | StagedPart) -> None:
    parse_client_name("part", part.name)
    parse_client_name("part id", part.part_id)


@REQUESTS.handler(pb.FinishPart)
async def _finish_part(broker: Broker, m: pb.FinishPart) -> pb.PartFinished:
    byte_count = await broker.staging.finish_part(
        part_key_of(m), m.batch_count, m.message_count
    )
    return pb.PartFinished(byte_count=byte_count)


@REQUESTS.handler(pb.DropPart)
async def _drop_part(broker: Broker, m: pb.DropPart) -> None:
    await broker.staging.drop_part(part_key_of(m))


@REQUESTS.handler(pb.CommitStaged)
async def _commit(broker: Broker, m: pb.CommitStaged) -> pb.StagedCommitted:
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
        )
        for each in m.acks
    ]
    commit = await broker.staging.commit(
        query, m.version, parts, is_transaction=m.is_transaction, acks=acks
    )
    return to_wire(pb.StagedCommitted, commit)


@REQUESTS.handler(pb.BeginTransaction)
async def _begin_transaction(
    broker: Broker, m: pb.BeginTransaction
) -> pb.TransactionBegun:
    query = parse_client_name("query", m.query)
    version = await broker.staging.begin_transaction(query)
    return pb.TransactionBegun(version=version)


@REQUESTS.handler(pb.DropStaged)
async def _drop_version(broker: Broker, m: pb.DropStaged) -> None:
    await broker.staging.drop_version(parse_client_name("query", m.query), m.version)


@REQUESTS.handler(pb.ReleaseQuery)
async def _release_query(broker: Broker, m: pb.ReleaseQuery) -> None:
    await broker.staging.release(parse_client_name("query", m.query))


@REQUESTS.handler(pb.DescribeStaging)
async def _describe(broker: Broker, m: pb.DescribeStaging) -> pb.StagingDescription:
    facts = await broker.staging.describe(parse_client_name("query", m.query))
    return to_wire(pb.StagingDescription, facts)
