"""pydanube: publish, consume and read topics of the Danube messaging platform."""

from __future__ import annotations

from typing import TYPE_CHECKING

# Every error is public.
from pydanube.model.errors import *  # noqa: F403
from pydanube.model.lazy_exports import lazy_exports
from pydanube.model.policy import Backoff as Backoff
from pydanube.model.policy import CorruptionPolicy as CorruptionPolicy
from pydanube.model.policy import Deduplication as Deduplication
from pydanube.model.policy import DispatchLimits as DispatchLimits
from pydanube.model.policy import DispatchMode as DispatchMode
from pydanube.model.policy import Durability as Durability
from pydanube.model.policy import FailurePolicy as FailurePolicy
from pydanube.model.policy import NamespacePolicy as NamespacePolicy
from pydanube.model.policy import PoisonPolicy as PoisonPolicy
from pydanube.model.policy import Retention as Retention
from pydanube.model.policy import SubscriptionSettings as SubscriptionSettings
from pydanube.model.policy import SubscriptionType as SubscriptionType
from pydanube.model.policy import TopicPolicy as TopicPolicy
from pydanube.model.schemas import Compatibility as Compatibility
from pydanube.model.schemas import ReferencedVersion as ReferencedVersion
from pydanube.model.schemas import SchemaPolicy as SchemaPolicy
from pydanube.model.schemas import SchemaReference as SchemaReference
from pydanube.model.schemas import SchemaType as SchemaType
from pydanube.model.schemas import SchemaVersion as SchemaVersion
from pydanube.model.schemas import SubjectDescription as SubjectDescription
from pydanube.model.schemas import TopicSchema as TopicSchema
from pydanube.model.version import __version__ as __version__

