"""
The errors of pydanube, sorted by what the caller should do.

Both sides of a connection use this tree: the broker raises, the server sends the
code, the client raises the same class again.  A code is wire format: it never
changes its meaning and is never used twice.
"""

from __future__ import annotations

from enum import Enum


class Remedy(Enum):
    """What the caller should do about an error."""

    GIVE_UP = "give_up"
    """The same request will fail again."""
    RETRY = "retry"
    """Nothing is wrong with the request; wait a little and repeat it."""
    LOOK_UP_AGAIN = "look_up_again"
    """Ask who serves the topic, connect there, and repeat."""


class BrokerError(Exception):
    """Whatever can go wrong between a client and a broker; never raised itself."""

    code = "broker_error"
    remedy = Remedy.GIVE_UP


# The request can never succeed as it is.


class InvalidRequest(BrokerError):
    """The request can never succeed as it is."""

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
    """A schema is not well-formed, or larger or deeper than is taken."""

    code = "invalid_schema"


class InvalidPayload(InvalidRequest):
    """A message's payload does not keep to its schema."""

    code = "invalid_payload"


class SchemaMismatch(InvalidRequest):
    """A message does not have the schema that its topic or its producer demands."""

    code = "schema_mismatch"


# We know you, and the answer is no.


class Refused(BrokerError):
    """The caller is known, and the answer is no."""

    code = "refused"


class Unauthenticated(Refused):
    """The credentials are missing or not accepted."""

    code = "unauthenticated"


class PermissionDenied(Refused):
    """The principal may not do this."""

    code = "permission_denied"


class QuotaExceeded(Refused):
    """A limit of the namespace, topic or broker is reached."""

    code = "quota_exceeded"


# There is no such thing.


class NotFound(BrokerError):
    """What the request names does not exist."""

    code = "not_found"


class NamespaceNotFound(NotFound):
    """The namespace does not exist."""

    code = "namespace_not_found"


class TopicNotFound(NotFound):
    """The topic does not exist, and may not be created by this request."""

    code = "topic_not_found"


class SubscriptionNotFound(NotFound):
    """The topic has no subscription of this name."""

    code = "subscription_not_found"


class SchemaNotFound(NotFound):
    """There is no such subject, schema id or version."""

    code = "schema_not_found"


class StagedPartNotFound(NotFound):
    """A staged part is not there: it was dropped, has expired, or is not finished."""

    code = "staged_part_not_found"


class OffsetDropped(NotFound):
    """Retention has dropped the messages that were asked for."""

    code = "offset_dropped"


# Somebody got there first.


class Conflict(BrokerError):
    """Somebody got there first."""

    code = "conflict"


class AlreadyExists(Conflict):
    """A thing of this name exists, and it is not what was asked for."""

    code = "already_exists"


class IncompatibleSchema(Conflict):
    """A schema is not compatible with earlier versions of its subject."""

    code = "incompatible_schema"


class SchemaInUse(Conflict):
    """A topic keeps to the subject or version, so it cannot be deleted."""

    code = "schema_in_use"


class OtherSchema(Conflict):
    """The topic keeps to another subject or version than the producer writes."""

    code = "other_schema"


class NamespaceInUse(Conflict):
    """The namespace has topics, so it cannot be deleted."""

    code = "namespace_in_use"


class ProducerBusy(Conflict):
    """The topic has another producer, and one of both must be the only one."""

    code = "producer_busy"


class ConsumerBusy(Conflict):
    """An exclusive subscription has another consumer."""

    code = "consumer_busy"


class ConsumerReplaced(Conflict):
    """A consumer of the same name came and took this one's place."""

    code = "consumer_replaced"


class ProducerFenced(Conflict):
    """A producer of the same name came and took this one's place."""

    code = "producer_fenced"


class StagingClosed(Conflict):
    """The part or version takes no more: it is finished, committed or dropped."""

    code = "staging_closed"


class SubscriptionInUse(Conflict):
    """The subscription or topic has consumers or producers, so it cannot be deleted."""

    code = "subscription_in_use"


