"""Reading the ids of a topic's last messages from its log."""

from __future__ import annotations

import logging

from pydanube.model.errors import CorruptSegment, OffsetDropped
from pydanube.model.policy import Deduplication
from pydanube_broker.broker.pure.deduplication import (
    DeduplicationWindow,
    ids_of,
    offsets_of,
    times_of,
)
from pydanube_broker.storage.segments.topic_log import TopicLog

log = logging.getLogger(__name__)

READ_BYTES = 1024 * 1024
"""How many bytes of the log are read at a time."""


async def read_window(
    topic_log: TopicLog, limits: Deduplication, now: int
) -> DeduplicationWindow:
    """
    Return the window of the messages that the log has at the moment.

    *now* is in microseconds since 1970.  The messages of a corrupt segment are not in
    the window.

    Raises:
        ObjectsUnavailable: The remote store, which alone has some of the messages, does
            not answer.
        NotOwner: Another broker serves the topic now.
    """
    window = DeduplicationWindow(limits)
    offset = max(topic_log.first_kept, topic_log.end_offset - limits.messages_max)
    for segment in topic_log.segments:
        if segment.last_publish_time < now - limits.age_us:
            offset = max(offset, segment.end)
    while offset < topic_log.end_offset:
        try:
            frames = await topic_log.read(offset, bytes_max=READ_BYTES)
        except OffsetDropped:
            offset = topic_log.next_kept(offset)
            continue
        except CorruptSegment as error:
            end = next(each.end for each in topic_log.segments if each.end > offset)
            log.warning(
                "topic %s: the ids of the messages %d to %d cannot be read, so they "
                "may be stored again: %s",
                topic_log.name,
                offset,
                end - 1,
                error,
            )
            offset = end
            continue
        for frame in frames:
            ids = ids_of(frame)
            if ids is not None:
                window.add(ids, times_of(frame), offsets_of(frame), now)
            offset = frame.end
    return window
