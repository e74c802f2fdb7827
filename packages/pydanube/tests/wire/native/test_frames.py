import pytest

from pydanube.model.errors import ProtocolViolation
from pydanube.wire.native.frames import (
    HEADER_BYTES,
    RECEIVE_BUFFER_BYTES,
    FrameReader,
    header,
)
from pydanube.wire.native.kinds import Kind
from support.fakes.streams import cut


def frame(body: bytes, kind: Kind = Kind.PUBLISH, channel: int = 3) -> bytes:
    return header(kind, channel, 9, len(body)) + body


def test_a_frame_arrives_as_it_was_sent():
    [received] = cut(FrameReader(), frame(b"body"))

    assert (received.kind, received.channel) == (Kind.PUBLISH, 3)
    assert (received.correlation, received.body) == (9, b"body")


def test_several_frames_in_one_read_arrive_in_order():
    data = b"".join(frame(bytes([n]) * n) for n in range(5))

    assert [len(each.body) for each in cut(FrameReader(), data)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("length", [RECEIVE_BUFFER_BYTES - HEADER_BYTES, 60_000])
def test_a_frame_longer_than_the_buffer_is_received_into_its_own(length):
    body = bytes(range(256)) * (length // 256)
    reader = FrameReader()
    data = frame(b"before") + frame(body) + frame(b"after")

    received = [
        each.body
        for at in range(0, len(data), 1000)
        for each in cut(reader, data[at : at + 1000])
    ]

    assert received == [b"before", body, b"after"]


def test_a_frame_longer_than_allowed_is_refused_before_its_body_comes():
    reader = FrameReader(frame_bytes_max=1000)

    with pytest.raises(ProtocolViolation, match="1001 bytes"):
        cut(reader, header(Kind.PUBLISH, 1, 0, 1001 - 8))


def test_a_frame_shorter_than_its_header_is_refused():
    with pytest.raises(ProtocolViolation, match="3 bytes"):
        cut(FrameReader(), b"\x03\x00\x00\x00" + bytes(8))


def test_an_unknown_kind_is_refused():
    with pytest.raises(ProtocolViolation, match="unknown kind 250"):
        cut(FrameReader(), b"\x08\x00\x00\x00\xfa" + bytes(7))


def test_the_buffer_offered_to_the_socket_is_never_empty():
    reader = FrameReader()
    data = frame(bytes(20_000)) * 4

    while data:
        buffer = reader.get_buffer()
        assert len(buffer) > 0
        count = min(len(buffer), 7_001, len(data))
        buffer[:count] = data[:count]
        data = data[count:]
        reader.add(count)
        while reader.next_frame():
            pass


def test_every_kind_has_a_rule_and_every_answer_comes_from_the_other_side():
    for kind in Kind:
        if kind.answer is not None:
            assert kind.answer.sender is not kind.sender


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "an HTTP port"),
        (b"\0\0\x0c\x04\0\0\0\0\0\0\x03\0\0\x03\xe8", "a gRPC port"),
        (b"\0\0\0\x04\0\0\0\0\0\0\0\0\x08", "a gRPC port"),
    ],
)
def test_an_answer_of_another_protocol_is_recognized(answer, found):
    reader = FrameReader()
    reader.get_buffer()[: len(answer)] = answer
    reader.add(len(answer))
    with pytest.raises(ProtocolViolation, match=f"this is {found}.*by default 6651"):
        reader.next_frame()
