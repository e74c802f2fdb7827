"""The tools that change topics, subscriptions and brokers."""

from __future__ import annotations

from typing import Annotated, Any

from mcp.server.mcpserver import Context
from pydantic import Field

from pydanube.client.client import Client
from pydanube.client.operations.changes import changes_of
from pydanube.model.errors import InvalidRequest
from pydanube.model.policy import KEEP_ALL, Retention
from pydanube.model.setting_documents import (
    document_of,
    subscription_document_of,
    with_document,
    with_subscription_document,
)
from pydanube_console.administration.callers import Callers
from pydanube_console.administration.message_samples import parse_start
from pydanube_console.administration.tool_calls import Subscription, Topic, caller_of

Broker = Annotated[str, Field(description="The id of a broker in describe_cluster.")]
Reason = Annotated[
    str, Field(description="Why, for the people who operate the brokers.")
]
Position = Annotated[
    str,
    Field(
        description="earliest, latest, an offset, or a time with its time zone, such "
        "as 2026-01-31T09:30:00Z."
    ),
]
Settings = Annotated[
    dict[str, Any],
    Field(description='The settings, such as {"retention": {"age": "7d"}}.'),
]
Seconds = Annotated[
    float | None, Field(gt=0, description="None: no limit of this kind.")
]
Bytes = Annotated[int | None, Field(gt=0, description="None: no limit of this kind.")]


class Changes:
    """The tools that change something, with the permissions of their callers."""

    def __init__(self, callers: Callers) -> None:
        self._callers = callers

    async def _client(self, context: Context) -> Client:
        return (await caller_of(self._callers, context)).client

    async def create_topic(
        self,
        context: Context,
        topic: Topic,
        partitions: Annotated[
            int | None, Field(ge=1, description="None: a topic without partitions.")
        ] = None,
        retention_age_s: Seconds = None,
        retention_bytes_max: Bytes = None,
    ) -> dict[str, Any]:
        """Create a reliable topic; without retention it has that of its namespace."""
        client = await self._client(context)
        retention = Retention(age_s=retention_age_s, bytes_max=retention_bytes_max)
        await client.topics.create(
            topic,
            partitions=partitions,
            retention=None if retention == KEEP_ALL else retention,
        )
        return {"created": topic}

    async def configure_topic(
        self, context: Context, topic: Topic, settings: Settings
    ) -> dict[str, Any]:
        """
        Change settings of a topic, all or none; those that are not named stay.

        They are on_corruption, retention (age, size, acknowledged), sealing (size,
        age), deduplication (age, messages), limits and schema (subject, policy,
        validate_payload). "inherit" as retention or limits stands for those of the
        namespace, and "none" as deduplication or schema for none. A shorter retention
        drops messages for good. Ask the user before you shorten it.
        """
        client = await self._client(context)
        first, *_ = await client.topics.existing_partitions(topic)
        described = await client.topics.describe(first)
        new = with_document(described, settings)
        await client.topics.configure(topic, **changes_of(described.settings, new))
        return document_of(new, is_reliable=described.policy.is_reliable)

    async def configure_subscription(
        self,
        context: Context,
        topic: Topic,
        subscription: Subscription,
        settings: Settings,
    ) -> dict[str, Any]:
        """
        Change settings of a subscription, all or none; those that are not named stay.

        They are paused, limits (unacked, unacked_per_consumer) and failure_policy
        (redeliveries, ack_timeout, delay, delay_max, backoff, poison,
        dead_letter_topic, dead_letter_expired). The poison policy "drop" loses messages
        that fail too often. Ask the user before you set it.
        """
        client = await self._client(context)
        old = await client.subscriptions.settings(topic, subscription)
        new = with_subscription_document(old, settings)
        changes = changes_of(old, new)
        await client.subscriptions.configure(topic, subscription, **changes)
        return subscription_document_of(new)

    async def create_subscription(
        self,
        context: Context,
        topic: Topic,
        subscription: Subscription,
        type: Annotated[  # noqa: A002  # It is what users call it.
            str, Field(description="exclusive, shared, failover or key_shared.")
        ] = "shared",
        start: Position = "latest",
    ) -> dict[str, Any]:
        """Create a subscription without a consumer."""
        client = await self._client(context)
        position = parse_start(start)
        await client.subscriptions.create(
            topic,
            subscription,
            type=type,  # type: ignore[arg-type]  # The client checks it.
            start=position,
        )
        return {"created": subscription}

    async def seek_subscription(
        self, context: Context, topic: Topic, subscription: Subscription, to: Position
    ) -> dict[str, Any]:
        """
        Let a subscription continue elsewhere.

        Backwards, consumers get messages again; forwards, they miss messages. Ask the
        user first. An offset needs a topic without partitions, or one partition.
        """
        client = await self._client(context)
        await client.subscriptions.seek(topic, subscription, parse_start(to))
        return {"sought": subscription}

    async def skip_messages(
        self,
        context: Context,
        topic: Topic,
        subscription: Subscription,
        count: Annotated[int, Field(ge=1, le=1_000_000)],
    ) -> dict[str, Any]:
        """
        Acknowledge the next messages of a subscription without delivering them.

        Consumers never get them. Ask the user first.
        """
        client = await self._client(context)
        await client.subscriptions.skip(topic, subscription, count)
        return {"skipped": count}

    async def drain_broker(
        self, context: Context, broker_id: Broker, reason: Reason
    ) -> dict[str, Any]:
        """
        Move all topics of a broker to the others, and give it no more.

        It returns before they have moved: describe_cluster shows when it is drained.
        """
        _check_reason(reason)
        client = await self._client(context)
        await client.cluster.drain_broker(broker_id, reason=reason)
        return {"draining": broker_id}

    async def activate_broker(
        self, context: Context, broker_id: Broker, reason: Reason
    ) -> dict[str, Any]:
        """Let a drained broker serve topics again."""
        _check_reason(reason)
        client = await self._client(context)
        await client.cluster.activate_broker(broker_id, reason=reason)
        return {"active": broker_id}

    def tools(self) -> list[Any]:
        """Return the functions of all tools."""
        return [
            self.create_topic,
            self.configure_topic,
            self.create_subscription,
            self.seek_subscription,
            self.skip_messages,
            self.configure_subscription,
            self.drain_broker,
            self.activate_broker,
        ]


def _check_reason(reason: str) -> None:
    if not reason.strip():
        raise InvalidRequest("the reason is empty: say why, for the operators")
