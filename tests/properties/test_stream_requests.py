"""Any request gets an answer, and the broker continues."""

import asyncio

import pytest
from google.protobuf.descriptor import FieldDescriptor
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pydanube.wire.native.connection import StreamConnection
from pydanube.wire.native.kinds import Kind, Side
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.operations.handlers import handlers
from pydanube_broker.servers.native.connection import NativeConnection
from pydanube_broker.servers.native.in_process import PipeEnd
from support.fakes.streams import hello, received

pytestmark = pytest.mark.slow

TOPICS = ["/default/t", "/default/p", "/default/p-part-1", "/ns/t", "/none/t"]
TEXTS = [*TOPICS, "", "s", "ns", "default", "no slash", "a/b", "-part-0", "é" * 300]
CHANNELS = {Kind.OPEN_PRODUCER, Kind.OPEN_CONSUMER, Kind.OPEN_STAGE}
ASKED = sorted({*handlers(), *CHANNELS, Kind.FETCH})

USUAL = {
    "topic": TOPICS[:4],
    "subscription": ["s", "t"],
    "namespace": ["ns", "default"],
    "name": ["n", "m"],
    "subject": ["orders", "default-orders"],
    "type": ["avro", "string", "json", "number"],
    "query": ["q", "r"],
    "part": ["0", "1"],
    "part_id": ["id", "other"],
}
SCALARS = {
    FieldDescriptor.TYPE_STRING: st.sampled_from(TEXTS),
    FieldDescriptor.TYPE_BYTES: st.sampled_from([b"", b'"int"', b"{}", b"\xff"]),
    FieldDescriptor.TYPE_BOOL: st.booleans(),
    FieldDescriptor.TYPE_UINT32: st.sampled_from([0, 1, 2, 5, 2**31, 2**32 - 1]),
    FieldDescriptor.TYPE_SINT32: st.sampled_from([0, 1, -1, 2**31 - 1, -(2**31)]),
    FieldDescriptor.TYPE_UINT64: st.sampled_from([0, 1, 3, 2**63, 2**64 - 1]),
    FieldDescriptor.TYPE_FIXED64: st.sampled_from([0, 1, 3, 2**63, 2**64 - 1]),
    FieldDescriptor.TYPE_INT64: st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63)]),
    FieldDescriptor.TYPE_DOUBLE: st.sampled_from(
        [0.0, 0.001, 1.0, -1.0, 1e300, float("inf"), float("nan")]
    ),
    FieldDescriptor.TYPE_ENUM: st.integers(0, 5),
}


def set_field(message, field, draw):
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        texts = st.sampled_from(TEXTS)
        some = draw(st.dictionaries(texts, texts, max_size=3))
        getattr(message, field.name).update(some)
    elif field.type == FieldDescriptor.TYPE_MESSAGE and field.is_repeated:
        some = draw(st.lists(messages(field.message_type), max_size=3))
        getattr(message, field.name).extend(some)
    elif field.type == FieldDescriptor.TYPE_MESSAGE:
        getattr(message, field.name).CopyFrom(draw(messages(field.message_type)))
    elif field.is_repeated:
        getattr(message, field.name).extend(
            draw(st.lists(SCALARS[field.type], max_size=3))
        )
    else:
        setattr(message, field.name, draw(SCALARS[field.type]))


@st.composite
def messages(draw, descriptor):
    message = getattr(pb, descriptor.name)()
    for field in descriptor.fields:
        if draw(st.integers(0, 3)):
            set_field(message, field, draw)
    # Most of them name something that exists.
    for name, usual in USUAL.items():
        field = descriptor.fields_by_name.get(name)
        is_text = field is not None and field.type == FieldDescriptor.TYPE_STRING
        if is_text and draw(st.integers(0, 9)):
            setattr(message, name, draw(st.sampled_from(usual)))
    if "wait_s" in descriptor.fields_by_name:
        message.wait_s = 0
    # Waiting for its turn is the right answer to one.
    if getattr(message, "access", None) == pb.ACCESS_EXCLUSIVE_WAIT:
        message.access = pb.ACCESS_EXCLUSIVE
    return message


@st.composite
def requests(draw):
    kind = draw(st.sampled_from(ASKED))
    return kind, draw(messages(kind.body.DESCRIPTOR))


class Peer(asyncio.BufferedProtocol):
    """A client that waits for every answer."""

    def __init__(self):
        self.machine = StreamConnection(Side.CLIENT)
        self.answers = asyncio.Queue()
        self.is_closed = False

    def connection_made(self, transport):
        self.transport = transport

    def get_buffer(self, sizehint):
        return self.machine.reader.get_buffer()

    def buffer_updated(self, nbytes):
        for frame in received(self.machine, nbytes):
            if frame.correlation and frame.kind is not Kind.FETCHED:
                self.answers.put_nowait(frame)

    def connection_lost(self, exc):
        self.is_closed = True

    async def ask(self, kind, message, channel=0):
        self.transport.write(self.machine.request(kind, message, channel)[1])
        return await self.answers.get()


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(requests(), min_size=20, max_size=20))
async def test_any_request_gets_its_answer_or_an_error(broker, asked):
    async with broker.connect() as client:
        await client.topics.create("/default/t")
        await client.topics.create("/default/p", partitions=2)
        await client.namespaces.create("ns")
        await client.subscriptions.create("/default/t", "s")
    peer = Peer()
    PipeEnd.connect(peer, NativeConnection(broker.server))
    await peer.ask(Kind.HELLO, hello())
    for number, (kind, message) in enumerate(asked, 1):
        channel = number if kind in CHANNELS else 0
        answer = await peer.ask(kind, message, channel)
        assert not peer.is_closed
        if answer.kind is Kind.ERROR:
            # Any other exception is a bug.
            assert answer.message.code != "broker_error", (message, answer.message)
        else:
            assert answer.kind is kind.answer
    async with broker.connect() as client:
        assert await client.namespaces.list()
