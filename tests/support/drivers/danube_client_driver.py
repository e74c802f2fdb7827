"""
Danube's own Python client under remote control; runs where only that is installed.

It reads one command a line, as JSON, and answers each with a line that has the same
``id``: ``{"id": 1, "result": …}`` or ``{"id": 1, "error": "…"}``.  Commands run side by
side.  What they are is the methods of ``Driver``.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
import sys
from contextlib import suppress
from typing import Any

import danube
import grpc

PATIENCE = 200
"""So often a message is sent until the broker takes it."""
PAUSE_S = 0.1

CONSUMER_RETRIES = {"max_retries": 20, "base_backoff_ms": 100, "max_backoff_ms": 500}
"""By default a consumer gives up for good when the broker is away for 3 seconds."""


class Driver:
    """One client with producers and consumers by name."""

    def __init__(self) -> None:
        self._client: Any = None
        self._producers: dict[str, Any] = {}
        self._consumers: dict[str, Any] = {}
        self._queues: dict[str, Any] = {}
        self._received: dict[str, list[Any]] = {}

    async def connect(
        self,
        url: str,
        *,
        ca_file: str = "",
        certificate: tuple[str, str] | None = None,
        token: str = "",
    ) -> None:
        """Make the client; *certificate* is its file and that of its key."""
        builder = danube.DanubeClientBuilder().service_url(url)
        if certificate is not None:
            builder = builder.with_mtls(ca_file, *certificate)
        elif ca_file:
            builder = builder.with_tls(ca_file)
        if token:
            builder = builder.with_token(token)
        self._client = await _done(builder.build())

    async def create_producer(
        self,
        name: str,
        topic: str,
        *,
        partitions: int = 0,
        reliable: bool = True,
        schema: tuple[str, str, int] | None = None,
    ) -> None:
        """
        Make a producer and create it with the broker.

        *schema* is a subject, ``subject``, ``version`` or ``min_version``, a number.
        """
        builder = self._client.new_producer().with_topic(topic).with_name(name)
        if schema is not None:
            subject, kind, number = schema
            numbers = () if kind == "subject" else (number,)
            builder = getattr(builder, f"with_schema_{kind}")(subject, *numbers)
        if partitions:
            builder = builder.with_partitions(partitions)
        strategy = danube.DispatchStrategy
        builder = builder.with_dispatch_strategy(
            strategy.RELIABLE if reliable else strategy.NON_RELIABLE
        )
        producer = builder.build()
        await producer.create()
        self._producers[name] = producer

    async def send(
        self,
        producer: str,
        payload: str,
        *,
        attributes: dict[str, str] | None = None,
        key: str | None = None,
    ) -> int:
        """Send one message; its payload comes in Base64."""
        sender = self._producers[producer]
        data = base64.b64decode(payload)
        if key is not None:
            return await sender.send_with_key(data, attributes, key)
        return await sender.send(data, attributes)

    async def send_each(self, producer: str, first: int, end: int) -> None:
        """Send the numbers from *first* to *end*, each until the broker takes it."""
        for number in range(first, end):
            await self._send_number(producer, number)

    async def send_at_once(self, producer: str, first: int, end: int) -> None:
        """Send the numbers from *first* to *end*, all at the same time."""
        async with asyncio.TaskGroup() as tasks:
            for number in range(first, end):
                tasks.create_task(self._send_number(producer, number))

    async def _send_number(self, producer: str, number: int) -> None:
        for _ in range(PATIENCE):
            try:
                await self._producers[producer].send(str(number).encode(), None)
            except grpc.RpcError as error:
                # While the broker is away the client gives up after a few seconds.
                refusal = error
                await asyncio.sleep(PAUSE_S)
            else:
                return
        raise refusal

    async def close_producer(self, name: str) -> None:
        """Close a producer."""
        await _done(self._producers.pop(name).close())

    async def subscribe(
        self,
        name: str,
        topic: str,
        subscription: str,
        type: str,  # noqa: A002
        *,
        key_filters: tuple[str, ...] = (),
    ) -> None:
        """Make a consumer, and let messages come."""
        builder = (
            self._client.new_consumer()
            .with_topic(topic)
            .with_consumer_name(name)
            .with_subscription(subscription)
            .with_subscription_type(danube.SubType[type])
            .with_options(danube.ConsumerOptions(**CONSUMER_RETRIES))
        )
        for pattern in key_filters:
            builder = builder.with_key_filter(pattern)
        consumer = builder.build()
        await consumer.subscribe()
        self._consumers[name] = consumer
        self._queues[name] = await _done(consumer.receive())
        self._received[name] = []

    async def receive(
        self, consumer: str, count: int, *, timeout_s: float = 20, acks: bool = True
    ) -> list[dict[str, Any]]:
        """
        The next messages, fewer if no more came in time.

        The client does not repeat an acknowledgement that the broker could not take;
        the message comes again then.
        """
        received = []
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while len(received) < count:
                    message = await self._queues[consumer].get()
                    received.append(self._told(consumer, message))
                    if acks:
                        with suppress(grpc.RpcError):
                            await self._consumers[consumer].ack(message)
        return received

    async def receive_numbers(
        self, consumer: str, end: int, *, timeout_s: float = 60
    ) -> list[int]:
        """The numbers below *end* that come, acknowledged, until all of them have."""
        received: list[int] = []
        missing = set(range(end))
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while missing:
                    message = await self._queues[consumer].get()
                    received.append(int(message.payload))
                    missing.discard(received[-1])
                    with suppress(grpc.RpcError):
                        await self._consumers[consumer].ack(message)
        return received

    async def ack(self, consumer: str, at: int) -> None:
        """Acknowledge the message that was told as number *at*."""
        await self._consumers[consumer].ack(self._received[consumer][at])

    async def nack(
        self,
        consumer: str,
        at: int,
        *,
        delay_ms: int | None = None,
        reason: str | None = None,
    ) -> None:
        """Give back the message that was told as number *at*."""
        message = self._received[consumer][at]
        await self._consumers[consumer].nack(message, delay_ms, reason)

    async def register(self, subject: str, language: str, text: str) -> int:
        """Register a schema; the id of its subject."""
        builder = self._client.schema().register_schema(subject)
        builder = builder.with_type(danube.SchemaType[language])
        return await builder.with_schema_data(text.encode()).execute()

    async def registry(self, method: str, arguments: list[Any]) -> Any:
        """Call a method of the registry's client; its answer as far as it is JSON."""
        call = getattr(self._client.schema(), method)
        return _plain(await call(*map(_enumerated, arguments)))

    async def close_consumer(self, name: str) -> None:
        """Close a consumer."""
        await _done(self._consumers.pop(name).close())

    def _told(self, consumer: str, message: Any) -> dict[str, Any]:
        self._received[consumer].append(message)
        return {
            "at": len(self._received[consumer]) - 1,
            "payload": base64.b64encode(message.payload).decode(),
            "attributes": dict(message.attributes),
            "key": message.routing_key if message.HasField("routing_key") else None,
            "has_schema": message.HasField("schema_id"),
            "schema": [message.schema_id, message.schema_version],
            "producer": message.producer_name,
            "topic": message.msg_id.topic_name,
            "offset": message.msg_id.topic_offset,
        }


