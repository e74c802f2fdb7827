"""
The permissions for gRPC methods: each method carries out a native operation.

The permission and the resource follow from the row of that operation.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from pydanube.model.lazy_dataclasses import dataclass
from pydanube.security.permissions import Permission
from pydanube.wire.native.kinds import Kind, On, Target


class Charge(Enum):
    """The kind of use that a call counts as in the quota of its caller."""

    REQUEST = "request"
    PUBLISHED = "published"
    """The bytes of a published message."""
    NOTHING = "nothing"
    """An acknowledgement, a health check, or a stream, whose messages count."""


@dataclass(frozen=True, slots=True)
class CallRule:
    """The operation that a method carries out, and where its request has the names."""

    kind: Kind
    fields: Mapping[str, str]
    """The path of a field in the request, by the name in the native request."""
    charge: Charge = Charge.REQUEST
    targets: tuple[Target, ...] = ()
    """The other things that the request names, with the permissions for them."""

    def native_request(self, request: Any) -> Any:
        """Return a native request that names the same things as *request*."""
        assert self.kind.body is not None
        named = {name: _value(request, path) for name, path in self.fields.items()}
        return self.kind.body(**named)

    def topic_of(self, request: Any) -> str:
        """Return the topic that *request* names."""
        return str(_value(request, self.fields["topic"]))


def _value(request: Any, path: str) -> Any:
    for name in path.split("."):
        request = getattr(request, name)
    return request


def _rule(
    kind: Kind,
    *,
    charge: Charge = Charge.REQUEST,
    targets: tuple[Target, ...] = (),
    **fields: str,
) -> CallRule:
    return CallRule(kind, fields, charge, targets)


_SUBJECT = (Target("schema_subject", On.SUBJECT, Permission.SCHEMA_READ),)


ANYTHING = _rule(Kind.WHO_AM_I)
"""The rule of methods that check by themselves, or that need nothing."""
UNCHARGED = _rule(Kind.WHO_AM_I, charge=Charge.NOTHING)
"""The same, for methods that do not count as requests."""

CALL_RULES: Mapping[str, CallRule] = {
    "danube.ProducerService/CreateProducer": _rule(
        Kind.OPEN_PRODUCER,
        topic="topic_name",
        targets=(Target("schema_ref.subject", On.SUBJECT, Permission.SCHEMA_READ),),
    ),
    "danube.ProducerService/SendMessage": _rule(
        Kind.OPEN_PRODUCER, charge=Charge.PUBLISHED, topic="msg_id.topic_name"
    ),
    "danube.ConsumerService/Subscribe": _rule(Kind.OPEN_CONSUMER, topic="topic_name"),
    # The request has only the number of the consumer.
    "danube.ConsumerService/ReceiveMessages": UNCHARGED,
    "danube.ConsumerService/Ack": _rule(
        Kind.OPEN_CONSUMER, charge=Charge.NOTHING, topic="msg_id.topic_name"
    ),
    "danube.ConsumerService/Nack": _rule(
        Kind.OPEN_CONSUMER, charge=Charge.NOTHING, topic="msg_id.topic_name"
    ),
    "danube.Discovery/TopicLookup": _rule(Kind.LOOKUP, topic="topic"),
    "danube.Discovery/TopicPartitions": _rule(Kind.LIST_PARTITIONS, topic="topic"),
    "danube.HealthCheck/HealthCheck": UNCHARGED,
    "danube.StorageService/ListSegmentDescriptors": _rule(
        Kind.LIST_SEGMENTS, topic="topic"
    ),
    "danube.AuthService/Authenticate": ANYTHING,
    "danube_schema.SchemaRegistry/RegisterSchema": _rule(
        Kind.REGISTER_SCHEMA, subject="subject"
    ),
    "danube_schema.SchemaRegistry/GetSchema": _rule(
        Kind.GET_SCHEMA, schema_id="schema_id"
    ),
    "danube_schema.SchemaRegistry/GetLatestSchema": _rule(
        Kind.GET_SCHEMA, subject="subject"
    ),
    "danube_schema.SchemaRegistry/ListVersions": _rule(
        Kind.LIST_SCHEMA_VERSIONS, subject="subject"
    ),
    "danube_schema.SchemaRegistry/ListSubjects": _rule(Kind.LIST_SUBJECTS),
    "danube_schema.SchemaRegistry/CheckCompatibility": _rule(
        Kind.CHECK_SCHEMA, subject="subject"
    ),
    "danube_schema.SchemaRegistry/DeleteSchemaVersion": _rule(
        Kind.DELETE_SCHEMA, subject="subject"
    ),
    "danube_schema.SchemaRegistry/SetCompatibilityMode": _rule(
        Kind.SET_COMPATIBILITY, subject="subject"
    ),
    "danube_schema.SchemaRegistry/ConfigureTopicSchema": _rule(
        Kind.CONFIGURE_TOPIC, topic="topic_name", targets=_SUBJECT
    ),
    "danube_schema.SchemaRegistry/UpdateTopicValidationPolicy": _rule(
        Kind.CONFIGURE_TOPIC, topic="topic_name"
    ),
    "danube_schema.SchemaRegistry/GetTopicSchemaConfig": _rule(
        Kind.GET_TOPIC_SCHEMA, topic="topic_name"
    ),
    "danube_admin.BrokerAdmin/ListBrokers": _rule(Kind.DESCRIBE_CLUSTER),
    "danube_admin.BrokerAdmin/GetLeaderBroker": _rule(Kind.DESCRIBE_CLUSTER),
    "danube_admin.BrokerAdmin/ListNamespaces": _rule(Kind.LIST_NAMESPACES),
    "danube_admin.BrokerAdmin/UnloadBroker": _rule(Kind.SET_BROKER_MODE),
    "danube_admin.BrokerAdmin/ActivateBroker": _rule(Kind.SET_BROKER_MODE),
    "danube_admin.BrokerAdmin/GetClusterBalance": _rule(Kind.DESCRIBE_CLUSTER),
    "danube_admin.BrokerAdmin/TriggerRebalance": _rule(Kind.REBALANCE),
    "danube_admin.ClusterAdmin/ClusterStatus": _rule(Kind.DESCRIBE_CLUSTER),
    "danube_admin.ClusterAdmin/AddNode": _rule(Kind.SET_BROKER_MODE),
    "danube_admin.ClusterAdmin/PromoteNode": _rule(Kind.SET_BROKER_MODE),
    "danube_admin.ClusterAdmin/RemoveNode": _rule(Kind.SET_BROKER_MODE),
    "danube_admin.NamespaceAdmin/GetNamespaceTopics": _rule(
        Kind.DESCRIBE_NAMESPACE, namespace="name"
    ),
    "danube_admin.NamespaceAdmin/GetNamespacePolicies": _rule(
        Kind.DESCRIBE_NAMESPACE, namespace="name"
    ),
    "danube_admin.NamespaceAdmin/CreateNamespace": _rule(
        Kind.CREATE_NAMESPACE, namespace="name"
    ),
    "danube_admin.NamespaceAdmin/DeleteNamespace": _rule(
        Kind.DELETE_NAMESPACE, namespace="name"
    ),
    "danube_admin.NamespaceAdmin/SetNamespacePolicies": _rule(
        Kind.CONFIGURE_NAMESPACE, namespace="name"
    ),
    "danube_admin.TopicAdmin/ListNamespaceTopics": _rule(
        Kind.DESCRIBE_NAMESPACE, namespace="name"
    ),
    "danube_admin.TopicAdmin/ListBrokerTopics": _rule(Kind.LIST_TOPICS),
    "danube_admin.TopicAdmin/CreateTopic": _rule(
        Kind.CREATE_TOPIC, topic="name", targets=_SUBJECT
    ),
    "danube_admin.TopicAdmin/CreatePartitionedTopic": _rule(
        Kind.CREATE_TOPIC, topic="base_name", targets=_SUBJECT
    ),
    "danube_admin.TopicAdmin/DeleteTopic": _rule(Kind.DELETE_TOPIC, topic="name"),
    "danube_admin.TopicAdmin/UnloadTopic": _rule(Kind.MOVE_TOPIC, topic="name"),
    "danube_admin.TopicAdmin/ListSubscriptions": _rule(
        Kind.DESCRIBE_TOPIC, topic="name"
    ),
    "danube_admin.TopicAdmin/Unsubscribe": _rule(
        Kind.DELETE_SUBSCRIPTION, topic="topic"
    ),
    "danube_admin.TopicAdmin/SetSubscriptionFailurePolicy": _rule(
        Kind.CONFIGURE_SUBSCRIPTION,
        topic="topic",
        targets=(
            Target("failure_policy.dead_letter_topic", On.TOPIC, Permission.PRODUCE),
        ),
    ),
    "danube_admin.TopicAdmin/GetSubscriptionFailurePolicy": _rule(
        Kind.DESCRIBE_SETTINGS, topic="topic"
    ),
    "danube_admin.TopicAdmin/DescribeTopic": _rule(Kind.DESCRIBE_TOPIC, topic="name"),
    "danube_admin.TopicAdmin/SetSubscriptionDispatchConfig": _rule(
        Kind.CONFIGURE_SUBSCRIPTION, topic="topic"
    ),
    "danube_admin.TopicAdmin/GetSubscriptionDispatchConfig": _rule(
        Kind.DESCRIBE_SETTINGS, topic="topic"
    ),
    "danube_admin.SecurityAdmin/CreateRole": _rule(Kind.SET_ROLE),
    "danube_admin.SecurityAdmin/GetRole": _rule(Kind.LIST_ROLES),
    "danube_admin.SecurityAdmin/ListRoles": _rule(Kind.LIST_ROLES),
    "danube_admin.SecurityAdmin/DeleteRole": _rule(Kind.DELETE_ROLE),
    "danube_admin.SecurityAdmin/CreateBinding": _rule(Kind.ADD_BINDING),
    "danube_admin.SecurityAdmin/GetBinding": _rule(Kind.LIST_BINDINGS),
    "danube_admin.SecurityAdmin/ListBindings": _rule(Kind.LIST_BINDINGS),
    "danube_admin.SecurityAdmin/ListAllBindings": _rule(Kind.LIST_BINDINGS),
    "danube_admin.SecurityAdmin/DeleteBinding": _rule(Kind.REMOVE_BINDING),
}
"""The rules of all methods of Danube's services, by ``package.Service/Method``."""
