"""A double of a broker that answers what a test tells it to, and nothing else."""

import asyncio

from pydanube.client.client import Client
from pydanube.client.connections.requester import Requester
from pydanube.wire.native.connection import REVISION, StreamConnection
from pydanube.wire.native.frames import FRAME_BYTES_MAX
from pydanube.wire.native.kinds import Kind, Side
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.servers.native.in_process import PipeEnd
from support.fakes.streams import received

BATCH_BYTES_MAX = 1024 * 1024


class ScriptedBroker:
    """
    Greets clients and opens their producers and consumers.

    It never answers a frame of another kind unless the test has put an answer for
    its kind into ``answers``.
    """

    def __init__(self):
        self.answers = {
            Kind.LIST_PARTITIONS: lambda asked: (
                Kind.PARTITIONS,
                pb.Partitions(topics=[asked.topic]),
            ),
            Kind.OPEN_PRODUCER: lambda _: (
                Kind.PRODUCER_OPENED,
                pb.ProducerOpened(
                    producer_id=1, producer_epoch=1, batch_bytes_max=BATCH_BYTES_MAX
                ),
            ),
            Kind.OPEN_CONSUMER: lambda _: (
                Kind.CONSUMER_OPENED,
                pb.ConsumerOpened(reliable=True),
            ),
        }
        """By the kind of a request, a function from its message to the answer."""
        self.connections = []
        self.revision = REVISION
        self.identity = None
        """What WELCOME says about the client."""

    def connect(self, **options):
        """A client of this broker."""
        requester = Requester(self._dial, url="danube://scripted", **options)
        return Client(requester).opened()

    def new_connection(self):
        """The broker's end of a new connection."""
        connection = ScriptedConnection(self)
        self.connections.append(connection)
        return connection

    async def _dial(self, factory):
        connection = factory()
        PipeEnd.connect(connection, self.new_connection())
        return connection


class ScriptedConnection(asyncio.BufferedProtocol):
    """One connection of a ScriptedBroker."""

    def __init__(self, broker):
        self.machine = StreamConnection(Side.BROKER)
        self.received = []
        """The kinds of all frames that came."""
        self.is_closed = asyncio.Event()
        self._broker = broker

    def connection_made(self, transport):
        self.transport = transport

    def get_buffer(self, sizehint):
        return self.machine.reader.get_buffer()

    def buffer_updated(self, nbytes):
        for frame in received(self.machine, nbytes):
            self.received.append(frame.kind)
            if frame.kind is Kind.HELLO:
                self.machine.welcome(FRAME_BYTES_MAX)
                welcome = pb.Welcome(
                    revision=self._broker.revision,
                    frame_bytes_max=FRAME_BYTES_MAX,
                    identity=self._broker.identity,
                )
                self._answer(frame, Kind.WELCOME, welcome)
            elif frame.correlation and frame.kind in self._broker.answers:
                self._answer(frame, *self._broker.answers[frame.kind](frame.message))

    def connection_lost(self, exc):
        self.is_closed.set()

    def send(self, kind, message, channel):
        """Send what no client has asked for."""
        self.transport.write(self.machine.send(kind, message, channel))

    def _answer(self, frame, kind, message):
        self.transport.write(self.machine.answer(frame, kind, message))
