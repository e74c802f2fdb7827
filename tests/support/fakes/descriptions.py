"""Descriptions of a topic and a subscription, from which tests derive others."""

from pydanube.model.descriptions import SubscriptionDescription, TopicDescription
from pydanube.model.policy import SubscriptionType, TopicPolicy

SUBSCRIPTION = SubscriptionDescription(
    subscription="s",
    type=SubscriptionType.SHARED,
    cursor=0,
    done=(),
    backlog=5,
    in_flight=0,
    consumers=(),
)
TOPIC = TopicDescription(
    topic="/default/t",
    topic_id=1,
    policy=TopicPolicy(),
    epoch=1,
    base_offset=0,
    end_offset=10,
    sealed_offset=0,
    tail_bytes=100,
    segment_bytes=0,
    segment_count=0,
    producers=(),
    subscriptions=(SUBSCRIPTION,),
    dropped=0,
    message_count=10,
)
