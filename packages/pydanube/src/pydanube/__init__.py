"""pydanube: publish, consume and read topics of the Danube messaging platform."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

# Every error is public.
from pydanube.model.errors import *  # noqa: F403
from pydanube.model.policy import Backoff as Backoff
from pydanube.model.policy import Deduplication as Deduplication
from pydanube.model.policy import DispatchLimits as DispatchLimits
from pydanube.model.policy import FailurePolicy as FailurePolicy
from pydanube.model.policy import NamespacePolicy as NamespacePolicy
from pydanube.model.policy import PoisonPolicy as PoisonPolicy
from pydanube.model.policy import Retention as Retention
from pydanube.model.policy import SubscriptionSettings as SubscriptionSettings
from pydanube.model.schemas import Compatibility as Compatibility
from pydanube.model.schemas import SchemaPolicy as SchemaPolicy
from pydanube.model.schemas import SchemaType as SchemaType
from pydanube.model.schemas import SchemaVersion as SchemaVersion
from pydanube.model.schemas import SubjectDescription as SubjectDescription
from pydanube.model.schemas import TopicSchema as TopicSchema
from pydanube.model.staging import StagedCommit as StagedCommit
from pydanube.model.staging import StagedPart as StagedPart
from pydanube.model.staging import StagingDescription as StagingDescription
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
    from pydanube.client.messages.schema import Schema as Schema
    from pydanube.client.operations.cluster import Cluster as Cluster
    from pydanube.client.operations.namespaces import Namespaces as Namespaces
    from pydanube.client.operations.schemas import Schemas as Schemas
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
    from pydanube.client.workers.running import run as run
    from pydanube.client.workers.staging import PartWriter as PartWriter
    from pydanube.client.workers.staging import Staging as Staging
    from pydanube.client.workers.transactions import Transaction as Transaction
    from pydanube.client.workers.workers import Workers as Workers
    from pydanube.schemas.compatibility import Violation as Violation
    from pydanube.security.quotas import Quota as Quota
    from pydanube.security.quotas import QuotaDescription as QuotaDescription

# Importing Arrow takes a fifth of a second, which a command's --help can save.
_HOMES = {
    "Client": "client.client",
    "ClientCounters": "client.counters",
    "Cluster": "client.operations.cluster",
    "Consumer": "client.consumers.consumer",
    "DeadLetter": "client.consumers.dead_letters",
    "DeadLetters": "client.consumers.dead_letters",
    "Message": "client.messages.messages",
    "MessageBatch": "client.messages.messages",
    "MessageId": "client.messages.messages",
    "MessageIds": "client.messages.messages",
    "MultiTopicConsumer": "client.consumers.multi_topic_consumer",
    "Namespaces": "client.operations.namespaces",
    "PartWriter": "client.workers.staging",
    "PartitionedConsumer": "client.consumers.partitioned_consumer",
    "PartitionedProducer": "client.producers.partitioned_producer",
    "Pending": "client.producers.producer",
    "Producer": "client.producers.producer",
    "Quota": "security.quotas",
    "QuotaDescription": "security.quotas",
    "Schema": "client.messages.schema",
    "Schemas": "client.operations.schemas",
    "Security": "client.operations.security",
    "Staging": "client.workers.staging",
    "Storage": "client.operations.storage",
    "Subscriptions": "client.operations.subscriptions",
    "Topics": "client.operations.topics",
    "Transaction": "client.workers.transactions",
    "TypedProducer": "client.producers.typed_producer",
    "Violation": "schemas.compatibility",
    "Workers": "client.workers.workers",
    "connect": "client.client",
    "run": "client.workers.running",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'pydanube' has no attribute {name!r}")
    value = getattr(import_module(f"pydanube.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


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
