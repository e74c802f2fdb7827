"""
The services of ``danube_admin`` over one broker, alone or of a cluster.

Most failures to change a topic have the status NOT_FOUND and a text with the reason, as
in the original Danube.  Requests that may succeed later fail with UNAVAILABLE.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from statistics import fmean, pstdev
from typing import Any
from urllib.parse import urlsplit

from google.protobuf.message import Message

from pydanube.aio.long_work import LongWork
from pydanube.model.clusters import BrokerMode, ClusterBroker
from pydanube.model.errors import (
    AlreadyExists,
    BrokerError,
    InvalidRequest,
    NamespaceInUse,
    Remedy,
    SchemaNotFound,
    SubscriptionInUse,
)
from pydanube.model.ids import stable_id
from pydanube.model.names import (
    SubscriptionName,
    TopicName,
    parse_namespace,
    parse_subscription,
)
from pydanube.model.policy import SubscriptionSettings
from pydanube.model.schemas import TopicSchema
from pydanube.wire.pb import danube_admin_pb2 as pb
from pydanube_broker.broker.broker import Broker
from pydanube_broker.metadata.records import TopicRecord
from pydanube_broker.operations.authorization import (
    author_of_settings,
    visible_namespaces,
)
from pydanube_broker.operations.topic_lists import (
    DESCRIBING_STEPS,
    Records,
    check_namespace,
    free,
    visible_records,
)
from pydanube_broker.servers.grpc.security_admin import SecurityAdmin
from pydanube_broker.servers.grpc.services import Service, StatusError, refusing
from pydanube_broker.wire.grpc.danube_admin_api import (
    dispatch_limits_from_wire,
    dispatch_limits_to_wire,
    failure_policy_from_wire,
    failure_policy_to_wire,
    parse_policy_document,
    policy_document,
    subscription_type_number,
    topic_policy,
)
from pydanube_broker.wire.grpc.danube_api import danube_name
from pydanube_broker.wire.grpc.status import StatusCode

NO_CLUSTER = "this is a standalone broker, not a cluster"
NO_MEMBERS = (
    "brokers join and leave a cluster by themselves, when they start and stop; "
    "the metadata store has the members"
)
FOLLOWER = "Cluster_Follower"
CONFLICTS = (AlreadyExists, NamespaceInUse)
"""Errors that have the status NOT_FOUND, as in the original."""


ANSWER_BYTES_MAX = 4 * 1024 * 1024
"""The default limit of gRPC clients for received messages."""

ENCODED_AT_ONCE = 20
"""The number of topics of a list that are encoded together."""


class BrokerAdmin:
    """The service for the broker of this process."""

    def __init__(self, broker: Broker, info: pb.BrokerInfo) -> None:
        self._broker = broker
        self._broker_id = info.broker_id
        self._info = info

    async def list_brokers(self, _: pb.Empty) -> pb.BrokerListResponse:
        """Return the running brokers of the cluster; a broker alone is the leader."""
        found = await self._broker.describe_cluster()
        if not found.shard_count:
            is_draining = self._broker.topics.is_draining
            self._info.broker_status = "draining" if is_draining else "active"
            return pb.BrokerListResponse(brokers=[self._info])
        return pb.BrokerListResponse(
            brokers=[self._info_of(each) for each in found.brokers if each.url]
        )

    def _info_of(self, broker: ClusterBroker) -> pb.BrokerInfo:
        info = pb.BrokerInfo()
        if number_of(broker.broker_id) == self._broker_id:
            info.CopyFrom(self._info)
        info.broker_id = number_of(broker.broker_id)
        info.broker_addr = broker.grpc_url or info.broker_addr
        info.admin_addr = info.admin_addr or broker.admin_url
        info.metrics_addr = info.metrics_addr or urlsplit(broker.http_url).netloc
        info.broker_role = "Cluster_Leader" if broker.is_controller else FOLLOWER
        info.broker_status = broker.mode.value
        return info

    async def get_leader_broker(self, _: pb.Empty) -> pb.BrokerResponse:
        """Return the controller of the cluster, or this broker if it is alone."""
        found = await self._broker.describe_cluster()
        leaders = [each.broker_id for each in found.brokers if each.is_controller]
        if leaders:
            return pb.BrokerResponse(leader=number_of(leaders[0]))
        if found.shard_count:
            raise StatusError(StatusCode.UNAVAILABLE, "the cluster has no leader now")
        return pb.BrokerResponse(leader=self._broker_id)

    async def list_namespaces(self, _: pb.Empty) -> pb.NamespaceListResponse:
        """List all namespaces by name."""
        names = visible_namespaces(await self._broker.namespaces.names())
        return pb.NamespaceListResponse(namespaces=names)

    async def unload_broker(
        self, request: pb.UnloadBrokerRequest
    ) -> pb.UnloadBrokerResponse:
        """Drain a broker of the cluster; it has no topics when it is drained."""
        broker = await self._find(request.broker_id)
        if broker is None:
            raise StatusError(
                StatusCode.FAILED_PRECONDITION,
                "there is no other broker that could take the topics",
            )
        if request.namespaces_include or request.namespaces_exclude:
            raise StatusError(
                StatusCode.INVALID_ARGUMENT,
                "a broker is drained of all topics, not of those of some namespaces",
            )
        count = await self._broker.count_topics(broker.session_id)
        if not request.dry_run:
            await self._set_mode(broker, BrokerMode.DRAINING, "")
        return pb.UnloadBrokerResponse(
            started=not request.dry_run, total=count, pending=count
        )

    async def activate_broker(self, request: pb.ActivateBrokerRequest) -> None:
        """Let a drained broker serve topics again."""
        broker = await self._find(request.broker_id)
        if broker is not None:
            await self._set_mode(broker, BrokerMode.ACTIVE, request.reason)
        elif self._broker.topics.is_draining:
            raise StatusError(
                StatusCode.FAILED_PRECONDITION, "the broker is stopping (draining)"
            )

    async def get_cluster_balance(
        self, _: pb.ClusterBalanceRequest
    ) -> pb.ClusterBalanceResponse:
        """Return the load of each broker, in percent of that of the cluster."""
        loads = await self._broker.measure_balance()
        if not loads:
            raise StatusError(StatusCode.UNIMPLEMENTED, NO_CLUSTER)
        scores = [each.load_percent for each in loads]
        mean, deviation = fmean(scores), pstdev(scores)
        limit = mean * self._broker.imbalance_max
        return pb.ClusterBalanceResponse(
            coefficient_of_variation=deviation / mean if mean else 0.0,
            mean_load=mean,
            max_load=max(scores),
            min_load=min(scores),
            std_deviation=deviation,
            broker_count=len(loads),
            assignment_strategy="WeightedLoad",
            brokers=[
                pb.BrokerLoadInfo(
                    broker_id=int(number_of(each.broker_id)),
                    load=each.load_percent,
                    topic_count=each.topic_count,
                    is_overloaded=each.load_percent > mean + limit,
                    is_underloaded=each.load_percent < mean - limit,
                )
                for each in loads
            ],
        )

    async def trigger_rebalance(
        self, request: pb.RebalanceRequest
    ) -> pb.RebalanceResponse:
        """
        Plan moves of shards, and begin them unless it is a dry run.

        ``max_moves`` bounds the shards that move.  The answer has a row for each of
        their topics; of a shard with very many topics, for the first ones.
        """
        if not (await self._broker.describe_cluster()).shard_count:
            raise StatusError(StatusCode.UNIMPLEMENTED, NO_CLUSTER)
        bound = request.max_moves if request.HasField("max_moves") else None
        moved = await self._broker.rebalance(dry_run=request.dry_run, moves_max=bound)
        moves = moved.moves
        return pb.RebalanceResponse(
            success=True,
            moves_executed=0 if request.dry_run else len(moves),
            proposed_moves=[
                pb.ProposedMove(
                    topic_name=topic,
                    from_broker=int(number_of(each.source)) if each.source else 0,
                    to_broker=int(number_of(each.target)),
                    reason=f"shard {each.shard} with {each.topic_count} topics",
                )
                for each in moves
                for topic in each.topics
            ],
            error_message="" if moves or bound == 0 else "Cluster is balanced",
        )

    async def _set_mode(
        self, broker: ClusterBroker, mode: BrokerMode, reason: str
    ) -> None:
        try:
            await self._broker.set_broker_mode(broker.broker_id, mode, reason)
        except InvalidRequest as error:
            raise StatusError(StatusCode.FAILED_PRECONDITION, str(error)) from error

    async def _find(self, broker_id: str) -> ClusterBroker | None:
        """Return the broker with this id; None if it is this one and alone."""
        if not broker_id:
            raise StatusError(StatusCode.INVALID_ARGUMENT, "broker_id is required")
        found = await self._broker.describe_cluster()
        for each in found.brokers:
            if number_of(each.broker_id) == broker_id:
                return each
        if not found.shard_count and broker_id == self._broker_id:
            return None
        raise StatusError(StatusCode.NOT_FOUND, f"there is no broker {broker_id} here")


class NamespaceAdmin:
    """The service for a broker's namespaces."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def get_namespace_topics(self, request: pb.NamespaceRequest) -> bytes:
        """List the topics and partitions of a namespace."""
        name = parse_namespace(request.name)
        await check_namespace(self._broker, name)
        records = await visible_records(self._broker, name)
        return await encode_list(
            pb.TopicListResponse, records, lambda name, _: str(name).removeprefix("/")
        )

    async def get_namespace_policies(
        self, request: pb.NamespaceRequest
    ) -> pb.PolicyResponse:
        """Return the policy of a namespace as a JSON document."""
        policy = await self._broker.namespaces.policy(parse_namespace(request.name))
        return pb.PolicyResponse(policies=policy_document(policy))

    async def set_namespace_policies(
        self, request: pb.SetNamespacePoliciesRequest
    ) -> None:
        """Set the policy of a namespace, which applies at once."""
        await self._broker.namespaces.configure(
            parse_namespace(request.name),
            policy=parse_policy_document(request.policies),
        )

    async def create_namespace(self, request: pb.NamespaceRequest) -> None:
        """Create a namespace without limits."""
        with refusing(*CONFLICTS, status=StatusCode.NOT_FOUND):
            await self._broker.namespaces.create(parse_namespace(request.name))

    async def delete_namespace(self, request: pb.NamespaceRequest) -> None:
        """Delete a namespace, which must have no topics."""
        with refusing(*CONFLICTS, status=StatusCode.NOT_FOUND):
            await self._broker.namespaces.delete(parse_namespace(request.name))


