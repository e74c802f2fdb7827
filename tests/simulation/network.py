"""
A network of byte streams between clients and the broker's machine.

Bytes arrive in order, late and in pieces.  A link may stall, break or become silent.
If it breaks, each side notices at a different time, and bytes on the way are cut off
anywhere.  If it is silent, bytes are lost without notice.  If a side reads slowly or
not at all, the buffer of the other side fills up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import copy_context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from simulation.loop import HOST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random

    from simulation.loop import Host, SimulatedLoop

REFUSAL_S_MAX = 10.0
"""The longest time until a client sends to a machine that has rebooted."""
SILENCE_S_MAX = 900.0
"""The time after which a kernel closes a silent connection."""


class Listener(Protocol):
    """A process that accepts connections."""

    host: Host

    def new_protocol(self) -> asyncio.BufferedProtocol:
        """Return the protocol of a new connection."""


class Tap(Protocol):
    """An observer of the broker's end of a link."""

    def on_received(self, data: bytes) -> None:
        """Handle that the broker receives *data*."""

    def on_written(self, data: bytes) -> None:
        """Handle that the broker has written *data*."""

    def on_lost(self) -> None:
        """Handle that the broker notices the loss of the connection."""


@dataclass(slots=True)
class NetworkConditions:
    """The properties of links without faults."""

    latency_s: float = 0.0005
    jitter_s: float = 0.001
    cut_share: float = 0.2
    """The fraction of writes that arrive in pieces."""
    window_bytes: int = 64 * 1024
    """The bytes that kernels buffer if the peer does not read."""


class Network:
    """All links between clients and the broker."""

    def __init__(
        self,
        loop: SimulatedLoop,
        rng: Random,
        conditions: NetworkConditions,
        note: Callable[[str], None],
        new_tap: Callable[[Link], Tap],
    ) -> None:
        self.loop = loop
        self.rng = rng
        self.conditions = conditions
        self.note = note
        self.listener: Listener | None = None
        """The process that accepts connections; None: the port is closed."""
        self.is_cut = False
        """Whether the machine is unreachable, and does not even refuse connections."""
        self.links: dict[int, Link] = {}
        """The links that exist at one end at least, by number."""
        self.buffered_bytes_max = 0
        """The most bytes that the broker has buffered for one link."""
        self._new_tap = new_tap
        self._count = 0

    def dial_from(self, host: Host) -> Callable[[Callable[[], Any]], Any]:
        """Return a function with which a client on *host* connects."""

        async def dial(factory: Callable[[], Any]) -> Any:
            await asyncio.sleep(self.delay_s())
            if self.is_cut:
                await asyncio.sleep(SILENCE_S_MAX)
                raise TimeoutError(110, "Connection timed out")
            listener = self.listener
            if listener is None:
                raise ConnectionRefusedError(111, "Connection refused")
            connection = factory()
            self._count += 1
            link = Link(self, self._count, host, connection, listener)
            self.links[link.number] = link
            self.note(f"link {link.number} from {host.name}")
            link.begin(self._new_tap(link))
            await asyncio.sleep(self.delay_s())
            return connection

        return dial

    def delay_s(self) -> float:
        """Return a random latency."""
        conditions = self.conditions
        return conditions.latency_s + self.rng.random() * conditions.jitter_s

    def on_process_died(self, host: Host, *, is_silent: bool) -> None:
        """Handle the end of a process; its kernel resets links unless *is_silent*."""
        for link in list(self.links.values()):
            for end in (link.client, link.broker):
                if end.host is host:
                    end.vanish(is_silent=is_silent)

    def on_rebooted(self) -> None:
        """Handle that the machine has rebooted and forgotten its connections."""
        self.is_cut = False
        for link in self.links.values():
            if not link.broker.host.is_alive:
                link.client.lose_later(
                    self.rng.random() * REFUSAL_S_MAX,
                    ConnectionResetError(104, "Connection reset by peer"),
                )