if TYPE_CHECKING:
    from pydanube.client.client import Client as Client
    from pydanube.client.client import connect as connect
    from pydanube.client.consumers.consumer import Consumer as Consumer
    from pydanube.client.consumers.dead_letters import DeadLetter as DeadLetter
    from pydanube.client.consumers.dead_letters import DeadLetters as DeadLetters
    from pydanube.client.consumers.multi_topic_consumer import (
        MultiTopicConsumer as MultiTopicConsumer,
    )
    from pydanube.client.consumers.partitioned_consumer import (
        PartitionedConsumer as PartitionedConsumer,
    )
    from pydanube.client.counters import ClientCounters as ClientCounters
    from pydanube.client.messages.messages import Message as Message
    from pydanube.client.messages.messages import MessageBatch as MessageBatch
    from pydanube.client.messages.messages import MessageId as MessageId
    from pydanube.client.messages.messages import MessageIds as MessageIds
    from pydanube.client.messages.options import ConsumerKeywords as ConsumerKeywords
    from pydanube.client.messages.options import ProducerKeywords as ProducerKeywords
    from pydanube.client.messages.options import ReadKeywords as ReadKeywords
    from pydanube.client.messages.options import (
        TypedProducerKeywords as TypedProducerKeywords,
    )
    from pydanube.client.messages.schema import Schema as Schema
    from pydanube.client.operations.changes import NamespaceChanges as NamespaceChanges
    from pydanube.client.operations.changes import (
        SubscriptionChanges as SubscriptionChanges,
    )
    from pydanube.client.operations.changes import TopicChanges as TopicChanges
    from pydanube.client.operations.cluster import Cluster as Cluster
    from pydanube.client.operations.connectors import Connectors as Connectors
    from pydanube.client.operations.connectors import (
        StoredConnectorList as StoredConnectorList,
    )
    from pydanube.client.operations.namespaces import Namespaces as Namespaces
    from pydanube.client.operations.schemas import Schemas as Schemas
    from pydanube.client.operations.security import ClientIdentity as ClientIdentity
    from pydanube.client.operations.security import Security as Security
    from pydanube.client.operations.storage import Storage as Storage
    from pydanube.client.operations.subscriptions import Subscriptions as Subscriptions
    from pydanube.client.operations.topics import Topics as Topics
    from pydanube.client.producers.partitioned_producer import (
        PartitionedProducer as PartitionedProducer,
    )
    from pydanube.client.producers.producer import Pending as Pending
    from pydanube.client.producers.producer import Producer as Producer
    from pydanube.client.producers.typed_producer import TypedProducer as TypedProducer
    from pydanube.client.pure.batching import DeliveryOptions as DeliveryOptions
    from pydanube.client.pure.batching import SendOptions as SendOptions
    from pydanube.client.workers.results import Result as Result
    from pydanube.client.workers.running import run as run
    from pydanube.client.workers.staging import PartWriter as PartWriter
    from pydanube.client.workers.staging import Staging as Staging
    from pydanube.client.workers.transactions import Transaction as Transaction
    from pydanube.client.workers.workers import DeclaredProducer as DeclaredProducer
    from pydanube.client.workers.workers import RunningWorkers as RunningWorkers
    from pydanube.client.workers.workers import WorkerKeywords as WorkerKeywords
    from pydanube.client.workers.workers import Workers as Workers
    from pydanube.model.activity_history import ActivityHistory as ActivityHistory
    from pydanube.model.activity_history import ActivityPoint as ActivityPoint
    from pydanube.model.api_keys import ApiKeyDescription as ApiKeyDescription
    from pydanube.model.api_keys import NewApiKey as NewApiKey
    from pydanube.model.clusters import BrokerMode as BrokerMode
    from pydanube.model.clusters import ClusterBroker as ClusterBroker
    from pydanube.model.clusters import ClusterDescription as ClusterDescription
    from pydanube.model.clusters import ShardMove as ShardMove
    from pydanube.model.connections import (
        ConnectionDescription as ConnectionDescription,
    )
    from pydanube.model.connections import ConnectionMember as ConnectionMember
    from pydanube.model.connections import Connections as Connections
    from pydanube.model.descriptions import BackupProgress as BackupProgress
    from pydanube.model.descriptions import BrokerDescription as BrokerDescription
    from pydanube.model.descriptions import CopyState as CopyState
    from pydanube.model.descriptions import DamagedSegment as DamagedSegment
    from pydanube.model.descriptions import DroppedSegment as DroppedSegment
    from pydanube.model.descriptions import Hold as Hold
    from pydanube.model.descriptions import NamespaceDescription as NamespaceDescription
    from pydanube.model.descriptions import OffsetChanges as OffsetChanges
    from pydanube.model.descriptions import RetentionDrops as RetentionDrops
    from pydanube.model.descriptions import Segment as Segment
    from pydanube.model.descriptions import Segments as Segments
    from pydanube.model.descriptions import SegmentsVerified as SegmentsVerified
    from pydanube.model.descriptions import StorageDescription as StorageDescription
    from pydanube.model.descriptions import SubscriptionCounts as SubscriptionCounts
    from pydanube.model.descriptions import (
        SubscriptionDescription as SubscriptionDescription,
    )
    from pydanube.model.descriptions import TopicDescription as TopicDescription
    from pydanube.model.descriptions import TopicOffsets as TopicOffsets
    from pydanube.model.descriptions import TopicPlace as TopicPlace
    from pydanube.model.descriptions import TopicSettings as TopicSettings
    from pydanube.model.findings import DeadLetterRoute as DeadLetterRoute
    from pydanube.model.findings import FindingKind as FindingKind
    from pydanube.model.findings import Findings as Findings
    from pydanube.model.findings import SubscriptionFinding as SubscriptionFinding
    from pydanube.model.staging import StagedCommit as StagedCommit
    from pydanube.model.staging import StagedPart as StagedPart
    from pydanube.model.staging import StagingDescription as StagingDescription
    from pydanube.model.staging import TransactionAcks as TransactionAcks
    from pydanube.model.stored_connectors import ConnectorHealth as ConnectorHealth
    from pydanube.model.stored_connectors import ConnectorReport as ConnectorReport
    from pydanube.model.stored_connectors import StoredConnector as StoredConnector
    from pydanube.schemas.compatibility import Direction as Direction
    from pydanube.schemas.compatibility import Violation as Violation
    from pydanube.schemas.language import Incompatibility as Incompatibility
    from pydanube.security.permissions import Permission as Permission
    from pydanube.security.policy import Binding as Binding
    from pydanube.security.policy import Decision as Decision
    from pydanube.security.policy import Role as Role
    from pydanube.security.quotas import Quota as Quota
    from pydanube.security.quotas import QuotaDescription as QuotaDescription

