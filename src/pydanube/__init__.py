"""pydanube: publish, consume and read topics of the Danube messaging platform."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pydanube.model.errors import (
    AlreadyExists,
    BrokerError,
    Closed,
    Conflict,
    ConnectionLost,
    ConsumerBusy,
    ConsumerReplaced,
    Corrupt,
    CorruptBatch,
    CorruptJournal,
    CorruptSegment,
    CorruptStage,
    DirectoryLocked,
    DirectoryReplaced,
    DiskFull,
    Draining,
    IncompatibleSchema,
    InconsistentDirectory,
    InvalidConfig,
    InvalidName,
    InvalidPayload,
    InvalidRequest,
    InvalidSchema,
    JournalFailed,
    MessageTooLarge,
    MetadataUnavailable,
    NamespaceInUse,
    NamespaceNotFound,
    NewerJournal,
    NotFound,
    NotOwner,
    ObjectsUnavailable,
    OffsetDropped,
    OtherSchema,
    OutOfSequence,
    Overloaded,
    PermissionDenied,
    ProducerBusy,
    ProducerFenced,
    ProtocolViolation,
    QuotaExceeded,
    Refused,
    Remedy,
    RevisionConflict,
    SchemaInUse,
    SchemaMismatch,
    SchemaNotFound,
    StagedPartNotFound,
    StagingClosed,
    SubscriptionInUse,
    SubscriptionNotFound,
    TimedOut,
    TopicFenced,
    TopicNotFound,
    Unauthenticated,
    Unavailable,
)
from pydanube.model.policy import (
    Backoff,
    DispatchLimits,
    FailurePolicy,
    NamespacePolicy,
    PoisonPolicy,
    SubscriptionSettings,
)
from pydanube.model.schemas import (
    Compatibility,
    SchemaPolicy,
    SchemaType,
    SchemaVersion,
    SubjectDescription,
    TopicSchema,
)
from pydanube.model.staging import StagedCommit, StagedPart, StagingDescription
from pydanube.model.version import __version__

if TYPE_CHECKING:
    from pydanube.client.client import Client, connect
    from pydanube.client.consumer import Consumer
    from pydanube.client.dead_letters import DeadLetter, DeadLetters
    from pydanube.client.messages import Message, MessageBatch, MessageId, MessageIds
    from pydanube.client.partitioned_consumer import PartitionedConsumer
    from pydanube.client.partitioned_producer import PartitionedProducer
    from pydanube.client.pending import Pending
    from pydanube.client.producer import Producer
    from pydanube.client.schema import Schema
    from pydanube.client.schemas import Schemas
    from pydanube.client.staging import PartWriter, Staging
    from pydanube.client.typed_producer import TypedProducer
    from pydanube.schemas.compatibility import Violation

__all__ = [
    "AlreadyExists",
    "Backoff",
    "BrokerError",
    "Client",
    "Closed",
    "Compatibility",
    "Conflict",
    "ConnectionLost",
    "Consumer",
    "ConsumerBusy",
    "ConsumerReplaced",
    "Corrupt",
    "CorruptBatch",
    "CorruptJournal",
    "CorruptSegment",
    "CorruptStage",
    "DeadLetter",
    "DeadLetters",
    "DirectoryLocked",
    "DirectoryReplaced",
    "DiskFull",
    "DispatchLimits",
    "Draining",
    "FailurePolicy",
    "IncompatibleSchema",
    "InconsistentDirectory",
    "InvalidConfig",
    "InvalidName",
    "InvalidPayload",
    "InvalidRequest",
    "InvalidSchema",
    "JournalFailed",
    "Message",
    "MessageBatch",
    "MessageId",
    "MessageIds",
    "MessageTooLarge",
    "MetadataUnavailable",
    "NamespaceInUse",
    "NamespaceNotFound",
    "NamespacePolicy",
    "NewerJournal",
    "NotFound",
    "NotOwner",
    "ObjectsUnavailable",
    "OffsetDropped",
    "OtherSchema",
    "OutOfSequence",
    "Overloaded",
    "PartWriter",
    "PartitionedConsumer",
    "PartitionedProducer",
    "Pending",
    "PermissionDenied",
    "PoisonPolicy",
    "Producer",
    "ProducerBusy",
    "ProducerFenced",
    "ProtocolViolation",
    "QuotaExceeded",
    "Refused",
    "Remedy",
    "RevisionConflict",
    "Schema",
    "SchemaInUse",
    "SchemaMismatch",
    "SchemaNotFound",
    "SchemaPolicy",
    "SchemaType",
    "SchemaVersion",
    "Schemas",
    "StagedCommit",
    "StagedPart",
    "StagedPartNotFound",
    "Staging",
    "StagingClosed",
    "StagingDescription",
    "SubjectDescription",
    "SubscriptionInUse",
    "SubscriptionNotFound",
    "SubscriptionSettings",
    "TimedOut",
    "TopicFenced",
    "TopicNotFound",
    "TopicSchema",
    "TypedProducer",
    "Unauthenticated",
    "Unavailable",
    "Violation",
    "__version__",
    "connect",
]

# Importing Arrow takes a fifth of a second, which a command's --help can save.
_HOMES = {
    "Client": "client.client",
    "Consumer": "client.consumer",
    "DeadLetter": "client.dead_letters",
    "DeadLetters": "client.dead_letters",
    "Message": "client.messages",
    "MessageBatch": "client.messages",
    "MessageId": "client.messages",
    "MessageIds": "client.messages",
    "PartWriter": "client.staging",
    "PartitionedConsumer": "client.partitioned_consumer",
    "PartitionedProducer": "client.partitioned_producer",
    "Pending": "client.pending",
    "Producer": "client.producer",
    "Schema": "client.schema",
    "Schemas": "client.schemas",
    "Staging": "client.staging",
    "TypedProducer": "client.typed_producer",
    "Violation": "schemas.compatibility",
    "connect": "client.client",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'pydanube' has no attribute {name!r}")
    value = getattr(import_module(f"pydanube.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
