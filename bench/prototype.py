"""
The least that a durable broker does: a journal in groups, and a fan-out of frames.

It has one topic, no subscriptions, no acknowledgements and no recovery, and checks only
the sum of each batch.  It shows what this machine allows a broker in Python with Arrow
batches; nobody should store messages in it.

``python -m bench.prototype PORT FILE synced|written`` runs it on the loopback
interface.
"""

from __future__ import annotations

import asyncio
import os
import struct
import sys

from crc32c import crc32c

from pydanube.aio.loops import new_loop

HEADER = struct.Struct("<IBQII")
"""The length of the body, the kind, a sequence or offset, a count, a checksum."""
PUBLISH, DELIVERY, RECEIPT, SUBSCRIBE = 1, 2, 3, 4
BUFFER_BYTES = 8 * 1024 * 1024
ROOM_BYTES = 2 * 1024 * 1024
WRITE_BUFFER_BYTES = 16 * 1024 * 1024
JOINED_FRAMES_MIN = 512
"""From this number of frames on, they are joined: one ``writev`` has a limit."""


Group = list[tuple[asyncio.Transport, bytes, bytes]]
"""Batches that are written together: the publisher, its receipt, the delivery."""


class FrameProtocol(asyncio.BufferedProtocol):
    """Cuts what it receives into frames, for the broker and its clients."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self._buffer = bytearray(BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._read = self._written = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert hasattr(transport, "write")
        self.transport = transport  # type: ignore[assignment]
        self.transport.set_write_buffer_limits(WRITE_BUFFER_BYTES)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view[self._written :]

    def buffer_updated(self, nbytes: int) -> None:
        self._written += nbytes
        at, end, size = self._read, self._written, HEADER.size
        while end - at >= size:
            length, kind, number, count, crc = HEADER.unpack_from(self._buffer, at)
            if end - at < size + length:
                break
            body = bytes(self._view[at + size : at + size + length])
            at += size + length
            self.on_frame(kind, number, count, crc, body)
        if at == end:
            self._read = self._written = 0
        elif len(self._buffer) - end < ROOM_BYTES:
            self._view[: end - at] = bytes(self._view[at:end])
            self._read, self._written = 0, end - at
        else:
            self._read = at

    def on_frame(
        self, kind: int, number: int, count: int, crc: int, body: bytes
    ) -> None:
        """Handle a frame."""
        raise NotImplementedError


class Journal:
    """A file to which groups of frames are written, and the subscribers of all."""

    def __init__(self, path: str, *, syncs: bool) -> None:
        self.next_offset = 0
        self.subscribers: list[asyncio.Transport] = []
        self._loop = asyncio.get_running_loop()
        self._syncs = syncs
        flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_TRUNC
        self._file = os.open(path, flags, 0o600)
        self._group: Group = []
        self._is_syncing = False

    def append(
        self, publisher: asyncio.Transport, receipt: bytes, frame: bytes
    ) -> None:
        """Write *frame*, and send it and *receipt* when it is written."""
        if not self._group and not self._is_syncing:
            self._loop.call_soon(self._commit)
        self._group.append((publisher, receipt, frame))

    def _commit(self) -> None:
        group, self._group = self._group, []
        frames = [frame for _, _, frame in group]
        if len(frames) < JOINED_FRAMES_MIN:
            os.writev(self._file, frames)
        else:
            os.write(self._file, b"".join(frames))
        if self._syncs:
            # One at a time: a later group must not be delivered before an earlier one.
            self._is_syncing = True
            syncing = self._loop.run_in_executor(None, os.fdatasync, self._file)
            syncing.add_done_callback(lambda _: self._on_synced(group))
        else:
            self._send(group)

    def _on_synced(self, group: Group) -> None:
        self._is_syncing = False
        if self._group:
            self._commit()
        self._send(group)

    def _send(self, group: Group) -> None:
        for publisher, receipt, frame in group:
            publisher.write(receipt)
            for subscriber in self.subscribers:
                subscriber.write(frame)


class BrokerConnection(FrameProtocol):
    """A publisher or a subscriber of the prototype."""

    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self._journal = journal

    def on_frame(
        self, kind: int, number: int, count: int, crc: int, body: bytes
    ) -> None:
        journal = self._journal
        if kind == SUBSCRIBE:
            journal.subscribers.append(self.transport)
            return
        assert crc32c(body) == crc
        offset = journal.next_offset
        journal.next_offset += count
        journal.append(
            self.transport,
            HEADER.pack(0, RECEIPT, number, count, 0),
            HEADER.pack(len(body), DELIVERY, offset, count, crc) + body,
        )

    def connection_lost(self, exc: Exception | None) -> None:
        if self.transport in self._journal.subscribers:
            self._journal.subscribers.remove(self.transport)


async def serve(port: int, path: str, *, syncs: bool) -> None:
    """Serve publishers and subscribers until the process is ended."""
    journal = Journal(path, syncs=syncs)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: BrokerConnection(journal), "127.0.0.1", port
    )
    await server.serve_forever()


if __name__ == "__main__":
    _, given_port, given_path, durability = sys.argv
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(serve(int(given_port), given_path, syncs=durability == "synced"))