class Link:
    """A connection; see the module."""

    def __init__(
        self, network: Network, number: int, host: Host, connection: Any, to: Listener
    ) -> None:
        self.number = number
        self.network = network
        self.is_silent = False
        # The broker's side runs in the context of the broker's process.
        context = copy_context()
        context.run(HOST.set, to.host)
        protocol = context.run(to.new_protocol)
        self.client = End(self, host, connection, copy_context())
        self.broker = End(self, to.host, protocol, context)
        self.client.other, self.broker.other = self.broker, self.client

    def begin(self, tap: Tap) -> None:
        """Tell both protocols that they are connected."""
        self.broker.tap = tap
        for end in (self.client, self.broker):
            end.run(end.protocol.connection_made, end)

    def stall(self, seconds: float) -> None:
        """Delay all bytes for a while."""
        self.network.note(f"link {self.number} stalls for {seconds:.3f} s")
        until = self.network.loop.time() + seconds
        for end in (self.client, self.broker):
            end.arrives_at = max(end.arrives_at, until)

    def reset(self) -> None:
        """Break the connection; bytes on the way may arrive in part."""
        self.network.note(f"link {self.number} is reset")
        for end in (self.client, self.broker):
            end.break_off(ConnectionResetError(104, "Connection reset by peer"))

    def go_silent(self) -> None:
        """Lose all bytes from now on; both sides notice only much later."""
        self.network.note(f"link {self.number} goes silent")
        self.is_silent = True
        for end in (self.client, self.broker):
            end.drop_incoming()
            end.lose_later(
                SILENCE_S_MAX * (0.5 + self.network.rng.random()),
                TimeoutError(110, "Connection timed out"),
            )


