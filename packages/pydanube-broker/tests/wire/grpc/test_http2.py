"""The server side of HTTP/2."""

from __future__ import annotations

import struct

import pytest

from pydanube_broker.wire.grpc.hpack import encode_headers
from pydanube_broker.wire.grpc.http2 import (
    CONNECTION_WINDOW,
    EXTRA_WINDOW_BYTES_MAX,
    PENDING_BYTES_MAX,
    STREAMS_MAX,
    Http2Connection,
)
from pydanube_broker.wire.grpc.http2_allowance import ALLOWANCE, ALLOWANCE_MAX
from pydanube_broker.wire.grpc.http2_events import (
    DataReceived,
    RequestReceived,
    SendCompleted,
    StreamReset,
)
from pydanube_broker.wire.grpc.http2_frames import (
    FRAME_BYTES_MAX,
    PREFACE,
    ErrorCode,
    FrameType,
    Http2Error,
)
from pydanube_broker.wire.grpc.http2_stream import STREAM_WINDOW
from support.fakes.http2_frames import (
    ACK,
    END_HEADERS,
    END_STREAM,
    PADDED,
    REQUEST,
    connected,
    data,
    frame,
    handshake,
    headers_of,
    request,
    reset,
    seen,
    sent,
    settings,
    window,
)

OK = encode_headers([(b":status", b"200")])
END = encode_headers([(b"grpc-status", b"0")])


def refused(connection, received, code) -> None:
    """Expect that *received* fails the connection with GOAWAY and *code*."""
    with pytest.raises(Http2Error) as caught:
        connection.receive(received)
    assert caught.value.code is code
    *_, last = sent(connection)
    assert last.kind is FrameType.GOAWAY
    assert struct.unpack(">I", last.body[4:8])[0] == code


# Preface and settings.


def test_server_sends_its_settings_first():
    connection = Http2Connection()
    first, second = seen(connection.take_output())
    values = dict(struct.iter_unpack(">HI", first.body))
    assert (first.kind, values[3]) == (FrameType.SETTINGS, STREAMS_MAX)
    assert second.kind is FrameType.WINDOW_UPDATE
    assert second.number == CONNECTION_WINDOW - STREAM_WINDOW


def test_settings_are_acknowledged():
    connection = Http2Connection()
    connection.take_output()
    connection.receive(handshake())
    [answer] = seen(connection.take_output())
    assert (answer.kind, answer.flags, answer.body) == (FrameType.SETTINGS, ACK, b"")


@pytest.mark.parametrize("text", [b"GET / HTTP/1.1\r\n\r\n", PREFACE[:-1] + b"x"])
def test_peer_without_http2_preface_is_refused(text):
    refused(Http2Connection(), text, ErrorCode.PROTOCOL_ERROR)


def test_settings_come_first():
    received = PREFACE + frame(FrameType.PING, 0, 0, bytes(8))
    refused(Http2Connection(), received, ErrorCode.PROTOCOL_ERROR)


def test_frames_may_arrive_in_pieces():
    received = handshake() + request(1) + data(1, b"hello", ends=True)
    connection = Http2Connection()
    events = [
        event
        for at in range(len(received))
        for event in connection.receive(received[at : at + 1])
    ]
    assert events == [
        RequestReceived(1, REQUEST, is_last=False),
        DataReceived(1, b"hello", is_last=True),
    ]


# Requests.


def test_a_request_is_its_headers_and_its_data():
    connection = connected()
    events = connection.receive(request(1) + data(1, b"a") + data(1, b"b", ends=True))
    assert events == [
        RequestReceived(1, REQUEST, is_last=False),
        DataReceived(1, b"a", is_last=False),
        DataReceived(1, b"b", is_last=True),
    ]
    assert connection.stream_count == 1


