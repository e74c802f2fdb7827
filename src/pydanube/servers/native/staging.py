"""
Staging over the native protocol.

A stage is a channel, like a producer.  Operations on a whole part or version do not
belong to a channel.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from pydanube.model.errors import MessageTooLarge
from pydanube.model.names import TopicName, parse_client_name
from pydanube.servers.native.handlers import BrokerHandler, Handlers
from pydanube.wire.native.kinds import Kind
from pydanube.wire.native.schema_messages import reference_from_wire
from pydanube.wire.native.staging_messages import (
    part_from_wire,
    part_key_from_wire,
    staging_to_wire,
)
from pydanube.wire.pb import stream_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterator

    from google.protobuf.message import Message

    from pydanube.broker.broker import Broker
    from pydanube.broker.staged_parts import Stage
    from pydanube.model.errors import BrokerError
    from pydanube.wire.batches import BatchFrame


STAGING_REQUESTS: Handlers[BrokerHandler] = Handlers()


class ClientConnection(Protocol):
    """The interface of a connection for its stages."""

    def send_on(self, channel: int, kind: Kind, message: Message) -> None:
        """Send a control frame on a channel."""

    def close_channel(self, channel: int, reason: BrokerError) -> None:
        """Close a channel, and send the reason."""


class StageChannel:
    """One stage of one connection; implements ``StagePort``."""

    def __init__(self, connection: ClientConnection, channel: int) -> None:
        self.stage: Stage | None = None
        self._connection = connection
        self._channel = channel
        self._next_sequence: int | None = None

    def staged(self, next_sequence: int) -> None:
        """See StagePort."""
        if self._next_sequence is None:
            # Batches that are written together are acknowledged in one frame.
            asyncio.get_running_loop().call_soon(self._send_progress)
        self._next_sequence = next_sequence

    def close(self, reason: BrokerError) -> None:
        """See StagePort."""
        self._send_progress()
        self.stage = None
        self._connection.close_channel(self._channel, reason)

    def leave(self) -> None:
        """Leave the stage, because the client or the connection ended."""
        stage, self.stage = self.stage, None
        self._next_sequence = None
        if stage is not None:
            stage.leave()

    def _send_progress(self) -> None:
        next_sequence, self._next_sequence = self._next_sequence, None
        if next_sequence is not None and self.stage is not None:
            self._connection.send_on(
                self._channel, Kind.STAGED, pb.Staged(next_sequence=next_sequence)
            )


class Stages:
    """The stages of one connection."""

    def __init__(self, broker: Broker, batch_bytes_max: int) -> None:
        self._broker = broker
        self._batch_bytes_max = batch_bytes_max
        self._channels: dict[int, StageChannel] = {}

    def __iter__(self) -> Iterator[int]:
        """Iterate over the channels."""
        return iter(self._channels)

    async def open(
        self, connection: ClientConnection, channel: int, m: pb.OpenStage
    ) -> pb.StageOpened:
        """Open a stage on *channel* of *connection*."""
        port = StageChannel(connection, channel)
        stage = await self._broker.staging.open_stage(
            part_key_from_wire(m),
            TopicName.parse(m.topic),
            reference_from_wire(m.schema) if m.HasField("schema") else None,
            port,
        )
        port.stage = stage
        self._channels[channel] = port
        return pb.StageOpened(
            producer=stage.producer,
            next_sequence=stage.next_sequence,
            batch_bytes_max=self._batch_bytes_max,
            schema_id=0 if stage.schema is None else stage.schema.schema_id,
            schema_version=0 if stage.schema is None else stage.schema.version,
        )

    def take(self, channel: int, frame: BatchFrame) -> None:
        """Stage a batch."""
        port = self._channels.get(channel)
        if port is None or port.stage is None:
            return
        if frame.plain_bytes > self._batch_bytes_max:
            port.stage.refuse(too_long(frame, self._batch_bytes_max))
        else:
            port.stage.take(frame)

    def close(self, channel: int) -> None:
        """Close the stage on *channel*, if there is one."""
        port = self._channels.pop(channel, None)
        if port is not None:
            port.leave()

    def close_all(self) -> None:
        """Close all stages."""
        for channel in list(self._channels):
            self.close(channel)


@STAGING_REQUESTS.handler(pb.FinishPart)
async def _finish_part(broker: Broker, m: pb.FinishPart) -> pb.PartFinished:
    byte_count = await broker.staging.finish_part(
        part_key_from_wire(m), m.batch_count, m.message_count
    )
    return pb.PartFinished(byte_count=byte_count)


@STAGING_REQUESTS.handler(pb.DropPart)
async def _drop_part(broker: Broker, m: pb.DropPart) -> None:
    await broker.staging.drop_part(part_key_from_wire(m))


@STAGING_REQUESTS.handler(pb.CommitStaged)
async def _commit(broker: Broker, m: pb.CommitStaged) -> pb.StagedCommitted:
    query = parse_client_name("query", m.query)
    parts = [part_from_wire(each) for each in m.parts]
    commit = await broker.staging.commit(query, m.version, parts)
    return pb.StagedCommitted(
        message_count=commit.message_count, is_repeat=commit.is_repeat
    )


@STAGING_REQUESTS.handler(pb.DropStaged)
async def _drop_version(broker: Broker, m: pb.DropStaged) -> None:
    await broker.staging.drop_version(parse_client_name("query", m.query), m.version)


@STAGING_REQUESTS.handler(pb.DescribeStaging)
async def _describe(broker: Broker, m: pb.DescribeStaging) -> pb.StagingDescription:
    facts = await broker.staging.describe(parse_client_name("query", m.query))
    return staging_to_wire(facts)


def too_long(batch: BatchFrame, bytes_max: int) -> MessageTooLarge:
    """Return the error for a batch that may not fit into a frame later."""
    return MessageTooLarge(
        f"a batch of {batch.plain_bytes} bytes before compression; the broker takes "
        f"batches of at most {bytes_max}"
    )
