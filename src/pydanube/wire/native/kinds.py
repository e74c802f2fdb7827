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
    permission: Permission | None = None,
    is_repeatable: bool = False,
    *,
    on_channel: bool = False,
    revision: int = 0,
) -> _Row:
    more = permission, is_repeatable, on_channel, revision
    return number, body, sender, answer_body, *more


def _op(
    number: int,
    body: type[Message],
    permission: Permission,
    answer_body: type[Message] = pb.Ok,
    is_repeatable: bool = False,
    **more: Any,
) -> _Row:
    return _frame(number, body, CLIENT, answer_body, permission, is_repeatable, **more)


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
    revision: int
    """The protocol revision that added the kind; older peers do not know it."""

    def __new__(cls, *row: Any) -> Kind:
        """Create the member for a row of the table."""
        kind = int.__new__(cls, row[0])
        kind._value_ = row[0]
        _, kind.body, kind.sender, kind.answer_body, *more = row
        kind.permission, kind.is_repeatable, kind.on_channel, kind.revision = more
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
    SET_TOPIC_LIMITS = _op(26, pb.SetTopicLimits, ADMIN, pb.Ok, REPEAT, revision=1)
    ADD_PARTITIONS = _op(27, pb.AddPartitions, ADMIN, revision=1)
    LIST_PARTITIONS = _op(
        28, pb.ListPartitions, READ, pb.Partitions, REPEAT, revision=1
    )
    PARTITIONS = _frame(29, pb.Partitions, BROKER, revision=1)
    REPLACE_SEGMENTS = _op(
        30, pb.ReplaceSegments, ADMIN, pb.SegmentsReplaced, revision=3
    )
    SEGMENTS_REPLACED = _frame(31, pb.SegmentsReplaced, BROKER, revision=3)
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

    CREATE_SUBSCRIPTION = _op(64, pb.CreateSubscription, READ)
    DELETE_SUBSCRIPTION = _op(65, pb.DeleteSubscription, READ)
    DESCRIBE_SUBSCRIPTION = _op(
        66, pb.DescribeSubscription, READ, pb.SubscriptionDescription, REPEAT
    )
    SUBSCRIPTION_DESCRIPTION = _frame(67, pb.SubscriptionDescription, BROKER)
    REPORT_PROGRESS = _op(68, pb.ReportProgress, READ, pb.Ok, REPEAT)
    DESCRIBE_SETTINGS = _op(
        69, pb.DescribeSettings, READ, pb.Settings, REPEAT, revision=1
    )
    SETTINGS = _frame(70, pb.Settings, BROKER, revision=1)
    SET_FAILURE_POLICY = _op(71, pb.SetFailurePolicy, ADMIN, pb.Ok, REPEAT, revision=1)
    SET_DISPATCH_LIMITS = _op(
        72, pb.SetDispatchLimits, ADMIN, pb.Ok, REPEAT, revision=1
    )
    PAUSE = _op(73, pb.Pause, ADMIN, pb.Ok, REPEAT, revision=1)
    SEEK_SUBSCRIPTION = _op(74, pb.SeekSubscription, READ, pb.Ok, REPEAT, revision=1)
    SKIP = _op(75, pb.Skip, READ, revision=1)
    MARK_DONE = _op(76, pb.MarkDone, READ, pb.Ok, REPEAT, revision=1)

    FETCH = _op(80, pb.Fetch, READ, pb.FetchEnd)
    FETCHED = _frame(81, None, BROKER)
    FETCH_END = _frame(82, pb.FetchEnd, BROKER)
    MOVED = _frame(83, pb.Moved, BROKER, on_channel=True)
    FIND_OFFSETS = _op(84, pb.FindOffsets, READ, pb.OffsetsFound, REPEAT, revision=3)
    OFFSETS_FOUND = _frame(85, pb.OffsetsFound, BROKER, revision=3)

    CREATE_NAMESPACE = _op(96, pb.CreateNamespace, ADMIN, revision=1)
    DELETE_NAMESPACE = _op(97, pb.DeleteNamespace, ADMIN, revision=1)
    LIST_NAMESPACES = _op(
        98, pb.ListNamespaces, READ, pb.Namespaces, REPEAT, revision=1
    )
    NAMESPACES = _frame(99, pb.Namespaces, BROKER, revision=1)
    DESCRIBE_NAMESPACE = _op(
        100, pb.DescribeNamespace, READ, pb.NamespaceDescription, REPEAT, revision=1
    )
    NAMESPACE_DESCRIPTION = _frame(101, pb.NamespaceDescription, BROKER, revision=1)
    SET_NAMESPACE_POLICY = _op(
        102, pb.SetNamespacePolicy, ADMIN, pb.Ok, REPEAT, revision=1
    )

    REGISTER_SCHEMA = _op(
        112, pb.RegisterSchema, WRITE, pb.SchemaRegistered, REPEAT, revision=2
    )
    SCHEMA_REGISTERED = _frame(113, pb.SchemaRegistered, BROKER, revision=2)
    GET_SCHEMA = _op(114, pb.GetSchema, READ, pb.SchemaVersion, REPEAT, revision=2)
    SCHEMA_VERSION = _frame(115, pb.SchemaVersion, BROKER, revision=2)
    LIST_SCHEMA_VERSIONS = _op(
        116, pb.ListSchemaVersions, READ, pb.SchemaVersions, REPEAT, revision=2
    )
    SCHEMA_VERSIONS = _frame(117, pb.SchemaVersions, BROKER, revision=2)
    LIST_SUBJECTS = _op(118, pb.ListSubjects, READ, pb.Subjects, REPEAT, revision=2)
    SUBJECTS = _frame(119, pb.Subjects, BROKER, revision=2)
    DESCRIBE_SUBJECT = _op(
        120, pb.DescribeSubject, READ, pb.SubjectDescription, REPEAT, revision=2
    )
    SUBJECT_DESCRIPTION = _frame(121, pb.SubjectDescription, BROKER, revision=2)
    CHECK_SCHEMA = _op(122, pb.CheckSchema, READ, pb.SchemaChecked, REPEAT, revision=2)
    SCHEMA_CHECKED = _frame(123, pb.SchemaChecked, BROKER, revision=2)
    SET_COMPATIBILITY = _op(124, pb.SetCompatibility, ADMIN, pb.Ok, REPEAT, revision=2)
    DELETE_SCHEMA = _op(125, pb.DeleteSchema, ADMIN, revision=2)
    BIND_SCHEMA = _op(126, pb.BindSchema, ADMIN, pb.Ok, REPEAT, revision=2)
    GET_TOPIC_SCHEMA = _op(
        127, pb.GetTopicSchema, READ, pb.TopicSchemaAnswer, REPEAT, revision=2
    )
    TOPIC_SCHEMA = _frame(128, pb.TopicSchemaAnswer, BROKER, revision=2)

    HOLD_TOPIC = _op(136, pb.HoldTopic, ADMIN, pb.Ok, REPEAT, revision=3)
    RELEASE_TOPIC = _op(137, pb.ReleaseTopic, ADMIN, revision=3)
    SET_ON_CORRUPTION = _op(138, pb.SetOnCorruption, ADMIN, pb.Ok, REPEAT, revision=3)

    OPEN_STAGE = _op(
        144, pb.OpenStage, WRITE, pb.StageOpened, on_channel=True, revision=3
    )
    STAGE_OPENED = _frame(145, pb.StageOpened, BROKER, on_channel=True, revision=3)
    CLOSE_STAGE = _op(146, pb.CloseStage, WRITE, on_channel=True, revision=3)
    STAGE = _frame(147, None, CLIENT, on_channel=True, revision=3)
    STAGED = _frame(148, pb.Staged, BROKER, on_channel=True, revision=3)
    FINISH_PART = _op(149, pb.FinishPart, WRITE, pb.PartFinished, REPEAT, revision=3)
    PART_FINISHED = _frame(150, pb.PartFinished, BROKER, revision=3)
    DROP_PART = _op(151, pb.DropPart, WRITE, revision=3)
    COMMIT_STAGED = _op(152, pb.CommitStaged, WRITE, pb.StagedCommitted, revision=3)
    STAGED_COMMITTED = _frame(153, pb.StagedCommitted, BROKER, revision=3)
    DROP_STAGED = _op(154, pb.DropStaged, WRITE, pb.Ok, REPEAT, revision=3)
    DESCRIBE_STAGING = _op(
        155, pb.DescribeStaging, WRITE, pb.StagingDescription, REPEAT, revision=3
    )
    STAGING_DESCRIPTION = _frame(156, pb.StagingDescription, BROKER, revision=3)


KIND_OF: dict[type[Message], Kind] = {
    kind.body: kind for kind in Kind if kind.body is not None
}
"""The kind of frame that carries a control message."""

OPERATIONS = frozenset(kind for kind in Kind if kind.permission is not None)


def is_repeatable(request: Message) -> bool:
    """Return whether *request* may be sent again if it got no answer."""
    kind = KIND_OF[type(request)]
    return kind.is_repeatable or bool(getattr(request, "exist_ok", False))
