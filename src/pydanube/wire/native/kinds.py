"""
The kinds of frames of the native protocol, and the operations among them.

``Kind`` declares once, for both sides of a connection, what each frame carries, who
sends it, and its answer.  Requests are operations: their rows also say which permission
a client needs, and whether a client may repeat them.
``docs/format/stream.md`` is the normative description of the frames.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Any, Final

from google.protobuf.message import Message

from pydanube.wire.pb import stream_pb2 as pb


class Side(Enum):
    """The sender of a kind of frame."""

    CLIENT = "client"
    BROKER = "broker"
    BOTH = "both"


class Permission(Enum):
    """The permission that an operation needs.  Brokers do not enforce it yet."""

    READ = "read"
    """Read messages, descriptions and schemas; move subscriptions."""
    WRITE = "write"
    """Publish messages and register schemas."""
    ADMIN = "admin"
    """Create, change and delete topics, namespaces and their policies."""


CLIENT, BROKER, BOTH = Side
READ, WRITE, ADMIN = Permission
REPEAT: Final = True

_Row = tuple[Any, ...]


def _frame(
    number: int,
    body: type[Message] | None,
    sender: Side,
    answer_body: type[Message] | None = None,
    *,
    on_channel: bool = False,
) -> _Row:
    return number, body, sender, answer_body, None, False, on_channel


def _op(
    number: int,
    body: type[Message],
    permission: Permission,
    answer_body: type[Message] = pb.Ok,
    is_repeatable: bool = False,
    *,
    on_channel: bool = False,
) -> _Row:
    more = permission, is_repeatable, on_channel
    return number, body, CLIENT, answer_body, *more


class Kind(IntEnum):
    """The kind of a frame; numbers are wire format and are never reused."""

    body: type[Message] | None
    """The control message; None for a batch."""
    sender: Side
    answer_body: type[Message] | None
    permission: Permission | None
    """The permission that an operation needs; None for other frames."""
    is_repeatable: bool
    """True if the client may send a request again if it got no answer."""
    on_channel: bool
    """True if the frame belongs to one producer, consumer or stage."""

    def __new__(cls, *row: Any) -> Kind:
        """Create the member for a row of the table."""
        kind = int.__new__(cls, row[0])
        kind._value_ = row[0]
        _, kind.body, kind.sender, kind.answer_body, *more = row
        kind.permission, kind.is_repeatable, kind.on_channel = more
        return kind

    @property
    def answer(self) -> Kind | None:
        """The kind that answers a request, unless it fails with an ERROR."""
        return None if self.answer_body is None else KIND_OF[self.answer_body]

    # Kinds are looked up for every frame, and the hash of enums is Python code.
    __hash__ = int.__hash__

    HELLO = _frame(1, pb.Hello, CLIENT, pb.Welcome)
    WELCOME = _frame(2, pb.Welcome, BROKER)
    ERROR = _frame(3, pb.Error, BROKER)
    OK = _frame(4, pb.Ok, BROKER)
    PING = _frame(5, pb.Ping, CLIENT, pb.Pong)
    PONG = _frame(6, pb.Pong, BROKER)
    GOODBYE = _frame(7, pb.Goodbye, BOTH)
    AUTHENTICATE = _frame(8, pb.Authenticate, CLIENT, pb.Authenticated)
    AUTHENTICATED = _frame(9, pb.Authenticated, BROKER)

    LOOKUP = _op(16, pb.Lookup, READ, pb.Location, REPEAT)
    LOCATION = _frame(17, pb.Location, BROKER)
    CREATE_TOPIC = _op(18, pb.CreateTopic, ADMIN)
    DELETE_TOPIC = _op(19, pb.DeleteTopic, ADMIN)
    LIST_TOPICS = _op(20, pb.ListTopics, READ, pb.Topics, REPEAT)
    TOPICS = _frame(21, pb.Topics, BROKER)
    DESCRIBE_TOPIC = _op(22, pb.DescribeTopic, READ, pb.TopicDescription, REPEAT)
    TOPIC_DESCRIPTION = _frame(23, pb.TopicDescription, BROKER)
    LIST_SEGMENTS = _op(24, pb.ListSegments, READ, pb.Segments, REPEAT)
    SEGMENTS = _frame(25, pb.Segments, BROKER)
    SET_TOPIC_LIMITS = _op(26, pb.SetTopicLimits, ADMIN, pb.Ok, REPEAT)
    ADD_PARTITIONS = _op(27, pb.AddPartitions, ADMIN)
    LIST_PARTITIONS = _op(28, pb.ListPartitions, READ, pb.Partitions, REPEAT)
    PARTITIONS = _frame(29, pb.Partitions, BROKER)
    REPLACE_SEGMENTS = _op(30, pb.ReplaceSegments, ADMIN, pb.SegmentsReplaced)
    SEGMENTS_REPLACED = _frame(31, pb.SegmentsReplaced, BROKER)
    OPEN_PRODUCER = _op(32, pb.OpenProducer, WRITE, pb.ProducerOpened, on_channel=True)
    PRODUCER_OPENED = _frame(33, pb.ProducerOpened, BROKER, on_channel=True)
    CLOSE_PRODUCER = _op(34, pb.CloseProducer, WRITE, on_channel=True)
    PUBLISH = _frame(35, None, CLIENT, on_channel=True)
    RECEIPT = _frame(36, pb.Receipt, BROKER, on_channel=True)

    OPEN_CONSUMER = _op(48, pb.OpenConsumer, READ, pb.ConsumerOpened, on_channel=True)
    CONSUMER_OPENED = _frame(49, pb.ConsumerOpened, BROKER, on_channel=True)
    CLOSE_CONSUMER = _op(50, pb.CloseConsumer, READ, on_channel=True)
    CONSUMER_STATE = _frame(51, pb.ConsumerState, BROKER, on_channel=True)
    CREDIT = _frame(52, pb.Credit, CLIENT, on_channel=True)
    DELIVERY = _frame(53, None, BROKER, on_channel=True)
    ACK = _frame(54, pb.Ack, CLIENT, pb.Ok, on_channel=True)
    NACK = _frame(55, pb.Nack, CLIENT, on_channel=True)
    SEEK = _op(56, pb.Seek, READ, on_channel=True)
    EXTEND = _frame(57, pb.Extend, CLIENT, on_channel=True)
    RELEASE = _frame(58, pb.Release, CLIENT, on_channel=True)

    CREATE_SUBSCRIPTION = _op(64, pb.CreateSubscription, READ)
    DELETE_SUBSCRIPTION = _op(65, pb.DeleteSubscription, READ)
    DESCRIBE_SUBSCRIPTION = _op(
        66, pb.DescribeSubscription, READ, pb.SubscriptionDescription, REPEAT
    )
    SUBSCRIPTION_DESCRIPTION = _frame(67, pb.SubscriptionDescription, BROKER)
    REPORT_PROGRESS = _op(68, pb.ReportProgress, READ, pb.Ok, REPEAT)
    DESCRIBE_SETTINGS = _op(69, pb.DescribeSettings, READ, pb.Settings, REPEAT)
    SETTINGS = _frame(70, pb.Settings, BROKER)
    SET_FAILURE_POLICY = _op(71, pb.SetFailurePolicy, ADMIN, pb.Ok, REPEAT)
    SET_DISPATCH_LIMITS = _op(72, pb.SetDispatchLimits, ADMIN, pb.Ok, REPEAT)
    PAUSE = _op(73, pb.Pause, ADMIN, pb.Ok, REPEAT)
    SEEK_SUBSCRIPTION = _op(74, pb.SeekSubscription, READ, pb.Ok, REPEAT)
    SKIP = _op(75, pb.Skip, READ)
    MARK_DONE = _op(76, pb.MarkDone, READ, pb.Ok, REPEAT)

    FETCH = _op(80, pb.Fetch, READ, pb.FetchEnd)
    FETCHED = _frame(81, None, BROKER)
    FETCH_END = _frame(82, pb.FetchEnd, BROKER)
    MOVED = _frame(83, pb.Moved, BROKER, on_channel=True)
    FIND_OFFSETS = _op(84, pb.FindOffsets, READ, pb.OffsetsFound, REPEAT)
    OFFSETS_FOUND = _frame(85, pb.OffsetsFound, BROKER)
    LIST_OFFSETS = _op(86, pb.ListOffsets, READ, pb.OffsetsListed, REPEAT)
    OFFSETS_LISTED = _frame(87, pb.OffsetsListed, BROKER)

    CREATE_NAMESPACE = _op(96, pb.CreateNamespace, ADMIN)
    DELETE_NAMESPACE = _op(97, pb.DeleteNamespace, ADMIN)
    LIST_NAMESPACES = _op(98, pb.ListNamespaces, READ, pb.Namespaces, REPEAT)
    NAMESPACES = _frame(99, pb.Namespaces, BROKER)
    DESCRIBE_NAMESPACE = _op(
        100, pb.DescribeNamespace, READ, pb.NamespaceDescription, REPEAT
    )
    NAMESPACE_DESCRIPTION = _frame(101, pb.NamespaceDescription, BROKER)
    SET_NAMESPACE_POLICY = _op(102, pb.SetNamespacePolicy, ADMIN, pb.Ok, REPEAT)

    REGISTER_SCHEMA = _op(112, pb.RegisterSchema, WRITE, pb.SchemaRegistered, REPEAT)
    SCHEMA_REGISTERED = _frame(113, pb.SchemaRegistered, BROKER)
    GET_SCHEMA = _op(114, pb.GetSchema, READ, pb.SchemaVersion, REPEAT)
    SCHEMA_VERSION = _frame(115, pb.SchemaVersion, BROKER)
    LIST_SCHEMA_VERSIONS = _op(
        116, pb.ListSchemaVersions, READ, pb.SchemaVersions, REPEAT
    )
    SCHEMA_VERSIONS = _frame(117, pb.SchemaVersions, BROKER)
    LIST_SUBJECTS = _op(118, pb.ListSubjects, READ, pb.Subjects, REPEAT)
    SUBJECTS = _frame(119, pb.Subjects, BROKER)
    DESCRIBE_SUBJECT = _op(120, pb.DescribeSubject, READ, pb.SubjectDescription, REPEAT)
    SUBJECT_DESCRIPTION = _frame(121, pb.SubjectDescription, BROKER)
    CHECK_SCHEMA = _op(122, pb.CheckSchema, READ, pb.SchemaChecked, REPEAT)
    SCHEMA_CHECKED = _frame(123, pb.SchemaChecked, BROKER)
    SET_COMPATIBILITY = _op(124, pb.SetCompatibility, ADMIN, pb.Ok, REPEAT)
    DELETE_SCHEMA = _op(125, pb.DeleteSchema, ADMIN)
    BIND_SCHEMA = _op(126, pb.BindSchema, ADMIN, pb.Ok, REPEAT)
    GET_TOPIC_SCHEMA = _op(127, pb.GetTopicSchema, READ, pb.TopicSchemaAnswer, REPEAT)
    TOPIC_SCHEMA = _frame(128, pb.TopicSchemaAnswer, BROKER)

    HOLD_TOPIC = _op(136, pb.HoldTopic, ADMIN, pb.Ok, REPEAT)
    RELEASE_TOPIC = _op(137, pb.ReleaseTopic, ADMIN)
    SET_ON_CORRUPTION = _op(138, pb.SetOnCorruption, ADMIN, pb.Ok, REPEAT)
    SET_TOPIC_RETENTION = _op(139, pb.SetTopicRetention, ADMIN, pb.Ok, REPEAT)
    SET_NAMESPACE_RETENTION = _op(140, pb.SetNamespaceRetention, ADMIN, pb.Ok, REPEAT)
    SET_SEALING = _op(141, pb.SetSealing, ADMIN, pb.Ok, REPEAT)
    APPLY_RETENTION = _op(142, pb.ApplyRetention, ADMIN, pb.RetentionDrops)
    RETENTION_DROPS = _frame(143, pb.RetentionDrops, BROKER)

    OPEN_STAGE = _op(144, pb.OpenStage, WRITE, pb.StageOpened, on_channel=True)
    STAGE_OPENED = _frame(145, pb.StageOpened, BROKER, on_channel=True)
    CLOSE_STAGE = _op(146, pb.CloseStage, WRITE, on_channel=True)
    STAGE = _frame(147, None, CLIENT, on_channel=True)
    STAGED = _frame(148, pb.Staged, BROKER, on_channel=True)
    FINISH_PART = _op(149, pb.FinishPart, WRITE, pb.PartFinished, REPEAT)
    PART_FINISHED = _frame(150, pb.PartFinished, BROKER)
    DROP_PART = _op(151, pb.DropPart, WRITE)
    COMMIT_STAGED = _op(152, pb.CommitStaged, WRITE, pb.StagedCommitted)
    STAGED_COMMITTED = _frame(153, pb.StagedCommitted, BROKER)
    DROP_STAGED = _op(154, pb.DropStaged, WRITE, pb.Ok, REPEAT)
    DESCRIBE_STAGING = _op(
        155, pb.DescribeStaging, WRITE, pb.StagingDescription, REPEAT
    )
    STAGING_DESCRIPTION = _frame(156, pb.StagingDescription, BROKER)
    BEGIN_TRANSACTION = _op(
        157, pb.BeginTransaction, WRITE, pb.TransactionBegun, REPEAT
    )
    TRANSACTION_BEGUN = _frame(158, pb.TransactionBegun, BROKER)

    DESCRIBE_STORAGE = _op(160, pb.DescribeStorage, READ, pb.StorageDescription, REPEAT)
    STORAGE_DESCRIPTION = _frame(161, pb.StorageDescription, BROKER)
    UPLOAD_SEGMENTS = _op(162, pb.UploadSegments, ADMIN)
    EVICT_SEGMENTS = _op(163, pb.EvictSegments, ADMIN, pb.SegmentsEvicted)
    SEGMENTS_EVICTED = _frame(164, pb.SegmentsEvicted, BROKER)
    VERIFY_SEGMENTS = _op(165, pb.VerifySegments, ADMIN, pb.SegmentsVerified, REPEAT)
    SEGMENTS_VERIFIED = _frame(166, pb.SegmentsVerified, BROKER)
    COPY_SEGMENTS = _op(167, pb.CopySegments, ADMIN, pb.SegmentsVerified, REPEAT)
    CREATE_BACKUP = _op(192, pb.CreateBackup, ADMIN, pb.BackupProgress)
    DESCRIBE_BACKUP = _op(193, pb.DescribeBackup, READ, pb.BackupProgress, REPEAT)
    BACKUP_PROGRESS = _frame(194, pb.BackupProgress, BROKER)

    DESCRIBE_CLUSTER = _op(200, pb.DescribeCluster, READ, pb.ClusterDescription, REPEAT)
    CLUSTER_DESCRIPTION = _frame(201, pb.ClusterDescription, BROKER)
    SET_BROKER_MODE = _op(202, pb.SetBrokerMode, ADMIN, pb.Ok, REPEAT)

    SET_DEDUPLICATION = _op(208, pb.SetDeduplication, ADMIN, pb.Ok, REPEAT)
    CONFIGURE_TOPIC = _op(209, pb.ConfigureTopic, ADMIN, pb.Ok, REPEAT)
    CONFIGURE_SUBSCRIPTION = _op(210, pb.ConfigureSubscription, ADMIN, pb.Ok, REPEAT)

    CREATE_API_KEY = _op(216, pb.CreateApiKey, ADMIN, pb.ApiKeyCreated)
    API_KEY_CREATED = _frame(217, pb.ApiKeyCreated, BROKER)
    LIST_API_KEYS = _op(218, pb.ListApiKeys, ADMIN, pb.ApiKeys, REPEAT)
    API_KEYS = _frame(219, pb.ApiKeys, BROKER)
    REVOKE_API_KEY = _op(220, pb.RevokeApiKey, ADMIN)
    ROTATE_API_KEY = _op(221, pb.RotateApiKey, ADMIN, pb.ApiKeyCreated)


KIND_OF: dict[type[Message], Kind] = {
    kind.body: kind for kind in Kind if kind.body is not None
}
"""The kind of frame that carries a control message."""

OPERATIONS = frozenset(kind for kind in Kind if kind.permission is not None)


def is_repeatable(request: Message) -> bool:
    """Return whether *request* may be sent again if it got no answer."""
    kind = KIND_OF[type(request)]
    return kind.is_repeatable or bool(getattr(request, "exist_ok", False))
