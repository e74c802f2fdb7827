"""
The service ``danube_admin.TopicAdmin``: topics and their subscriptions.

Most failures have the status NOT_FOUND and a text with the reason, as in the original
Danube.  Requests that may succeed later fail with UNAVAILABLE.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from pydanube.broker.broker import Broker
from pydanube.metadata.records import TopicRecord
from pydanube.model.errors import (
    BrokerError,
    InvalidRequest,
    Remedy,
    SchemaNotFound,
    SubscriptionInUse,
)
from pydanube.model.names import (
    SubscriptionName,
    TopicName,
    parse_namespace,
    parse_subscription,
)
from pydanube.model.policy import SubscriptionSettings
from pydanube.model.schemas import TopicSchema
from pydanube.servers.grpc.services import StatusError
from pydanube.wire.grpc.connection import StatusCode
from pydanube.wire.grpc.danube_admin_api import (
    delivery,
    dispatch_limits_from_wire,
    dispatch_limits_to_wire,
    failure_policy_from_wire,
    failure_policy_to_wire,
    subscription_type_number,
    topic_policy,
)
from pydanube.wire.pb import danube_admin_pb2 as pb

ANSWER_BYTES_MAX = 4 * 1024 * 1024
"""The default limit of gRPC clients for received messages."""

A = TypeVar("A", pb.TopicInfoListResponse, pb.SubscriptionListResponse)


class TopicAdmin:
    """The service for a broker's topics."""

    def __init__(self, broker: Broker, broker_id: str) -> None:
        self._broker = broker
        self._broker_id = broker_id

    # Topics.

    async def list_namespace_topics(
        self, request: pb.NamespaceRequest
    ) -> pb.TopicInfoListResponse:
        """List the topics and partitions of one namespace."""
        name = parse_namespace(request.name)
        await self._broker.namespaces.policy(name)
        return self._listed(await self._broker.catalog.records(name))

    async def list_broker_topics(
        self, request: pb.BrokerRequest
    ) -> pb.TopicInfoListResponse:
        """List all topics if the request names this broker, and none otherwise."""
        is_ours = request.broker_id == self._broker_id
        return self._listed(await self._broker.catalog.records() if is_ours else [])

    async def create_topic(self, request: pb.NewTopicRequest) -> None:
        """Create a topic."""
        policy = topic_policy(request.dispatch_strategy)
        with _refused_as(f"Unable to create the topic {request.name}"):
            await self._broker.topics.create(
                TopicName.parse(request.name),
                policy,
                _schema_of(request.schema_subject),
            )

    async def create_partitioned_topic(
        self, request: pb.PartitionedTopicRequest
    ) -> None:
        """Create all partitions of a topic, or none."""
        policy = topic_policy(request.dispatch_strategy)
        with _refused_as(f"Unable to create the topic {request.base_name}"):
            await self._broker.topics.create_partitioned(
                TopicName.parse(request.base_name),
                request.partitions,
                policy,
                _schema_of(request.schema_subject),
            )

    async def delete_topic(self, request: pb.TopicRequest) -> None:
        """Delete a topic or all its partitions, even if they are in use."""
        with _refused_as(f"Unable to delete the topic {request.name}"):
            await self._broker.topics.delete(TopicName.parse(request.name), force=True)

    async def describe_topic(
        self, request: pb.DescribeTopicRequest
    ) -> pb.DescribeTopicResponse:
        """Describe a topic or partition; fields without a value are absent."""
        name = TopicName.parse(request.name)
        topic = await self._broker.topics.get(name)
        described = pb.DescribeTopicResponse(
            name=request.name,
            subscriptions=await self._broker.subscriptions.names(name),
            broker_id=self._broker_id,
            delivery=delivery(topic.policy),
        )
        if topic.schema is not None:
            described.schema_subject = topic.schema.subject
            # The subject may have been deleted by force.
            with suppress(SchemaNotFound):
                subject = await self._broker.registry.describe(topic.schema.subject)
                described.schema_id = subject.schema_id
                if subject.versions:
                    described.schema_version = subject.versions[-1]
                described.schema_type = subject.type.value
                described.compatibility_mode = subject.compatibility.value.upper()
        return described

    # Subscriptions.

    async def list_subscriptions(
        self, request: pb.TopicRequest
    ) -> pb.SubscriptionListResponse:
        """List the subscriptions of a topic."""
        names = await self._broker.subscriptions.names(TopicName.parse(request.name))
        return _bounded(
            pb.SubscriptionListResponse(subscriptions=names),
            f"{len(names)} subscriptions",
        )

    async def unsubscribe(self, request: pb.SubscriptionRequest) -> None:
        """Delete a subscription with its cursor."""
        name = request.subscription
        with _refused_as(f"Unable to unsubscribe the subscription {name}", "error: "):
            topic, subscription = _subscription_of(request)
            try:
                await self._broker.subscriptions.delete(topic, subscription)
            except SubscriptionInUse as error:
                raise SubscriptionInUse(
                    f"Unable to unsubscribe as the subscription {name} has active "
                    "consumers"
                ) from error

    async def set_subscription_failure_policy(
        self, request: pb.SetSubscriptionFailurePolicyRequest
    ) -> None:
        """Set the failure policy, which applies at once, also to deferred messages."""
        topic, subscription, known = await self._to_configure(request, "failure_policy")
        policy = failure_policy_from_wire(request.failure_policy, known.failure_policy)
        await self._broker.subscriptions.change_settings(
            topic, subscription, failure_policy=policy
        )

    async def get_subscription_failure_policy(
        self, request: pb.GetSubscriptionFailurePolicyRequest
    ) -> pb.GetSubscriptionFailurePolicyResponse:
        """Return the failure policy, if one was set, and the subscription type."""
        name, subscription = _subscription_of(request)
        topic = await self._broker.topics.get(name)
        found = topic.subscriptions.get(subscription)
        settings = await self._broker.subscriptions.settings(name, subscription)
        policy = settings.failure_policy
        return pb.GetSubscriptionFailurePolicyResponse(
            failure_policy=None if policy is None else failure_policy_to_wire(policy),
            subscription_type=subscription_type_number(
                None if found is None else found.type
            ),
        )

    async def set_subscription_dispatch_config(
        self, request: pb.SetSubscriptionDispatchConfigRequest
    ) -> None:
        """Set the dispatch limits, which apply at once."""
        topic, subscription, known = await self._to_configure(
            request, "dispatch_config"
        )
        limits = dispatch_limits_from_wire(request.dispatch_config, known.limits)
        await self._broker.subscriptions.change_settings(
            topic, subscription, limits=limits
        )

    async def get_subscription_dispatch_config(
        self, request: pb.GetSubscriptionDispatchConfigRequest
    ) -> pb.GetSubscriptionDispatchConfigResponse:
        """Return the dispatch limits, if any were set."""
        topic, subscription = _subscription_of(request)
        settings = await self._broker.subscriptions.settings(topic, subscription)
        return pb.GetSubscriptionDispatchConfigResponse(
            dispatch_config=dispatch_limits_to_wire(settings.limits)
        )

    def _listed(
        self, records: Sequence[tuple[TopicName, TopicRecord]]
    ) -> pb.TopicInfoListResponse:
        return _bounded(
            pb.TopicInfoListResponse(
                topics=[
                    pb.TopicInfo(
                        name=str(name),
                        broker_id=self._broker_id,
                        delivery=delivery(record.policy),
                    )
                    for name, record in records
                ]
            ),
            f"{len(records)} topics",
        )

    async def _to_configure(
        self, request: Any, field: str
    ) -> tuple[TopicName, SubscriptionName, SubscriptionSettings]:
        """Return the subscription whose setting *field* is given, and its settings."""
        if not request.HasField(field):
            raise InvalidRequest(f"{field} is required")
        name, subscription = _subscription_of(request)
        topic = await self._broker.topics.get(name)
        if not topic.policy.is_reliable:
            raise StatusError(
                StatusCode.FAILED_PRECONDITION,
                f"subscription {field.replace('_', ' ')} can only be configured for "
                "reliable topics",
            )
        settings = await self._broker.subscriptions.settings(name, subscription)
        return name, subscription, settings


def _bounded(answer: A, what: str) -> A:
    """
    Return *answer* if it is not longer than ``ANSWER_BYTES_MAX``.

    Raises:
        StatusError: The answer is longer; this protocol has no pages.
    """
    if answer.ByteSize() > ANSWER_BYTES_MAX:
        raise StatusError(
            StatusCode.RESOURCE_EXHAUSTED,
            f"{what} do not fit into one answer of {ANSWER_BYTES_MAX} bytes; use "
            "the HTTP API or the danube command",
        )
    return answer


def _subscription_of(request: Any) -> tuple[TopicName, SubscriptionName]:
    return TopicName.parse(request.topic), parse_subscription(request.subscription)


def _schema_of(subject: str) -> TopicSchema | None:
    return TopicSchema(subject=subject) if subject else None


@contextmanager
def _refused_as(what: str, reason: str = "") -> Iterator[None]:
    """Raise errors with the status that the original's tools expect."""
    try:
        yield
    except BrokerError as error:
        if error.remedy is not Remedy.GIVE_UP:
            raise
        raise StatusError(
            StatusCode.NOT_FOUND, f"{what} due to {reason}{error}"
        ) from error
