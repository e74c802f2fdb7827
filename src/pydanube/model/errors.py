"""
The errors of pydanube, grouped by the action of the caller.

Brokers and clients use the same classes: the broker raises an error, the server sends
its code, and the client raises the same class.  Codes are part of the wire format:
their meaning never changes, and they are never reused.
"""

from __future__ import annotations

from enum import Enum


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

    code = "broker_error"
    remedy = Remedy.GIVE_UP


class InvalidRequest(BrokerError):
    """The request is invalid and can never succeed."""

    code = "invalid_request"


class InvalidName(InvalidRequest):
    """A topic, namespace, subscription, producer or consumer name is malformed."""

    code = "invalid_name"


class MessageTooLarge(InvalidRequest):
    """A message or batch is larger than the broker accepts."""

    code = "message_too_large"


class InvalidConfig(InvalidRequest):
    """A setting is unknown, of the wrong type or out of range."""

    code = "invalid_config"


class OutOfSequence(InvalidRequest):
    """A producer's batch does not continue where its last one ended."""

    code = "out_of_sequence"


class InvalidSchema(InvalidRequest):
    """A schema is malformed, too large or nested too deeply."""

    code = "invalid_schema"


class InvalidPayload(InvalidRequest):
    """A message's payload does not match its schema."""

    code = "invalid_payload"


class SchemaMismatch(InvalidRequest):
    """A message does not have the schema that its topic or producer requires."""

    code = "schema_mismatch"


class Refused(BrokerError):
    """The caller is not allowed to make this request."""

    code = "refused"


class Unauthenticated(Refused):
    """The credentials are missing or invalid."""

    code = "unauthenticated"


class PermissionDenied(Refused):
    """The principal is not allowed to do this."""

    code = "permission_denied"


class QuotaExceeded(Refused):
    """A limit of the namespace, topic or broker is reached."""

    code = "quota_exceeded"


class NotFound(BrokerError):
    """Something that the request names does not exist."""

    code = "not_found"


class NamespaceNotFound(NotFound):
    """The namespace does not exist."""

    code = "namespace_not_found"


class TopicNotFound(NotFound):
    """The topic does not exist, and this request does not create it."""

    code = "topic_not_found"


class SubscriptionNotFound(NotFound):
    """The topic has no subscription of this name."""

    code = "subscription_not_found"


class SchemaNotFound(NotFound):
    """The subject, schema id or version does not exist."""

    code = "schema_not_found"


class StagedPartNotFound(NotFound):
    """A staged part does not exist: it was dropped, expired, or is not finished."""

    code = "staged_part_not_found"


class OffsetDropped(NotFound):
    """Retention has removed the requested messages."""

    code = "offset_dropped"


class Conflict(BrokerError):
    """The request conflicts with the current state, or with another client."""

    code = "conflict"


class AlreadyExists(Conflict):
    """The name is in use, with other properties than requested."""

    code = "already_exists"


class IncompatibleSchema(Conflict):
    """A schema is not compatible with earlier versions of its subject."""

    code = "incompatible_schema"


class SchemaInUse(Conflict):
    """A topic uses the subject or version, so it cannot be deleted."""

    code = "schema_in_use"


class OtherSchema(Conflict):
    """The topic requires another subject or version than the producer writes."""

    code = "other_schema"


class NamespaceInUse(Conflict):
    """The namespace has topics, so it cannot be deleted."""

    code = "namespace_in_use"


class ProducerBusy(Conflict):
    """The topic has another producer, and one of the two is exclusive."""

    code = "producer_busy"


class ConsumerBusy(Conflict):
    """An exclusive subscription has another consumer."""

    code = "consumer_busy"


class ConsumerReplaced(Conflict):
    """A newer consumer of the same name has replaced this one."""

    code = "consumer_replaced"


class ProducerFenced(Conflict):
    """A newer producer has replaced this one."""

    code = "producer_fenced"


class StagingClosed(Conflict):
    """The part or version accepts no more data: it was finished or dropped."""

    code = "staging_closed"


class SubscriptionInUse(Conflict):
    """The subscription or topic has consumers or producers, so it cannot be deleted."""

    code = "subscription_in_use"


class TopicHeld(Conflict):
    """The topic has retention holds, so it cannot be changed or deleted."""

    code = "topic_held"


