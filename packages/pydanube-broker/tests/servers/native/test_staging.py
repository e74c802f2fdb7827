"""Staged batches at the native server, with hand-written frames."""

import asyncio

import pytest

from pydanube.wire.native.connection import StreamConnection
from pydanube.wire.native.kinds import Kind, Side
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.servers.native.connection import NativeConnection
from pydanube_broker.servers.native.in_process import PipeEnd
from support.drivers.running import TOPIC, published
from support.fakes.streams import batch_frame, hello, received

PART = {"query": "q", "version": 0, "part": "0", "part_id": "id"}


class Peer(asyncio.BufferedProtocol):
    """A client that sends given frames and records received ones."""

    def __init__(self):
        self.machine = StreamConnection(Side.CLIENT)
        self.received = asyncio.Queue()

    def connection_made(self, transport):
        self.transport = transport

    def get_buffer(self, sizehint):
        return self.machine.reader.get_buffer()

    def buffer_updated(self, nbytes):
        for frame in received(self.machine, nbytes):
            self.received.put_nowait(frame)

    def connection_lost(self, exc):
        pass

    async def ask(self, kind, message, channel=0):
        self.transport.write(self.machine.request(kind, message, channel)[1])
        return await self.received.get()

    def stage(self, channel, *payloads, sequence=0):
        frame = batch_frame(*payloads, producer="staged/q", base_sequence=sequence)
        parts = self.machine.send_batch(Kind.STAGE, frame, channel)
        self.transport.write(b"".join(parts))

    async def open(self, channel=1, topic=TOPIC):
        request = pb.OpenStage(**PART, topic=topic)
        return await self.ask(Kind.OPEN_STAGE, request, channel)


async def connected(broker):
    peer = Peer()
    PipeEnd.connect(peer, NativeConnection(broker.server))
    await peer.ask(Kind.HELLO, hello())
    return peer


@pytest.fixture
async def peer(broker, client):
    """Connect a peer to a broker that has a topic with one message."""
    await published(client, b"before")
    return await connected(broker)


async def payloads(client):
    return [m.payload async for found in client.read(TOPIC) for m in found]


async def test_part_is_staged_and_committed(peer, client):
    opened = await peer.open()
    assert opened.kind is Kind.STAGE_OPENED
    assert opened.message.producer == "staged/q"
    assert opened.message.next_sequence == 0
    peer.stage(1, b"a", b"b")
    peer.stage(1, b"c", sequence=2)
    staged = await peer.received.get()
    assert (staged.kind, staged.channel) == (Kind.STAGED, 1)
    while staged.message.next_sequence < 3:
        staged = await peer.received.get()
    request = pb.FinishPart(**PART, batch_count=2, message_count=3)
    finished = await peer.ask(Kind.FINISH_PART, request)
    # Finishing the part has closed the stage.
    assert (finished.kind, finished.channel) == (Kind.ERROR, 1)
    assert finished.message.code == "staging_closed"
    finished = await peer.received.get()
    assert finished.message.byte_count > 0
    named = pb.StagedPart(name="0", part_id="id", batch_count=2, message_count=3)
    commit = pb.CommitStaged(query="q", version=0, parts=[named])
    answer = await peer.ask(Kind.COMMIT_STAGED, commit)
    assert (answer.message.message_count, answer.message.is_repeat) == (3, False)
    answer = await peer.ask(Kind.COMMIT_STAGED, commit)
    assert answer.message.is_repeat
    assert await payloads(client) == [b"before", b"a", b"b", b"c"]
    facts = await peer.ask(Kind.DESCRIBE_STAGING, pb.DescribeStaging(query="q"))
    assert facts.message.committed_version == 0
    assert facts.message.is_finished


async def test_refused_batch_closes_the_channel_and_drops_the_part(
    broker, peer, client
):
    await peer.open()
    peer.stage(1, b"a", sequence=5)
    closed = await peer.received.get()
    assert (closed.kind, closed.channel) == (Kind.ERROR, 1)
    assert closed.message.code == "out_of_sequence"
    assert len(broker.broker.staging.parts) == 0
    again = await peer.open()
    assert again.kind is Kind.STAGE_OPENED


async def test_parts_and_versions_are_dropped(broker, peer, client):
    await peer.open()
    peer.stage(1, b"a")
    assert (await peer.received.get()).kind is Kind.STAGED
    closed = await peer.ask(Kind.DROP_PART, pb.DropPart(**PART))
    assert closed.message.code == "staging_closed"
    assert (await peer.received.get()).kind is Kind.OK
    await peer.open(2)
    closed = await peer.ask(Kind.DROP_STAGED, pb.DropStaged(query="q", version=0))
    assert (closed.kind, closed.channel) == (Kind.ERROR, 2)
    assert (await peer.received.get()).kind is Kind.OK
    assert len(broker.broker.staging.parts) == 0


async def test_closed_stage_can_be_reopened(peer, client):
    await peer.open()
    peer.stage(1, b"a")
    assert (await peer.received.get()).kind is Kind.STAGED
    assert (await peer.ask(Kind.CLOSE_STAGE, pb.CloseStage(), 1)).kind is Kind.OK
    assert (await peer.open()).message.next_sequence == 1


async def test_invalid_part_key_is_refused(peer, client):
    for message in (
        pb.OpenStage(topic=TOPIC),
        pb.OpenStage(**{**PART, "query": "a/b"}, topic=TOPIC),
        pb.OpenStage(**{**PART, "part_id": ""}, topic=TOPIC),
        pb.OpenStage(**PART, topic="orders"),
    ):
        answer = await peer.ask(Kind.OPEN_STAGE, message, 1)
        assert answer.message.code == "invalid_name"


async def test_stopping_broker_closes_stages_and_keeps_their_batches(
    broker, peer, client
):
    await peer.open()
    peer.stage(1, b"a")
    assert (await peer.received.get()).kind is Kind.STAGED
    [connection] = [each for each in broker.server.connections if each.channels]
    await connection.say_goodbye("on purpose")
    closed = await peer.received.get()
    assert (closed.kind, closed.message.code) == (Kind.ERROR, "draining")
    assert len(broker.broker.staging.parts) == 1
