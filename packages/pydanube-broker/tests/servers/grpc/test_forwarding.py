"""Calls that reach a broker of a cluster which does not serve the topic."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from pydanube.model.errors import InvalidConfig, NotOwner
from pydanube.model.names import TopicName
from pydanube.model.policy import TopicPolicy
from pydanube.wire.pb import danube_admin_pb2
from pydanube.wire.pb import danube_api_pb2 as pb
from pydanube_broker.cluster.overview import GRPC, PEER_ADMIN, PEER_GRPC, STREAM
from pydanube_broker.servers.grpc.admin import TopicAdmin
from pydanube_broker.servers.grpc.forwarding import Forwarding, Owners
from pydanube_broker.servers.grpc.peer_channels import (
    PeerChannels,
    PeerFiles,
    Unreachable,
    open_peer_channels,
)
from pydanube_broker.servers.grpc.server import open_listener
from pydanube_broker.servers.grpc.services import Service
from pydanube_broker.wire.grpc.connection import CallStarted
from support.drivers.danube_calls import open_danube_server
from support.fakes.broker_clusters import BrokerCluster, Member
from support.fakes.grpc_calls import Caller, connected
from support.servers.certificates import write_certificates

pytestmark = pytest.mark.slow

TEST_TIMEOUT_S = 60
NAMES = [TopicName.parse(f"/default/t{number}") for number in range(12)]
TOPIC_ADMIN = danube_admin_pb2.DESCRIPTOR.services_by_name["TopicAdmin"]


class World:
    """A cluster of two brokers whose gRPC servers forward calls to each other."""

    def __init__(self) -> None:
        self.cluster = BrokerCluster()
        self.members: dict[str, Member] = {}
        self.client_ports: dict[str, int] = {}
        self.admin_ports: dict[str, int] = {}

    def addresses(self, stream_url: str) -> Mapping[str, str]:
        """Return the addresses of a broker, as its session would have them."""
        name = stream_url.removeprefix("danube://").partition(":")[0]
        return {
            GRPC: f"http://{name}.example:6650",
            PEER_GRPC: f"http://127.0.0.1:{self.client_ports[name]}",
            PEER_ADMIN: f"http://127.0.0.1:{self.admin_ports[name]}",
        }

    def owners(self, name: str) -> Owners:
        """Return what the broker *name* knows about the owners of topics."""
        broker = self.members[name].broker

        async def find(topic: TopicName) -> Mapping[str, str]:
            found = await broker.topics.find_addresses(topic)
            return self.addresses(found[STREAM]) if found else {}

        def addresses() -> Iterator[Mapping[str, str]]:
            assert broker.shards is not None
            for each in broker.shards.addresses_of_owners():
                yield self.addresses(each[STREAM])

        return Owners(find, addresses)

    async def topic_of(self, name: str) -> TopicName:
        """Return a topic that the broker *name* serves."""
        catalog = self.members[name].broker.catalog
        served = self.cluster.served(name)
        for topic in NAMES:
            if (await catalog.get_topic(topic)).value.shard in served:
                return topic
        raise AssertionError(f"{name} serves no topic")


@asynccontextmanager
async def running_world() -> AsyncIterator[World]:
    """Run both brokers, with topics on each of them."""
    world = World()
    async with asyncio.timeout(TEST_TIMEOUT_S), AsyncExitStack() as stack:
        for name in ("a", "b"):
            world.members[name] = await stack.enter_async_context(
                world.cluster.broker(name)
            )
        await world.cluster.settled("a", "b")
        for topic in NAMES:
            await world.members["a"].broker.topics.add(topic, TopicPolicy())
        for name, member in world.members.items():
            await _serve(world, name, member, stack)
        yield world


async def _serve(
    world: World, name: str, member: Member, stack: AsyncExitStack
) -> None:
    channels = await stack.enter_async_context(open_peer_channels())
    clients, admins = [
        Forwarding(world.owners(name), listener=listener, channels=channels)
        for listener in (PEER_GRPC, PEER_ADMIN)
    ]
    server = await stack.enter_async_context(
        open_danube_server(
            member.broker,
            wall_clock_us=lambda: time.time_ns() // 1000,
            advertised_url=f"http://{name}.example:6650",
            connect_url="http://all.example:6650",
            forwarding=clients,
        )
    )
    world.client_ports[name] = server.port
    listener = await stack.enter_async_context(
        open_listener("127.0.0.1", 0, name="admins", flag="-")
    )
    service = Service(TOPIC_ADMIN, TopicAdmin(member.broker, name))
    await stack.enter_async_context(listener.serving([service], forwarding=admins))
    world.admin_ports[name] = listener.port


class ProxiedClient:
    """A client that takes what a lookup says, and stays at one address."""

    def __init__(self, call: Caller, topic: TopicName) -> None:
        self._call = call
        self._topic = str(topic)
        self.broker_url = ""

    async def call(self, method: str, request: Any) -> Any:
        """Make a call for the broker that serves the topic."""
        return await self.start(method, request)

    def start(self, method: str, request: Any) -> Any:
        """Start a call."""
        metadata = [("x-danube-broker-url", self.broker_url)]
        return self._call(method, request, metadata=metadata)

    async def look_up(self) -> pb.TopicLookupResponse:
        """Look the topic up, as clients do before they connect."""
        request = pb.TopicLookupRequest(topic=self._topic)
        found = await self._call("danube.Discovery/TopicLookup", request)
        # The clients for Rust add a slash.
        self.broker_url = found.broker_url + "/"
        return found

    async def create_producer(self) -> int:
        """Create a producer; return its number."""
        request = pb.ProducerRequest(
            producer_name="p",
            topic_name=self._topic,
            dispatch_strategy=pb.Reliable,
        )
        answer = await self.call("danube.ProducerService/CreateProducer", request)
        return answer.producer_id

    async def subscribe(self) -> int:
        """Subscribe; return the number of the consumer."""
        request = pb.ConsumerRequest(
            topic_name=self._topic, consumer_name="c", subscription="s"
        )
        answer = await self.call("danube.ConsumerService/Subscribe", request)
        return answer.consumer_id

    async def send(self, producer: int, payload: bytes) -> None:
        """Publish a message."""
        message = pb.StreamMessage(
            payload=payload,
            producer_name="p",
            msg_id=pb.MsgID(producer_id=producer, topic_name=self._topic),
        )
        await self.call("danube.ProducerService/SendMessage", message)

    async def health(self, kind: int, number: int) -> int:
        """Return the status of a producer or a consumer."""
        request = pb.HealthCheckRequest(client=kind, id=number)
        answer = await self.call("danube.HealthCheck/HealthCheck", request)
        return answer.status


async def test_a_client_behind_one_address_uses_a_topic_of_another_broker() -> None:
    async with running_world() as world, connected(world.client_ports["a"]) as call:
        client = ProxiedClient(call, await world.topic_of("b"))
        found = await client.look_up()
        assert found.broker_url == "http://b.example:6650"
        assert found.proxy
        producer, consumer = await client.create_producer(), await client.subscribe()
        stream = client.start(
            "danube.ConsumerService/ReceiveMessages",
            pb.ReceiveRequest(consumer_id=consumer),
        )
        await stream.initial_metadata()
        for payload in (b"one", b"two"):
            await client.send(producer, payload)
            received = await stream.read()
            assert received.payload == payload
            await client.call(
                "danube.ConsumerService/Ack",
                pb.AckRequest(msg_id=received.msg_id, subscription_name="s"),
            )
        ok = pb.HealthCheckResponse.OK
        assert await client.health(pb.HealthCheckRequest.Producer, producer) == ok
        assert await client.health(pb.HealthCheckRequest.Consumer, consumer) == ok
        stream.cancel()


async def test_an_error_of_the_owner_is_passed_on() -> None:
    async with running_world() as world, connected(world.client_ports["a"]) as call:
        client = ProxiedClient(call, await world.topic_of("b"))
        await client.look_up()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await client.send(7, b"from an unknown producer")
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert "producer with id 7 does not exist" in str(caught.value.details())


async def test_a_client_is_told_to_begin_again_if_its_broker_is_gone() -> None:
    async with running_world() as world, connected(world.client_ports["a"]) as call:
        client = ProxiedClient(call, await world.topic_of("b"))
        await client.look_up()
        producer = await client.create_producer()
        # Nothing listens there any more.
        world.client_ports["b"] = 1
        close = pb.HealthCheckResponse.CLOSE
        assert await client.health(pb.HealthCheckRequest.Producer, producer) == close


async def test_a_consumer_gets_messages_from_where_it_has_subscribed() -> None:
    async with running_world() as world, connected(world.client_ports["a"]) as call:
        client = ProxiedClient(call, await world.topic_of("b"))
        # The former owner: clients do not look up again before they subscribe again.
        client.broker_url = "http://former.example:6650"
        producer, consumer = await client.create_producer(), await client.subscribe()
        request = pb.ReceiveRequest(consumer_id=consumer)
        stream = client.start("danube.ConsumerService/ReceiveMessages", request)
        await stream.initial_metadata()
        await client.send(producer, b"one")
        assert (await stream.read()).payload == b"one"
        ok = pb.HealthCheckResponse.OK
        assert await client.health(pb.HealthCheckRequest.Consumer, consumer) == ok
        stream.cancel()


async def test_a_client_creates_a_topic_through_any_broker() -> None:
    async with running_world() as world, connected(world.client_ports["a"]) as call:
        client = ProxiedClient(call, TopicName.parse("/default/new"))
        # It was told to use a proxy when it looked another topic up.
        client.broker_url = "http://b.example:6650"
        producer = await client.create_producer()
        await client.send(producer, b"one")


async def test_a_header_does_not_lead_to_a_stranger() -> None:
    async with running_world() as world, connected(world.client_ports["a"]) as call:
        answer = await call(
            "danube.HealthCheck/HealthCheck",
            pb.HealthCheckRequest(client=pb.HealthCheckRequest.Producer, id=7),
            metadata=[("x-danube-broker-url", "http://127.0.0.1:1")],
        )
        assert answer.status == pb.HealthCheckResponse.CLOSE


async def test_a_tool_describes_a_topic_at_any_broker() -> None:
    async with running_world() as world:
        for name, owner in (("a", "b"), ("b", "a"), ("a", "a")):
            topic = await world.topic_of(owner)
            async with connected(world.admin_ports[name]) as call:
                answer = await call(
                    "danube_admin.TopicAdmin/DescribeTopic",
                    danube_admin_pb2.DescribeTopicRequest(name=str(topic)),
                )
                assert answer.broker_id == owner


async def test_a_forwarded_call_is_not_forwarded_again() -> None:
    async with running_world() as world, connected(world.admin_ports["a"]) as call:
        topic = await world.topic_of("b")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(
                "danube_admin.TopicAdmin/DescribeTopic",
                danube_admin_pb2.DescribeTopicRequest(name=str(topic)),
                metadata=[("x-danube-forwarded", "1")],
            )
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_client_that_looks_up_is_redirected() -> None:
    async with running_world() as world, connected(world.client_ports["a"]) as call:
        status, text = await call.refusal(
            "danube.ProducerService/CreateProducer",
            pb.ProducerRequest(
                producer_name="p", topic_name=str(await world.topic_of("b"))
            ),
        )
        assert status == "UNAVAILABLE"
        assert "another broker serves" in text


async def test_connections_to_former_brokers_are_closed() -> None:
    channels = PeerChannels()
    first = await channels.to("http://127.0.0.1:1")
    assert await channels.to("http://127.0.0.1:1") is first
    for port in range(2, 300):
        await channels.to(f"http://127.0.0.1:{port}")
    assert await channels.to("http://127.0.0.1:1") is not first
    await channels.close()


async def test_missing_authorities_are_an_error_at_the_start() -> None:
    with pytest.raises(InvalidConfig, match=r"cluster\.ca_file: /missing"):
        async with open_peer_channels(PeerFiles(ca="/missing")):
            pass


class Recorder(grpc.GenericRpcHandler):
    """A broker that answers every call, and records the headers."""

    def __init__(self) -> None:
        self.headers: dict[str, Any] = {}

    def service(self, handler_call_details: Any) -> Any:
        self.headers = dict(handler_call_details.invocation_metadata)

        async def answer(request: bytes, _: object) -> bytes:
            return request

        return grpc.unary_unary_rpc_method_handler(answer)


class NoStream:
    """The caller of a method whose answer is one message."""

    async def send_initial_metadata(self) -> None:
        raise AssertionError("the answer is no stream")

    async def write_bytes(self, message: bytes) -> None:
        raise AssertionError("the answer is no stream")


LIST_SUBSCRIPTIONS = Service(
    TOPIC_ADMIN,
    TopicAdmin(None, "a"),  # type: ignore[arg-type]
).methods["/danube_admin.TopicAdmin/ListSubscriptions"]


async def forwarded(url: str, files: PeerFiles | None = None) -> bool:
    """Forward a call with a token to the broker at *url*; return whether it answers."""

    async def find(_: TopicName) -> Mapping[str, str]:
        return {PEER_ADMIN: url}

    async def here() -> None:
        raise NotOwner("another broker serves the topic")

    method = LIST_SUBSCRIPTIONS
    started = CallStarted(
        *(1, method.path, None), credentials=((b"authorization", b"Bearer secret"),)
    )
    request = danube_admin_pb2.TopicRequest(name="/default/t")
    owners = Owners(find, list)
    async with open_peer_channels(files) as channels:
        forwarding = Forwarding(
            owners, listener=PEER_ADMIN, channels=channels, proof="secret"
        )
        answer = await forwarding.answer(method, started, request, NoStream(), here)
    return bool(answer == request.SerializeToString())


async def test_the_owner_gets_the_credentials_of_the_caller_and_nothing_else() -> None:
    recorder, server = Recorder(), grpc.aio.server()
    server.add_generic_rpc_handlers([recorder])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        assert await forwarded(f"http://127.0.0.1:{port}")
    finally:
        await server.stop(None)
    assert recorder.headers.pop("user-agent")
    assert recorder.headers == {
        "authorization": "Bearer secret",
        "x-danube-forwarded": "secret",
    }


async def test_a_broker_with_tls_forwards_with_its_certificate(tmp_path: Path) -> None:
    files = write_certificates(tmp_path)
    certificate, key = files["server"]
    ca = files["ca"][0]
    server = grpc.aio.server()
    server.add_generic_rpc_handlers([Recorder()])
    credentials = grpc.ssl_server_credentials(
        [(key.read_bytes(), certificate.read_bytes())],
        root_certificates=ca.read_bytes(),
        require_client_auth=True,
    )
    port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    own = PeerFiles(ca=str(ca), certificate=str(certificate), key=str(key))
    try:
        assert await forwarded(f"https://127.0.0.1:{port}", own)
        with pytest.raises(Unreachable):
            await forwarded(f"https://127.0.0.1:{port}", PeerFiles(ca=str(ca)))
    finally:
        await server.stop(None)


async def test_a_broker_with_tls_forwards_to_none_without(tmp_path: Path) -> None:
    certificate, key = write_certificates(tmp_path)["server"]
    own = PeerFiles(certificate=str(certificate), key=str(key))
    with pytest.raises(Unreachable, match="forwards calls over TLS only"):
        await forwarded("http://127.0.0.1:1", own)


async def test_a_changed_certificate_makes_another_connection(tmp_path: Path) -> None:
    certificate, key = write_certificates(tmp_path)["server"]
    own = PeerFiles(certificate=str(certificate), key=str(key))
    channels = PeerChannels(own)
    first = await channels.to("https://127.0.0.1:1")
    assert await channels.to("https://127.0.0.1:1") is first
    write_certificates(tmp_path)
    assert await channels.to("https://127.0.0.1:1") is not first
    await channels.close()