class End(asyncio.Transport):
    """The transport of one end of a link."""

    def __init__(self, link: Link, host: Host, protocol: Any, context: Any) -> None:
        super().__init__({"peername": f"link {link.number}"})
        self.host = host
        self.protocol = protocol
        self.other: End
        self.tap: Tap | None = None
        self.arrives_at = 0.0
        """The earliest time of the next arrival."""
        self._link = link
        self._network = link.network
        self._context = context
        # Bytes on the way, bytes that arrived and were not read, and their number.
        self._on_the_way: deque[bytes | None] = deque()
        self._incoming: deque[bytes | None] = deque()
        # The part of the last piece that the protocol did not read before a pause.
        self._rest = memoryview(b"")
        self._unread_bytes = 0
        self._high_bytes = 64 * 1024
        self._is_writing_paused = False
        self._is_reading_paused = False
        self._is_closing = False
        self._is_lost = False
        self._drops_incoming = False

    def run(self, call: Callable[..., Any], *args: Any) -> Any:
        """Call the protocol in the context of its process."""
        if self.host.is_alive:
            # A copy: a context cannot be entered twice, and ends call each other.
            return self._context.copy().run(call, *args)
        return None

    # Called by the protocol.

    def write(self, data: Any) -> None:
        """See asyncio.WriteTransport."""
        if self._is_closing or not data or not self.host.is_alive:
            return
        kept = bytes(data)
        if self.tap is not None:
            self.tap.on_written(kept)
        self.other.carry(kept)
        self._check_buffer()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        """See asyncio.WriteTransport."""
        self.write(b"".join(list_of_data))

    def set_write_buffer_limits(
        self, high: int | None = None, low: int | None = None
    ) -> None:
        """See asyncio.WriteTransport."""
        if high is not None:
            self._high_bytes = high

    def get_write_buffer_size(self) -> int:
        """See asyncio.WriteTransport."""
        return max(0, self.other._unread_bytes - self._network.conditions.window_bytes)

    def pause_reading(self) -> None:
        """See asyncio.ReadTransport."""
        self._is_reading_paused = True

    def resume_reading(self) -> None:
        """See asyncio.ReadTransport."""
        if self._is_reading_paused:
            self._is_reading_paused = False
            self._network.loop.call_soon(self._read, context=self._context)

    def is_closing(self) -> bool:
        """See asyncio.BaseTransport."""
        return self._is_closing

    def close(self) -> None:
        """See asyncio.BaseTransport; written bytes still arrive."""
        if self._is_closing:
            return
        self._is_closing = True
        self.other.carry(None)
        self._close_when_written()

    def abort(self) -> None:
        """See asyncio.WriteTransport."""
        self._is_closing = True
        self._network.loop.call_soon(self._lose, None, context=self._context)
        self.other.break_off(ConnectionResetError(104, "Connection reset by peer"))

    # Called by the network.

    def carry(self, data: bytes | None) -> None:
        """Transport *data* from the other end; None is the end of the stream."""
        if data is not None:
            self._unread_bytes += len(data)
        if self._link.is_silent or self._drops_incoming:
            return
        network = self._network
        pieces: list[bytes | None] = [data]
        if network.rng.random() < network.conditions.cut_share and data:
            at = int(network.rng.random() * len(data))
            pieces = [data[:at], data[at:]]
        loop = network.loop
        for piece in pieces:
            self.arrives_at = max(self.arrives_at, loop.time() + network.delay_s())
            # Timers of the same time have no order, but the queue has.
            self._on_the_way.append(piece)
            loop.call_at(self.arrives_at, self._arrive, context=self._context)

    def break_off(self, error: Exception | None) -> None:
        """Break the connection; the protocol notices soon."""
        rng = self._network.rng
        if rng.random() < 0.5:
            # Lose the bytes on the way; otherwise some of them arrive first.
            self.drop_incoming()
        self.lose_later(rng.random() * 0.02, error)

    def drop_incoming(self) -> None:
        """Lose all bytes on the way."""
        self._drops_incoming = True
        self._on_the_way.clear()
        self._incoming.clear()
        self._rest = memoryview(b"")

    def lose_later(self, seconds: float, error: Exception | None) -> None:
        """Notify the protocol of the loss after *seconds*."""
        self._network.loop.call_later(seconds, self._lose, error, context=self._context)

    def vanish(self, *, is_silent: bool) -> None:
        """Remove this end, whose process has ended."""
        self._is_lost = self._is_closing = True
        self.drop_incoming()
        if is_silent:
            self.other._drops_incoming = True
        else:
            self.other.break_off(ConnectionResetError(104, "Connection reset by peer"))
        self._forget()

    def _arrive(self) -> None:
        if self._drops_incoming or self._is_lost:
            return
        self._incoming.append(self._on_the_way.popleft())
        self._read()

    def _read(self) -> None:
        if self._rest and not self._is_reading_paused and not self._is_lost:
            self.run(self._hand_over, self._rest)
        while self._incoming and not self._is_reading_paused and not self._is_lost:
            data = self._incoming.popleft()
            if data is None:
                self._on_end()
                return
            self._unread_bytes -= len(data)
            if self._is_closing:
                continue
            if self.tap is not None and self.host.is_alive:
                self.tap.on_received(data)
            self.run(self._hand_over, memoryview(data))
            self.other._check_buffer()
            self.other._close_when_written()

    def _hand_over(self, view: memoryview) -> None:
        self._rest = memoryview(b"")
        while view and not self._is_closing:
            if self._is_reading_paused:
                self._rest = view
                return
            buffer: Any = self.protocol.get_buffer(len(view))
            count = min(len(buffer), len(view))
            buffer[:count] = view[:count]
            view = view[count:]
            self.protocol.buffer_updated(count)

    def _on_end(self) -> None:
        if not self._is_closing:
            self.run(self.protocol.eof_received)
            self.close()
        self._lose(None)

    def _check_buffer(self) -> None:
        size = self.get_write_buffer_size()
        if self.tap is not None and size > self._network.buffered_bytes_max:
            self._network.buffered_bytes_max = size
        if not self._is_writing_paused and size > self._high_bytes:
            self._is_writing_paused = True
            self.run(self.protocol.pause_writing)
        elif self._is_writing_paused and size <= self._high_bytes // 4:
            self._is_writing_paused = False
            self.run(self.protocol.resume_writing)

    def _close_when_written(self) -> None:
        if self._is_closing and not self._is_lost and not self.get_write_buffer_size():
            self._network.loop.call_soon(self._lose, None, context=self._context)

    def _lose(self, error: Exception | None) -> None:
        if self._is_lost:
            return
        self._is_lost = self._is_closing = True
        if self.tap is not None and self.host.is_alive:
            self.tap.on_lost()
        self.run(self.protocol.connection_lost, error)
        self._forget()

    def _forget(self) -> None:
        if self.other._is_lost:
            self._network.links.pop(self._link.number, None)
