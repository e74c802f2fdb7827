"""Applying the records of a topic and its namespace to an open topic."""

from __future__ import annotations

from pydanube_broker.broker.publishing.topic import Topic
from pydanube_broker.broker.topics.topic_schemas import TopicSchemas
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.records import NamespaceRecord, TopicRecord


def apply_records(
    topic: Topic,
    record: TopicRecord,
    namespace: NamespaceRecord,
    schemas: TopicSchemas,
) -> None:
    """
    Apply the limits, the policy, the schema and the start in the records to a topic.

    The topic is open.
    """
    topic.record = keys.topic(topic.name).encode(record)
    own_limits = record.limits
    topic.set_limits(own_limits or namespace.policy, are_own=own_limits is not None)
    topic.configure(record.policy, namespace.retention)
    topic.trim(record.start_offset)
    if record.schema != topic.schema:
        schemas.apply(topic, record.schema)
