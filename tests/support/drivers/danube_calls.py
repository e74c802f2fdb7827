"""What a client of Danube does, call by call, and nothing by itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from pydanube.wire.pb import danube_api_pb2 as pb
from pydanube_broker.broker.broker import Broker
from pydanube_broker.servers.grpc.danube_server import DanubeServer, serving_danube
from pydanube_broker.servers.grpc.server import open_listener
from pydanube_broker.servers.settings.addresses import addresses_of
from pydanube_broker.testing import memory_broker
from support.fakes.grpc_calls import Caller, connected

TOPIC = "/default/orders"
TEST_TIMEOUT_S = 120
MOMENT_S = 0.1
Type = pb.ConsumerRequest


class DanubeCalls:
    """One connection of a client."""

    def __init__(self, call: Caller) -> None:
        self.call = call
        self._producers: dict[tuple[str, str], int] = {}

    async def create_producer(
        self,
        name: str = "p",
        topic: str = TOPIC,
        *,
        reliable: bool = True,
        **fields: Any,
    ) -> int:
        """Create a producer; its number."""
        request = pb.ProducerRequest(
            producer_name=name,
            topic_name=topic,
            dispatch_strategy=pb.Reliable if reliable else pb.NonReliable,
            **fields,
        )
        answer = await self.call("danube.ProducerService/CreateProducer", request)
        self._producers[topic, name] = answer.producer_id
        return answer.producer_id

    def message(
        self, payload: bytes | str, name: str = "p", topic: str = TOPIC, **fields: Any
    ) -> pb.StreamMessage:
        """A message of a producer that was created."""
        data = payload.encode() if isinstance(payload, str) else payload
        return pb.StreamMessage(
            payload=data,
            producer_name=name,
            msg_id=pb.MsgID(producer_id=self._producers[topic, name], topic_name=topic),
            **fields,
        )

    async def send(self, *payloads: bytes | str, **fields: Any) -> None:
        """Send messages, one after the other."""
        for payload in payloads:
            message = self.message(payload, **fields)
            await self.call("danube.ProducerService/SendMessage", message)

    async def subscribe(
        self,
        name: str = "c",
        subscription: str = "s",
        topic: str = TOPIC,
        *,
        type_: int = Type.Shared,
        key_filters: tuple[str, ...] = (),
    ) -> int:
        """Subscribe; the consumer's number."""
        request = pb.ConsumerRequest(
            topic_name=topic,
            consumer_name=name,
            subscription=subscription,
            subscription_type=type_,
            key_filters=key_filters,
        )
        answer = await self.call("danube.ConsumerService/Subscribe", request)
        return answer.consumer_id

    async def stream(self, number: int) -> Stream:
        """Open the stream of a consumer."""
        request = pb.ReceiveRequest(consumer_id=number)
        stream = Stream(self.call("danube.ConsumerService/ReceiveMessages", request))
        await stream.is_open()
        return stream

    async def consume(self, name: str = "c", **options: Any) -> Stream:
        """Subscribe and open the stream."""
        return await self.stream(await self.subscribe(name, **options))

    async def ack(self, *messages: pb.StreamMessage, subscription: str = "s") -> None:
        """Acknowledge messages."""
        for message in messages:
            request = pb.AckRequest(
                msg_id=message.msg_id, subscription_name=subscription
            )
            await self.call("danube.ConsumerService/Ack", request)

    async def nack(
        self, *messages: pb.StreamMessage, subscription: str = "s", **fields: Any
    ) -> None:
        """Give messages back."""
        for message in messages:
            request = pb.NackRequest(
                msg_id=message.msg_id, subscription_name=subscription, **fields
            )
            await self.call("danube.ConsumerService/Nack", request)


class Stream:
    """What one consumer is sent."""

    def __init__(self, call: Any) -> None:
        self._call = call

    async def is_open(self) -> None:
        """Wait until the broker says that it is there."""
        await self._call.initial_metadata()

    async def read(self, count: int = 1) -> list[pb.StreamMessage]:
        """The next messages."""
        messages = []
        async with asyncio.timeout(TEST_TIMEOUT_S / 2):
            while len(messages) < count:
                message = await self._call.read()
                assert message is not grpc.aio.EOF, "the stream has ended"
                messages.append(message)
        return messages

    async def payloads(self, count: int) -> list[str]:
        """The payloads of the next messages."""
        return [message.payload.decode() for message in await self.read(count)]

    async def nothing_comes(self) -> bool:
        """Whether nothing comes in a moment; the stream is useless after that."""
        try:
            async with asyncio.timeout(MOMENT_S):
                await self._call.read()
        except TimeoutError:
            return True
        return False

    async def end(self) -> tuple[str, str]:
        """How it ends, whatever comes before."""
        async with asyncio.timeout(TEST_TIMEOUT_S / 2):
            code = await self._call.code()
            return code.name, await self._call.details()

    def hang_up(self) -> None:
        """Want it no more."""
        self._call.cancel()


class DanubeWorld:
    """A broker in this process with a server, and its clients."""

    def __init__(self, broker: Any, server: Any) -> None:
        self.broker = broker
        self.server = server

    @asynccontextmanager
    async def client(self):
        """A client over a connection of its own."""
        async with connected(self.server.port) as call:
            yield DanubeCalls(call)

    async def until_streams(self, count: int) -> None:
        """Wait until the server has noticed how many streams there are."""
        for _ in range(10_000):
            if stream_count(self.server) == count:
                return
            await asyncio.sleep(0.001)
        raise AssertionError(f"there are {stream_count(self.server)} streams")


def stream_count(server) -> int:
    """The number of open streams of *server*."""
    sessions = server.consumers._sessions.values()
    return sum(session.has_stream for group in sessions for session in group.values())


@asynccontextmanager
async def open_danube_server(
    broker: Broker, *, advertised_url: str = "", connect_url: str = "", **options: Any
) -> AsyncIterator[DanubeServer]:
    """
    Serve clients of Danube on a free port.

    *options* are those of ``serving_danube``.
    """
    async with open_listener("127.0.0.1", 0, name="Danube", flag="-") as listener:
        addresses = addresses_of(
            *("127.0.0.1", listener.port),
            advertised_url=advertised_url,
            connect_url=connect_url,
        )
        async with serving_danube(
            *(listener, broker, addresses),
            refusal_pause_s=0,
            **{"window_messages_max": 1000, **options},
        ) as server:
            yield server


@asynccontextmanager
async def danube_world(**options: Any):
    """A broker of its own and the server to it."""
    async with (
        asyncio.timeout(TEST_TIMEOUT_S),
        memory_broker(**options) as memory,
        open_danube_server(
            memory.broker, wall_clock_us=lambda: time.time_ns() // 1000
        ) as server,
    ):
        yield DanubeWorld(memory.broker, server)