def test_headers_may_come_in_several_frames():
    block = encode_headers(REQUEST)
    received = frame(FrameType.HEADERS, END_STREAM, 1, block[:10])
    received += frame(FrameType.CONTINUATION, 0, 1, block[10:20])
    received += frame(FrameType.CONTINUATION, END_HEADERS, 1, block[20:])
    assert connected().receive(received) == [RequestReceived(1, REQUEST, is_last=True)]


def test_padding_and_priorities_are_removed():
    block = bytes([3]) + bytes(5) + encode_headers(REQUEST) + bytes(3)
    received = frame(FrameType.HEADERS, END_HEADERS | PADDED | 0x20, 1, block)
    received += frame(FrameType.DATA, END_STREAM | PADDED, 1, b"\x02hello\0\0")
    assert connected().receive(received) == [
        RequestReceived(1, REQUEST, is_last=True, body=b"hello")
    ]


def test_a_body_belongs_to_the_request_of_its_stream():
    received = request(1) + request(3) + data(1, b"one", ends=True)
    assert connected().receive(received) == [
        RequestReceived(1, REQUEST, is_last=False),
        RequestReceived(3, REQUEST, is_last=False),
        DataReceived(1, b"one", is_last=True),
    ]


def test_trailers_end_a_request():
    trailers = encode_headers([(b"x", b"y")])
    received = request(1) + frame(
        FrameType.HEADERS, END_HEADERS | END_STREAM, 1, trailers
    )
    _, last = connected().receive(received)
    assert last == DataReceived(1, b"", is_last=True)


def test_unknown_frames_and_flags_are_ignored():
    received = frame(0xAB, 0xFF, 7, b"x") + frame(FrameType.PRIORITY, 0, 9, bytes(5))
    received += frame(FrameType.GOAWAY, 0, 0, bytes(8)) + settings()
    assert connected().receive(received) == []


@pytest.mark.parametrize(
    "headers",
    [
        REQUEST[1:],
        (REQUEST[0], REQUEST[0], *REQUEST[1:]),
        (*REQUEST, REQUEST[0]),
        (*REQUEST, (b"X-Upper", b"y")),
        (*REQUEST, (b"connection", b"close")),
        (*REQUEST, (b"te", b"gzip")),
        ((b":status", b"200"), *REQUEST),
        ((b":method", b"POST"), (b":scheme", b"http"), (b":path", b"")),
    ],
)
def test_malformed_request_is_refused_alone(headers):
    connection = connected()
    assert connection.receive(request(1, headers=headers)) == []
    [answer] = sent(connection)
    assert (answer.kind, answer.stream) == (FrameType.RST_STREAM, 1)
    assert answer.number == ErrorCode.PROTOCOL_ERROR
    # Data that was already on its way is ignored.
    assert connection.receive(data(1, b"x") + request(3, ends=True)) == [
        RequestReceived(3, REQUEST, is_last=True)
    ]
    assert sent(connection) == []


def test_reset_request_is_removed():
    connection = connected()
    events = connection.receive(request(1) + reset(1) + reset(1))
    assert events == [RequestReceived(1, REQUEST, is_last=False), StreamReset(1)]
    connection.send_headers(1, OK)
    connection.send_data(1, b"x")
    connection.send_trailers(1, END)
    assert sent(connection) == []


def test_requests_beyond_the_maximum_are_refused():
    connection = connected()
    for number in range(STREAMS_MAX):
        connection.receive(request(2 * number + 1))
    assert connection.receive(request(2 * STREAMS_MAX + 1)) == []
    [answer] = sent(connection)
    assert answer.number == ErrorCode.REFUSED_STREAM
    connection.send_trailers(1, END)
    assert len(connection.receive(request(2 * STREAMS_MAX + 3))) == 1


# Responses.


