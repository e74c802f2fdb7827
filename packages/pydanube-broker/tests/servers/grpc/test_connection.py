"""Connections: calls, deadlines, slow and dead clients."""

from __future__ import annotations

import asyncio
import gc
import weakref
from contextlib import suppress
from functools import partial

import grpc
import pytest

from pydanube.aio.tasks import task_scope
from pydanube.model.errors import InvalidRequest
from pydanube.wire.pb import danube_api_pb2 as pb
from pydanube.wire.pb import reflection_v1_pb2
from pydanube_broker.servers.connections.connections import ConnectionCounts
from pydanube_broker.servers.grpc.connection import (
    WORK_PER_TURN,
    WRITE_BUFFER_BYTES,
    GrpcProtocol,
)
from pydanube_broker.servers.grpc.grpc_server import GrpcServer
from pydanube_broker.servers.grpc.services import Service
from pydanube_broker.wire.grpc.http2_frames import FrameType
from support.drivers.running import using
from support.fakes.grpc_calls import Caller
from support.fakes.http2_frames import (
    data,
    frame,
    handshake,
    headers_of,
    request,
    reset,
    seen,
)
from support.fakes.transports import RecordingTransport

CONSUMER = pb.DESCRIPTOR.services_by_name["ConsumerService"]
RECEIVE = "danube.ConsumerService/ReceiveMessages"
ACK = "danube.ConsumerService/Ack"


