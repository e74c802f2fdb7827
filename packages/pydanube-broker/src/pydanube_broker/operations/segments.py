"""Operations on the segments of topics."""

from __future__ import annotations

from pydanube.model.ids import TopicId
from pydanube.model.names import TopicName
from pydanube.security.permissions import Permission
from pydanube.wire.native.messages import from_wire
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.operations.handlers import Call, operation
from pydanube_broker.operations.topic_looks import elsewhere, permitted, segments_in
from pydanube_broker.storage.segments.replacement import Replacement

SEGMENTS_BYTES_MAX = 4 * 1024 * 1024
"""The maximum size of the segments of several topics in one answer."""


@operation
async def find_segments(call: Call, m: pb.FindSegments) -> pb.SegmentsFound:
    """Return the segments with ranges of several topics."""
    ranges = {TopicName.parse(each.topic): each for each in m.ranges}
    names = permitted([each.topic for each in m.ranges], Permission.CONSUME)
    looks = await call.broker.views.look_at(names)
    answer = pb.SegmentsFound(elsewhere=elsewhere(looks))
    if names:
        # Callers that may read nothing need not know where the segments are.
        answer.store_options.update(call.broker.storage.store_options)
    byte_count = 0
    for name, (offsets, segments) in looks.found.items():
        found = segments_in(call.broker, ranges[name], offsets, segments)
        found.topic = str(name)
        byte_count += found.ByteSize()
        if answer.topics and byte_count > SEGMENTS_BYTES_MAX:
            answer.has_more = True
            break
        answer.topics.append(found)
    return answer


@operation
async def list_segments(call: Call, m: pb.ListSegments) -> pb.Segments:
    """Return the segments of a topic or partition."""
    async with call.broker.views.viewing(TopicName.parse(m.topic)) as topic:
        epoch = topic.describe(limit=0).epoch
        found = segments_in(call.broker, m, topic.offsets(), topic.segments)
    found.epoch, found.objects_url = epoch, call.broker.storage.objects_url
    found.store_options.update(call.broker.storage.store_options)
    return found


@operation
async def replace_segments(call: Call, m: pb.ReplaceSegments) -> pb.SegmentsReplaced:
    """Replace segments of a topic by others with the same messages."""
    removed = await call.broker.topics.replace_segments(
        TopicName.parse(m.topic),
        TopicId(m.topic_id),
        list(m.old),
        [from_wire(Replacement, each) for each in m.new],
    )
    return pb.SegmentsReplaced(removed=removed)
