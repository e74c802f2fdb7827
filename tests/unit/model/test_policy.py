"""Default policies."""

from __future__ import annotations

from pydanube.model.policy import DispatchMode, Durability, TopicPolicy


def test_topic_is_reliable_durable_and_without_retention_limit_by_default():
    policy = TopicPolicy()
    assert policy.is_reliable
    assert policy.durability is Durability.DURABLE
    assert policy.retention.age_s is None
    assert policy.retention.bytes_max is None
    assert not TopicPolicy(dispatch=DispatchMode.NON_RELIABLE).is_reliable
