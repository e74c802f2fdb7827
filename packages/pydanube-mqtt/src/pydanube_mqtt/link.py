"""
The transport of a connection of MQTT: its turns, pauses, quotas and writes.

Packets are handled in order, at once when their bytes arrive.  The connection is not
read while something that has to wait is done for its client.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from pydanube.aio.tasks import TaskScope
from pydanube.aio.tls_connection import receive_buffer
from pydanube.aio.write_buffer import WriteBuffer
from pydanube.wire.turn_budget import BYTES_PER_UNIT, TurnBudget
from pydanube_broker.dispatch.quota_meter import UNLIMITED
from pydanube_broker.operations.quota_holds import QuotaHold
from pydanube_broker.servers.settings.addresses import address_of, peer_text
from pydanube_mqtt.wire.decoding import PacketReader
from pydanube_mqtt.wire.packets import Packet, PacketError, Publish

log = logging.getLogger(__name__)

WRITE_BUFFER_BYTES = 256 * 1024
"""The client is sent nothing new while so much waits in the transport."""
PACKET_UNITS = 2
"""The cost of a packet in units of the connection's budget for a turn."""


class MqttLink(asyncio.BufferedProtocol):
    """
    A connection as bytes and packets.

    Bounds: A partial packet, and ``WRITE_BUFFER_BYTES``.
    """

    __slots__ = (
        "_budget",
        "_can_write",
        "_has_received",
        "_hold",
        "_is_lost",
        "_is_reading",
        "_is_turn_due",
        "_loop",
        "_pauses",
        "_reader",
        "_tasks",
        "_transport",
        "_write_buffer",
        "address",
        "meter",
        "peer",
    )

    def __init__(self, tasks: TaskScope, packet_bytes_max: int) -> None:
        self.peer = "?"
        self.address = ""
        self.meter = UNLIMITED
        """The meter of the client's quota."""
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._reader = PacketReader(packet_bytes_max)
        self._pauses: set[str] = set()
        self._is_reading = True
        self._is_lost = False
        self._can_write = True
        self._budget = TurnBudget()
        self._is_turn_due = False
        self._has_received = False
        self._hold: QuotaHold | None = None
        self._transport: asyncio.Transport
        self._write_buffer: WriteBuffer

    # For subclasses.

    def send_waiting(self) -> None:
        """Send what waits for the client, as far as it reads it."""
        raise NotImplementedError

    def _on_packet(self, packet: Packet) -> None:
        """Handle a received packet."""
        raise NotImplementedError

    def _on_handled(self) -> None:
        """Do what the received packets of this turn make necessary."""

    def _on_violation(self, error: PacketError) -> None:
        """Answer a violation of the protocol, and close the connection."""
        raise NotImplementedError

    @property
    def version(self) -> int:
        """The version of MQTT that the client speaks."""
        return self._reader.version

    @property
    def is_lost(self) -> bool:
        """Whether the connection is closed or about to be."""
        return self._is_lost or self._transport.is_closing()

    # Callbacks of asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.BaseProtocol."""
        self._transport = transport  # type: ignore[assignment]
        self._write_buffer = WriteBuffer(self._transport, self._loop)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        peername = transport.get_extra_info("peername")
        self.peer, self.address = peer_text(peername), address_of(peername)

    def get_buffer(self, sizehint: int) -> memoryview:
        """See asyncio.BufferedProtocol."""
        return receive_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """See asyncio.BufferedProtocol."""
        self.receive(receive_buffer()[:nbytes])

    def receive(self, data: bytes | memoryview) -> None:
        """Handle what the client has sent."""
        self._reader.add(data)
        self._has_received = True
        self._charge_received(len(data))
        self._handle_packets()

    def pause_writing(self) -> None:
        """See asyncio.BaseProtocol."""
        self._can_write = False
        self.pause("writing")

    def resume_writing(self) -> None:
        """See asyncio.BaseProtocol."""
        self._can_write = True
        self.unpause("writing")
        self.send_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.BaseProtocol."""
        self._is_lost = True
        log.debug("the connection of %s is closed: %s", self.peer, exc or "regularly")
        if self._hold is not None:
            self._hold.end()
        if self.meter is not UNLIMITED:
            self.meter.disconnect()
            self.meter = UNLIMITED

    def abort(self) -> None:
        """Close it at once."""
        self._transport.abort()

    # The share of the event loop that the connection gets.

    def _handle_packets(self) -> None:
        self._start_turn_soon()
        if self._pauses or self._is_lost:
            self._update_reading()
            return
        try:
            for packet in self._reader.packets():
                is_spent = self._budget.spend(_units_of(packet))
                self._on_packet(packet)
                if is_spent:
                    self._pauses.add("turn")
                if self._pauses or self.is_lost:
                    break
        except PacketError as error:
            self._on_violation(error)
        except Exception:
            # A bug fails this connection, not the server.
            log.exception("closing the connection of %s after a failure", self.peer)
            self._transport.abort()
        self._on_handled()
        self._update_reading()

    def _start_turn_soon(self) -> None:
        if not self._is_turn_due:
            self._is_turn_due = True
            self._loop.call_soon(self._start_turn)

    def _start_turn(self) -> None:
        self._budget.refill()
        if self._budget.is_spent:
            self._loop.call_soon(self._start_turn)
            return
        self._is_turn_due = False
        self._pauses.discard("turn")
        if self._pauses or self._is_reading or self.is_lost:
            return
        self._handle_packets()

    def _update_reading(self) -> None:
        if self._is_reading == (not self._pauses) or self._transport.is_closing():
            return
        self._is_reading = not self._pauses
        if self._is_reading:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    # Pauses.

    def pause(self, reason: str) -> None:
        """Stop reading until ``unpause`` is called with *reason*."""
        self._pauses.add(reason)
        self._update_reading()

    def unpause(self, reason: str) -> None:
        """Remove a reason to pause; read again if no other reason is left."""
        if reason in self._pauses:
            self._pauses.discard(reason)
            if not self._pauses:
                self._start_turn_soon()

    def do(self, work: Coroutine[Any, Any, None]) -> None:
        """Do *work*, which may wait, before the next packet."""
        self._pauses.add("work")
        self._tasks.run(self._finish(work))

    async def _finish(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except PacketError as error:
            self._on_violation(error)
        except Exception:
            log.exception("closing the connection of %s after a failure", self.peer)
            self._transport.abort()
        self.unpause("work")

    # Quotas.

    @property
    def _is_held(self) -> bool:
        return self._hold is not None and self._hold.is_held

    def _charge_received(self, byte_count: int) -> None:
        if self.meter.bytes_in is not None:
            delay_s = self.meter.take_in(byte_count, self._loop.time())
            if delay_s > 0:
                self._extend_hold(delay_s)
                self.pause("quota")

    def _charge_sent(self, byte_count: int) -> None:
        if self.meter.bytes_out is not None:
            delay_s = self.meter.take_out(byte_count, self._loop.time())
            if delay_s > 0:
                self._extend_hold(delay_s)

    def _extend_hold(self, delay_s: float) -> None:
        if self._hold is None:
            self._hold = QuotaHold(self._loop, self._owed_s, self._on_quota)
        self._hold.extend(delay_s)

    def _owed_s(self, now: float) -> float:
        return max(self.meter.delay_received_s(now), self.meter.delay_out_s(now))

    def _on_quota(self) -> None:
        self.unpause("quota")
        self.send_waiting()

    # Writing.

    def write(self, data: bytes) -> None:
        """Send *data*, unless the connection is lost."""
        if data and not self._is_lost:
            self._write_buffer.write(data)


def _units_of(packet: Packet) -> int:
    """Return the cost of a packet in units of the connection's budget."""
    if isinstance(packet, Publish):
        return PACKET_UNITS + len(packet.payload) // BYTES_PER_UNIT
    return PACKET_UNITS
