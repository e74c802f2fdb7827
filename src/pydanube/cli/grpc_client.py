"""
A client of Danube's gRPC interface: as much of one as `danube-cli` needs.

A topic's broker is asked for when a producer or consumer is made, and again when it
has failed.  One message is one call, because the interface has nothing larger.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from grpc import StatusCode

from pydanube.cli.grpc_calls import Caller, CallFailed, open_caller
from pydanube.cli.schema_calls import registry_call
from pydanube.model.errors import NotFound
from pydanube.wire.pb import danube_api_pb2 as pb
from pydanube.wire.pb import schema_registry_pb2 as registry_pb

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterator,
        Awaitable,
        Callable,
        Collection,
        Mapping,
    )

    from google.protobuf.message import Message

TRIES_MAX = 5
"""What meets a broker that is busy or gone is tried so often, as in its clients."""

RETRY_DELAY_S = 0.2
"""Before the second try; before the third, twice as long, and so on."""

_RETRYABLE = frozenset(
    {
        StatusCode.UNAVAILABLE,
        StatusCode.DEADLINE_EXCEEDED,
        StatusCode.RESOURCE_EXHAUSTED,
    }
)

_SERVICES = pb.DESCRIPTOR.services_by_name


@asynccontextmanager
async def open_brokers(url: str) -> AsyncIterator[Brokers]:
    """The brokers that the one at *url* knows; connections are made when needed."""
    async with AsyncExitStack() as stack:
        entrance = await stack.enter_async_context(open_caller(url))
        yield Brokers(entrance, stack)


class Brokers:
    """Who serves what; made by ``open_brokers``."""

    def __init__(self, entrance: Caller, stack: AsyncExitStack) -> None:
        self._entrance = entrance
        self._stack = stack
        # By where to connect and, behind a proxy, whom to ask for.
        self._callers: dict[tuple[str, str], Caller] = {}

    async def partitions(self, topic: str) -> list[str]:
        """The topic itself, its partitions by number, or nothing."""
        request = pb.TopicLookupRequest(topic=topic)
        answer = await _call(self._entrance, "Discovery", "TopicPartitions", request)
        return list(answer.partitions)

    async def registry_call(self, method: str, request: Message) -> Any:
        """
        The answer of the schema registry.

        Raises:
            CallFailed: It says no.
        """
        return await registry_call(self._entrance, method, request)

    async def serving(self, topic: str) -> Caller:
        """Who serves *topic*, or may create it."""
        request = pb.TopicLookupRequest(topic=topic)
        try:
            found = await _call(self._entrance, "Discovery", "TopicLookup", request)
        except CallFailed as error:
            if error.status is StatusCode.NOT_FOUND:
                return self._entrance
            raise
        behind_proxy = found.broker_url if found.proxy else ""
        key = (found.connect_url, behind_proxy)
        if key not in self._callers:
            header = ("x-danube-broker-url", behind_proxy)
            self._callers[key] = await self._stack.enter_async_context(
                open_caller(found.connect_url, metadata=[header] if found.proxy else [])
            )
        return self._callers[key]


@dataclass(frozen=True, slots=True)
class ChosenSchema:
    """The schema of a producer's messages."""

    reference: pb.SchemaReference
    schema_id: int
    version: int


async def choose_schema(
    brokers: Brokers, reference: pb.SchemaReference
) -> ChosenSchema:
    """
    The version that *reference* comes to, by the registry.

    Raises:
        CallFailed: There is no such subject or version.
        NotFound: The latest version is older than it must be.
    """
    request = registry_pb.GetLatestSchemaRequest(subject=reference.subject)
    found = await brokers.registry_call("GetLatestSchema", request)
    if reference.pinned_version:
        pinned = registry_pb.GetSchemaRequest(
            schema_id=found.schema_id, version=reference.pinned_version
        )
        found = await brokers.registry_call("GetSchema", pinned)
    if found.version < reference.min_version:
        raise NotFound(
            f"the latest version of {reference.subject} is {found.version}, older than "
            f"{reference.min_version}"
        )
    return ChosenSchema(reference, found.schema_id, found.version)


