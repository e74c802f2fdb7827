"""Connections of the gRPC server that have not proved an identity yet."""

from __future__ import annotations

import asyncio

import pytest

from pydanube.aio.tasks import task_scope
from pydanube.model.errors import Unauthenticated
from pydanube.security.principals import Principal
from pydanube.wire.pb import danube_api_pb2 as pb
from pydanube_broker.servers.connections.authentication import (
    Authenticator,
    ClientIdentity,
)
from pydanube_broker.servers.grpc.connection import STRANGER_CALLS_MAX, GrpcProtocol
from pydanube_broker.servers.grpc.grpc_server import GrpcServer
from pydanube_broker.servers.grpc.services import Service
from pydanube_broker.servers.settings.security_config import SecurityConfig
from support.fakes.http2_frames import REQUEST, data, handshake, request
from support.fakes.transports import RecordingTransport

CONSUMER = pb.DESCRIPTOR.services_by_name["ConsumerService"]
ACK = "danube.ConsumerService/Ack"


class Waiting:
    """A public service whose calls wait."""

    async def subscribe(self, request):
        await asyncio.Event().wait()

    receive_messages = ack = nack = subscribe


LOGGED_IN = [*REQUEST, (b"x-api-key", b"known")]
PUBLIC_ACK = dict(REQUEST) | {b":path": f"/{ACK}".encode()}


class OneKey(Authenticator):
    """Knows one client."""

    def __init__(self) -> None:
        super().__init__(SecurityConfig(enabled=True))

    def authenticate(self, credential, address, certificate=None, *, listener="grpc"):
        if credential != "known":
            raise Unauthenticated("unknown")
        return ClientIdentity(Principal("alice", "token"))


@pytest.fixture
async def stranger():
    """A connection to a server on which everybody may make calls that wait."""
    async with task_scope() as tasks:
        public = Service(CONSUMER, Waiting(), is_public=True)
        private = Service(pb.DESCRIPTOR.services_by_name["Discovery"], Lookups())
        server = GrpcServer([public, private], tasks, authenticator=OneKey())
        connection, transport = GrpcProtocol(server), RecordingTransport()
        connection.connection_made(transport)
        connection.data_received(handshake())
        transport.peer = connection
        yield transport
        connection.close()
        connection.connection_lost(None)


class Lookups:
    """A service for clients with an identity."""

    async def topic_lookup(self, request):
        return pb.TopicLookupResponse()

    async def topic_partitions(self, request):
        return pb.TopicPartitionsResponse()


def begun(number):
    return request(number, headers=list(PUBLIC_ACK.items()))


async def test_stranger_has_few_calls_at_a_time(stranger):
    waiting = b"".join(
        begun(number) + data(number, bytes(5), ends=True)
        for number in range(1, 2 * STRANGER_CALLS_MAX + 1, 2)
    )
    stranger.peer.data_received(waiting)
    assert len(stranger.peer.calls) == STRANGER_CALLS_MAX
    number = 2 * STRANGER_CALLS_MAX + 1
    stranger.peer.data_received(begun(number))
    await asyncio.sleep(0)
    assert b"need credentials" in stranger.written
    assert len(stranger.peer.calls) == STRANGER_CALLS_MAX
    # A client that proves who it is has the usual limits.
    stranger.written.clear()
    stranger.peer.data_received(request(number + 2, headers=LOGGED_IN))
    stranger.peer.data_received(
        begun(number + 4) + data(number + 4, bytes(5), ends=True)
    )
    await asyncio.sleep(0)
    assert len(stranger.peer.calls) == STRANGER_CALLS_MAX + 1
    assert not stranger.is_closed


async def test_requests_of_a_stranger_are_short_in_total(stranger):
    half = b"\0" + (30_000).to_bytes(4, "big") + bytes(15_000)
    for number in (1, 3, 5, 7):
        stranger.peer.data_received(begun(number) + data(number, half))
        await asyncio.sleep(0)
    assert stranger.peer.held_bytes == 4 * len(half)
    assert not stranger.is_closed
    stranger.peer.data_received(begun(9) + data(9, half))
    await asyncio.sleep(0)
    assert stranger.is_closed
    assert b"need credentials" in stranger.written
    assert stranger.peer.held_bytes == 0