def test_an_answer_is_headers_data_and_trailers():
    connection = connected()
    connection.receive(request(1, ends=True))
    connection.send_headers(1, OK)
    assert connection.send_data(1, b"hello")
    connection.send_trailers(1, END)
    frames = sent(connection)
    kinds = [(each.kind, each.flags) for each in frames]
    assert kinds == [
        (FrameType.HEADERS, END_HEADERS),
        (FrameType.DATA, 0),
        (FrameType.HEADERS, END_HEADERS | END_STREAM),
    ]
    assert headers_of(frames) == {":status": "200", "grpc-status": "0"}
    assert frames[1].body == b"hello"
    assert connection.stream_count == 0


def test_an_answer_before_the_end_of_the_request_stops_the_rest():
    connection = connected()
    connection.receive(request(1))
    connection.send_trailers(1, END)
    end, stop = sent(connection)
    assert end.flags & END_STREAM
    assert (stop.kind, stop.number) == (FrameType.RST_STREAM, ErrorCode.NO_ERROR)
    assert connection.receive(data(1, b"x" * 1000, ends=True)) == []
    assert sent(connection) == []


def test_long_data_is_cut_into_frames():
    connection = connected(window=10 * FRAME_BYTES_MAX)
    connection.receive(window(0, 10 * FRAME_BYTES_MAX) + request(1, ends=True))
    connection.send_data(1, bytes(2 * FRAME_BYTES_MAX + 1))
    assert [len(each.body) for each in sent(connection)] == [
        FRAME_BYTES_MAX,
        FRAME_BYTES_MAX,
        1,
    ]


def test_data_waits_for_the_windows_and_the_end_waits_for_the_data():
    connection = connected(window=10)
    connection.receive(request(1, ends=True))
    assert not connection.send_data(1, b"0123456789abcdef")
    connection.send_trailers(1, END)
    [first] = sent(connection)
    assert first.body == b"0123456789"
    assert connection.receive(window(1, 4)) == []
    assert [each.body for each in sent(connection)] == [b"abcd"]
    assert connection.receive(window(1, 100)) == []
    last, end = sent(connection)
    assert (last.body, end.flags) == (b"ef", END_HEADERS | END_STREAM)
    assert connection.stream_count == 0


def test_send_completed_follows_when_all_is_sent():
    connection = connected(window=3)
    connection.receive(request(1, ends=True))
    assert not connection.send_data(1, b"abcdef")
    assert not connection.send_data(1, b"g")
    assert connection.receive(window(1, 3)) == []
    assert connection.receive(window(1, 3)) == [SendCompleted(1)]
    assert connection.receive(window(1, 3)) == []
    assert b"".join(each.body for each in sent(connection)) == b"abcdefg"


def test_connection_window_is_shared_round_robin():
    connection = connected()
    connection.receive(request(1, ends=True) + request(3, ends=True))
    connection.send_data(1, bytes(STREAM_WINDOW))
    assert not connection.send_data(3, b"b" * 20)
    sent(connection)
    connection.receive(window(1, 100))
    assert not connection.send_data(1, b"a" * 20)
    connection.receive(window(0, 10))
    connection.receive(window(0, 10))
    assert [each.body for each in sent(connection)] == [b"b" * 10, b"a" * 10]


def test_new_initial_window_changes_open_streams():
    connection = connected(window=10)
    connection.receive(request(1, ends=True))
    connection.send_data(1, b"0123456789ab")
    # The smaller window leaves -5 bytes; after updates of 5 and 2, 2 may be sent.
    connection.receive(settings(window=5))
    connection.receive(window(1, 5))
    sent(connection)
    connection.receive(window(1, 2))
    assert [each.body for each in sent(connection)] == [b"ab"]


# Windows of the peer.


