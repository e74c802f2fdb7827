"""Calls, messages and statuses over HTTP/2."""

from __future__ import annotations

import struct
import tracemalloc

import pytest

from pydanube_broker.wire.grpc.connection import (
    PARSED_REQUESTS_MAX,
    PUBLIC_MESSAGE_BYTES_MAX,
    UNREAD_RESPONSE_BYTES_MAX,
    CallCancelled,
    CallStarted,
    GrpcConnection,
    HalfClosed,
    MessageReceived,
    WriteCompleted,
)
from pydanube_broker.wire.grpc.http2_frames import FrameType, Http2Error
from pydanube_broker.wire.grpc.http2_stream import STREAM_WINDOW
from pydanube_broker.wire.grpc.status import StatusCode
from support.fakes.http2_frames import (
    REQUEST,
    data,
    frame,
    handshake,
    headers_of,
    request,
    reset,
    sent,
    window,
)

METHOD = "/danube.Discovery/TopicLookup"


def connection(*, message_bytes_max: int = 1000, **values: int) -> GrpcConnection:
    connection = GrpcConnection(message_bytes_max)
    assert connection.receive(handshake(**values)) == []
    connection.http2.take_output()
    return connection


def message(payload: bytes, *, flag: int = 0) -> bytes:
    return struct.pack(">BI", flag, len(payload)) + payload


def started(number: int = 1, timeout_s: float | None = None) -> CallStarted:
    return CallStarted(number, METHOD, timeout_s)


def answer_of(grpc: GrpcConnection) -> tuple[dict[str, str], bytes]:
    """Return the headers and the data of the response."""
    frames = sent(grpc.http2)
    body = b"".join(each.body for each in frames if each.kind is FrameType.DATA)
    return headers_of(frames), body


# Requests.


def test_a_call_is_a_method_and_its_messages():
    grpc = connection()
    body = message(b"one") + message(b"") + message(b"three")
    assert grpc.receive(request(1) + data(1, body, ends=True)) == [
        started(),
        MessageReceived(1, b"one"),
        MessageReceived(1, b""),
        MessageReceived(1, b"three", is_last=True),
    ]


def test_a_short_request_is_one_event():
    grpc = connection()
    body = message(b"hello")
    assert grpc.receive(request(1) + data(1, body, ends=True)) == [
        CallStarted(1, METHOD, None, message=b"hello")
    ]
    assert grpc.held_bytes == len(body)
    grpc.receive(request(3) + data(3, body[:-1]))
    assert grpc.receive(data(3, body[-1:], ends=True)) == [
        MessageReceived(3, b"hello", is_last=True)
    ]


def test_a_message_may_come_in_pieces():
    grpc = connection()
    grpc.receive(request(1))
    body = message(b"hello") + message(b"world")
    events = [
        event
        for at in range(len(body))
        for event in grpc.receive(data(1, body[at:][:1]))
    ]
    assert events == [MessageReceived(1, b"hello"), MessageReceived(1, b"world")]
    assert grpc.receive(data(1, b"", ends=True)) == [HalfClosed(1)]


def test_memory_of_a_message_is_proportional_to_its_bytes():
    grpc = connection(message_bytes_max=20_000)
    grpc.receive(request(1) + data(1, struct.pack(">BI", 0, 20_000)))
    pieces = data(1, b"xy") * 100
    tracemalloc.start()
    try:
        for _ in range(90):
            assert grpc.receive(pieces) == []
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 2 * 18_000


def test_long_headers_are_not_cached():
    grpc = connection()
    for number in range(10):
        headers = (*REQUEST, (b"x-long", b"%d" % number * 3000))
        grpc.receive(request(2 * number + 1, headers=headers))
    assert not grpc._parsed_requests
    assert not grpc.http2._valid