class Consumers:
    """A service that answers on permission, and streams a given number of messages."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.asked = asyncio.Event()
        self.ended: list[str] = []
        self.written = 0

    async def subscribe(self, request, context):
        return pb.ConsumerResponse(consumer_name=context.peer())

    async def receive_messages(self, request, context):
        await context.send_initial_metadata()
        try:
            for number in range(request.consumer_id):
                await context.write(
                    pb.StreamMessage(request_id=number, payload=b"x" * 1000)
                )
                self.written += 1
            if request.request_id:
                await self.may_answer.wait()
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            raise

    async def ack(self, request):
        self.asked.set()
        try:
            await self.may_answer.wait()
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            raise
        return pb.AckResponse(request_id=request.request_id)

    async def nack(self, request):
        return pb.NackResponse(request_id=request.request_id)


class World:
    """A server, and clients of it."""

    def __init__(self, service, server, port) -> None:
        self.service = service
        self.server = server
        self.port = port

    @property
    def calls(self) -> int:
        return sum(len(each.calls) for each in self.server.connections)

    async def until(self, condition) -> None:
        for _ in range(10_000):
            if condition():
                return
            await asyncio.sleep(0.001)
        raise AssertionError("it did not come about")


@pytest.fixture
def server_options():
    return {}


@pytest.fixture
async def world(server_options):
    service = Consumers()
    async with task_scope() as tasks:
        server = GrpcServer([Service(CONSUMER, service)], tasks, **server_options)
        listener = await asyncio.get_running_loop().create_server(
            partial(GrpcProtocol, server), "127.0.0.1", 0
        )
        try:
            yield World(service, server, listener.sockets[0].getsockname()[1])
        finally:
            listener.close()
            await server.close(0.0)


@pytest.fixture
async def call(world):
    async with grpc.aio.insecure_channel(
        f"127.0.0.1:{world.port}", [("grpc.use_local_subchannel_pool", 1)]
    ) as channel:
        yield Caller(channel)


async def test_concurrent_calls_are_answered_separately(world, call):
    world.service.may_answer.set()
    asked = [call(ACK, pb.AckRequest(request_id=number)) for number in range(200)]
    assert [(await each).request_id for each in asked] == list(range(200))


async def test_context_has_the_peer(call):
    answer = await call("danube.ConsumerService/Subscribe", pb.ConsumerRequest())
    assert answer.consumer_name.startswith("127.0.0.1:")


async def test_unknown_method_is_unimplemented(call):
    request = reflection_v1_pb2.ServerReflectionRequest()
    method = call.channel.unary_unary(
        "/danube.Nothing/Do", request_serializer=type(request).SerializeToString
    )
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await method(request)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert "/danube.Nothing/Do" in caught.value.details()


async def test_malformed_request_is_refused(call):
    method = call.channel.unary_unary(f"/{ACK}")
    with pytest.raises(grpc.aio.AioRpcError, match="malformed") as caught:
        await method(b"\xff\xff")
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_call_ends_at_its_deadline(world, call):
    # The client gives up, and the server must cancel the method.
    timeout_s = 0.05
    while not world.service.asked.is_set():
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(ACK, pb.AckRequest(), timeout=timeout_s)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        # On a busy machine, the call may end before the server knows of it.
        timeout_s *= 2
    await world.until(lambda: world.service.ended and not world.calls)
    assert set(world.service.ended) == {"cancelled"}


async def test_cancelled_call_cancels_its_method(world, call):
    asked = call(ACK, pb.AckRequest())
    await world.service.asked.wait()
    asked.cancel()
    await world.until(lambda: world.service.ended == ["cancelled"])
    assert world.calls == 0


async def test_stream_ends_when_its_client_disconnects(world, call):
    stream = call(RECEIVE, pb.ReceiveRequest(request_id=1, consumer_id=1))
    await stream.read()
    await call.channel.close()
    await world.until(lambda: world.service.ended == ["cancelled"])


@pytest.mark.slow
async def test_messages_of_a_stream_arrive_in_order(call):
    stream = call(RECEIVE, pb.ReceiveRequest(consumer_id=5000))
    received = [message.request_id async for message in stream]
    assert received == list(range(5000))


@pytest.mark.slow
async def test_unread_stream_does_not_block_other_calls(world, call):
    stream = call(RECEIVE, pb.ReceiveRequest(consumer_id=100_000))
    await stream.read()
    before = -1
    while before != world.service.written:
        before = world.service.written
        await asyncio.sleep(0.02)
    assert before < 100_000
    world.service.may_answer.set()
    await call(ACK, pb.AckRequest())
    for _ in range(before + 1):
        await stream.read()


@pytest.mark.slow
async def test_connection_with_unread_answers_is_not_read(world, call):
    _, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write(handshake(window=2**31 - 1))
    writer.write(frame(FrameType.WINDOW_UPDATE, 0, 0, (2**31 - 1 - 65_535).to_bytes(4)))
    path = (b":path", f"/{RECEIVE}".encode())
    headers = [(b":method", b"POST"), (b":scheme", b"http"), path]
    headers.append((b"content-type", b"application/grpc"))
    body = pb.ReceiveRequest(consumer_id=1_000_000).SerializeToString()
    writer.write(request(1, headers=headers))
    writer.write(data(1, b"\0" + len(body).to_bytes(4) + body, ends=True))
    await world.until(lambda: world.service.written)
    before = -1
    while before != world.service.written:
        before = world.service.written
        await asyncio.sleep(0.05)
    # All buffers are full, so no more answers are made.
    [connection] = [each for each in world.server.connections if each.calls]
    waiting = connection._transport.get_write_buffer_size()
    assert waiting < 2 * WRITE_BUFFER_BYTES
    assert before < 100_000
    writer.close()
    await world.until(lambda: world.service.ended == ["cancelled"])


def has_settled(http2):
    """Return whether both sides have completed the handshake."""
    return http2.has_preface and http2.has_settings_ack


@using(server_options={"keepalive_s": 3600.0})
async def test_client_that_does_not_answer_ping_is_disconnected(world, call):
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write(handshake() + frame(FrameType.SETTINGS, 1))
    await world.until(
        lambda: any(has_settled(each._grpc.http2) for each in world.server.connections)
    )
    [connection] = world.server.connections
    received = await reader.read(1000)
    # The preface may arrive in pieces; when nothing more arrives, a PING is sent.
    while FrameType.PING not in [each.kind for each in seen([received])]:
        connection.on_keepalive()
        with suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                received += await reader.read(1000)
    # The client has not answered.
    connection.on_keepalive()
    with suppress(ConnectionResetError):
        assert await reader.read() == b""
    await world.until(lambda: not world.server.connections)
    writer.close()


@using(server_options={"keepalive_s": 3600.0})
async def test_client_that_answers_ping_stays_connected(world, call):
    stream = call(RECEIVE, pb.ReceiveRequest(request_id=1, consumer_id=1))
    await stream.read()
    [connection] = world.server.connections
    for _ in range(6):
        connection.on_keepalive()
        if connection._was_silent:
            # The client answers the PING.
            await world.until(lambda: connection._has_received)
    assert world.calls == 1


async def test_other_protocol_is_answered_with_goaway(world, call):
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    received = await reader.read()
    assert [each.kind for each in seen([received])][-1] is FrameType.GOAWAY
    writer.close()


async def test_second_request_of_a_unary_call_is_refused(world, call):
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    headers = [(b":method", b"POST"), (b":scheme", b"http")]
    headers += [
        (b":path", f"/{ACK}".encode()),
        (b"content-type", b"application/grpc"),
    ]
    message = b"\0" + (0).to_bytes(4)
    writer.write(handshake() + request(1, headers=headers))
    writer.write(data(1, message + message, ends=True))
    received = b""
    while b"grpc-status" not in received:
        received += await reader.read(1000)
    answer = headers_of([each for each in seen([received]) if each.stream == 1])
    assert answer["grpc-status"] == "3"
    assert answer["grpc-message"] == "2 requests where there must be one"
    writer.close()


# One connection beside others.


PING = frame(FrameType.PING, 0, 0, bytes(8))
HEADERS_OF_ACK = [
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", f"/{ACK}".encode()),
    (b"content-type", b"application/grpc"),
]


def connected_by_hand(server) -> tuple[GrpcProtocol, RecordingTransport]:
    """A connection that has connected, and its transport."""
    connection, transport = GrpcProtocol(server), RecordingTransport()
    connection.connection_made(transport)
    connection.data_received(handshake() + frame(FrameType.SETTINGS, 1))
    return connection, transport


@pytest.fixture
def service_type():
    return Consumers


@pytest.fixture
async def server(service_type, server_options):
    """Run a server without sockets."""
    async with task_scope() as tasks:
        server = GrpcServer(
            [Service(CONSUMER, service_type())], tasks, **server_options
        )
        yield server
        for each in list(server.connections):
            each.connection_lost(None)


def call_of(
    stream: int, method: str, message: pb.AckRequest, *, timeout: bytes = b""
) -> bytes:
    headers = [(b":method", b"POST"), (b":scheme", b"http")]
    headers += [
        (b":path", f"/{method}".encode()),
        (b"content-type", b"application/grpc"),
    ]
    if timeout:
        headers.append((b"grpc-timeout", timeout))
    body = message.SerializeToString()
    body = b"\0" + len(body).to_bytes(4) + body
    return request(stream, headers=headers) + data(stream, body, ends=True)


async def test_connection_has_a_bounded_share_of_a_turn(server):
    connection, transport = connected_by_hand(server)
    await asyncio.sleep(0)
    http2 = connection._grpc.http2
    before = http2.work
    connection.data_received(PING * (10 * WORK_PER_TURN))
    turns = 0
    while http2.has_backlog:
        assert http2.work - before <= WORK_PER_TURN * (turns // 2 + 1)
        assert not transport.is_reading_now
        await asyncio.sleep(0)
        turns += 1
    assert transport.is_reading_now
    assert http2.work - before == 10 * WORK_PER_TURN


async def test_other_connections_are_served_between_the_turns_of_one(server):
    hostile, _ = connected_by_hand(server)
    good, transport = connected_by_hand(server)
    await asyncio.sleep(0)
    before = hostile._grpc.http2.work
    hostile.data_received(PING * (30 * WORK_PER_TURN))
    nack = call_of(1, "danube.ConsumerService/Nack", pb.NackRequest())
    good.data_received(nack)
    await turns_until(lambda: "grpc-status" in answer_in(transport))
    assert hostile._grpc.http2.has_backlog
    assert hostile._grpc.http2.work - before <= 4 * WORK_PER_TURN


def answer_in(transport) -> dict[str, str]:
    """Return the headers and trailers that were sent."""
    return headers_of(each for each in seen([bytes(transport.written)]) if each.stream)


async def turns_until(condition) -> None:
    """Run the loop until *condition* is true."""
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it did not come about")


async def test_connection_that_is_not_read_from_processes_nothing(server):
    connection, _ = connected_by_hand(server)
    await asyncio.sleep(0)
    http2 = connection._grpc.http2
    connection.data_received(PING * (3 * WORK_PER_TURN))
    connection.pause_writing()
    before = http2.work
    for _ in range(10):
        await asyncio.sleep(0)
    assert http2.work == before
    connection.resume_writing()
    await turns_until(lambda: not http2.has_backlog)
    assert http2.work > before


async def test_flood_closes_its_connection(server):
    connection, transport = connected_by_hand(server)
    while not transport.is_closed:
        connection.data_received(PING * 1000)
        await asyncio.sleep(0)
    *_, last = seen([bytes(transport.written)])
    assert last.kind is FrameType.GOAWAY
    # Later frames have no effect.
    connection.data_received(PING)


@using(server_options={"counts": ConnectionCounts(listener="grpc", connections_max=1)})
async def test_connections_beyond_the_maximum_are_closed(server):
    connected_by_hand(server)
    refused, transport = GrpcProtocol(server), RecordingTransport()
    refused.connection_made(transport)
    assert transport.is_aborted
    refused.data_received(handshake())
    refused.connection_lost(None)
    assert (server.counts.refused_total, server.counts.open_count) == (1, 1)
    assert len(server.connections) == 1


@using(server_options={"receive_bytes_max": 100_000})
async def test_connection_that_holds_most_is_closed_when_memory_runs_out(server):
    small, transport = connected_by_hand(server)
    small.data_received(half_a_call(1, 1000))
    hog, hogs_transport = connected_by_hand(server)
    for stream in range(1, 25, 2):
        hog.data_received(half_a_call(stream, 10_000))
        await asyncio.sleep(0)
    assert hogs_transport.is_closed
    assert not transport.is_closed
    assert server.counts.abusive_total == 1
    *_, last = seen([bytes(hogs_transport.written)])
    assert last.kind is FrameType.GOAWAY
    assert server.held_bytes == small.held_bytes == 1005


def half_a_call(stream: int, byte_count: int) -> bytes:
    """Return a request with *byte_count* bytes and without its end."""
    return (
        request(stream, headers=HEADERS_OF_ACK)
        + data(stream, b"\0" + (60_000).to_bytes(4))
        + data(stream, bytes(byte_count))
    )


async def test_answered_requests_hold_no_memory(server):
    connection, transport = connected_by_hand(server)
    nack = pb.NackRequest(reason="x" * 5000)
    connection.data_received(call_of(1, "danube.ConsumerService/Nack", nack))
    connection._flush()
    assert server.held_bytes > 5000
    await turns_until(lambda: "grpc-status" in answer_in(transport))
    await asyncio.sleep(0)
    assert server.held_bytes == 0


async def test_call_that_is_reset_before_it_begins_is_forgotten(server):
    connection, _ = connected_by_hand(server)
    nack = call_of(1, "danube.ConsumerService/Nack", pb.NackRequest())
    connection.data_received(nack + reset(1))
    assert not connection.calls


async def test_closed_connection_is_freed_without_the_garbage_collector(server):
    async def use(server):
        connection, transport = connected_by_hand(server)
        ack = call_of(1, ACK, pb.AckRequest())
        nack = call_of(3, "danube.ConsumerService/Nack", pb.NackRequest())
        stream = call_of(5, RECEIVE, pb.ReceiveRequest(request_id=1, consumer_id=2))
        connection.data_received(ack + nack + stream + half_a_call(7, 100))
        await turns_until(lambda: "grpc-status" in answer_in(transport))
        connection.connection_lost(None)
        return weakref.ref(connection)

    gc.disable()
    try:
        found = await use(server)
        for _ in range(5):
            await asyncio.sleep(0)
        assert found() is None
    finally:
        gc.enable()


async def test_connection_that_was_accepted_before_the_end_is_closed(server):
    await server.close(0.0)
    late, transport = GrpcProtocol(server), RecordingTransport()
    late.connection_made(transport)
    assert transport.is_aborted
    late.connection_lost(None)
    assert (len(server.connections), server.counts.open_count) == (0, 0)


# Connections that nobody uses.


async def test_missing_preface_closes_the_connection(server):
    connection, transport = GrpcProtocol(server), RecordingTransport()
    connection.connection_made(transport)
    connection.data_received(handshake()[:20])
    connection.on_keepalive()
    assert transport.is_aborted


async def test_missing_settings_ack_closes_the_connection(server):
    connection, transport = GrpcProtocol(server), RecordingTransport()
    connection.connection_made(transport)
    connection.data_received(handshake())
    connection.on_keepalive()
    assert not transport.is_aborted
    connection.data_received(PING)
    connection.on_keepalive()
    assert transport.is_aborted


async def test_client_that_does_not_read_is_disconnected(server):
    connection, transport = connected_by_hand(server)
    connection.on_keepalive()
    connection.pause_writing()
    transport.unsent_bytes = len(transport.written)
    connection.on_keepalive()
    assert not transport.is_aborted
    connection.on_keepalive()
    assert transport.is_aborted


async def test_client_that_reads_slowly_stays_connected(server):
    connection, transport = connected_by_hand(server)
    connection.on_keepalive()
    connection.pause_writing()
    transport.unsent_bytes = len(transport.written)
    for _ in range(5):
        transport.unsent_bytes -= 1
        connection.on_keepalive()
    assert not transport.is_aborted


# Answers without a task.


class Nowait(Consumers):
    """Answers ``Nack`` without a task, depending on the request's reason."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = []
        self.waited = 0

    async def nack(self, request):
        self.waited += 1
        return await super().nack(request)

    def nack_nowait(self, request, on_answer):
        if request.reason == "cannot":
            return False
        if request.reason == "refused":
            raise InvalidRequest("refused")
        answer = partial(on_answer, pb.NackResponse(request_id=request.request_id))
        if request.reason == "later":
            self.answers.append(answer)
        else:
            answer()
        return True


