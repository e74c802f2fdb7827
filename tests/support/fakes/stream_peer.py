"""A scripted client of the native server that records what it receives."""

import asyncio

from pydanube.wire.native.connection import StreamConnection
from pydanube.wire.native.kinds import Kind, Side
from pydanube_broker.servers.native.connection import NativeConnection
from pydanube_broker.servers.native.in_process import PipeEnd
from support.fakes.streams import hello, received


class Peer(asyncio.BufferedProtocol):
    """A scripted client that records what it receives."""

    def __init__(self):
        self.machine = StreamConnection(Side.CLIENT)
        self.received = asyncio.Queue()
        self.is_closed = asyncio.Event()

    def connection_made(self, transport):
        self.transport = transport

    def get_buffer(self, sizehint):
        return self.machine.reader.get_buffer()

    def buffer_updated(self, nbytes):
        for frame in received(self.machine, nbytes):
            self.received.put_nowait(frame)

    def connection_lost(self, exc):
        self.is_closed.set()

    async def ask(self, kind, message, channel=0):
        self.transport.write(self.machine.request(kind, message, channel)[1])
        return await self.received.get()


async def connected(broker, *, greet=True):
    peer = Peer()
    PipeEnd.connect(peer, NativeConnection(broker.server))
    if greet:
        await peer.ask(Kind.HELLO, hello())
    return peer