def _enumerated(argument: Any) -> Any:
    """``SchemaType.AVRO`` and the like, and bytes, from what JSON has for them."""
    if isinstance(argument, str) and argument.startswith("bytes:"):
        return argument.removeprefix("bytes:").encode()
    if isinstance(argument, str) and argument.partition(".")[0] in {
        "SchemaType",
        "CompatibilityMode",
    }:
        kind, _, name = argument.partition(".")
        return getattr(danube, kind)[name]
    return argument


def _plain(answer: Any) -> Any:
    if isinstance(answer, danube.SchemaInfo):
        return vars(answer) | {"schema_definition": answer.schema_definition.decode()}
    if isinstance(answer, list | tuple):
        return [_plain(each) for each in answer]
    if hasattr(answer, "DESCRIPTOR"):
        return {field.name: value for field, value in answer.ListFields()}
    return answer


async def main() -> None:
    """Carry commands out until the input ends."""
    driver = Driver()
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as tasks:
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            tasks.create_task(_carry_out(driver, json.loads(line)))
        # Whatever still waits for messages waits in vain.
        sys.stdout.flush()
        raise SystemExit


async def _carry_out(driver: Driver, command: dict[str, Any]) -> None:
    answer: dict[str, Any] = {"id": command["id"]}
    try:
        method = getattr(driver, command["do"])
        answer["result"] = await method(**command["with"])
    except Exception as error:  # noqa: BLE001  # Whoever gave the command is told.
        answer["error"] = f"{type(error).__name__}: {error}"
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


async def _done(result: Any) -> Any:
    """The result of a call that may be a coroutine."""
    return await result if inspect.isawaitable(result) else result


if __name__ == "__main__":
    asyncio.run(main())
