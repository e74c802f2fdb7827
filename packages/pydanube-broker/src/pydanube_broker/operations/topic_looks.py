"""Answers about several topics, and about the segments of topics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pydanube.model.descriptions import TopicOffsets
from pydanube.model.errors import InvalidRequest
from pydanube.model.names import TopicName
from pydanube.model.segments import SegmentEntry
from pydanube.security.permissions import Permission
from pydanube.security.resources import Resource
from pydanube.wire.native.messages import to_wire
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.broker.broker import Broker
from pydanube_broker.broker.topics.topic_views import TopicLooks
from pydanube_broker.operations.authorization import current_caller

LISTED_TOPICS_MAX = 1000
"""The maximum number of topics whose offsets one request lists."""


def permitted(topics: Iterable[str], permission: Permission) -> list[TopicName]:
    """Return those of *topics* on which the caller of the request has *permission*."""
    topics = list(topics)
    if len(topics) > LISTED_TOPICS_MAX:
        raise InvalidRequest(
            f"{len(topics)} topics: a request can list {LISTED_TOPICS_MAX}"
        )
    names, caller = [TopicName.parse(each) for each in topics], current_caller()
    if caller is None:
        # Without a caller, clients may do everything.
        return names
    return [each for each in names if caller.may(permission, Resource.topic(each))]


def elsewhere(looks: TopicLooks) -> list[pb.TopicsElsewhere]:
    return [
        pb.TopicsElsewhere(url=url, topics=map(str, names))
        for url, names in looks.elsewhere.items()
    ]


def segments_in(
    broker: Broker,
    wanted: pb.ListSegments | pb.SegmentRange,
    offsets: TopicOffsets,
    segments: Sequence[SegmentEntry],
) -> pb.Segments:
    """Return the part of *segments* with messages that are *wanted*."""
    base, end = wanted.base_offset, wanted.end_offset or offsets.end_offset
    return pb.Segments(
        topic_id=offsets.topic_id,
        base_offset=offsets.base_offset,
        sealed_offset=offsets.sealed_offset,
        end_offset=offsets.end_offset,
        segments=[
            to_wire(
                pb.Segment,
                entry,
                url=broker.storage.segment_url(entry),
                remote_url=broker.storage.remote_url(entry),
            )
            for entry in segments
            if entry.base < end and base < entry.end
        ],
    )