class TopicHeld(Conflict):
    """The topic is held: its segments stay, and it is not deleted without force."""

    code = "topic_held"


class SegmentsChanged(Conflict):
    """The topic does not consist of the segments any more that were to be replaced."""

    code = "segments_changed"


class RevisionConflict(Conflict):
    """The metadata changed between reading and writing."""

    code = "revision_conflict"


class TopicFenced(Conflict):
    """Another broker has claimed the topic; this one must not write its history."""

    code = "topic_fenced"


class DirectoryLocked(Conflict):
    """Another broker process uses the data directory."""

    code = "directory_locked"


class DirectoryReplaced(Conflict):
    """The data directory of a running broker was moved, removed or replaced."""

    code = "directory_replaced"


# Nothing is wrong with the request.


class Unavailable(BrokerError):
    """Nothing is wrong with the request; it may succeed a moment later."""

    code = "unavailable"
    remedy = Remedy.RETRY


class NotOwner(Unavailable):
    """Another broker serves the topic."""

    code = "not_owner"
    remedy = Remedy.LOOK_UP_AGAIN


class Draining(Unavailable):
    """The broker is stopping and takes no more messages."""

    code = "draining"
    remedy = Remedy.LOOK_UP_AGAIN


class Overloaded(Unavailable):
    """The broker has no room for this request at the moment."""

    code = "overloaded"


class MetadataUnavailable(Unavailable):
    """The metadata store does not answer."""

    code = "metadata_unavailable"


class ObjectsUnavailable(Unavailable):
    """The object store does not answer."""

    code = "objects_unavailable"


class DiskFull(Unavailable):
    """The disk is full: nothing was written, reading goes on."""

    code = "disk_full"


class JournalFailed(Unavailable):
    """
    The disk did not confirm a write, so the broker no longer accepts any.

    What the page cache holds after a failed ``fdatasync`` is unknown; only a
    restart, which reads the disk again, can tell what was kept.
    """

    code = "journal_failed"


class ConnectionLost(Unavailable):
    """The connection to the broker broke or could not be made."""

    code = "connection_lost"


class TimedOut(Unavailable):
    """The answer did not come in time; the request may have been carried out."""

    code = "timed_out"


# Who broke the protocol, and what broke on disk.


class ProtocolViolation(BrokerError):
    """The peer sent what the protocol does not allow; the connection is closed."""

    code = "protocol_violation"


class Closed(BrokerError):
    """The object was closed by its user."""

    code = "closed"


class Corrupt(BrokerError):
    """Stored bytes break their format."""

    code = "corrupt"


class CorruptBatch(Corrupt):
    """A batch does not match its checksum or its own header."""

    code = "corrupt_batch"


class CorruptJournal(Corrupt):
    """A journal file is damaged in a place that a crash cannot explain."""

    code = "corrupt_journal"


class NewerJournal(CorruptJournal):
    """A journal file was written by a newer version; nothing was changed."""

    code = "newer_journal"


class InconsistentDirectory(Corrupt):
    """A part of the data directory is missing, older than the others or foreign."""

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
        """The offsets that cannot be read, half-open, where the broker knows them."""
        self.is_damaged = is_damaged
        """Whether bytes were read and are wrong; otherwise no bytes could be read."""
        self.attempts = 1
        """How many reads have failed, one after the other."""
        self.retry_at = 0.0
        """Until then, by the event loop's clock, the broker does not read again."""
        self.is_logged = False


def error_of(code: str, message: str) -> BrokerError:
    """
    The error that a peer described by *code* and *message*.

    An unknown code, from a newer peer, becomes the nearest thing that is safe:
    an error that is not retried.
    """
    return ERRORS.get(code, BrokerError)(message)


def _tree(cls: type[BrokerError]) -> list[type[BrokerError]]:
    return [cls, *(leaf for child in cls.__subclasses__() for leaf in _tree(child))]


ERRORS: dict[str, type[BrokerError]] = {cls.code: cls for cls in _tree(BrokerError)}
"""Every error by its code."""
