"""
The workloads over the gRPC API of the original Danube, with one call per message.

They use bare gRPC calls, so that they measure the API and the broker instead of a
client library.
"""

from __future__ import annotations

import asyncio
import time
from itertools import count, repeat
from operator import methodcaller
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from pydanube.wire.pb import danube_api_pb2 as pb
from pydanube_cli.bench.figures import latency_figures
from pydanube_cli.bench.native_workloads import (
    SUBSCRIPTION,
    LostMessages,
    random_payloads,
    run,
)
from pydanube_cli.bench.workloads import STALL_S, Clock, publish_each

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from pydanube_cli.bench.figures import Figures

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
        call = _unary(channel, "ProducerService/SendMessage", pb.MessageResponse)
        msg_id = pb.MsgID(producer_id=producer.producer_id, topic_name=topic)
        numbers = count()

        async def send(payload: bytes) -> None:
            await call(
                pb.StreamMessage(
                    request_id=next(numbers),
                    msg_id=msg_id,
                    payload=payload,
                    publish_time=time.time_ns() // 1_000_000,
                    producer_name="bench",
                )
            )

        [payload] = random_payloads(1, message_bytes)
        clock = Clock()
        times = await publish_each(send, repeat(payload, messages), in_flight=in_flight)
        return clock.end() | latency_figures(sorted(times))

    address = grpc_url.removeprefix("http://")
    return run(lambda: grpc.aio.insecure_channel(address), work)


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

        clock = Clock()
        async with asyncio.timeout(STALL_S), asyncio.TaskGroup() as tasks:
            stream = receive(pb.ReceiveRequest(consumer_id=consumer.consumer_id))
            for expected in range(messages):
                message: Any = await stream.read()
                if message.msg_id.topic_offset != expected:
                    raise LostMessages(
                        f"offset {message.msg_id.topic_offset} came, not {expected}"
                    )
                await free.acquire()
                tasks.create_task(ack(message.msg_id))
        figures = clock.end()
        stream.cancel()
        return figures

    address = grpc_url.removeprefix("http://")
    return run(lambda: grpc.aio.insecure_channel(address), work)


def _unary(channel: grpc.aio.Channel, method: str, answer: type[Message]) -> Any:
    return channel.unary_unary(
        f"/danube.{method}",
        request_serializer=methodcaller("SerializeToString"),
        response_deserializer=answer.FromString,
    )