NACK = "danube.ConsumerService/Nack"


def nack_of(stream, reason="", **options):
    request = pb.NackRequest(request_id=stream, reason=reason)
    return call_of(stream, NACK, request, **options)


async def turn():
    for _ in range(5):
        await asyncio.sleep(0)


def statuses_of(transport):
    """Return the kinds of frames written since the last call, by stream."""
    written = [each for each in seen([bytes(transport.written)]) if each.stream]
    transport.written.clear()
    return [(each.stream, each.kind) for each in written]


WHOLE = [FrameType.HEADERS, FrameType.DATA, FrameType.HEADERS]


@using(service_type=Nowait)
async def test_call_that_does_not_wait_is_answered_without_a_task(server):
    connection, transport = connected_by_hand(server)
    service = server.methods[f"/{NACK}"].call.__self__
    await turn()
    transport.written.clear()
    connection.data_received(nack_of(1) + nack_of(3, "cannot"))
    assert len(connection.calls) == 1
    await turn()
    assert service.waited == 1
    assert statuses_of(transport) == [(s, kind) for s in (1, 3) for kind in WHOLE]


@using(service_type=Nowait)
async def test_error_without_a_task_is_sent_and_counted(server):
    connection, transport = connected_by_hand(server)
    await turn()
    transport.written.clear()
    connection.data_received(nack_of(1, "refused"))
    await turn()
    assert statuses_of(transport) == [(1, FrameType.HEADERS)]
    errors = server.methods[f"/{NACK}"].service.errors
    assert errors == {InvalidRequest.code: 1}