class SegmentsChanged(Conflict):
    """The segments to replace are no longer those of the topic."""

    code = "segments_changed"


class RevisionConflict(Conflict):
    """The metadata changed between reading and writing."""

    code = "revision_conflict"


class TopicFenced(Conflict):
    """Another broker has claimed the topic, so this one must not write to it."""

    code = "topic_fenced"


class DirectoryLocked(Conflict):
    """Another broker process uses the data directory."""

    code = "directory_locked"


class DirectoryReplaced(Conflict):
    """The data directory of a running broker was moved, removed or replaced."""

    code = "directory_replaced"


class Unavailable(BrokerError):
    """The request is valid and may succeed later."""

    code = "unavailable"
    remedy = Remedy.RETRY


class NotOwner(Unavailable):
    """Another broker serves the topic."""

    code = "not_owner"
    remedy = Remedy.LOOK_UP_AGAIN


class Draining(Unavailable):
    """The broker is stopping and accepts no more messages."""

    code = "draining"
    remedy = Remedy.LOOK_UP_AGAIN


class Overloaded(Unavailable):
    """The broker has no capacity for this request at the moment."""

    code = "overloaded"


class MetadataUnavailable(Unavailable):
    """The metadata store does not answer."""

    code = "metadata_unavailable"


class ObjectsUnavailable(Unavailable):
    """The object store does not answer."""

    code = "objects_unavailable"


class DiskFull(Unavailable):
    """The disk is full: nothing was written; reads still work."""

    code = "disk_full"


class JournalFailed(Unavailable):
    """
    A write to the journal failed, so the broker accepts no more writes.

    After a failed ``fdatasync`` the content of the page cache is unknown.  Only a
    restart, which reads the disk again, shows which entries were stored.
    """

    code = "journal_failed"


class ConnectionLost(Unavailable):
    """The connection to the broker was lost or could not be opened."""

    code = "connection_lost"


class TimedOut(Unavailable):
    """The answer did not arrive in time; the request may have succeeded."""

    code = "timed_out"


class ProtocolViolation(BrokerError):
    """The peer violated the protocol; the connection is closed."""

    code = "protocol_violation"


class Closed(BrokerError):
    """The object was closed by its user."""

    code = "closed"


class Corrupt(BrokerError):
    """Stored data is damaged."""

    code = "corrupt"


class CorruptBatch(Corrupt):
    """A batch does not match its checksum or its own header."""

    code = "corrupt_batch"


class CorruptJournal(Corrupt):
    """A journal file is damaged in a way that a crash cannot cause."""

    code = "corrupt_journal"


class NewerJournal(CorruptJournal):
    """A journal file was written by a newer version; nothing was changed."""

    code = "newer_journal"


class InconsistentDirectory(Corrupt):
    """A part of the data directory is missing, outdated or from another directory."""

    code = "inconsistent_directory"


class CorruptStage(Corrupt):
    """A staged part is damaged, so its version was not committed."""

    code = "corrupt_stage"


class CorruptSegment(Corrupt):
    """A segment of stored messages is damaged, missing or unreadable."""

    code = "corrupt_segment"

    def __init__(
        self,
        message: str = "",
        *,
        offsets: tuple[int, int] | None = None,
        is_damaged: bool = True,
    ) -> None:
        super().__init__(message)
        self.offsets = offsets
        """The offsets that cannot be read, half-open, if known."""
        self.is_damaged = is_damaged
        """Whether the bytes are wrong; False if they could not be read."""
        self.attempts = 1
        """The number of successive reads that have failed."""
        self.retry_at = 0.0
        """The time of the event loop's clock before which the broker does not retry."""
        self.is_logged = False


def error_of(code: str, message: str) -> BrokerError:
    """
    Return the error that a peer sent as *code* and *message*.

    An unknown code, from a newer peer, becomes an error that is not retried.
    """
    return ERRORS.get(code, BrokerError)(message)


def _tree(cls: type[BrokerError]) -> list[type[BrokerError]]:
    return [cls, *(leaf for child in cls.__subclasses__() for leaf in _tree(child))]


ERRORS: dict[str, type[BrokerError]] = {cls.code: cls for cls in _tree(BrokerError)}
"""Every error by its code."""