def test_unread_responses_are_bounded():
    grpc = connection(window=0)
    large = bytes(UNREAD_RESPONSE_BYTES_MAX // 4)
    streams = (1, 3, 5, 7, 9)
    grpc.receive(b"".join(request(stream, ends=True) for stream in streams))
    for stream in streams:
        grpc.answer(stream, large)
    assert grpc.http2.pending_bytes <= UNREAD_RESPONSE_BYTES_MAX
    answered = [each for each in sent(grpc.http2) if each.stream == 9]
    assert headers_of(answered)["grpc-status"] == str(
        int(StatusCode.RESOURCE_EXHAUSTED)
    )


def test_call_without_a_message_is_reported():
    assert connection().receive(request(1, ends=True)) == [started(), HalfClosed(1)]


def test_other_headers_are_ignored():
    headers = (
        *REQUEST,
        (b"x-forwarded-user", b"root"),
        (b"trace-bin", b"AAE="),
        (b"grpc-timeout", b"1500m"),
    )
    [event] = connection().receive(request(1, headers=headers))
    assert event == started(timeout_s=1.5)


def test_all_headers_with_credentials_are_reported():
    credentials = (
        (b"authorization", b"Bearer x"),
        (b"x-api-key", b"y"),
        (b"x-api-key", b"z"),
    )
    [event] = connection().receive(request(1, headers=(*REQUEST, *credentials)))
    assert event == CallStarted(1, METHOD, None, credentials)


@pytest.mark.parametrize(
    ("text", "timeout_s"),
    [
        (b"1H", 3600.0),
        (b"2M", 120.0),
        (b"3S", 3.0),
        (b"4m", 0.004),
        (b"5u", 0.000_005),
        (b"6n", 6e-9),
        (b"", None),
        (b"soon", None),
        (b"123456789S", None),
    ],
)
def test_a_timeout_is_in_one_of_six_units(text, timeout_s):
    headers = (*REQUEST, (b"grpc-timeout", text))
    [event] = connection().receive(request(1, headers=headers))
    assert event.timeout_s == pytest.approx(timeout_s)


def test_different_headers_beyond_the_cache_are_parsed():
    grpc = connection()
    for number in range(2 * PARSED_REQUESTS_MAX):
        headers = (*REQUEST, (b"grpc-timeout", b"%dS" % number))
        [event] = grpc.receive(request(2 * number + 1, headers=headers))
        assert event.timeout_s == number


def test_request_that_is_not_grpc_gets_status_415():
    grpc = connection()
    headers = (*REQUEST[:5], (b"content-type", b"text/html"))
    assert grpc.receive(request(1, headers=headers)) == []
    headers, _ = answer_of(grpc)
    assert headers[":status"] == "415"
    assert headers["grpc-message"] == "this port speaks gRPC"


def test_cancelled_call_is_removed():
    grpc = connection()
    grpc.receive(request(1))
    assert grpc.receive(reset(1)) == [CallCancelled(1)]
    assert not grpc._calls
    grpc.answer(1, b"x")
    grpc.begin(1)
    assert grpc.write(1, [b"x"])
    grpc.finish(1, StatusCode.OK)
    assert sent(grpc.http2) == []


# Responses.


def test_an_answer_is_a_message_and_a_status():
    grpc = connection()
    grpc.receive(request(1) + data(1, message(b"x"), ends=True))
    grpc.answer(1, b"hello")
    headers, body = answer_of(grpc)
    assert headers == {
        ":status": "200",
        "content-type": "application/grpc",
        "grpc-accept-encoding": "identity",
        "grpc-status": "0",
    }
    assert body == message(b"hello")
    assert not grpc._calls


def test_a_stream_of_answers_ends_with_a_status():
    grpc = connection()
    grpc.receive(request(1) + data(1, message(b"x"), ends=True))
    grpc.begin(1)
    assert [each.kind for each in sent(grpc.http2)] == [FrameType.HEADERS]
    assert grpc.write(1, [b"one"])
    assert grpc.write(1, [b"two"])
    grpc.finish(1, StatusCode.UNAVAILABLE, "stopping")
    headers, body = answer_of(grpc)
    assert headers == {"grpc-status": "14", "grpc-message": "stopping"}
    assert body == message(b"one") + message(b"two")


def test_messages_that_are_written_together_are_one_frame():
    grpc = connection()
    grpc.receive(request(1, ends=True))
    grpc.begin(1)
    sent(grpc.http2)
    assert grpc.write(1, [b"one", b"", b"three"])
    [only] = sent(grpc.http2)
    assert only.body == message(b"one") + message(b"") + message(b"three")


def test_a_refusal_needs_one_frame():
    grpc = connection()
    grpc.receive(request(1, ends=True))
    grpc.finish(1, StatusCode.NOT_FOUND, "no such topic")
    [only] = sent(grpc.http2)
    headers = headers_of([only])
    assert (headers[":status"], headers["grpc-status"]) == ("200", "5")


def test_a_stream_may_end_well_without_a_message():
    grpc = connection()
    grpc.receive(request(1, ends=True))
    grpc.finish(1, StatusCode.OK)
    headers, body = answer_of(grpc)
    assert (headers["grpc-status"], body) == ("0", b"")


def test_status_message_may_have_any_text():
    grpc = connection()
    grpc.receive(request(1, ends=True))
    grpc.finish(1, StatusCode.INTERNAL, "100% für\nalle \udcff")
    headers, _ = answer_of(grpc)
    assert headers["grpc-message"] == "100%25 f%C3%BCr%0Aalle ?"


def test_write_completed_follows_when_all_is_written():
    grpc = connection(window=8)
    grpc.receive(request(1, ends=True))
    assert not grpc.write(1, [b"hello"])
    assert grpc.receive(window(1, 100)) == [WriteCompleted(1)]


def test_a_call_may_end_without_a_status():
    grpc = connection()
    grpc.receive(request(1))
    grpc.cancel(1)
    assert [each.kind for each in sent(grpc.http2)] == [FrameType.RST_STREAM]


# Limits.


def test_a_message_that_is_too_long_is_refused_before_it_comes():
    grpc = connection(message_bytes_max=1000)
    grpc.receive(request(1))
    prefix = struct.pack(">BI", 0, 1001)
    assert grpc.receive(data(1, prefix)) == [CallCancelled(1)]
    headers, _ = answer_of(grpc)
    assert headers["grpc-status"] == str(int(StatusCode.INVALID_ARGUMENT))
    assert headers["grpc-message"] == "Message size 1001 exceeds maximum allowed 1000"
    # Later data of the call is ignored.
    assert grpc.receive(data(1, bytes(1001), ends=True)) == []


def test_long_message_gets_a_larger_window():
    size = 3 * STREAM_WINDOW
    grpc = connection(message_bytes_max=size)
    grpc.receive(request(1))
    grpc.receive(data(1, struct.pack(">BI", 0, size)))
    [grant] = sent(grpc.http2)
    assert grant.number == size + 5 - STREAM_WINDOW
    for _ in range(15):
        assert grpc.receive(data(1, bytes(size // 15))) in (
            [],
            [MessageReceived(1, bytes(size))],
        )
    assert grpc.receive(data(1, b"", ends=True)) == [HalfClosed(1)]


def test_consumed_messages_enlarge_the_window():
    grpc = connection(message_bytes_max=10_000)
    grpc.receive(request(1))
    for _ in range(20):
        [event] = grpc.receive(data(1, message(bytes(9_000))))
        grpc.consumed(1, event.data)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (message(b"x", flag=1), StatusCode.UNIMPLEMENTED),
        (message(b"hello")[:-1], StatusCode.INVALID_ARGUMENT),
        (b"\x00\x00", StatusCode.INVALID_ARGUMENT),
    ],
    ids=["compressed", "cut short", "without a length"],
)
def test_a_malformed_body_is_refused(body, status):
    grpc = connection()
    events = grpc.receive(request(1) + data(1, body, ends=True))
    assert events == [started(), CallCancelled(1)]
    headers, _ = answer_of(grpc)
    assert headers["grpc-status"] == str(int(status))


def test_what_is_not_http2_is_refused():
    with pytest.raises(Http2Error):
        connection().receive(frame(FrameType.DATA, 0, 0, b"x"))


def test_message_to_a_public_method_must_be_short():
    grpc = GrpcConnection(16 * PUBLIC_MESSAGE_BYTES_MAX, frozenset({METHOD}))
    grpc.receive(handshake() + request(1))
    grpc.http2.take_output()
    prefix = struct.pack(">BI", 0, PUBLIC_MESSAGE_BYTES_MAX + 1)
    assert grpc.receive(data(1, prefix)) == [CallCancelled(1)]
    headers, _ = answer_of(grpc)
    assert headers["grpc-status"] == str(int(StatusCode.INVALID_ARGUMENT))
    assert f"maximum allowed {PUBLIC_MESSAGE_BYTES_MAX}" in headers["grpc-message"]
    whole = message(b"x" * PUBLIC_MESSAGE_BYTES_MAX)
    parts = [data(3, whole[at : at + 16_000]) for at in range(0, len(whole), 16_000)]
    *_, last = grpc.receive(request(3) + b"".join(parts))
    assert last == MessageReceived(3, b"x" * PUBLIC_MESSAGE_BYTES_MAX)