# Importing Arrow takes a fifth of a second, which a command's --help can save.
_HOMES = {
    "ApiKeyDescription": "pydanube.model.api_keys",
    "BackupProgress": "pydanube.model.descriptions",
    "Binding": "pydanube.security.policy",
    "BrokerDescription": "pydanube.model.descriptions",
    "BrokerMode": "pydanube.model.clusters",
    "Client": "pydanube.client.client",
    "ClientCounters": "pydanube.client.counters",
    "ClientIdentity": "pydanube.client.operations.security",
    "Cluster": "pydanube.client.operations.cluster",
    "ClusterBroker": "pydanube.model.clusters",
    "ClusterDescription": "pydanube.model.clusters",
    "ConnectionDescription": "pydanube.model.connections",
    "ActivityHistory": "pydanube.model.activity_history",
    "ActivityPoint": "pydanube.model.activity_history",
    "ConnectionMember": "pydanube.model.connections",
    "Connections": "pydanube.model.connections",
    "ConnectorHealth": "pydanube.model.stored_connectors",
    "ConnectorReport": "pydanube.model.stored_connectors",
    "Connectors": "pydanube.client.operations.connectors",
    "Consumer": "pydanube.client.consumers.consumer",
    "ConsumerKeywords": "pydanube.client.messages.options",
    "CopyState": "pydanube.model.descriptions",
    "DamagedSegment": "pydanube.model.descriptions",
    "DeadLetter": "pydanube.client.consumers.dead_letters",
    "DeadLetters": "pydanube.client.consumers.dead_letters",
    "Decision": "pydanube.security.policy",
    "DeclaredProducer": "pydanube.client.workers.workers",
    "DeliveryOptions": "pydanube.client.pure.batching",
    "Direction": "pydanube.schemas.compatibility",
    "DroppedSegment": "pydanube.model.descriptions",
    "DeadLetterRoute": "pydanube.model.findings",
    "FindingKind": "pydanube.model.findings",
    "Findings": "pydanube.model.findings",
    "Hold": "pydanube.model.descriptions",
    "Incompatibility": "pydanube.schemas.language",
    "Message": "pydanube.client.messages.messages",
    "MessageBatch": "pydanube.client.messages.messages",
    "MessageId": "pydanube.client.messages.messages",
    "MessageIds": "pydanube.client.messages.messages",
    "MultiTopicConsumer": "pydanube.client.consumers.multi_topic_consumer",
    "NamespaceChanges": "pydanube.client.operations.changes",
    "NamespaceDescription": "pydanube.model.descriptions",
    "Namespaces": "pydanube.client.operations.namespaces",
    "NewApiKey": "pydanube.model.api_keys",
    "OffsetChanges": "pydanube.model.descriptions",
    "PartWriter": "pydanube.client.workers.staging",
    "PartitionedConsumer": "pydanube.client.consumers.partitioned_consumer",
    "PartitionedProducer": "pydanube.client.producers.partitioned_producer",
    "Pending": "pydanube.client.producers.producer",
    "Permission": "pydanube.security.permissions",
    "Producer": "pydanube.client.producers.producer",
    "ProducerKeywords": "pydanube.client.messages.options",
    "Quota": "pydanube.security.quotas",
    "QuotaDescription": "pydanube.security.quotas",
    "ReadKeywords": "pydanube.client.messages.options",
    "Result": "pydanube.client.workers.results",
    "RetentionDrops": "pydanube.model.descriptions",
    "Role": "pydanube.security.policy",
    "RunningWorkers": "pydanube.client.workers.workers",
    "Schema": "pydanube.client.messages.schema",
    "Schemas": "pydanube.client.operations.schemas",
    "Security": "pydanube.client.operations.security",
    "Segment": "pydanube.model.descriptions",
    "Segments": "pydanube.model.descriptions",
    "SegmentsVerified": "pydanube.model.descriptions",
    "SendOptions": "pydanube.client.pure.batching",
    "ShardMove": "pydanube.model.clusters",
    "StagedCommit": "pydanube.model.staging",
    "StagedPart": "pydanube.model.staging",
    "Staging": "pydanube.client.workers.staging",
    "StagingDescription": "pydanube.model.staging",
    "Storage": "pydanube.client.operations.storage",
    "StorageDescription": "pydanube.model.descriptions",
    "StoredConnector": "pydanube.model.stored_connectors",
    "StoredConnectorList": "pydanube.client.operations.connectors",
    "SubscriptionChanges": "pydanube.client.operations.changes",
    "SubscriptionCounts": "pydanube.model.descriptions",
    "SubscriptionDescription": "pydanube.model.descriptions",
    "SubscriptionFinding": "pydanube.model.findings",
    "Subscriptions": "pydanube.client.operations.subscriptions",
    "TopicChanges": "pydanube.client.operations.changes",
    "TopicDescription": "pydanube.model.descriptions",
    "TopicOffsets": "pydanube.model.descriptions",
    "TopicPlace": "pydanube.model.descriptions",
    "TopicSettings": "pydanube.model.descriptions",
    "Topics": "pydanube.client.operations.topics",
    "Transaction": "pydanube.client.workers.transactions",
    "TransactionAcks": "pydanube.model.staging",
    "TypedProducer": "pydanube.client.producers.typed_producer",
    "TypedProducerKeywords": "pydanube.client.messages.options",
    "Violation": "pydanube.schemas.compatibility",
    "WorkerKeywords": "pydanube.client.workers.workers",
    "Workers": "pydanube.client.workers.workers",
    "connect": "pydanube.client.client",
    "run": "pydanube.client.workers.running",
}

__getattr__ = lazy_exports(__name__, _HOMES)


__all__ = [  # noqa: PLE0604  # The imports above add the public classes.
    *_HOMES,
    *(
        name
        for name, value in globals().copy().items()
        if isinstance(value, type) and value.__module__.startswith("pydanube")
    ),
]


def __dir__() -> list[str]:
    return sorted({*__all__, "__all__", "__doc__", "__file__", "__version__"})
