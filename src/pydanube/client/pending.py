"""Messages between the user's hands and the broker's receipt."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pydanube.client.messages import MessageId
from pydanube.model.batch import TIME_TYPE, batch_of
from pydanube.wire.small_batch import SMALL_MESSAGES_MAX

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from pydanube.client.batching import DeliveryWindow
    from pydanube.wire.batches import BatchFrame

_NANOSECONDS = pa.timestamp("ns", tz="UTC")
NO_EXTRAS = (None, None, None)
"""Of a message that has nothing but a payload, among others."""


class OpenBatch:
    """Messages that gather, and the future of the batch that they become."""

    __slots__ = (
        "attributes",
        "byte_count",
        "future",
        "is_awaited",
        "is_plain",
        "keys",
        "payloads",
        "times_ns",
        "topic",
        "windows",
    )

    def __init__(self, topic: str, loop: asyncio.AbstractEventLoop) -> None:
        self.topic = topic
        self.payloads: list[bytes] = []
        # When each was taken, since 1970; divided by a thousand all together, later.
        self.times_ns: list[int] = []
        # Whether no message has anything but a payload; the others only once one has.
        self.is_plain = True
        self.keys: list[bytes | None] | None = None
        self.attributes: list[Mapping[str, str] | None] | None = None
        self.windows: list[DeliveryWindow | None] | None = None
        self.byte_count = 0
        # Whether somebody will see what becomes of it.
        self.is_awaited = False
        self.future: asyncio.Future[int] = loop.create_future()

    @property
    def publish_times(self) -> tuple[int, int]:
        """Of the first and of the last message, in microseconds since 1970."""
        return self.times_ns[0] // 1000, self.times_ns[-1] // 1000

    @property
    def is_small(self) -> bool:
        """Whether there are few messages, which have nothing but payloads."""
        return self.is_plain and len(self.payloads) <= SMALL_MESSAGES_MAX

    def small_times(self) -> list[int]:
        """When each was taken, in microseconds; empty if that was all at once."""
        times = [time_ns // 1000 for time_ns in self.times_ns]
        return times if times[0] != times[-1] else []

    def add_extras(
        self,
        key: bytes | None,
        attributes: Mapping[str, str] | None,
        window: DeliveryWindow | None,
    ) -> None:
        """What the next message, whose payload follows, has besides it."""
        self.is_plain = False
        count = len(self.payloads)
        if key is not None or self.keys is not None:
            if self.keys is None:
                self.keys = [None] * count
            self.keys.append(key)
        if attributes is not None or self.attributes is not None:
            if self.attributes is None:
                self.attributes = [None] * count
            self.attributes.append(attributes)
        if window is not None or self.windows is not None:
            if self.windows is None:
                self.windows = [None] * count
            self.windows.append(window)

    def to_arrow(self) -> pa.RecordBatch:
        """The messages as a batch of the envelope."""
        first, last = self.publish_times
        times = None
        if first != last:
            times = pa.array(self.times_ns, _NANOSECONDS).cast(TIME_TYPE, safe=False)
        return batch_of(
            self.payloads,
            keys=self.keys,
            attributes=self.attributes,
            publish_times=times,
            deliver_at=self._times(0),
            expires_at=self._times(1),
        )

    def _times(self, which: int) -> list[int | None] | None:
        if self.windows is None:
            return None
        times = [None if window is None else window[which] for window in self.windows]
        return None if times.count(None) == len(times) else times


class Pending(tuple[OpenBatch, int]):
    """A message on its way; await it for its MessageId."""

    # One is made for every message, and nothing is made faster than a tuple: of its
    # batch, and of its place there.
    __slots__ = ()

    def __await__(self) -> Generator[Any, None, MessageId]:
        batch, index = self
        batch.is_awaited = True
        future = batch.future
        if not future.done():
            # Whoever stops waiting for one message must not fail its batch.
            yield from asyncio.shield(future).__await__()
        return MessageId(batch.topic, future.result() + index)

    def done(self) -> bool:
        """Whether the message is acknowledged or has failed."""
        return self[0].future.done()


class OutgoingBatch:
    """A batch that is not acknowledged yet."""

    __slots__ = ("deadline", "frame", "future")

    def __init__(
        self, frame: BatchFrame, future: asyncio.Future[int], deadline: float
    ) -> None:
        self.frame = frame
        self.future = future
        self.deadline = deadline
