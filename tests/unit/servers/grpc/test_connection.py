"""Connections on a loop: calls, deadlines, slow clients, dead ones."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import grpc
import pytest

from pydanube.servers.grpc.connection import WRITE_BUFFER_BYTES, GrpcServer
from pydanube.servers.grpc.services import Service
from pydanube.wire.http2 import Frame
from pydanube.wire.pb import danube_api_pb2 as pb
from pydanube.wire.pb import reflection_v1_pb2
from support.grpc_calls import Caller
from support.http2_frames import (
    data,
    frame,
    greeting,
    headers_of,
    request,
    seen,
)

CONSUMER = pb.DESCRIPTOR.services_by_name["ConsumerService"]
RECEIVE = "danube.ConsumerService/ReceiveMessages"
ACK = "danube.ConsumerService/Ack"


class Consumers:
    """Answers when it may, and streams as much as is asked for."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.asked = asyncio.Event()
        self.ended: list[str] = []
        self.written = 0
        self.metadata = {}

    async def subscribe(self, request, context):
        self.metadata = context.metadata
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

    async def ack(self, request, context):
        self.asked.set()
        try:
            await self.may_answer.wait()
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            raise
        return pb.AckResponse(request_id=request.request_id)

    async def nack(self, request, context):
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


def with_world(test, **options):
    async def run():
        service = Consumers()
        async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
            server = GrpcServer([Service(CONSUMER, service)], tasks, **options)
            listener = await asyncio.get_running_loop().create_server(
                server.new_connection, "127.0.0.1", 0
            )
            port = listener.sockets[0].getsockname()[1]
            try:
                async with grpc.aio.insecure_channel(
                    f"127.0.0.1:{port}", [("grpc.use_local_subchannel_pool", 1)]
                ) as channel:
                    await test(World(service, server, port), Caller(channel))
            finally:
                listener.close()
                await server.close(0.0)

    asyncio.run(run())


def test_many_calls_are_answered_each_by_itself():
    async def test(world, call):
        world.service.may_answer.set()
        asked = [call(ACK, pb.AckRequest(request_id=number)) for number in range(200)]
        assert [(await each).request_id for each in asked] == list(range(200))

    with_world(test)


def test_a_service_knows_who_asks_and_what_was_said_besides():
    async def test(world, call):
        answer = await call(
            "danube.ConsumerService/Subscribe",
            pb.ConsumerRequest(),
            metadata=[("x-danube-broker-url", "http://broker:6650")],
        )
        assert answer.consumer_name.startswith("127.0.0.1:")
        assert world.service.metadata["x-danube-broker-url"] == "http://broker:6650"

    with_world(test)


def test_an_unknown_method_is_unimplemented():
    async def test(world, call):
        request = reflection_v1_pb2.ServerReflectionRequest()
        method = call._channel.unary_unary(
            "/danube.Nothing/Do", request_serializer=type(request).SerializeToString
        )
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await method(request)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert "/danube.Nothing/Do" in caught.value.details()

    with_world(test)


def test_a_malformed_request_is_refused():
    async def test(world, call):
        method = call._channel.unary_unary(f"/{ACK}")
        with pytest.raises(grpc.aio.AioRpcError, match="malformed") as caught:
            await method(b"\xff\xff")
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT

    with_world(test)


def test_who_has_not_got_an_answer_in_time_gets_none():
    async def test(world, call):
        # The client gives up by itself; the service must not go on in vain.
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(ACK, pb.AckRequest(), timeout=0.05)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await world.until(lambda: world.service.ended == ["cancelled"])
        assert world.calls == 0

    with_world(test)


def test_a_call_that_is_taken_back_ends_its_service():
    async def test(world, call):
        asked = call(ACK, pb.AckRequest())
        await world.service.asked.wait()
        asked.cancel()
        await world.until(lambda: world.service.ended == ["cancelled"])
        assert world.calls == 0

    with_world(test)


def test_a_stream_ends_when_its_client_goes():
    async def test(world, call):
        stream = call(RECEIVE, pb.ReceiveRequest(request_id=1, consumer_id=1))
        await stream.read()
        await call._channel.close()
        await world.until(lambda: world.service.ended == ["cancelled"])

    with_world(test)


@pytest.mark.slow
def test_all_messages_of_a_stream_come_in_order():
    async def test(world, call):
        stream = call(RECEIVE, pb.ReceiveRequest(consumer_id=5000))
        received = [message.request_id async for message in stream]
        assert received == list(range(5000))

    with_world(test)


@pytest.mark.slow
def test_who_does_not_read_a_stream_is_not_written_to_and_stops_nobody():
    async def test(world, call):
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

    with_world(test)


@pytest.mark.slow
def test_who_reads_no_answers_is_not_read_from():
    async def test(world, call):
        _, writer = await asyncio.open_connection("127.0.0.1", world.port)
        writer.write(greeting(window=2**31 - 1))
        writer.write(frame(Frame.WINDOW_UPDATE, 0, 0, (2**31 - 1 - 65_535).to_bytes(4)))
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
        # The system's buffers and ours are full, and no more is made.
        [connection] = [each for each in world.server.connections if each.calls]
        waiting = connection._transport.get_write_buffer_size()
        assert waiting < 2 * WRITE_BUFFER_BYTES
        assert before < 100_000
        writer.close()
        await world.until(lambda: world.service.ended == ["cancelled"])

    with_world(test)


def test_who_gives_no_sign_of_life_is_gone():
    async def test(world, call):
        reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
        writer.write(greeting())
        await world.until(lambda: world.server.connections)
        [connection] = world.server.connections
        received = await reader.read(1000)
        # The greeting may come in pieces; when nothing comes any more, it is asked.
        while Frame.PING not in [each.kind for each in seen([received])]:
            connection._look_for_life()
            with suppress(TimeoutError):
                async with asyncio.timeout(0.05):
                    received += await reader.read(1000)
        # And nothing has come since.
        connection._look_for_life()
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        await world.until(lambda: not world.server.connections)
        writer.close()

    with_world(test, keepalive_s=3600.0)


def test_who_answers_pings_stays():
    async def test(world, call):
        stream = call(RECEIVE, pb.ReceiveRequest(request_id=1, consumer_id=1))
        await stream.read()
        [connection] = world.server.connections
        for _ in range(6):
            connection._look_for_life()
            if connection._was_silent:
                # What is there to come is the answer to our question.
                await world.until(lambda: connection._has_come)
        assert world.calls == 1

    with_world(test, keepalive_s=3600.0)


def test_whoever_speaks_something_else_is_told_goodbye():
    async def test(world, call):
        reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        received = await reader.read()
        assert [each.kind for each in seen([received])][-1] is Frame.GOAWAY
        writer.close()

    with_world(test)


def test_a_method_takes_one_request_and_not_two():
    async def test(world, call):
        reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
        headers = [(b":method", b"POST"), (b":scheme", b"http")]
        headers += [
            (b":path", f"/{ACK}".encode()),
            (b"content-type", b"application/grpc"),
        ]
        message = b"\0" + (0).to_bytes(4)
        writer.write(greeting() + request(1, headers=headers))
        writer.write(data(1, message + message, ends=True))
        received = b""
        while b"grpc-status" not in received:
            received += await reader.read(1000)
        answer = headers_of([each for each in seen([received]) if each.stream == 1])
        assert answer["grpc-status"] == "3"
        assert answer["grpc-message"] == "2 requests where there must be one"
        writer.close()

    with_world(test)
