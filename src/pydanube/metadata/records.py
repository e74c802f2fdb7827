"""
The values of the metadata store.

Times are microseconds since 1970, UTC, as everywhere in the formats.  A field
that is added needs a default, because values of an older broker lack it.
"""

from __future__ import annotations

import msgspec

from pydanube.model.policy import (
    NamespacePolicy,
    SubscriptionSettings,
    SubscriptionType,
    TopicPolicy,
)


class BrokerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Who the broker of this store is, decided at its first start."""

    broker_id: str
    created_at: int


class NamespaceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """That a namespace exists, and the limits of its topics."""

    created_at: int
    policy: NamespacePolicy = NamespacePolicy()


class TopicRecord(msgspec.Struct, frozen=True, kw_only=True):
    """That a topic exists, under which number, and what was decided about it."""

    topic_id: int
    policy: TopicPolicy
    created_at: int
    limits: NamespacePolicy | None = None
    """Instead of the namespace's."""


class PartitionedTopicRecord(msgspec.Struct, frozen=True, kw_only=True):
    """That a name stands for so many topics, its partitions."""

    partitions: int
    policy: TopicPolicy
    created_at: int


class SubscriptionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """That a subscription exists; its cursor is in the journal."""

    type: SubscriptionType
    created_at: int


class SettingsRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What was decided about a subscription, whether it exists yet or not."""

    settings: SubscriptionSettings
    changed_at: int


class SegmentRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One sealed segment of a topic: the messages ``base … end``."""

    base: int
    end: int
    """The first offset that is *not* in the segment."""
    epoch: int
    """Of the claim under which it was written."""
    count: int
    byte_count: int
    object_name: str
    first_publish_time: int
    last_publish_time: int
    sealed_at: int
