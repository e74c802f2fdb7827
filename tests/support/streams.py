"""Both sides of the native protocol after the handshake, and frames for them."""

from pydanube.model.batch import Column, batch_of
from pydanube.wire.batches import BatchFrame, BatchHeader, encode
from pydanube.wire.native.connection import (
    PROTOCOL_VERSION,
    ReceivedFrame,
    StreamConnection,
)
from pydanube.wire.native.frames import FRAME_BYTES_MAX
from pydanube.wire.native.kinds import Kind, Side
from pydanube.wire.pb import stream_pb2 as pb


def batch_frame(*payloads: bytes, **fields) -> BatchFrame:
    header = BatchHeader(
        count=1, columns=Column.PAYLOAD, first_publish_time=1, last_publish_time=1
    )
    for name, value in fields.items():
        setattr(header, name, value)
    return encode(batch_of(payloads), header)


def hello() -> pb.Hello:
    return pb.Hello(version_min=PROTOCOL_VERSION, version_max=PROTOCOL_VERSION)


def connected() -> tuple[StreamConnection, StreamConnection]:
    """A client and a broker after the handshake."""
    client, broker = StreamConnection(Side.CLIENT), StreamConnection(Side.BROKER)
    _, data = client.request(Kind.HELLO, hello())
    [asked] = broker.feed(data)
    broker.welcome(FRAME_BYTES_MAX)
    client.feed(broker.answer(asked, Kind.WELCOME, pb.Welcome()))
    return client, broker


def opened(
    client: StreamConnection, broker: StreamConnection, kind: Kind, channel: int = 1
) -> ReceivedFrame:
    """A producer or consumer, open on *channel*."""
    message = pb.OpenProducer() if kind is Kind.OPEN_PRODUCER else pb.OpenConsumer()
    _, data = client.request(kind, message, channel)
    [asked] = broker.feed(data)
    answer = (
        (Kind.PRODUCER_OPENED, pb.ProducerOpened())
        if kind is Kind.OPEN_PRODUCER
        else (Kind.CONSUMER_OPENED, pb.ConsumerOpened())
    )
    [received] = client.feed(broker.answer(asked, *answer))
    return received
