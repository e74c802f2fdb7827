"""The traffic of the topics of a broker's shards."""

from __future__ import annotations

from collections.abc import Iterable

from pydanube.model.ids import TopicId
from pydanube_broker.broker.publishing.topic import ReliableTopic, Topic
from pydanube_broker.cluster.pure.load import TopicTraffic


def traffic_of(topics: Iterable[Topic]) -> dict[TopicId, TopicTraffic]:
    """Return the traffic of those *topics* that are in a shard."""
    return {
        topic.topic_id: TopicTraffic(
            shard=topic.shard,
            byte_count=topic.counts.published_bytes + topic.counts.delivered_bytes,
            message_count=topic.counts.published + topic.counts.delivered,
            connections=len(topic.registrations) + topic.counts.consumers,
            tail_bytes=(
                topic.log.tail.byte_count if isinstance(topic, ReliableTopic) else 0
            ),
        )
        for topic in topics
        if topic.shard is not None
    }
