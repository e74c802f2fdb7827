"""Reading topics from a position to an offset, without a subscription."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing
from typing import Any, NamedTuple

from pydanube.client.connections.channel import PARTITIONS_LOOKUP_INTERVAL_S
from pydanube.client.connections.partitions import existing_partitions, find_partitions
from pydanube.client.connections.requester import Requester
from pydanube.client.messages.messages import MessageBatch, ReceivedBatch
from pydanube.client.messages.writer_schemas import ValueDecoding
from pydanube.model.errors import BrokerError, InvalidRequest, TopicNotFound
from pydanube.model.policy import AtTime, Position, Start
from pydanube.model.positions import PositionLike, to_position
from pydanube.wire.batches import BatchFrame
from pydanube.wire.pb import stream_pb2 as pb

PREFETCH_BYTES = 8 * 1024 * 1024
"""The default of how many bytes of messages a reader holds."""
FETCH_BYTES_MIN = 64 * 1024
"""The least space for an answer, however many partitions are followed."""
FETCH_WAIT_S = 10.0
FOLLOWED_PARTITIONS_MAX = 128
"""
The most partitions that are followed together.

Each has a request that waits for messages, and brokers limit the requests of a client.
"""


class _Fetched(NamedTuple):
    """The answer to one request."""

    frames: list[BatchFrame]
    next_offset: int
    end_offset: int
    """The end of the topic."""


async def read(
    client: Requester,
    topic: str,
    *,
    start: PositionLike,
    end: int | None,
    follow: bool,
    prefetch_bytes: int = PREFETCH_BYTES,
    decoding: ValueDecoding,
) -> AsyncIterator[MessageBatch]:
    """
    Read the messages ``start … end`` of *topic*; see ``Client.read``.

    Bounds: It holds two answers of about half of *prefetch_bytes*: one that is
        iterated, and the next one.  Partitions that are followed share these bytes,
        but each answer may have ``FETCH_BYTES_MIN``.
    """
    position = to_position(start)
    if prefetch_bytes < 1:
        raise InvalidRequest(f"prefetch_bytes is {prefetch_bytes}: it is at least 1")
    names = await existing_partitions(client, topic)
    is_partitioned = names != [topic]
    if is_partitioned and (end is not None or isinstance(position, int)):
        raise InvalidRequest(
            f"{topic} has partitions: to use offsets, read one of them, for example "
            f"{names[0]}"
        )
    bytes_max = max(1, prefetch_bytes // 2)
    if is_partitioned and follow:
        bytes_max = max(min(FETCH_BYTES_MIN, bytes_max), bytes_max // len(names))
        found = _Followed(client, topic, bytes_max).read(names, position)
    else:
        found = _read_all(
            client, names, position, end, follow=follow, bytes_max=bytes_max
        )
    async with aclosing(found):
        async for batch in found:
            await decoding.load_decoder(batch)
            yield MessageBatch(batch.topic, [(batch, 0, batch.count)])


async def _read_all(
    client: Requester,
    names: Iterable[str],
    start: Position,
    end: int | None,
    *,
    follow: bool,
    bytes_max: int,
) -> AsyncGenerator[ReceivedBatch]:
    """Read partitions one after the other."""
    for name in names:
        one = _read_one(client, name, start, end, follow=follow, bytes_max=bytes_max)
        async with aclosing(one):
            async for batch in one:
                yield batch


class _Followed:
    """The partitions of a topic that are followed together, each by a task."""

    def __init__(self, client: Requester, topic: str, bytes_max: int) -> None:
        self._client = client
        self._topic = topic
        self._bytes_max = bytes_max
        # Tasks that wait for space are served in their order: one batch of each.
        self._arrived: asyncio.Queue[ReceivedBatch | BrokerError | None] = (
            asyncio.Queue(1)
        )
        self._running: dict[str, asyncio.Task[None]] = {}

    async def read(
        self, names: Iterable[str], start: Position
    ) -> AsyncGenerator[ReceivedBatch]:
        """Yield the batches of all partitions as they arrive, until ``follow_end``."""
        tasks = self._client.tasks
        looking = tasks.run(self._discover(), f"partitions of {self._topic}")
        try:
            self._follow(names, start)
            while (found := await self._arrived.get()) is not None:
                if isinstance(found, BrokerError):
                    raise found
                yield found
        finally:
            for task in (looking, *self._running.values()):
                task.cancel()

    def _follow(self, names: Iterable[str], start: Position) -> None:
        new = [name for name in names if name not in self._running]
        count = len(self._running) + len(new)
        if count > FOLLOWED_PARTITIONS_MAX:
            raise InvalidRequest(
                f"{self._topic} has {count} partitions, and a reader follows at most "
                f"{FOLLOWED_PARTITIONS_MAX} together: read some of them by their names"
            )
        for name in new:
            reading = self._read(name, start)
            self._running[name] = self._client.tasks.run(reading, f"read {name}")

    async def _read(self, name: str, start: Position) -> None:
        one = _read_one(
            self._client, name, start, None, follow=True, bytes_max=self._bytes_max
        )
        try:
            async with aclosing(one):
                async for batch in one:
                    await self._arrived.put(batch)
            await self._arrived.put(None)
        except BrokerError as error:
            await self._arrived.put(error)

    async def _discover(self) -> None:
        """Follow new partitions from their beginning."""
        while True:
            await asyncio.sleep(PARTITIONS_LOOKUP_INTERVAL_S)
            try:
                found = await find_partitions(self._client, self._topic)
            except BrokerError:
                # Those who read the partitions report it, if it stays.
                continue
            try:
                self._follow(found.topics, Start.EARLIEST)
            except InvalidRequest as error:
                await self._arrived.put(error)
                return


async def _read_one(
    client: Requester,
    topic: str,
    start: Position,
    end: int | None,
    *,
    follow: bool,
    bytes_max: int,
) -> AsyncGenerator[ReceivedBatch]:
    offset, time, known_end = 0, None, 0
    if isinstance(start, int):
        offset = start
    elif isinstance(start, AtTime):
        time = start.publish_time
    if isinstance(start, Start) or not follow:
        from pydanube.client.operations.topics import Topics  # noqa: PLC0415

        facts = await Topics(client).describe(topic)
        known_end = facts.end_offset
        if isinstance(start, Start):
            is_earliest = start is Start.EARLIEST
            offset = facts.base_offset if is_earliest else facts.end_offset
        if not follow:
            # Offsets beyond the present end do not exist yet.
            end = facts.end_offset if end is None else min(end, facts.end_offset)

    def fetch() -> asyncio.Future[_Fetched] | None:
        if end is not None and offset >= end:
            return None
        request = pb.Fetch(
            topic=topic,
            base_offset=offset,
            end_offset=end or 0,
            bytes_max=bytes_max,
            wait_s=FETCH_WAIT_S if follow else 0,
            publish_time=time,
        )
        return client.tasks.start(_fetch(client, request), f"read {topic}")

    fetching, is_sequential = fetch(), False
    try:
        while fetching is not None:
            if follow:
                both: list[asyncio.Future[Any]] = [fetching, client.follow_end]
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                if client.follow_end.done():
                    return
            fetched = await fetching
            if fetched.end_offset < known_end:
                raise TopicNotFound(
                    f"{topic} ended at offset {known_end} and now ends at offset "
                    f"{fetched.end_offset}: it was deleted and created again, or its "
                    "broker lost messages; read it again from the beginning"
                )
            offset, time, known_end = fetched.next_offset, None, fetched.end_offset
            # A caller that wants a second answer probably wants a third: ask ahead.
            fetching = fetch() if is_sequential else None
            for frame in fetched.frames:
                yield ReceivedBatch(frame, topic, 1)
            fetching, is_sequential = fetching or fetch(), True
    finally:
        if fetching is not None:
            fetching.cancel()


async def _fetch(client: Requester, request: pb.Fetch) -> _Fetched:
    frames: list[BatchFrame] = []

    def on_batch(frame: BatchFrame) -> None:
        if frames and frame.base < frames[-1].end:
            # The connection broke, and the request was repeated.
            frames.clear()
        frames.append(frame)

    answer = await client.send_request(request, on_batch=on_batch)
    return _Fetched(frames, answer.next_offset, answer.end_offset)
