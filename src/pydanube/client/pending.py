"""Messages between the user's hands and the broker's receipt."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from pydanube.client.messages import MessageId
from pydanube.model.batch import batch_of

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    import pyarrow as pa

    from pydanube.wire.batches import BatchFrame


class OpenBatch:
    """Messages that gather, and the future of the batch that they become."""

    __slots__ = (
        "attributes",
        "byte_count",
        "future",
        "is_awaited",
        "keys",
        "payloads",
        "times",
        "topic",
    )

    def __init__(self, topic: str, loop: asyncio.AbstractEventLoop) -> None:
        self.topic = topic
        self.payloads: list[bytes] = []
        self.times: list[int] = []
        # Only once a message has one.
        self.keys: list[bytes | None] | None = None
        self.attributes: list[Mapping[str, str] | None] | None = None
        self.byte_count = 0
        # Whether somebody will see what becomes of it.
        self.is_awaited = False
        self.future: asyncio.Future[int] = loop.create_future()

    @property
    def is_single(self) -> bool:
        """Whether there is one message that has nothing but a payload."""
        return len(self.payloads) == 1 and self.keys is None and self.attributes is None

    def to_arrow(self) -> pa.RecordBatch:
        """The messages as a batch of the envelope."""
        times = self.times
        return batch_of(
            self.payloads,
            keys=self.keys,
            attributes=self.attributes,
            publish_times=None if times[0] == times[-1] else times,
        )


class Pending:
    """A message on its way; await it for its MessageId."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: OpenBatch, index: int) -> None:
        self._batch = batch
        self._index = index

    def __await__(self) -> Generator[Any, None, MessageId]:
        self._batch.is_awaited = True
        future = self._batch.future
        if not future.done():
            # Whoever stops waiting for one message must not fail its batch.
            yield from asyncio.shield(future).__await__()
        return MessageId(self._batch.topic, future.result() + self._index)

    def done(self) -> bool:
        """Whether the message is acknowledged or has failed."""
        return self._batch.future.done()


class Outgoing:
    """A batch that is not acknowledged yet."""

    __slots__ = ("deadline", "frame", "future")

    def __init__(
        self, frame: BatchFrame, future: asyncio.Future[int], deadline: float
    ) -> None:
        self.frame = frame
        self.future = future
        self.deadline = deadline