@using(service_type=Nowait)
async def test_cancelled_call_without_a_task_is_not_answered(server):
    connection, transport = connected_by_hand(server)
    service = server.methods[f"/{NACK}"].call.__self__
    await turn()
    transport.written.clear()
    connection.data_received(nack_of(1, "later"))
    assert connection.is_answering
    connection.data_received(frame(FrameType.RST_STREAM, 0, 1, bytes(4)))
    assert not connection.is_answering
    service.answers[0]()
    await turn()
    assert statuses_of(transport) == []


@using(service_type=Nowait)
async def test_call_without_a_task_ends_at_its_deadline(server):
    connection, transport = connected_by_hand(server)
    service = server.methods[f"/{NACK}"].call.__self__
    await turn()
    transport.written.clear()
    connection.data_received(nack_of(1, "later", timeout=b"1m"))
    assert not connection.calls
    await connection.all_answered()
    await turn()
    assert statuses_of(transport) == [(1, FrameType.HEADERS)]
    errors = server.methods[f"/{NACK}"].service.errors
    assert errors == {"deadline_exceeded": 1}
    connection.data_received(nack_of(3, "later", timeout=b"1H"))
    for answer in service.answers:
        answer()
    await turn()
    assert statuses_of(transport) == [(3, kind) for kind in WHOLE]


@using(service_type=Nowait)
async def test_close_waits_for_calls_without_tasks(server):
    connection, transport = connected_by_hand(server)
    service = server.methods[f"/{NACK}"].call.__self__
    connection.data_received(nack_of(1, "later"))
    await turn()
    transport.written.clear()
    ending = server.run(server.close(30.0))
    await turn()
    assert not ending.done()
    service.answers[0]()
    await ending
    assert statuses_of(transport) == [(1, kind) for kind in WHOLE]


@using(service_type=Nowait)
async def test_ping_ack_is_sent_with_the_answer_to_a_call(server):
    connection, transport = connected_by_hand(server)
    service = server.methods[f"/{NACK}"].call.__self__
    await turn()
    transport.written.clear()
    connection.data_received(PING + nack_of(1, "later"))
    await turn()
    assert not transport.written
    before = transport.write_count
    service.answers[0]()
    await turn()
    assert transport.write_count == before + 1
    frames = seen([bytes(transport.written)])
    assert [each.kind for each in frames] == [FrameType.PING, *WHOLE]