class TopicAdmin:
    """The service for a broker's topics."""

    def __init__(self, broker: Broker, broker_id: str) -> None:
        self._broker = broker
        self._broker_id = broker_id

    # Topics.

    async def list_namespace_topics(self, request: pb.NamespaceRequest) -> bytes:
        """List the topics and partitions of one namespace."""
        name = parse_namespace(request.name)
        await check_namespace(self._broker, name)
        return await self._listed(await visible_records(self._broker, name))

    async def list_broker_topics(self, request: pb.BrokerRequest) -> bytes:
        """List the topics that a broker serves; none if there is no such broker."""
        records, served = await visible_records(self._broker), Records()
        work = LongWork()
        for each in records:
            if self._owner_of(each[1]) == request.broker_id:
                served.append(each)
            await work.did()
        await free(records)
        return await self._listed(served)

    async def create_topic(self, request: pb.NewTopicRequest) -> None:
        """Create a topic."""
        policy = topic_policy(request.dispatch_strategy)
        with _refused_as(f"Unable to create the topic {request.name}"):
            await self._broker.topics.add(
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

    async def unload_topic(self, request: pb.TopicRequest) -> None:
        """Move a topic to another broker of the cluster, with its shard."""
        if self._broker.shards is None:
            raise StatusError(
                StatusCode.UNIMPLEMENTED,
                "there is no other broker that could take the topic",
            )
        try:
            await self._broker.move_topic(TopicName.parse(request.name), None)
        except InvalidRequest as error:
            raise StatusError(StatusCode.FAILED_PRECONDITION, str(error)) from error

    async def describe_topic(
        self, request: pb.DescribeTopicRequest
    ) -> pb.DescribeTopicResponse:
        """Describe a topic or partition; fields without a value are absent."""
        name = TopicName.parse(request.name)
        async with self._broker.views.viewing(name) as topic:
            described = pb.DescribeTopicResponse(
                name=request.name,
                subscriptions=sorted(topic.subscriptions),
                broker_id=self._broker_id,
                delivery=danube_name(topic.policy.dispatch),
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
        async with self._broker.views.viewing(TopicName.parse(request.name)) as topic:
            names = sorted(topic.subscriptions)
        answer = pb.SubscriptionListResponse(subscriptions=names)
        _check_length(answer.ByteSize(), f"{len(names)} subscriptions")
        return answer

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
            *(topic, subscription),
            author=author_of_settings(),
            failure_policy=policy,
        )

    async def get_subscription_failure_policy(
        self, request: pb.GetSubscriptionFailurePolicyRequest
    ) -> pb.GetSubscriptionFailurePolicyResponse:
        """Return the failure policy, if one was set, and the subscription type."""
        name, subscription = _subscription_of(request)
        async with self._broker.views.viewing(name) as topic:
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

    async def _listed(self, records: Records) -> bytes:
        return await encode_list(pb.TopicInfoListResponse, records, self._info)

    def _info(self, name: TopicName, record: TopicRecord) -> pb.TopicInfo:
        return pb.TopicInfo(
            name=str(name),
            broker_id=self._owner_of(record),
            delivery=danube_name(record.policy.dispatch),
        )

    def _owner_of(self, record: TopicRecord) -> str:
        """Return the number of the broker that serves a topic; empty if not known."""
        shards = self._broker.shards
        if shards is None:
            return self._broker_id
        owner = shards.broker_of(record.shard, self._broker.broker_id)
        return number_of(owner) if owner else ""

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


class ClusterAdmin:
    """The service for the members of a cluster, which has no consensus of its own."""

    def __init__(self, broker: Broker, broker_id: str) -> None:
        self._broker = broker
        self._broker_id = broker_id

    async def cluster_status(self, _: pb.Empty) -> pb.ClusterStatusResponse:
        """Return the running brokers, and which one is the controller."""
        found = await self._broker.describe_cluster()
        if not found.shard_count:
            raise StatusError(StatusCode.UNIMPLEMENTED, NO_CLUSTER)
        leaders = [each.broker_id for each in found.brokers if each.is_controller]
        return pb.ClusterStatusResponse(
            leader_id=int(number_of(leaders[0])) if leaders else 0,
            voters=[
                int(number_of(each.broker_id)) for each in found.brokers if each.url
            ],
            self_node_id=int(self._broker_id),
        )


def number_of(broker_id: str) -> str:
    """Return the id by which clients of Danube know a broker."""
    return str(stable_id(("broker", broker_id)))


async def encode_list(
    kind: Callable[..., Message],
    records: Records,
    describe: Callable[[TopicName, TopicRecord], Any],
) -> bytes:
    """
    Return the answer *kind* with what *describe* makes of each topic, encoded.

    Messages with parts of a list are one with all of it if they follow each other, so
    that the answer is encoded in parts, and other tasks run.  *records* is empty
    afterwards.

    Raises:
        StatusError: The answer is longer than ``ANSWER_BYTES_MAX``.
    """
    encoded, byte_count, work = list[bytes](), 0, LongWork()
    try:
        for begin in range(0, len(records), ENCODED_AT_ONCE):
            part = records[begin : begin + ENCODED_AT_ONCE]
            answer = kind(topics=[describe(*each) for each in part])
            encoded.append(answer.SerializeToString())
            byte_count += len(encoded[-1])
            _check_length(byte_count, f"{len(records)} topics")
            await work.did(len(part) * DESCRIBING_STEPS)
    finally:
        await free(records)
    return b"".join(encoded)


def _check_length(byte_count: int, what: str) -> None:
    """
    Raise if an answer is longer than ``ANSWER_BYTES_MAX``.

    Raises:
        StatusError: It is; this protocol has no pages.
    """
    if byte_count > ANSWER_BYTES_MAX:
        raise StatusError(
            StatusCode.RESOURCE_EXHAUSTED,
            f"{what} do not fit into one answer of {ANSWER_BYTES_MAX} bytes; use "
            "the HTTP API or the danube command",
        )


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


def admin_services(
    broker: Broker, *, broker_url: str, admin_url: str, metrics_address: str
) -> list[Service]:
    """
    Return the services for the administrators of *broker*.

    Args:
        broker: The broker of this process.
        broker_url: Its scheme, host and port for clients.
        admin_url: The same for administrators.
        metrics_address: The host and port of its metrics.
    """
    # The original's tools expect that a broker id is a number.
    broker_id = number_of(broker.broker_id)
    services = pb.DESCRIPTOR.services_by_name
    info = pb.BrokerInfo(
        broker_id=broker_id,
        broker_addr=broker_url,
        broker_role="Cluster_Leader",
        admin_addr=admin_url,
        metrics_addr=metrics_address,
    )
    return [
        Service(services["BrokerAdmin"], BrokerAdmin(broker, info)),
        Service(services["NamespaceAdmin"], NamespaceAdmin(broker)),
        Service(services["TopicAdmin"], TopicAdmin(broker, broker_id)),
        Service(
            services["ClusterAdmin"],
            ClusterAdmin(broker, broker_id),
            unimplemented=NO_CLUSTER if broker.shards is None else NO_MEMBERS,
        ),
        Service(services["SecurityAdmin"], SecurityAdmin(broker)),
    ]
