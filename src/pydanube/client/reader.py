"""Reading a topic from an offset to an offset, without a subscription."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydanube.client.messages import MessageBatch, Part
from pydanube.model.errors import InvalidRequest
from pydanube.wire.frames import Kind
from pydanube.wire.pb import stream_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pydanube.client.client import Client
    from pydanube.wire.batches import BatchFrame

FETCH_BYTES_MAX = 4 * 1024 * 1024
FETCH_WAIT_S = 10.0


async def read(
    client: Client, topic: str, *, start: int | str, end: int | None, follow: bool
) -> AsyncIterator[MessageBatch]:
    """The messages ``start … end`` of *topic*; see ``Client.read``."""
    offset = await _offset_of(client, topic, start)
    if end is None and not follow:
        end = (await client.describe_topic(topic)).end_offset
    if end is not None and not follow:
        # What was asked for beyond the present end does not exist yet.
        end = min(end, (await client.describe_topic(topic)).end_offset)
    while end is None or offset < end:
        frames: list[BatchFrame] = []
        answer = await client.request(
            Kind.FETCH,
            pb.Fetch(
                topic=topic,
                base_offset=offset,
                end_offset=end or 0,
                bytes_max=FETCH_BYTES_MAX,
                wait_s=FETCH_WAIT_S if follow else 0,
            ),
            on_batch=frames.append,
        )
        for frame in frames:
            yield MessageBatch(topic, [(Part(frame, topic, 1), 0, frame.count)])
        offset = answer.next_offset


async def _offset_of(client: Client, topic: str, start: int | str) -> int:
    if isinstance(start, int):
        if start < 0:
            raise InvalidRequest(f"an offset is not negative: {start}")
        return start
    if start not in ("earliest", "latest"):
        raise InvalidRequest(
            f"start must be an offset, 'earliest' or 'latest', not {start!r}"
        )
    description = await client.describe_topic(topic)
    is_earliest = start == "earliest"
    return description.base_offset if is_earliest else description.end_offset
