"""The operation FETCH: reading a topic without a subscription."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pydanube.model.names import TopicName
from pydanube.wire.pb import stream_pb2 as pb

if TYPE_CHECKING:
    from pydanube.servers.native.connection import NativeConnection
    from pydanube.storage.topic_log import TopicLog
    from pydanube.wire.native.connection import ReceivedFrame

FETCH_BYTES_MAX = 16 * 1024 * 1024
FETCH_WAIT_S_MAX = 30.0


async def fetch(
    connection: NativeConnection, frame: ReceivedFrame, m: pb.Fetch
) -> pb.FetchEnd:
    """Send the batches that *frame* asks for, and return the final answer."""
    topic = await connection.broker.topics.get_reliable(TopicName.parse(m.topic))
    topic_log, server = topic.log, connection.server
    offset, left = m.base_offset, min(m.bytes_max or 1, FETCH_BYTES_MAX)
    if m.HasField("publish_time"):
        offset = await topic_log.find_time(m.publish_time)
    if offset >= topic_log.end_offset and m.wait_s:
        wait_s = min(m.wait_s, FETCH_WAIT_S_MAX)
        await _wait_for(connection, offset, topic_log, wait_s)
    end = min(m.end_offset or topic_log.end_offset, topic_log.end_offset)
    while offset < end and left > 0 and not connection.is_lost:
        batch = topic_log.read_tail(offset, bytes_max=left)
        if batch is None:
            batch = await topic_log.read(offset, bytes_max=left)
        if not batch:
            # Compaction removed the rest.
            offset = end
        for held in batch:
            if left <= 0:
                break
            part = held.within(offset, end)
            if part is None:
                # There is no message before the end.
                offset = end
                break
            offset = part.end
            left -= part.plain_bytes
            server.fetched += part.count
            server.fetched_bytes += part.byte_count
            connection.send_fetched(frame, part)
        await connection.until_writable()
    return pb.FetchEnd(
        next_offset=offset,
        base_offset=topic_log.base_offset,
        end_offset=topic_log.end_offset,
    )


async def _wait_for(
    connection: NativeConnection, offset: int, topic_log: TopicLog, wait_s: float
) -> None:
    """Wait at most *wait_s* until the log has a message at *offset*."""
    changed = asyncio.Event()
    unwatch = topic_log.watch(changed.set)
    try:
        async with asyncio.timeout(wait_s):
            while topic_log.end_offset <= offset and not connection.is_lost:
                changed.clear()
                await changed.wait()
    except TimeoutError:
        pass
    finally:
        unwatch()
