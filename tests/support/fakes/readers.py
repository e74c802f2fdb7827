"""Consumers without a server, which keep what they are sent, message by message."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from pydanube.model.batch import Column, attributes_of
from pydanube.model.names import SubscriptionName
from pydanube.model.policy import Start, SubscriptionType
from support.fakes.batches import frame_of
from support.fakes.brokers import A_TOPIC, Outcome

if TYPE_CHECKING:
    from pydanube.wire.batches import BatchFrame

S = SubscriptionName("s")
CREDIT_BYTES = 1 << 24


class Got(NamedTuple):
    """One message as it was delivered."""

    offset: int
    payload: bytes
    attempt: int


class Reader:
    """A consumer's far end."""

    def __init__(self) -> None:
        self.got: list[Got] = []
        self.frames: list[BatchFrame] = []
        self.reason = None
        self.consumer = None
        self._arrived = asyncio.Event()

    def deliver(self, frame: BatchFrame, attempt: int) -> None:
        """See ConsumerPort."""
        rows = frame.check()
        offsets = range(frame.base, frame.end)
        if frame.header.columns & Column.OFFSET:
            offsets = rows.column("offset").to_pylist()
        payloads = rows.column("payload").to_pylist()
        self.frames.append(frame)
        self.got += [
            Got(*each, attempt) for each in zip(offsets, payloads, strict=True)
        ]
        self._arrived.set()

    def set_state(self, *, is_active: bool, ack_timeout_s: float | None) -> None:
        """See ConsumerPort."""

    def close(self, reason) -> None:
        """See ConsumerPort."""
        self.reason = reason

    async def first(self, count: int) -> list[Got]:
        """The first *count* messages, when they have come."""
        while len(self.got) < count:
            self._arrived.clear()
            await self._arrived.wait()
        return self.got[:count]

    async def offsets(self, count: int) -> list[int]:
        """The offsets of the first *count* messages, when they have come."""
        return [each.offset for each in await self.first(count)]


def attach(subscription, name="c", messages=1000, **options):
    """A reader at *subscription*, with credit; and what it is there."""
    reader = Reader()
    reader.consumer = subscription.attach(name, reader, **options)
    subscription.credit(reader.consumer, messages, CREDIT_BYTES)
    return reader, reader.consumer


def forget_frame(subscription) -> None:
    """Let *subscription* read its log for the next delivery."""
    subscription._reader.keep(None)


def stop_clock(subscription, later_s: float = 0.0) -> None:
    """Let time stand still for *subscription*, *later_s* from now: no more is due."""
    now = subscription._clock() + later_s
    subscription._clock = lambda: now


def awaits_credit(subscription) -> bool:
    """Return whether a batch of a segment waits for credit."""
    return subscription._awaiting_credit is not None


async def subscribe(
    broker, name=S, type_=SubscriptionType.SHARED, start=Start.EARLIEST, topic=A_TOPIC
):
    """The subscription, open."""
    return (await broker.subscriptions.open(topic, name, type_, start))[1]


async def publish(topic, *payloads, **fields) -> int:
    """Store one batch; return its first offset."""
    outcome = Outcome()
    topic.publish_unchecked(frame_of(payloads, **fields), outcome)
    return await outcome.offset()


async def stored(topic):
    """Every message of a topic: payload, attributes and frame."""
    found, at = [], topic.log.base_offset
    while at < topic.end_offset:
        for frame in await topic.log.read(at, bytes_max=1 << 20):
            rows = frame.check().to_pylist()
            found += [
                (row["payload"], attributes_of(row.get("attributes")), row, frame)
                for row in rows
            ]
            at = frame.end
    return found


async def a_while() -> None:
    """Let everybody do what they can do at once."""
    for _ in range(50):
        await asyncio.sleep(0)
