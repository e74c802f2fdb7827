"""
A producer that traces what it publishes.

The span of a message lasts until it is acknowledged.  Its context travels in the
message's attributes, so the spans of consumers can belong to the same trace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TypeGuard, Unpack

from pydanube.client.connections.requester import Requester
from pydanube.client.connections.telemetry import Injected, SendSpan, Telemetry
from pydanube.client.messages.messages import MessageId
from pydanube.client.messages.options import ProducerOptions
from pydanube.client.producers.producer import (
    BatchData,
    Pending,
    Placement,
    Producer,
    SentPiece,
)
from pydanube.client.pure.batching import DeliveryOptions
from pydanube.client.pure.outgoing import OutgoingBatch


class TracedProducer(Producer):
    """A producer of one topic whose client has telemetry."""

    def __init__(
        self,
        client: Requester,
        topic: str,
        options: ProducerOptions,
        telemetry: Telemetry,
    ) -> None:
        super().__init__(client, topic, options)
        self._telemetry = telemetry

    @property
    def _log_name(self) -> str:
        return f"Producer {self.name} of {self.topic}"

    async def send(
        self,
        payload: bytes | str,
        *,
        key: str | bytes | None = None,
        attributes: Mapping[str, str] | None = None,
        id: str | None = None,  # noqa: A002  # It is what users call it.
        **delivery: Unpack[DeliveryOptions],
    ) -> MessageId:
        span = self._telemetry.begin_send(self.topic, 1, attributes)
        try:
            found = await super().send(
                payload, key=key, attributes=span.attributes, id=id, **delivery
            )
        except BaseException as error:
            span.end(error)
            raise
        span.end(None)
        return found

    def send_nowait(
        self,
        payload: bytes | str,
        *,
        key: str | bytes | None = None,
        attributes: Mapping[str, str] | None = None,
        id: str | None = None,  # noqa: A002  # It is what users call it.
        **delivery: Unpack[DeliveryOptions],
    ) -> Pending:
        if type(attributes) is Injected:
            # It is of send(), which has begun the span.
            return super().send_nowait(
                payload, key=key, attributes=attributes, id=id, **delivery
            )
        span = self._telemetry.begin_send(self.topic, 1, attributes)
        try:
            pending = super().send_nowait(
                payload, key=key, attributes=span.attributes, id=id, **delivery
            )
        except BaseException as error:
            span.end(error)
            raise
        batch, _ = pending
        batch.completion.add_done_callback(partial(_end, span))
        return pending

    async def _send_batches(
        self,
        batches: Sequence[OutgoingBatch],
        schema: tuple[int, int] | None = None,
        *,
        uses_ids: bool = False,
    ) -> list[SentPiece]:
        count = sum(batch.count for batch in batches)
        if not count:
            return await super()._send_batches(batches, schema, uses_ids=uses_ids)
        span = self._telemetry.begin_send(self.topic, count, None)
        try:
            sent = await super()._send_batches(
                [batch.with_attributes(span.attributes) for batch in batches],
                schema,
                uses_ids=uses_ids,
            )
        except BaseException as error:
            span.end(error)
            raise
        # Batches are acknowledged, or fail, in their order.
        _, last = sent[-1]
        last.add_done_callback(partial(_end, span))
        return sent

    def _is_small(self, messages: BatchData) -> TypeGuard[list[bytes]]:
        # Small batches have no attributes.
        return False


def _end(span: SendSpan, future: asyncio.Future[Placement]) -> None:
    span.end(None if future.cancelled() else future.exception())


def new_producer(client: Requester, topic: str, options: ProducerOptions) -> Producer:
    """Return a producer of one topic, which traces if its client does."""
    if client.telemetry is None:
        return Producer(client, topic, options)
    return TracedProducer(client, topic, options, client.telemetry)