class Producer:
    """A producer of one topic or partition, which the broker knows after ``create``."""

    def __init__(
        self,
        brokers: Brokers,
        topic: str,
        name: str,
        *,
        is_reliable: bool,
        schema: ChosenSchema | None = None,
    ) -> None:
        self._brokers = brokers
        self._topic = topic
        self._name = name
        self._is_reliable = is_reliable
        self._schema = schema
        self._caller: Caller
        self._producer_id = 0
        self._request_id = 0

    async def create(self) -> None:
        """
        Let the broker know it, and create the topic if need be.

        Raises:
            CallFailed: The broker refuses.
        """
        await _tried(self._create)

    async def send(self, payload: bytes, attributes: Mapping[str, str]) -> int:
        """
        The number of the message, which the broker has now.

        Raises:
            CallFailed: The broker does not take it.
        """
        message = pb.StreamMessage(
            request_id=self._request_id,
            payload=payload,
            publish_time=time.time_ns() // 1_000_000,
            producer_name=self._name,
            attributes=attributes,
        )
        if self._schema is not None:
            message.schema_id = self._schema.schema_id
            message.schema_version = self._schema.version
        self._request_id += 1
        is_known = True

        async def attempt() -> None:
            nonlocal is_known
            if not is_known:
                await self._create()
            message.msg_id.CopyFrom(
                pb.MsgID(
                    producer_id=self._producer_id,
                    topic_name=self._topic,
                    broker_addr=self._caller.url,
                )
            )
            is_known = False
            await _call(self._caller, "ProducerService", "SendMessage", message)

        # A broker that was started again may not know the producer any more.
        await _tried(attempt, {*_RETRYABLE, StatusCode.NOT_FOUND})
        return message.request_id

    async def _create(self) -> None:
        self._caller = await self._brokers.serving(self._topic)
        request = pb.ProducerRequest(
            producer_name=self._name,
            topic_name=self._topic,
            producer_access_mode=pb.Shared,
            dispatch_strategy=pb.Reliable if self._is_reliable else pb.NonReliable,
            schema_ref=None if self._schema is None else self._schema.reference,
        )
        answer = await _call(self._caller, "ProducerService", "CreateProducer", request)
        self._producer_id = answer.producer_id


async def consume(
    brokers: Brokers,
    request: pb.ConsumerRequest,
    print_message: Callable[[pb.StreamMessage], Awaitable[None]],
) -> None:
    """
    Print the messages of one topic or partition, each acknowledged when it is printed.

    It goes on until it is cancelled, also over restarts of the broker.

    Raises:
        CallFailed: The broker refuses the consumer.
    """
    caller, consumer_id = await _subscribe(brokers, request)
    while True:
        # However the stream ends: a new subscription shows what there is to it.
        with suppress(CallFailed):
            await _receive(caller, request.subscription, consumer_id, print_message)
        while True:
            await asyncio.sleep(RETRY_DELAY_S)
            try:
                caller, consumer_id = await _subscribe(brokers, request)
            except CallFailed as error:
                if error.status not in _RETRYABLE:
                    raise
            else:
                break


async def topics_of(brokers: Brokers, topic: str) -> list[str]:
    """
    The topic itself or its partitions.

    Raises:
        NotFound: There is neither.
    """
    topics = await brokers.partitions(topic)
    if not topics:
        raise NotFound(f"there is no topic {topic}")
    return topics


async def _subscribe(
    brokers: Brokers, request: pb.ConsumerRequest
) -> tuple[Caller, int]:
    caller = await brokers.serving(request.topic_name)
    answer = await _call(caller, "ConsumerService", "Subscribe", request)
    return caller, answer.consumer_id


async def _receive(
    caller: Caller,
    subscription: str,
    consumer_id: int,
    print_message: Callable[[pb.StreamMessage], Awaitable[None]],
) -> None:
    request = pb.ReceiveRequest(consumer_id=consumer_id)
    service = _SERVICES["ConsumerService"]
    async for message in caller.stream(service, "ReceiveMessages", request):
        await print_message(message)
        ack = pb.AckRequest(
            request_id=message.request_id,
            msg_id=message.msg_id,
            subscription_name=subscription,
        )
        await _call(caller, "ConsumerService", "Ack", ack)


async def _call(caller: Caller, service: str, method: str, request: Message) -> Any:
    return await caller.call(_SERVICES[service], method, request)


async def _tried(
    attempt: Callable[[], Awaitable[None]],
    retryable: Collection[StatusCode] = _RETRYABLE,
) -> None:
    for number in range(1, TRIES_MAX):
        try:
            return await attempt()
        except CallFailed as error:
            if error.status not in retryable:
                raise
        await asyncio.sleep(RETRY_DELAY_S * number)
    return await attempt()
