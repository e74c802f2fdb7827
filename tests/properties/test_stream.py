"""Any bytes are decoded to frames or raise ProtocolViolation."""

import tracemalloc
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from pydanube.model.errors import ProtocolViolation
from pydanube.wire.native.connection import StreamConnection
from pydanube.wire.native.frames import FrameReader, header
from pydanube.wire.native.kinds import Kind, Side
from pydanube.wire.pb import stream_pb2 as pb
from support.fakes.streams import batch_frame, connected, cut, feed, opened


def conversation() -> tuple[StreamConnection, bytes]:
    """A broker with an open producer and consumer, and what its client sends then."""
    client, broker = connected()
    opened(client, broker, Kind.OPEN_PRODUCER, 1)
    opened(client, broker, Kind.OPEN_CONSUMER, 2)
    batch = batch_frame(b"one", b"two", base_sequence=7, producer="web-1")
    frames = [
        *client.send_batch(Kind.PUBLISH, batch, 1),
        client.send(Kind.CREDIT, pb.Credit(messages=5, bytes=1000), 2),
        client.send(Kind.ACK, pb.Ack(through=4), 2),
        client.request(Kind.FETCH, pb.Fetch(topic="/default/a"))[1],
        client.request(Kind.PING, pb.Ping())[1],
    ]
    return broker, b"".join(frames)


def count_frames(connection: StreamConnection, data: bytes) -> int:
    """Return the number of frames before the end or a violation."""
    try:
        return len(feed(connection, data))
    except ProtocolViolation:
        return -1


@given(st.binary(max_size=300))
def test_arbitrary_bytes_do_no_harm(data):
    broker, _ = conversation()
    count_frames(broker, data)
    count_frames(StreamConnection(Side.BROKER), data)
    count_frames(StreamConnection(Side.CLIENT), data)


@given(st.sampled_from(list(Kind)), st.integers(0, 3), st.integers(0, 3), st.binary())
def test_any_kind_with_any_body_does_no_harm(kind, channel, correlation, body):
    data = header(kind, channel, correlation, len(body)) + body
    broker, _ = conversation()
    count_frames(broker, data)
    client, _ = connected()
    count_frames(client, data)


@given(st.data())
def test_truncated_conversation_yields_a_prefix_of_its_frames(data):
    broker, whole = conversation()
    end = data.draw(st.integers(0, len(whole)))

    assert 0 <= count_frames(broker, whole[:end]) <= 5


@given(st.data())
def test_a_conversation_may_come_in_any_pieces(data):
    broker, whole = conversation()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    pieces = [
        whole[base:end]
        for base, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)
    ]

    assert sum(count_frames(broker, piece) for piece in pieces) == 5


@given(st.data())
def test_a_flipped_bit_never_makes_a_wrong_batch(data):
    broker, whole = conversation()
    damaged = bytearray(whole)
    at = data.draw(st.integers(0, len(whole) - 1))
    damaged[at] ^= 1 << data.draw(st.integers(0, 7))

    try:
        frames = feed(broker, bytes(damaged))
    except ProtocolViolation:
        return
    for frame in frames:
        if frame.batch is not None:
            _is_whole_or_corrupt(frame.batch)


def _is_whole_or_corrupt(batch):
    from pydanube.model.errors import CorruptBatch

    try:
        rows = batch.check()
    except CorruptBatch:
        return
    assert rows.column("payload").to_pylist() == [b"one", b"two"]
    assert batch.header.base_sequence == 7


def test_an_announced_length_takes_no_more_memory_than_the_limit():
    reader = FrameReader(frame_bytes_max=1_000_000)
    tracemalloc.start()
    try:
        for length in (999_000, 0xFFFF_FFFF, 2**31):
            with suppress(ProtocolViolation):
                cut(reader, length.to_bytes(4, "little") + b"\x23" + bytes(40))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 2_100_000
