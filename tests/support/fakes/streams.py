"""Both sides of the native protocol after the handshake, and frames for them."""

from pydanube.model.batch import Column, batch_of
from pydanube.wire.batches import BatchFrame, BatchHeader, Codec, encode
from pydanube.wire.buffer import Buffer
from pydanube.wire.native.connection import (
    REVISION,
    ConnectionState,
    ReceivedFrame,
    StreamConnection,
)
from pydanube.wire.native.frames import FRAME_BYTES_MAX, FrameReader, RawFrame
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
    return pb.Hello(
        revision_min=REVISION, revision_max=REVISION, codecs=[Codec.LZ4, Codec.ZSTD]
    )


def feed(connection: StreamConnection, data: Buffer) -> list[ReceivedFrame]:
    """Give *data* to *connection*, as a socket does; return the frames."""
    frames: list[ReceivedFrame] = []
    view = memoryview(data)
    while view and connection.state is not ConnectionState.CLOSED:
        count = _fill(connection.reader, view)
        frames += received(connection, count)
        view = view[count:]
    return frames


def received(connection: StreamConnection, count: int) -> list[ReceivedFrame]:
    """Return the frames after *count* more bytes are in the buffer."""
    connection.reader.add(count)
    return [frame for frame in connection.frames() if frame is not None]


def cut(reader: FrameReader, data: Buffer) -> list[RawFrame]:
    """Give *data* to *reader*; return the frames."""
    frames: list[RawFrame] = []
    view = memoryview(data)
    while view:
        count = _fill(reader, view)
        reader.add(count)
        while (frame := reader.next_frame()) is not None:
            frames.append(frame)
        view = view[count:]
    return frames


def _fill(reader: FrameReader, view: memoryview) -> int:
    buffer = reader.get_buffer()
    count = min(len(buffer), len(view))
    buffer[:count] = view[:count]
    return count


def connected() -> tuple[StreamConnection, StreamConnection]:
    """A client and a broker after the handshake."""
    client, broker = StreamConnection(Side.CLIENT), StreamConnection(Side.BROKER)
    _, data = client.request(Kind.HELLO, hello())
    [asked] = feed(broker, data)
    broker.welcome(FRAME_BYTES_MAX)
    feed(client, broker.answer(asked, Kind.WELCOME, pb.Welcome()))
    return client, broker


def opened(
    client: StreamConnection, broker: StreamConnection, kind: Kind, channel: int = 1
) -> ReceivedFrame:
    """A producer or consumer, open on *channel*."""
    message = pb.OpenProducer() if kind is Kind.OPEN_PRODUCER else pb.OpenConsumer()
    _, data = client.request(kind, message, channel)
    [asked] = feed(broker, data)
    answer = (
        (Kind.PRODUCER_OPENED, pb.ProducerOpened())
        if kind is Kind.OPEN_PRODUCER
        else (Kind.CONSUMER_OPENED, pb.ConsumerOpened())
    )
    [received] = feed(client, broker.answer(asked, *answer))
    return received
