"""Reading topics from a position to an offset, without a subscription."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import NamedTuple

from pydanube.client.messages import MessageBatch, ReceivedBatch
from pydanube.client.topics import TopicRequests
from pydanube.client.writer_schemas import ValueDecoding
from pydanube.model.errors import InvalidRequest
from pydanube.model.policy import AtTime, Position, Start
from pydanube.model.positions import PositionLike, to_position
from pydanube.wire.batches import BatchFrame
from pydanube.wire.pb import stream_pb2 as pb

PREFETCH_BYTES = 8 * 1024 * 1024
"""The default of how many bytes of messages a reader holds."""
FETCH_WAIT_S = 10.0


class _Fetched(NamedTuple):
    """The answer to one request."""

    frames: list[BatchFrame]
    next_offset: int


async def read(
    client: TopicRequests,
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
        iterated, and the next one.
    """
    position = to_position(start)
    if prefetch_bytes < 1:
        raise InvalidRequest(f"prefetch_bytes is {prefetch_bytes}: it is at least 1")
    names = await client.existing_partitions(topic)
    is_of_one = follow or end is not None or isinstance(position, int)
    if is_of_one and names != [topic]:
        raise InvalidRequest(
            f"{topic} has partitions: to use offsets or to follow new messages, read "
            f"one of them, for example {names[0]}"
        )
    for name in names:
        batches = _read_one(
            *(client, name, position, end),
            follow=follow,
            bytes_max=max(1, prefetch_bytes // 2),
        )
        async with aclosing(batches):
            async for batch in batches:
                await decoding.load_decoder(batch)
                yield MessageBatch(name, [(batch, 0, batch.count)])


async def _read_one(
    client: TopicRequests,
    topic: str,
    start: Position,
    end: int | None,
    *,
    follow: bool,
    bytes_max: int,
) -> AsyncGenerator[ReceivedBatch]:
    offset, time = 0, None
    if isinstance(start, int):
        offset = start
    elif isinstance(start, AtTime):
        time = start.publish_time
    if isinstance(start, Start) or not follow:
        facts = await client.describe_topic(topic)
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
            fetched = await fetching
            offset, time = fetched.next_offset, None
            # A caller that wants a second answer probably wants a third: ask ahead.
            fetching = fetch() if is_sequential else None
            for frame in fetched.frames:
                yield ReceivedBatch(frame, topic, 1)
            fetching, is_sequential = fetching or fetch(), True
    finally:
        if fetching is not None:
            fetching.cancel()


async def _fetch(client: TopicRequests, request: pb.Fetch) -> _Fetched:
    frames: list[BatchFrame] = []

    def on_batch(frame: BatchFrame) -> None:
        if frames and frame.base < frames[-1].end:
            # The connection broke, and the request was repeated.
            frames.clear()
        frames.append(frame)

    answer = await client.request(request, on_batch=on_batch)
    return _Fetched(frames, answer.next_offset)
