"""
The errors of pydanube, grouped by the action of the caller.

Brokers and clients use the same classes: the broker raises an error, the server sends
its code, and the client raises the same class.  Codes are part of the wire format:
their meaning never changes, and they are never reused.  Therefore a released class is
never renamed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import ClassVar


class Remedy(Enum):
    """The action that an error suggests to the caller."""

    GIVE_UP = "give_up"
    """The same request will fail again."""
    RETRY = "retry"
    """The request is valid; wait a little and repeat it."""
    LOOK_UP_AGAIN = "look_up_again"
    """Look up the broker that serves the topic, connect there, and repeat."""


class BrokerError(Exception):
    """The base class of all errors between clients and brokers."""

    code: ClassVar[str]
    """The name of the class in snake case; it stands for the class on the wire."""
    remedy = Remedy.GIVE_UP


class InvalidRequest(BrokerError):
    """The request is invalid and can never succeed."""


class InvalidName(InvalidRequest):
    """A topic, namespace, subscription, producer or consumer name is malformed."""


class MessageTooLarge(InvalidRequest):
    """A message or batch is larger than the broker accepts."""


class InvalidConfig(InvalidRequest):
    """A setting is unknown, of the wrong type or out of range."""


class TransactionTooLarge(InvalidRequest):
    """A change of metadata is larger than the metadata store accepts."""


class OutOfSequence(InvalidRequest):
    """A producer's batch does not continue where its last one ended."""


class InvalidSchema(InvalidRequest):
    """A schema is malformed, too large or nested too deeply."""


class InvalidPayload(InvalidRequest):
    """A message's payload does not match its schema."""


class SchemaMismatch(InvalidRequest):
    """A message does not have the schema that its topic or producer requires."""


class Refused(BrokerError):
    """The caller is not allowed to make this request."""


class Unauthenticated(Refused):
    """The credentials are missing or invalid."""


class PermissionDenied(Refused):
    """The principal is not allowed to do this."""


class QuotaExceeded(Refused):
    """A limit of the principal, namespace, topic or broker is reached."""


class NotFound(BrokerError):
    """Something that the request names does not exist."""


class NamespaceNotFound(NotFound):
    """The namespace does not exist."""


class TopicNotFound(NotFound):
    """The topic does not exist, and this request does not create it."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        # Tracebacks show it; the command line has a hint of its own.
        self.add_note(
            "client.topics.create creates a topic, and so does its first producer or "
            "consumer; client.topics.list lists those that there are."
        )


class SubscriptionNotFound(NotFound):
    """The topic has no subscription of this name."""


class SchemaNotFound(NotFound):
    """The subject, schema id or version does not exist."""


class RoleNotFound(NotFound):
    """The role of the access policy does not exist."""


class QueryNotFound(NotFound):
    """No principal owns the query."""


class BindingNotFound(NotFound):
    """The binding of roles to a member does not exist."""


class StagedPartNotFound(NotFound):
    """A staged part does not exist: it was dropped, expired, or is not finished."""


class OffsetDropped(NotFound):
    """Retention has removed the requested messages."""


class Conflict(BrokerError):
    """The request conflicts with the current state, or with another client."""


class AlreadyExists(Conflict):
    """The name is in use, with other properties than requested."""


class IncompatibleSchema(Conflict):
    """A schema is not compatible with earlier versions of its subject."""


class SchemaInUse(Conflict):
    """Topics or other schemas use the subject or version, so it cannot be deleted."""


class OtherSchema(Conflict):
    """The topic requires another subject or version than the producer writes."""


class NamespaceInUse(Conflict):
    """The namespace has topics, so it cannot be deleted."""


class ProducerBusy(Conflict):
    """The topic has another producer, and one of the two is exclusive."""


class ConsumerBusy(Conflict):
    """An exclusive subscription has another consumer."""


class ConsumerReplaced(Conflict):
    """A newer consumer of the same name has replaced this one."""


class ProducerFenced(Conflict):
    """A newer producer has replaced this one."""


class TransactionFenced(Conflict):
    """A newer transaction of the same name has begun, or the broker has restarted."""


class MessageNotHeld(Conflict):
    """A message is acknowledged already, or its consumer has reconnected."""


class StagingClosed(Conflict):
    """The part or version accepts no more data: it was finished or dropped."""


class VersionBehind(Conflict):
    """A query has committed a version that its writer cannot have written."""


class SubscriptionInUse(Conflict):
    """The subscription or topic has consumers or producers, so it cannot be deleted."""


class RoleInUse(Conflict):
    """A binding has the role, so it cannot be deleted."""


class BackupRunning(Conflict):
    """A backup is being made, and keeps all segments until it is finished."""


class TopicHeld(Conflict):
    """The topic has retention holds, so it cannot be changed or deleted."""


class SegmentsChanged(Conflict):
    """The segments to replace are no longer those of the topic."""


class RevisionConflict(Conflict):
    """The metadata changed between reading and writing."""


class ClusterInUse(Conflict):
    """Another broker uses the metadata of the cluster."""


class TopicFenced(Conflict):
    """Another broker has claimed the topic, so this one must not write to it."""


class DirectoryLocked(Conflict):
    """Another broker process uses the data directory."""


class DirectoryReplaced(Conflict):
    """The data directory of a running broker was moved, removed or replaced."""


class Unavailable(BrokerError):
    """The request is valid and may succeed later."""

    remedy = Remedy.RETRY


class NotOwner(Unavailable):
    """Another broker serves the topic."""

    remedy = Remedy.LOOK_UP_AGAIN


class Draining(Unavailable):
    """The broker is stopping and accepts no more messages."""

    remedy = Remedy.LOOK_UP_AGAIN


class Overloaded(Unavailable):
    """The broker has no capacity for this request at the moment."""


class MetadataUnavailable(Unavailable):
    """The metadata store does not answer."""


class SessionLost(Unavailable):
    """A session of the metadata store has ended, so others may hold its keys."""


class SegmentFailure:
    """The history of a failed read of a segment, which a broker keeps in the error."""

    offsets: tuple[int, int] | None = None
    """The offsets that cannot be read, half-open, if known."""
    attempts = 1
    """The number of successive reads that have failed."""
    retry_at = 0.0
    """The time of the event loop's clock before which the broker does not retry."""
    is_logged = False


