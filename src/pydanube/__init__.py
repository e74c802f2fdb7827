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
    DirectoryLocked,
    DiskFull,
    Draining,
    InvalidConfig,
    InvalidName,
    InvalidRequest,
    JournalFailed,
    MessageTooLarge,
    MetadataUnavailable,
    NamespaceNotFound,
    NewerJournal,
    NotFound,
    NotOwner,
    ObjectsUnavailable,
    OffsetDropped,
    OutOfSequence,
    Overloaded,
    PermissionDenied,
    ProducerFenced,
    ProtocolViolation,
    QuotaExceeded,
    Refused,
    Remedy,
    RevisionConflict,
    SubscriptionInUse,
    SubscriptionNotFound,
    TimedOut,
    TopicFenced,
    TopicNotFound,
    Unauthenticated,
    Unavailable,
)
from pydanube.model.version import __version__

if TYPE_CHECKING:
    from pydanube.client.client import Client, connect
    from pydanube.client.consumer import Consumer
    from pydanube.client.messages import Message, MessageBatch, MessageId, MessageIds
    from pydanube.client.pending import Pending
    from pydanube.client.producer import Producer

__all__ = [
    "AlreadyExists",
    "BrokerError",
    "Client",
    "Closed",
    "Conflict",
    "ConnectionLost",
    "Consumer",
    "ConsumerBusy",
    "ConsumerReplaced",
    "Corrupt",
    "CorruptBatch",
    "CorruptJournal",
    "CorruptSegment",
    "DirectoryLocked",
    "DiskFull",
    "Draining",
    "InvalidConfig",
    "InvalidName",
    "InvalidRequest",
    "JournalFailed",
    "Message",
    "MessageBatch",
    "MessageId",
    "MessageIds",
    "MessageTooLarge",
    "MetadataUnavailable",
    "NamespaceNotFound",
    "NewerJournal",
    "NotFound",
    "NotOwner",
    "ObjectsUnavailable",
    "OffsetDropped",
    "OutOfSequence",
    "Overloaded",
    "Pending",
    "PermissionDenied",
    "Producer",
    "ProducerFenced",
    "ProtocolViolation",
    "QuotaExceeded",
    "Refused",
    "Remedy",
    "RevisionConflict",
    "SubscriptionInUse",
    "SubscriptionNotFound",
    "TimedOut",
    "TopicFenced",
    "TopicNotFound",
    "Unauthenticated",
    "Unavailable",
    "__version__",
    "connect",
]

# The client brings Arrow, a fifth of a second that a command's --help need not wait.
_HOMES = {
    "Client": "client.client",
    "Consumer": "client.consumer",
    "Message": "client.messages",
    "MessageBatch": "client.messages",
    "MessageId": "client.messages",
    "MessageIds": "client.messages",
    "Pending": "client.pending",
    "Producer": "client.producer",
    "connect": "client.client",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'pydanube' has no attribute {name!r}")
    value = getattr(import_module(f"pydanube.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
