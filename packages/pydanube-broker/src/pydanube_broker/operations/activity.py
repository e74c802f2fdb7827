"""Operations on the activity of the last hours."""

from __future__ import annotations

from pydanube.model.activity_history import POINTS_MAX, SHORT_STEP_S
from pydanube.model.errors import InvalidRequest
from pydanube.model.names import TopicName
from pydanube.wire.native.messages import to_wire
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.broker.pure.activity_rings import BROKER, Key
from pydanube_broker.operations.handlers import Call, operation


@operation
async def describe_activity(call: Call, m: pb.DescribeActivity) -> pb.ActivityHistory:
    """Return the rates and the lag of all topics that this broker has served."""
    return _history(call, BROKER, m.step_s)


@operation
async def describe_topic_activity(
    call: Call, m: pb.DescribeTopicActivity
) -> pb.ActivityHistory:
    """Return those of a topic or a subscription while this broker has served it."""
    return _history(call, (str(TopicName.parse(m.topic)), m.subscription), m.step_s)


def _history(call: Call, key: Key, step_s: int) -> pb.ActivityHistory:
    step_s = step_s or SHORT_STEP_S
    if step_s not in POINTS_MAX:
        raise InvalidRequest(
            f"step_s is {step_s}: it must be {' or '.join(map(str, POINTS_MAX))}"
        )
    return to_wire(pb.ActivityHistory, call.broker.activity.history(key, step_s))
