"""
The service ``danube_admin.TopicAdmin``: topics and their subscriptions.

What cannot be done is mostly NOT_FOUND with a text that says why, because that is
what the original's tools are told; what may succeed later is UNAVAILABLE.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NoReturn, TypeVar

from pydanube.model.errors import (
    BrokerError,
    InvalidRequest,
    Remedy,
    SchemaNotFound,
    SubscriptionInUse,
)
from pydanube.model.names import TopicName, parse_namespace, parse_subscription
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

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pydanube.broker.broker import Broker
    from pydanube.model.names import SubscriptionName
    from pydanube.model.policy import TopicPolicy
    from pydanube.servers.grpc.services import Context


ANSWER_BYTES_MAX = 4 * 1024 * 1024
"""The longest message that gRPC clients take unless they are told otherwise."""

A = TypeVar("A", pb.TopicInfoListResponse, pb.SubscriptionListResponse)


class TopicAdmin:
    """Answers for a broker's topics."""

    def __init__(self, broker: Broker, broker_id: str) -> None:
        self._broker = broker
        self._broker_id = broker_id

    # Topics.

    async def list_namespace_topics(
        self, request: pb.NamespaceRequest, _: Context
    ) -> pb.TopicInfoListResponse:
        """The topics of one namespace, partitions among them."""
        name = parse_namespace(request.name)
        await self._broker.namespaces.policy(name)
        return self._listed(await self._broker.topics.policies(name))

    async def list_broker_topics(
        self, request: pb.BrokerRequest, _: Context
    ) -> pb.TopicInfoListResponse:
        """Every topic, if it is this broker that is meant."""
        is_ours = request.broker_id == self._broker_id
        return self._listed(await self._broker.topics.policies() if is_ours else {})

    async def create_topic(
        self, request: pb.NewTopicRequest, _: Context
    ) -> pb.TopicResponse:
        """A new topic, which is there when the answer comes."""
        policy = topic_policy(request.dispatch_strategy)
        with _refused_as(f"Unable to create the topic {request.name}"):
            await self._broker.topics.create(
                TopicName.parse(request.name), policy, _schema_of(request)
            )
        return pb.TopicResponse(success=True)

    async def create_partitioned_topic(
        self, request: pb.PartitionedTopicRequest, _: Context
    ) -> pb.TopicResponse:
        """All partitions of a new topic, or none."""
        policy = topic_policy(request.dispatch_strategy)
        with _refused_as(f"Unable to create the topic {request.base_name}"):
            await self._broker.topics.create_partitioned(
                TopicName.parse(request.base_name),
                request.partitions,
                policy,
                _schema_of(request),
            )
        return pb.TopicResponse(success=True)

    async def delete_topic(
        self, request: pb.TopicRequest, _: Context
    ) -> pb.TopicResponse:
        """The topic or all partitions are gone, whoever used them."""
        with _refused_as(f"Unable to delete the topic {request.name}"):
            await self._broker.topics.delete(TopicName.parse(request.name), force=True)
        return pb.TopicResponse(success=True)

    async def unload_topic(self, _: pb.TopicRequest, __: Context) -> NoReturn:
        """Nobody else could take it."""
        raise StatusError(
            StatusCode.UNIMPLEMENTED,
            "this broker runs alone: there is no other that could take the topic",
        )

    async def describe_topic(
        self, request: pb.DescribeTopicRequest, _: Context
    ) -> pb.DescribeTopicResponse:
        """One topic or partition; what it has not, such as a schema, is absent."""
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
            # It may have been deleted by force.
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
        self, request: pb.TopicRequest, _: Context
    ) -> pb.SubscriptionListResponse:
        """Each subscription once, and nothing else."""
        names = await self._broker.subscriptions.names(TopicName.parse(request.name))
        return _bounded(
            pb.SubscriptionListResponse(subscriptions=names),
            f"{len(names)} subscriptions",
        )

    async def unsubscribe(
        self, request: pb.SubscriptionRequest, _: Context
    ) -> pb.SubscriptionResponse:
        """The subscription and its position are gone."""
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
        return pb.SubscriptionResponse(success=True)

    async def set_subscription_failure_policy(
        self, request: pb.SetSubscriptionFailurePolicyRequest, _: Context
    ) -> pb.SubscriptionResponse:
        """Another policy, which holds at once, also for messages that wait."""
        if not request.HasField("failure_policy"):
            raise InvalidRequest("failure_policy is required")
        topic, subscription = _subscription_of(request)
        await self._check_reliable(topic, "failure policy")
        known = await self._broker.subscriptions.settings(topic, subscription)
        policy = failure_policy_from_wire(request.failure_policy, known.failure_policy)
        await self._broker.subscriptions.set_failure_policy(topic, subscription, policy)
        return pb.SubscriptionResponse(success=True)

    async def get_subscription_failure_policy(
        self, request: pb.GetSubscriptionFailurePolicyRequest, _: Context
    ) -> pb.GetSubscriptionFailurePolicyResponse:
        """The policy that was set, if one was, and the subscription's type."""
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
        self, request: pb.SetSubscriptionDispatchConfigRequest, _: Context
    ) -> pb.SubscriptionResponse:
        """Another limit, which holds at once."""
        if not request.HasField("dispatch_config"):
            raise InvalidRequest("dispatch_config is required")
        topic, subscription = _subscription_of(request)
        await self._check_reliable(topic, "dispatch config")
        known = await self._broker.subscriptions.settings(topic, subscription)
        limits = dispatch_limits_from_wire(request.dispatch_config, known.limits)
        await self._broker.subscriptions.set_dispatch_limits(
            topic, subscription, limits
        )
        return pb.SubscriptionResponse(success=True)

    async def get_subscription_dispatch_config(
        self, request: pb.GetSubscriptionDispatchConfigRequest, _: Context
    ) -> pb.GetSubscriptionDispatchConfigResponse:
        """The limit that was set, if one was."""
        topic, subscription = _subscription_of(request)
        settings = await self._broker.subscriptions.settings(topic, subscription)
        return pb.GetSubscriptionDispatchConfigResponse(
            dispatch_config=dispatch_limits_to_wire(settings.limits)
        )

    def _listed(
        self, policies: Mapping[TopicName, TopicPolicy]
    ) -> pb.TopicInfoListResponse:
        return _bounded(
            pb.TopicInfoListResponse(
                topics=[
                    pb.TopicInfo(
                        name=str(name),
                        broker_id=self._broker_id,
                        delivery=delivery(policy),
                    )
                    for name, policy in policies.items()
                ]
            ),
            f"{len(policies)} topics",
        )

    async def _check_reliable(self, name: TopicName, what: str) -> None:
        topic = await self._broker.topics.get(name)
        if not topic.policy.is_reliable:
            raise StatusError(
                StatusCode.FAILED_PRECONDITION,
                f"subscription {what} can only be configured for reliable topics",
            )