def test_the_connections_window_is_refilled():
    connection = connected()
    size = FRAME_BYTES_MAX
    taken = 0
    for number in range(CONNECTION_WINDOW // STREAM_WINDOW):
        stream = 2 * number + 1
        connection.receive(request(stream))
        for _ in range(STREAM_WINDOW // size):
            connection.receive(data(stream, bytes(size)))
            taken += size
    refills = [
        each.number
        for each in seen(connection.take_output())
        if each.kind is FrameType.WINDOW_UPDATE and each.stream == 0
    ]
    assert taken - CONNECTION_WINDOW // 2 < sum(refills) <= taken


def test_requested_window_lets_a_stream_send_more():
    connection = connected()
    connection.receive(request(1))
    connection.request_window(1, 100_000)
    [grant] = sent(connection)
    assert (grant.stream, grant.number) == (1, 100_000 - STREAM_WINDOW)
    for _ in range(10):
        connection.receive(data(1, bytes(10_000)))
    refused(connection, data(1, b"x"), ErrorCode.FLOW_CONTROL_ERROR)


def test_extra_windows_are_bounded_and_granted_in_order():
    connection = connected()
    large = EXTRA_WINDOW_BYTES_MAX // 2 + STREAM_WINDOW
    for stream in (1, 3, 5, 7):
        connection.receive(request(stream))
        connection.request_window(stream, large)
    assert [each.stream for each in sent(connection)] == [1, 3]
    connection.receive(reset(3))
    assert [each.stream for each in sent(connection)] == [5]
    connection.receive(reset(7))
    connection.send_trailers(1, END)
    assert FrameType.WINDOW_UPDATE not in [each.kind for each in sent(connection)]


def test_acknowledged_data_enlarges_the_window():
    connection = connected()
    connection.receive(request(1))
    for _ in range(20):
        connection.receive(data(1, bytes(10_000)))
        connection.acknowledge_data(1, 10_000)
    assert [each.number for each in sent(connection)] == [10_000] * 20


# Protocol errors.


@pytest.mark.parametrize(
    ("received", "code"),
    [
        (frame(FrameType.DATA, 0, 0, b"x"), ErrorCode.PROTOCOL_ERROR),
        (data(1, b"x"), ErrorCode.PROTOCOL_ERROR),
        (request(2), ErrorCode.PROTOCOL_ERROR),
        (request(3) + request(1), ErrorCode.STREAM_CLOSED),
        (request(1, ends=True) + data(1, b"x"), ErrorCode.STREAM_CLOSED),
        (request(1) + request(1), ErrorCode.PROTOCOL_ERROR),
        (
            frame(FrameType.HEADERS, END_HEADERS, 1, b"\x80"),
            ErrorCode.COMPRESSION_ERROR,
        ),
        (
            frame(FrameType.HEADERS, END_HEADERS | PADDED, 1, b"\x05x"),
            ErrorCode.PROTOCOL_ERROR,
        ),
        (
            frame(FrameType.HEADERS, END_HEADERS | 0x20, 1, b"x"),
            ErrorCode.FRAME_SIZE_ERROR,
        ),
        (frame(FrameType.HEADERS, 0, 1, b"x") + settings(), ErrorCode.PROTOCOL_ERROR),
        (frame(FrameType.CONTINUATION, 0, 1, b"x"), ErrorCode.PROTOCOL_ERROR),
        (frame(FrameType.PUSH_PROMISE, 0, 1, b""), ErrorCode.PROTOCOL_ERROR),
        (frame(FrameType.PRIORITY, 0, 0, bytes(5)), ErrorCode.PROTOCOL_ERROR),
        (frame(FrameType.PRIORITY, 0, 1, bytes(4)), ErrorCode.FRAME_SIZE_ERROR),
        (frame(FrameType.GOAWAY, 0, 1, bytes(8)), ErrorCode.PROTOCOL_ERROR),
        (frame(FrameType.PING, 0, 0, b"short"), ErrorCode.FRAME_SIZE_ERROR),
        (frame(FrameType.SETTINGS, 0, 1, b""), ErrorCode.PROTOCOL_ERROR),
        (frame(FrameType.SETTINGS, 0, 0, b"short"), ErrorCode.FRAME_SIZE_ERROR),
        (frame(FrameType.SETTINGS, ACK, 0, bytes(6)), ErrorCode.FRAME_SIZE_ERROR),
        (settings(window=2**31), ErrorCode.FLOW_CONTROL_ERROR),
        (settings(push=2), ErrorCode.PROTOCOL_ERROR),
        (settings(frame=100), ErrorCode.PROTOCOL_ERROR),
        (window(0, 0), ErrorCode.PROTOCOL_ERROR),
        (window(1, 1), ErrorCode.PROTOCOL_ERROR),
        (window(0, 2**31 - 1), ErrorCode.FLOW_CONTROL_ERROR),
        (frame(FrameType.WINDOW_UPDATE, 0, 0, b"x"), ErrorCode.FRAME_SIZE_ERROR),
        (frame(FrameType.RST_STREAM, 0, 1, bytes(4)), ErrorCode.PROTOCOL_ERROR),
        (frame(FrameType.RST_STREAM, 0, 1, b"x"), ErrorCode.FRAME_SIZE_ERROR),
        (b"\xff\xff\xff" + bytes(6), ErrorCode.FRAME_SIZE_ERROR),
    ],
)
def test_protocol_violation_sends_goaway(received, code):
    refused(connected(), received, code)


def test_stream_window_overflow_resets_only_the_stream():
    connection = connected()
    connection.receive(request(1) + request(3))
    assert connection.receive(window(1, 2**31 - 1)) == [StreamReset(1)]
    [answer] = sent(connection)
    assert (answer.stream, answer.number) == (1, ErrorCode.FLOW_CONTROL_ERROR)
    assert connection.stream_count == 1


def test_endless_headers_are_refused():
    connection = connected()
    connection.receive(frame(FrameType.HEADERS, 0, 1, bytes(FRAME_BYTES_MAX)))
    received = frame(FrameType.CONTINUATION, 0, 1, bytes(FRAME_BYTES_MAX)) * 4
    refused(connection, received, ErrorCode.ENHANCE_YOUR_CALM)


@pytest.mark.slow
@pytest.mark.parametrize(
    "often",
    [
        lambda _: frame(FrameType.PING, 0, 0, bytes(8)),
        lambda _: settings(),
        lambda number: request(2 * number + 1) + reset(2 * number + 1),
        lambda number: request(2 * number + 1, headers=REQUEST[1:]),
    ],
    ids=["pings", "settings", "requests taken back", "bad requests"],
)
def test_peer_that_sends_only_overhead_is_refused(often):
    connection = connected()
    for number in range(ALLOWANCE - 1):
        connection.receive(often(number))
        connection.take_output()
    refused(
        connection, often(ALLOWANCE - 1) + often(ALLOWANCE), ErrorCode.ENHANCE_YOUR_CALM
    )


def test_peer_that_sends_some_overhead_is_not_refused():
    connection = connected()
    for _ in range(3):
        for _ in range(ALLOWANCE - 1):
            connection.receive(frame(FrameType.PING, 0, 0, bytes(8)))
        connection.allowance.refill()
    assert not connection.is_going_away


FLOODS = {
    "unknown": frame(0xAB, 0xFF, 7, b"x"),
    "priority": frame(FrameType.PRIORITY, 0, 9, bytes(5)),
    "goaway": frame(FrameType.GOAWAY, 0, 0, bytes(8)),
    "ping": frame(FrameType.PING, 0, 0, bytes(8)),
    "answered ping": frame(FrameType.PING, ACK, 0, bytes(8)),
    "settings": settings(),
    "acknowledged settings": frame(FrameType.SETTINGS, ACK),
    "changed windows": settings(window=10) + settings(window=20),
    "window of the connection": window(0, 1),
    "window of a stream": window(1, 1),
    "window of an ended stream": window(3, 1),
    "empty data": data(1, b""),
    "padded data": frame(FrameType.DATA, PADDED, 1, bytes([3, 0, 0, 0])),
    "short data": data(1, b"xy"),
    "data of an ended stream": data(3, b"xy"),
    "reset of an ended stream": reset(3),
}


@pytest.mark.parametrize("flood", FLOODS)
def test_flood_of_any_frame_uses_up_the_allowance(flood):
    connection = connected()
    connection.receive(request(1) + request(3, ends=True))
    connection.send_trailers(3, END)
    connection.take_output()
    refused(connection, FLOODS[flood] * (2 * ALLOWANCE), ErrorCode.ENHANCE_YOUR_CALM)
    assert connection.work <= 2 * ALLOWANCE


def test_headers_in_small_pieces_use_up_the_allowance():
    connection = connected()
    connection.receive(frame(FrameType.HEADERS, 0, 1, b"x"))
    pieces = frame(FrameType.CONTINUATION, 0, 1, b"x") * (ALLOWANCE + 1)
    refused(connection, pieces, ErrorCode.ENHANCE_YOUR_CALM)


def test_long_headers_use_up_the_allowance():
    connection = connected()
    # Each block empties the peer's table and fills it again.
    block = b"".join(b"\x40\x01%c\x00" % (97 + at % 26) for at in range(250))
    requests = b"".join(
        frame(FrameType.HEADERS, END_HEADERS, 2 * number + 1, block)
        for number in range(600)
    )
    refused(connection, requests, ErrorCode.ENHANCE_YOUR_CALM)
    assert connection.work <= 2 * ALLOWANCE


def test_one_settings_frame_changes_windows_once():
    connection = connected()
    for number in range(STREAMS_MAX):
        connection.receive(request(2 * number + 1))
    before = connection.work
    body = struct.pack(">HIHI", 4, 10, 4, 20) * 1000
    connection.receive(frame(FrameType.SETTINGS, 0, 0, body))
    assert connection.work - before < 2 * STREAMS_MAX // 8


def test_answered_requests_earn_an_allowance():
    connection = connected()
    overhead = window(0, 1) + frame(FrameType.PING, 0, 0, bytes(8)) + window(0, 1)
    overhead *= 10
    for number in range(ALLOWANCE // 20):
        stream = 2 * number + 1
        received = request(stream) + data(stream, b"xy") + data(stream, b"", ends=True)
        connection.receive(received + overhead)
        connection.send_headers(stream, OK)
        connection.send_trailers(stream, END)
        connection.take_output()
    assert not connection.is_going_away


def test_sent_messages_earn_an_allowance():
    connection = connected()
    connection.receive(request(1, ends=True))
    for _ in range(ALLOWANCE // 2):
        connection.send_data(1, b"message")
        connection.receive(window(0, 7) + window(1, 7) + data_ping())
    assert not connection.is_going_away


def data_ping() -> bytes:
    return frame(FrameType.PING, 0, 0, bytes(8))


def test_allowance_that_was_earned_is_bounded():
    connection = connected()
    connection.receive(request(1, ends=True))
    for _ in range(ALLOWANCE):
        connection.send_data(1, b"x")
    refused(connection, data_ping() * (ALLOWANCE_MAX + 1), ErrorCode.ENHANCE_YOUR_CALM)


def test_receive_stops_after_the_work_that_is_allowed():
    connection = connected()
    before = connection.work
    received = data_ping() * 100 + request(1, ends=True)
    assert connection.receive(received, work_max=10) == []
    assert (connection.work - before, connection.has_backlog) == (10, True)
    events = []
    turns = 0
    while connection.has_backlog:
        assert len(seen(connection.take_output())) == 10
        events += connection.receive(b"", work_max=10)
        turns += 1
    assert events == [RequestReceived(1, REQUEST, is_last=True)]
    assert turns == 10


def test_long_frames_are_more_work_than_short_ones():
    connection = connected()
    connection.receive(request(1))
    body = data(1, bytes(FRAME_BYTES_MAX)) * 3
    before = connection.work
    connection.receive(body, work_max=20)
    assert connection.has_backlog
    assert connection.work - before == 2 * (1 + FRAME_BYTES_MAX // 1024)


def test_bytes_received_during_a_backlog_are_processed_in_order():
    connection = connected()
    connection.receive(request(1) + data(1, b"a"), work_max=1)
    events = connection.receive(data(1, b"b") + data(1, b"c", ends=True))
    assert [each.data for each in events] == [b"a", b"b", b"c"]


def test_window_requests_of_reset_streams_are_dropped():
    connection = connected()
    for number in range(1000):
        stream = 2 * number + 1
        connection.receive(request(stream))
        connection.request_window(stream, EXTRA_WINDOW_BYTES_MAX // 2)
        if number > 2:
            connection.receive(reset(stream))
    assert len(connection._window_requests) == 1


def test_requests_are_refused_while_too_many_responses_wait():
    connection = connected(window=0)
    connection.receive(request(1, ends=True))
    connection.send_data(1, bytes(PENDING_BYTES_MAX + 1))
    assert connection.pending_bytes == PENDING_BYTES_MAX + 1
    assert connection.receive(request(3, ends=True)) == []
    [answer] = sent(connection)
    assert (answer.stream, answer.number) == (3, ErrorCode.REFUSED_STREAM)
    connection.receive(reset(1))
    assert connection.pending_bytes == 0
    assert len(connection.receive(request(5, ends=True))) == 1


def test_window_of_the_connection_serves_only_streams_that_may_send():
    connection = connected(window=0)
    for number in range(STREAMS_MAX):
        connection.receive(request(2 * number + 1, ends=True))
        connection.send_data(2 * number + 1, b"answer")
    before = connection.work
    connection.receive(window(0, 1) * 10)
    assert connection.work - before == 10
    connection.receive(window(1, 3))
    assert [each.body for each in sent(connection)] == [b"ans"]


def test_empty_data_leaves_the_windows_as_they_are():
    connection = connected(window=4)
    connection.receive(request(1, ends=True))
    connection.send_data(1, b"1234")
    connection.receive(settings(window=0))
    assert connection.send_data(1, b"")
    assert not connection.send_data(1, b"5678")
    connection.receive(window(1, 6))
    assert [each.body for each in sent(connection)] == [b"1234", b"56"]


# Closing.


def test_goaway_refuses_new_requests_and_finishes_others():
    connection = connected()
    connection.receive(request(1, ends=True))
    connection.go_away()
    [goodbye] = sent(connection)
    assert goodbye.kind is FrameType.GOAWAY
    assert struct.unpack(">II", goodbye.body[:8]) == (1, ErrorCode.NO_ERROR)
    assert connection.receive(request(3, ends=True)) == []
    [answer] = sent(connection)
    assert answer.number == ErrorCode.REFUSED_STREAM
    connection.send_headers(1, OK)
    connection.send_trailers(1, END)
    assert [each.stream for each in sent(connection)] == [1, 1]


def test_a_stream_may_end_without_an_answer():
    connection = connected()
    connection.receive(request(1))
    connection.reset(1, ErrorCode.INTERNAL_ERROR)
    [answer] = sent(connection)
    assert (answer.kind, answer.number) == (
        FrameType.RST_STREAM,
        ErrorCode.INTERNAL_ERROR,
    )
    assert connection.stream_count == 0


def test_a_ping_is_answered_and_an_answer_is_not():
    connection = connected()
    connection.receive(frame(FrameType.PING, 0, 0, b"12345678"))
    [answer] = sent(connection)
    assert (answer.kind, answer.flags, answer.body) == (
        FrameType.PING,
        ACK,
        b"12345678",
    )
    connection.ping()
    [ping] = sent(connection)
    connection.receive(frame(FrameType.PING, ACK, 0, ping.body))
    assert sent(connection) == []