class ObjectsUnavailable(Unavailable, SegmentFailure):
    """The object store does not answer."""


class DiskFull(Unavailable):
    """There is no disk space left: nothing was written; reads still work."""


class JournalFailed(Unavailable):
    """
    A write to the journal failed, so the broker accepts no more writes.

    Whether messages without a receipt are stored is unknown: send them again.  After
    a failed ``fdatasync`` the content of the page cache is unknown, and only a restart,
    which reads the disk again, shows which entries were stored.
    """


class ConnectionLost(Unavailable):
    """The connection to the broker was lost or could not be opened."""


class TimedOut(Unavailable):
    """The answer did not arrive in time; the request may have succeeded."""


class ProtocolViolation(BrokerError):
    """The peer violated the protocol; the connection is closed."""


class RequestFailed(BrokerError):
    """The consumer that handled a request replied with an error."""


class Closed(BrokerError):
    """The object was closed by its user."""


class Corrupt(BrokerError):
    """Stored data is damaged."""


class CorruptBatch(Corrupt):
    """A batch does not match its checksum or its own header."""


class CorruptJournal(Corrupt):
    """A journal file is damaged in a way that a crash cannot cause."""


class NewerJournal(CorruptJournal):
    """A journal file was written by a newer version; nothing was changed."""


class InconsistentDirectory(Corrupt):
    """A part of the data directory is missing, outdated or from another directory."""


class CorruptBackup(Corrupt):
    """A backup is damaged or has an unknown format; nothing was restored."""


class CorruptStage(Corrupt):
    """A staged part is damaged, so its version was not committed."""


class CorruptSegment(Corrupt, SegmentFailure):
    """A segment of stored messages is damaged, missing or unreadable."""

    def __init__(
        self,
        message: str = "",
        *,
        offsets: tuple[int, int] | None = None,
        is_damaged: bool = True,
    ) -> None:
        super().__init__(message)
        self.offsets = offsets
        self.is_damaged = is_damaged
        """Whether the bytes are wrong; False if they could not be read."""


def error_of(code: str, message: str) -> BrokerError:
    """
    Return the error that a peer sent as *code* and *message*.

    An unknown code, from a newer peer, becomes an error that is not retried.
    """
    return ERRORS.get(code, BrokerError)(message)


def _tree(cls: type[BrokerError]) -> Iterator[type[BrokerError]]:
    cls.code = re.sub("(?<!^)(?=[A-Z])", "_", cls.__name__).lower()
    # Users import them from here, and tracebacks name them so.
    cls.__module__ = "pydanube"
    yield cls
    for child in cls.__subclasses__():
        yield from _tree(child)


ERRORS: dict[str, type[BrokerError]] = {cls.code: cls for cls in _tree(BrokerError)}
"""Every error by its code."""