def _bounded(answer: A, what: str) -> A:
    """
    Return *answer* if gRPC clients take it, which by default take 4 MiB.

    Raises:
        StatusError: It is longer; this interface has no pages.
    """
    if answer.ByteSize() > ANSWER_BYTES_MAX:
        raise StatusError(
            StatusCode.RESOURCE_EXHAUSTED,
            f"{what} are more than one answer holds ({ANSWER_BYTES_MAX} bytes); use "
            "the HTTP API or the danube command",
        )
    return answer


def _subscription_of(
    request: pb.SubscriptionRequest
    | pb.SetSubscriptionFailurePolicyRequest
    | pb.GetSubscriptionFailurePolicyRequest
    | pb.SetSubscriptionDispatchConfigRequest
    | pb.GetSubscriptionDispatchConfigRequest,
) -> tuple[TopicName, SubscriptionName]:
    return TopicName.parse(request.topic), parse_subscription(request.subscription)


def _schema_of(
    request: pb.NewTopicRequest | pb.PartitionedTopicRequest,
) -> TopicSchema | None:
    subject = request.schema_subject
    return TopicSchema(subject=subject) if subject else None


@contextmanager
def _refused_as(what: str, reason: str = "") -> Iterator[None]:
    """An answer of no, as the original's tools know it; see the module."""
    try:
        yield
    except BrokerError as error:
        if error.remedy is not Remedy.GIVE_UP:
            raise
        raise StatusError(
            StatusCode.NOT_FOUND, f"{what} due to {reason}{error}"
        ) from error
