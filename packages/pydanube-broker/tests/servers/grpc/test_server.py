"""A gRPC server: where it listens, what it says about itself, how it ends."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack

import pytest

from pydanube.model.errors import InvalidConfig
from pydanube.wire.pb import danube_api_pb2 as pb
from pydanube_broker.servers.grpc.grpc_server import MESSAGE_BYTES_MAX
from pydanube_broker.servers.grpc.services import Service
from support.fakes.grpc_calls import connected, open_grpc_server

DISCOVERY = pb.DESCRIPTOR.services_by_name["Discovery"]


class Patient:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.was_asked = asyncio.Event()
        self.may_answer = asyncio.Event()

    async def topic_lookup(self, request):
        self.was_asked.set()
        await self.may_answer.wait()
        return pb.TopicLookupResponse(request_id=request.request_id)

    async def topic_partitions(self, request):
        return pb.TopicPartitionsResponse(partitions=[request.topic])


def open_patient(service: Patient, port: int = 0):
    return open_grpc_server(
        *("127.0.0.1", port, [Service(DISCOVERY, service)]),
        name="tests",
        flag="--test-port",
    )


async def test_port_in_use_is_an_error_with_the_option():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InvalidConfig, match=r"in use.*--test-port") as caught:
            async with open_patient(Patient(), port):
                pass
        assert f"127.0.0.1:{port} for tests" in str(caught.value)


async def test_grpc_servers_do_not_share_a_port():
    async with open_patient(Patient()) as port:
        with pytest.raises(InvalidConfig, match="in use"):
            async with open_patient(Patient(), port):
                pass


@pytest.mark.slow
async def test_request_size_is_limited():
    async with open_patient(Patient()) as port:
        options = {"grpc.max_receive_message_length": -1}
        async with connected(port, **options) as call:
            request = pb.TopicLookupRequest(topic="x" * 5_000_000)
            answer = await call("danube.Discovery/TopicPartitions", request)
            assert len(answer.partitions[0]) == 5_000_000
            request.topic = "x" * MESSAGE_BYTES_MAX
            status, text = await call.refusal(
                "danube.Discovery/TopicPartitions", request
            )
    assert status == "INVALID_ARGUMENT"
    size = request.ByteSize()
    assert text == f"Message size {size} exceeds maximum allowed {MESSAGE_BYTES_MAX}"


async def test_running_calls_are_answered_at_the_end():
    service = Patient()
    async with AsyncExitStack() as client:
        async with open_patient(service) as port:
            call = await client.enter_async_context(connected(port))
            asked = call("danube.Discovery/TopicLookup", pb.TopicLookupRequest())
            await service.was_asked.wait()
            asyncio.get_running_loop().call_soon(service.may_answer.set)
        assert await asked == pb.TopicLookupResponse()
