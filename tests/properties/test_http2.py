"""For any input, the server neither loses nor reorders data, nor crashes."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pydanube.model.errors import ProtocolViolation
from pydanube_broker.wire.grpc.connection import GrpcConnection
from pydanube_broker.wire.grpc.hpack import HeaderDecoder, encode_headers
from pydanube_broker.wire.grpc.http2_events import DataReceived, RequestReceived
from pydanube_broker.wire.grpc.http2_frames import (
    FRAME_BYTES_MAX,
    PREFACE,
    FrameType,
    Http2Error,
)
from support.fakes.http2_frames import (
    connected,
    data,
    frame,
    handshake,
    request,
    reset,
    sent,
    window,
)

pytestmark = pytest.mark.slow

SOME = st.integers(1, 90)
TEXT = st.binary(max_size=40)
HEADERS = st.lists(st.tuples(TEXT, TEXT), max_size=8)


@given(HEADERS)
def test_headers_come_out_as_they_were_put_in(headers):
    assert HeaderDecoder().decode(encode_headers(headers)) == tuple(headers)


@given(st.lists(st.binary(max_size=60), max_size=6))
def test_any_block_is_decoded_or_refused(blocks):
    decoder = HeaderDecoder()
    for block in blocks:
        try:
            decoder.decode(block)
        except ProtocolViolation:
            return


FRAMES = st.one_of(
    st.builds(
        frame,
        st.integers(0, 11),
        st.integers(0, 255),
        st.integers(0, 9),
        st.binary(max_size=50),
    ),
    st.builds(request, st.sampled_from([1, 3, 5, 7, 9]), ends=st.booleans()),
    st.builds(
        data, st.sampled_from([1, 3, 5]), st.binary(max_size=50), ends=st.booleans()
    ),
    st.builds(window, st.sampled_from([0, 1, 3]), st.integers(0, 2**31)),
    st.builds(reset, st.sampled_from([1, 3, 5])),
)


@settings(max_examples=3 * settings.default.max_examples)
@given(st.lists(FRAMES, max_size=20), st.binary(max_size=30), st.data())
def test_any_bytes_are_handled_or_refused(frames, rest, choices):
    """The server answers, ignores, or closes the connection with GOAWAY."""
    grpc = GrpcConnection(1000)
    received = PREFACE + handshake()[len(PREFACE) :] + b"".join(frames) + rest
    while received:
        size = choices.draw(st.integers(1, len(received)))
        part, received = received[:size], received[size:]
        try:
            events = grpc.receive(part)
        except Http2Error:
            assert sent(grpc.http2)[-1].kind is FrameType.GOAWAY
            return
        for event in events:
            if choices.draw(st.booleans()):
                grpc.write(event.call, [b"x" * 100])
            if choices.draw(st.booleans()):
                grpc.answer(event.call, b"y")
    assert grpc.http2.stream_count <= 5


@given(st.lists(st.binary(max_size=300), max_size=5), st.data())
def test_pieces_of_any_size_give_the_same_events(bodies, choices):
    received = handshake()
    for number, body in enumerate(bodies):
        stream = 2 * number + 1
        received += request(stream) + data(stream, body, ends=True)
    whole = connected()
    expected = whole.receive(received[len(handshake()) :])
    pieces = GrpcConnection(1000).http2
    events = []
    while received:
        size = choices.draw(st.integers(1, len(received)))
        events += pieces.receive(received[:size])
        received = received[size:]
    found = separated(events)
    assert found == separated(expected)
    got = {each.stream: each.data for each in found if isinstance(each, DataReceived)}
    assert got == {2 * number + 1: body for number, body in enumerate(bodies)}


def separated(events):
    """The events, as if no body had been received together with its headers."""
    found = []
    for each in events:
        if isinstance(each, RequestReceived) and each.is_last:
            found.append(RequestReceived(each.stream, each.headers, is_last=False))
            found.append(DataReceived(each.stream, each.body, is_last=True))
        else:
            found.append(each)
    return found


@settings(max_examples=2 * settings.default.max_examples)
@given(
    st.integers(0, 100),
    st.lists(
        st.one_of(
            st.tuples(st.just("send"), st.sampled_from([1, 3]), st.integers(0, 200)),
            st.tuples(
                st.just("window"), st.sampled_from([0, 1, 3]), st.integers(1, 90)
            ),
            st.tuples(st.just("first"), st.just(0), st.integers(0, 150)),
        ),
        max_size=30,
    ),
)
def test_data_is_sent_once_in_order_and_never_beyond_a_window(first, steps):
    connection = connected(window=first)
    connection.receive(request(1, ends=True) + request(3, ends=True))
    allowed = {0: 65_535, 1: first, 3: first}
    given_, got = {1: b"", 3: b""}, {1: b"", 3: b""}

    def take():
        for each in sent(connection):
            if each.kind is FrameType.DATA:
                assert len(each.body) <= FRAME_BYTES_MAX
                got[each.stream] += each.body
                allowed[each.stream] -= len(each.body)
                allowed[0] -= len(each.body)
                assert allowed[each.stream] >= 0
                assert allowed[0] >= 0

    for what, stream, size in steps:
        if what == "send":
            payload = struct.pack(">I", len(given_[stream])) * (size // 4)
            given_[stream] += payload
            connection.send_data(stream, payload)
        elif what == "window":
            connection.receive(window(stream, size))
            allowed[stream] += size
        else:
            connection.receive(
                frame(FrameType.SETTINGS, 0, 0, struct.pack(">HI", 4, size))
            )
            for each in (1, 3):
                allowed[each] += size - first
            first = size
        take()
    for stream in (1, 3):
        assert given_[stream].startswith(got[stream])
        connection.receive(window(stream, 100_000))
        allowed[stream] += 100_000
    take()
    assert got == given_
