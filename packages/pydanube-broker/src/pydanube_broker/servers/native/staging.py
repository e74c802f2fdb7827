"""
Staging over the native protocol.

A stage is a channel, like a producer.  Operations on a whole part or version do not
belong to a channel; see ``operations.staging``.
"""

from __future__ import annotations

import asyncio

from pydanube.model.errors import BrokerError
from pydanube.wire.native.connection import ReceivedFrame
from pydanube.wire.native.kinds import Kind
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.broker.staging.staged_parts import Stage
from pydanube_broker.servers.native.link import Channel, ClientLink


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
        link.charge_received(batch)
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
