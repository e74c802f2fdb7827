"""Reading topics from a position to an offset, without a subscription."""

from __future__ import annotations

from collections.abc import AsyncIterator

from pydanube.client.messages import MessageBatch, ReceivedBatch
from pydanube.client.topics import TopicRequests
from pydanube.client.writer_schemas import ValueDecoding
from pydanube.model.errors import InvalidRequest
from pydanube.model.policy import AtTime, Position, Start
from pydanube.model.positions import PositionLike, to_position
from pydanube.wire.batches import BatchFrame
from pydanube.wire.pb import stream_pb2 as pb

FETCH_BYTES_MAX = 4 * 1024 * 1024
FETCH_WAIT_S = 10.0


async def read(
    client: TopicRequests,
    topic: str,
    *,
    start: PositionLike,
    end: int | None,
    follow: bool,
    decoding: ValueDecoding,
) -> AsyncIterator[MessageBatch]:
    """Read the messages ``start … end`` of *topic*; see ``Client.read``."""
    position = to_position(start)
    names = await client.existing_partitions(topic)
    is_of_one = follow or end is not None or isinstance(position, int)
    if is_of_one and names != [topic]:
        raise InvalidRequest(
            f"{topic} has partitions: to use offsets or to follow new messages, read "
            f"one of them, for example {names[0]}"
        )
    for name in names:
        async for batch in _read_one(client, name, position, end, follow=follow):
            await decoding.load_decoder(batch)
            yield MessageBatch(name, [(batch, 0, batch.count)])


async def _read_one(
    client: TopicRequests, topic: str, start: Position, end: int | None, *, follow: bool
) -> AsyncIterator[ReceivedBatch]:
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
    while end is None or offset < end:
        frames: list[BatchFrame] = []
        answer = await client.request(
            pb.Fetch(
                topic=topic,
                base_offset=offset,
                end_offset=end or 0,
                bytes_max=FETCH_BYTES_MAX,
                wait_s=FETCH_WAIT_S if follow else 0,
                publish_time=time,
            ),
            on_batch=frames.append,
        )
        for frame in frames:
            yield ReceivedBatch(frame, topic, 1)
        offset, time = answer.next_offset, None
