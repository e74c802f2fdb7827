"""The description of segments that retention drops."""

from __future__ import annotations

from collections.abc import Sequence

from pydanube.model.descriptions import (
    DROPS_SHOWN_MAX,
    DroppedSegment,
    RetentionDrops,
)
from pydanube.model.segments import SegmentEntry
from pydanube_broker.broker.publishing.topic import ReliableTopic


def describe_drops(
    topic: ReliableTopic, drops: Sequence[SegmentEntry], kept: Sequence[SegmentEntry]
) -> RetentionDrops:
    """Describe the segments *drops* of a topic, which go, and *kept*, which stay."""
    stored = kept[0].base if kept else topic.log.tail.base
    return RetentionDrops(
        topic=str(topic.name),
        base_offset=max(stored, topic.log.start_offset),
        segment_count=len(drops),
        message_count=sum(each.count for each in drops),
        byte_count=sum(each.byte_count for each in drops),
        segments=tuple(
            DroppedSegment(
                base=each.base,
                end=each.end,
                count=each.count,
                byte_count=each.byte_count,
                object_name=each.object_name,
                last_publish_time=each.last_publish_time,
            )
            for each in drops[:DROPS_SHOWN_MAX]
        ),
        held_by=tuple(sorted(topic.log.holds)),
        has_subscriptions=bool(topic.subscriptions),
    )
