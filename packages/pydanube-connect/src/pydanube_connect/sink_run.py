"""One run of a sink: it receives batches, writes them, and acknowledges them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

from pydanube.aio.tasks import task_scope
from pydanube.client.client import Client
from pydanube.client.connections.telemetry import Telemetry
from pydanube.client.messages.messages import Message, MessageBatch
from pydanube.declarations.pure.sections import parse_duration
from pydanube.model.dead_letters import (
    ORIGINAL_OFFSET,
    ORIGINAL_SUBSCRIPTION,
    ORIGINAL_TOPIC,
)
from pydanube.model.errors import BrokerError
from pydanube.model.quantities import BYTE_UNITS, parse_quantity
from pydanube_connect.connector import Sink
from pydanube_connect.dead_letters import DeadLetters
from pydanube_connect.loading import DeclaredConnector
from pydanube_connect.publishing import ensure_topic
from pydanube_connect.pure.failures import (
    ConnectorFailed,
    Rejected,
    error_line,
    is_transient,
    is_unexpected,
)
from pydanube_connect.pure.retry_after import delay_asked_s
from pydanube_connect.status import ConnectorStatus, State

log = logging.getLogger("pydanube_connect")

ACK_TIMEOUT_S = 3600.0
"""How long a sink may try to write a batch before the broker delivers it again."""
BATCH_MESSAGES_MAX = 1000
"""How many messages are written together by default."""
LAG_INTERVAL_S = 5.0
"""How often a sink asks how many messages wait in its topic."""


class SinkRun:
    """A run of a sink until it fails or is stopped."""

    def __init__(
        self,
        client: Client,
        declared: DeclaredConnector,
        sink: Sink,
        status: ConnectorStatus,
        change: Callable[[State], None],
        *,
        random: Callable[[], float],
        telemetry: Telemetry | None = None,
    ) -> None:
        """*change* is called with the new state of the connector."""
        spec = declared.spec
        self._telemetry = telemetry
        self._client = client
        self._declared = declared
        self._spec = spec
        self._sink = sink
        self._status = status
        self._change = change
        self._random = random
        self._subscription = spec.subscription or declared.name
        self._messages_max = spec.batch.messages or BATCH_MESSAGES_MAX
        self._bytes_max = parse_quantity(spec.batch.bytes, BYTE_UNITS) or 0
        wait = spec.batch.wait
        self._wait_s = 0.0 if wait is None else parse_duration(wait)

    async def run(self, stop: asyncio.Event) -> None:
        """Write what arrives, until *stop* is set; the batch in hand is finished."""
        spec = self._spec
        for topic in filter(None, (spec.topic, spec.dead_letters)):
            await ensure_topic(self._client, topic)
        async with (
            self._sink,
            self._client.consumer(
                spec.topic,
                subscription=self._subscription,
                type=spec.type.value,
                start=spec.start.value,
                ack_timeout_s=ACK_TIMEOUT_S,
                prefetch_bytes=max(1, 2 * int(self._bytes_max)),
            ) as consumer,
            task_scope() as tasks,
        ):
            stopping = tasks.start(_wait(stop))
            tasks.run(self._follow_lag())
            self._change(State.RUNNING)
            while (messages := await self._receive(consumer, stopping)) is not None:
                await self._write(consumer, messages, stop)
                if stop.is_set():
                    break

    async def _receive(
        self, consumer: Any, stopping: asyncio.Future[None]
    ) -> list[Message] | None:
        """Return the next messages to write together; None: stop."""
        async with task_scope() as tasks:
            first = tasks.start(consumer.receive_batch(max_messages=self._messages_max))
            await asyncio.wait([first, stopping], return_when=asyncio.FIRST_COMPLETED)
            if stopping.done() and not first.done():
                return None
            messages: list[Message] = list(await first)
        size = _size_of(messages)
        deadline = asyncio.get_running_loop().time() + self._wait_s
        while (room := self._messages_max - len(messages)) and size < self._bytes_max:
            left_s = deadline - asyncio.get_running_loop().time()
            if left_s <= 0 or stopping.done():
                break
            more = await consumer.receive_batch(max_messages=room, timeout_s=left_s)
            messages += more
            size += _size_of(more)
        return messages

    async def _follow_lag(self) -> None:
        """Keep the lag of the status up to date, if the broker tells it."""
        while True:
            with suppress(BrokerError):
                topics = await self._client.topics.partitions(self._spec.topic)
                lag = 0
                for topic in topics or [self._spec.topic]:
                    facts = await self._client.subscriptions.describe(
                        topic, self._subscription
                    )
                    lag += facts.backlog
                self._status.lag = lag
            await asyncio.sleep(LAG_INTERVAL_S)

    async def _write(
        self, consumer: Any, messages: list[Message], stop: asyncio.Event
    ) -> None:
        rejected: dict[int, str] = {}
        try:
            await self._attempt(messages, stop)
        except Rejected as error:
            rejected = error.reasons
            await self._bury(messages, rejected)
        await consumer.ack(MessageBatch.of(self._spec.topic, messages))
        status = self._status
        status.count_batch()
        status.messages += len(messages) - len(rejected)
        status.bytes += _size_of(messages)

    async def _attempt(self, messages: list[Message], stop: asyncio.Event) -> None:
        """
        Write *messages*; try again after transient errors.

        Raises:
            Rejected: Some can never be written; the others are.
        """
        try:
            await self._retry(messages, stop)
        except Exception as error:
            if not is_unexpected(error):
                raise
            reason = self._declared.redact(error_line(error))
            if len(messages) > 1:
                log.warning("%s: its messages are written one by one", reason)
                rejected = await self._attempt_each(messages, stop)
            else:
                log.warning("a message cannot be written", exc_info=error)
                rejected = {0: reason}
        else:
            return
        if rejected:
            raise Rejected(rejected)

    async def _attempt_each(
        self, messages: list[Message], stop: asyncio.Event
    ) -> dict[int, str]:
        """Write *messages* one by one; return why some cannot be written."""
        rejected: dict[int, str] = {}
        for number, message in enumerate(messages):
            try:
                await self._attempt([message], stop)
            except Rejected as error:
                rejected[number] = error.reasons[0]
        return rejected

    async def _retry(self, messages: list[Message], stop: asyncio.Event) -> None:
        policy = self._spec.retries.policy
        failures = 0
        while True:
            try:
                with self._processing(messages):
                    await self._sink.write(messages)
            except Exception as error:
                failures += 1
                may_retry = is_transient(error) and policy.allows(failures)
                if not may_retry or stop.is_set():
                    raise
                self._status.retries += 1
                self._status.error = self._declared.redact(error_line(error))
                self._change(State.RETRYING)
                delay_s = policy.delay_s(failures, self._random)
                await wait_until(stop, max(delay_s, delay_asked_s(error)))
            else:
                if failures:
                    self._change(State.RUNNING)
                return

    def _processing(self, messages: list[Message]) -> AbstractContextManager[object]:
        if self._telemetry is None:
            return nullcontext()
        batch = MessageBatch.of(self._spec.topic, messages)
        return self._telemetry.processing(batch)

    async def _bury(self, messages: list[Message], rejected: dict[int, str]) -> None:
        """Publish the rejected messages as dead letters."""
        topic = self._spec.dead_letters
        if topic is None:
            first = min(rejected)
            raise ConnectorFailed(
                f"the sink rejects message {messages[first].id.offset} of "
                f"{messages[first].topic}: {rejected[first]}; declare 'dead_letters: "
                "/default/…' to publish such messages there"
            )
        found = DeadLetters()
        for at in sorted(rejected):
            message = messages[at]
            found.add(
                message.payload,
                rejected[at],
                key=message.key_bytes,
                attributes=message.attributes,
                origin={
                    ORIGINAL_TOPIC: message.topic,
                    ORIGINAL_SUBSCRIPTION: self._subscription,
                    ORIGINAL_OFFSET: str(message.id.offset),
                },
            )
        async with self._client.producer(topic) as producer:
            await producer.send_batch(found.batch())
        self._status.dead_letters += len(found)


async def wait_until(stop: asyncio.Event, timeout_s: float) -> None:
    """Wait until *stop* is set, at most *timeout_s*."""
    try:
        async with asyncio.timeout(timeout_s):
            await stop.wait()
    except TimeoutError:
        return


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


def _size_of(messages: MessageBatch | list[Message]) -> int:
    return sum(len(each.payload) for each in messages)
