"""
The workloads over the gRPC API of the original Danube, with one call per message.

They use bare gRPC calls, so that they measure the API and the broker instead of a
client library.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from pydanube.aio.loops import new_loop
from pydanube.bench.workloads import (
    RECEIVE_TIMEOUT_S,
    SUBSCRIPTION,
    LostMessages,
    percentiles_of,
    random_payloads,
)
from pydanube.wire.pb import danube_api_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from google.protobuf.message import Message

    from pydanube.bench.workloads import Figures

ACKS_IN_FLIGHT = 64


def publish_calls(
    _: str,
    topic: str,
    *,
    grpc_url: str,
    messages: int,
    message_bytes: int,
    in_flight: int,
) -> Figures:
    """Publish with *in_flight* concurrent calls and measure each of them."""

    async def work(channel: grpc.aio.Channel) -> Figures:
        create = _unary(channel, "ProducerService/CreateProducer", pb.ProducerResponse)
        producer = await create(
            pb.ProducerRequest(
                producer_name="bench", topic_name=topic, dispatch_strategy=pb.Reliable
            )
        )
        send = _unary(channel, "ProducerService/SendMessage", pb.MessageResponse)
        msg_id = pb.MsgID(producer_id=producer.producer_id, topic_name=topic)
        [payload] = random_payloads(1, message_bytes)
        times: list[float] = []
        left = iter(range(messages))

        async def call() -> None:
            for number in left:
                before = time.perf_counter()
                await send(
                    pb.StreamMessage(
                        request_id=number,
                        msg_id=msg_id,
                        payload=payload,
                        publish_time=time.time_ns() // 1_000_000,
                        producer_name="bench",
                    )
                )
                times.append(time.perf_counter() - before)

        began = time.time_ns()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(in_flight):
                tasks.create_task(call())
        ended = time.time_ns()
        return {"began_ns": began, "ended_ns": ended, **percentiles_of(times)}

    return _run(grpc_url, work)


def receive_calls(_: str, topic: str, *, grpc_url: str, messages: int) -> Figures:
    """Receive and acknowledge a backlog; offsets must be gapless."""

    async def work(channel: grpc.aio.Channel) -> Figures:
        subscribe = _unary(channel, "ConsumerService/Subscribe", pb.ConsumerResponse)
        consumer = await subscribe(
            pb.ConsumerRequest(
                topic_name=topic,
                consumer_name="bench",
                subscription=SUBSCRIPTION,
                subscription_type=pb.ConsumerRequest.Shared,
            )
        )
        acknowledge = _unary(channel, "ConsumerService/Ack", pb.AckResponse)
        receive = channel.unary_stream(
            "/danube.ConsumerService/ReceiveMessages",
            request_serializer=pb.ReceiveRequest.SerializeToString,
            response_deserializer=pb.StreamMessage.FromString,
        )
        free = asyncio.Semaphore(ACKS_IN_FLIGHT)

        async def ack(msg_id: pb.MsgID) -> None:
            await acknowledge(
                pb.AckRequest(msg_id=msg_id, subscription_name=SUBSCRIPTION)
            )
            free.release()

        began = time.time_ns()
        async with asyncio.timeout(RECEIVE_TIMEOUT_S), asyncio.TaskGroup() as tasks:
            stream = receive(pb.ReceiveRequest(consumer_id=consumer.consumer_id))
            for expected in range(messages):
                message: Any = await stream.read()
                if message.msg_id.topic_offset != expected:
                    raise LostMessages(
                        f"offset {message.msg_id.topic_offset} came, not {expected}"
                    )
                await free.acquire()
                tasks.create_task(ack(message.msg_id))
        ended = time.time_ns()
        stream.cancel()
        return {"began_ns": began, "ended_ns": ended}

    return _run(grpc_url, work)


def _unary(channel: grpc.aio.Channel, method: str, answer: type[Message]) -> Any:
    def serialize(request: Message) -> bytes:
        return request.SerializeToString()

    return channel.unary_unary(
        f"/danube.{method}",
        request_serializer=serialize,
        response_deserializer=answer.FromString,
    )


def _run(
    grpc_url: str, work: Callable[[grpc.aio.Channel], Coroutine[Any, Any, Figures]]
) -> Figures:
    async def run() -> Figures:
        address = grpc_url.removeprefix("http://")
        async with grpc.aio.insecure_channel(address) as channel:
            cpu_began = time.process_time()
            figures = await work(channel)
            return figures | {"cpu_s": time.process_time() - cpu_began}

    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(run())
