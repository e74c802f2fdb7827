"""
The kinds of frames of the native protocol, and the operations among them.

``Kind`` declares once, for both sides of a connection, what each frame carries, who
sends it, and its answer.  Requests are operations: their rows also say which permission
a client needs on which resource, what else they touch, and whether a client may repeat
them.
``docs/format/stream.md`` is the normative description of the frames.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Any, Final, NamedTuple

from google.protobuf.message import Message

from pydanube.security.permissions import Permission
from pydanube.wire.pb import stream_pb2 as pb


class Side(Enum):
    """The sender of a kind of frame."""

    CLIENT = "client"
    BROKER = "broker"
    BOTH = "both"


class On(Enum):
    """The resource on which an operation needs its permission."""

    TOPIC = "topic"
    """The topic in the field ``topic`` of the request."""
    NAMESPACE = "namespace"
    """The namespace in the field ``namespace``."""
    SUBJECT = "subject"
    """The subject in the field ``subject``, or that of the ``schema_id``."""
    CLUSTER = "cluster"
    """The cluster as a whole."""
    CHANNEL = "channel"
    """The topic of the channel, which was checked when the channel was opened."""
    STAGING = "staging"
    """The topics of the parts that are staged in the name of the ``query``."""
    LISTED = "listed"
    """Each thing in the answer, which has only those that the client may see."""
    CHANGED = "changed"
    """Everything that the changed role or binding gives."""
    ANYTHING = "anything"
    """Nothing in particular: every client may ask about itself."""
    STORE = "store"
    """A store that the settings of the broker name; only for indirect targets."""


class Target(NamedTuple):
    """Something that an operation touches besides the resource of its permission."""

    field: str
    """The path of the field in the request that names it."""
    on: On
    permission: Permission | None
    """The permission that the client needs on it; None: nothing but its name is used,
    or the permission of the operation includes it."""


CLIENT, BROKER, BOTH = Side
TOPIC, NAMESPACE, SUBJECT, CLUSTER, CHANNEL, STAGING = list(On)[:6]
LISTED, CHANGED, ANYTHING, STORE = list(On)[6:]
(
    DESCRIBE,
    PRODUCE,
    CONSUME,
    CREATE,
    MANAGE,
    SCHEMA_READ,
    SCHEMA_WRITE,
    CLUSTER_ADMIN,
    GRANT,
) = Permission
REPEAT: Final = True
DEAD_LETTER_TOPIC: Final = "settings.failure_policy.dead_letter_topic"

_Row = tuple[Any, ...]


def _frame(
    number: int,
    body: type[Message] | None,
    sender: Side,
    answer_body: type[Message] | None = None,
    *,
    on_channel: bool = False,
) -> _Row:
    return number, body, sender, answer_body, None, None, False, on_channel, ()


def _op(  # noqa: PLR0917  # A row is short without names.
    number: int,
    body: type[Message],
    permission: Permission,
    on: On,
    answer_body: type[Message] = pb.Ok,
    is_repeatable: bool = False,
    *,
    on_channel: bool = False,
    targets: tuple[Target, ...] = (),
) -> _Row:
    more = permission, on, is_repeatable, on_channel, targets
    return number, body, CLIENT, answer_body, *more


class Kind(IntEnum):
    """The kind of a frame; numbers are wire format and are never reused."""

    body: type[Message] | None
    """The control message; None for a batch."""
    sender: Side
    answer_body: type[Message] | None
    permission: Permission | None
    """The permission that an operation needs; None for other frames."""
    on: On | None
    """The resource on which an operation needs it; None for other frames."""
    is_repeatable: bool
    """True if the client may send a request again if it got no answer."""
    on_channel: bool
    """True if the frame belongs to one producer, consumer or stage."""
    targets: tuple[Target, ...]
    """The other things that an operation touches, besides the one in ``on``."""

    def __new__(cls, *row: Any) -> Kind:
        """Create the member for a row of the table."""
        kind = int.__new__(cls, row[0])
        kind._value_ = row[0]
        _, kind.body, kind.sender, kind.answer_body, *more = row
        kind.permission, kind.on, *more = more
        kind.is_repeatable, kind.on_channel, kind.targets = more
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

    LOOKUP = _op(16, pb.Lookup, DESCRIBE, TOPIC, pb.Location, REPEAT)
    LOCATION = _frame(17, pb.Location, BROKER)
    CREATE_TOPIC = _op(18, pb.CreateTopic, CREATE, TOPIC)
    DELETE_TOPIC = _op(19, pb.DeleteTopic, MANAGE, TOPIC)
    LIST_TOPICS = _op(20, pb.ListTopics, DESCRIBE, LISTED, pb.Topics, REPEAT)
    TOPICS = _frame(21, pb.Topics, BROKER)
    DESCRIBE_TOPIC = _op(
        22, pb.DescribeTopic, DESCRIBE, TOPIC, pb.TopicDescription, REPEAT
    )
    TOPIC_DESCRIPTION = _frame(23, pb.TopicDescription, BROKER)
    LIST_SEGMENTS = _op(24, pb.ListSegments, CONSUME, TOPIC, pb.Segments, REPEAT)
    SEGMENTS = _frame(25, pb.Segments, BROKER)
    ADD_PARTITIONS = _op(27, pb.AddPartitions, MANAGE, TOPIC)
    LIST_PARTITIONS = _op(28, pb.ListPartitions, DESCRIBE, TOPIC, pb.Partitions, REPEAT)
    PARTITIONS = _frame(29, pb.Partitions, BROKER)
    REPLACE_SEGMENTS = _op(30, pb.ReplaceSegments, MANAGE, TOPIC, pb.SegmentsReplaced)
    SEGMENTS_REPLACED = _frame(31, pb.SegmentsReplaced, BROKER)
    OPEN_PRODUCER = _op(
        *(32, pb.OpenProducer, PRODUCE, TOPIC, pb.ProducerOpened),
        on_channel=True,
        targets=(Target("schema.subject", SUBJECT, SCHEMA_READ),),
    )
    PRODUCER_OPENED = _frame(33, pb.ProducerOpened, BROKER, on_channel=True)
    CLOSE_PRODUCER = _op(34, pb.CloseProducer, PRODUCE, CHANNEL, on_channel=True)
    PUBLISH = _frame(35, None, CLIENT, on_channel=True)
    RECEIPT = _frame(36, pb.Receipt, BROKER, on_channel=True)

    OPEN_CONSUMER = _op(
        48, pb.OpenConsumer, CONSUME, TOPIC, pb.ConsumerOpened, on_channel=True
    )
    CONSUMER_OPENED = _frame(49, pb.ConsumerOpened, BROKER, on_channel=True)
    CLOSE_CONSUMER = _op(50, pb.CloseConsumer, CONSUME, CHANNEL, on_channel=True)
    CONSUMER_STATE = _frame(51, pb.ConsumerState, BROKER, on_channel=True)
    CREDIT = _frame(52, pb.Credit, CLIENT, on_channel=True)
    DELIVERY = _frame(53, None, BROKER, on_channel=True)
    ACK = _frame(54, pb.Ack, CLIENT, pb.Ok, on_channel=True)
    NACK = _frame(55, pb.Nack, CLIENT, on_channel=True)
    SEEK = _op(56, pb.Seek, CONSUME, CHANNEL, on_channel=True)
    EXTEND = _frame(57, pb.Extend, CLIENT, on_channel=True)
    RELEASE = _frame(58, pb.Release, CLIENT, on_channel=True)

    CREATE_SUBSCRIPTION = _op(64, pb.CreateSubscription, CONSUME, TOPIC)
    DELETE_SUBSCRIPTION = _op(65, pb.DeleteSubscription, CONSUME, TOPIC)
    DESCRIBE_SUBSCRIPTION = _op(
        66, pb.DescribeSubscription, DESCRIBE, TOPIC, pb.SubscriptionDescription, REPEAT
    )
    SUBSCRIPTION_DESCRIPTION = _frame(67, pb.SubscriptionDescription, BROKER)
    REPORT_PROGRESS = _op(68, pb.ReportProgress, CONSUME, TOPIC, pb.Ok, REPEAT)
    DESCRIBE_SETTINGS = _op(
        69, pb.DescribeSettings, DESCRIBE, TOPIC, pb.Settings, REPEAT
    )
    SETTINGS = _frame(70, pb.Settings, BROKER)
    SEEK_SUBSCRIPTION = _op(74, pb.SeekSubscription, CONSUME, TOPIC, pb.Ok, REPEAT)
    SKIP = _op(75, pb.Skip, CONSUME, TOPIC)
    MARK_DONE = _op(76, pb.MarkDone, CONSUME, TOPIC, pb.Ok, REPEAT)

    FETCH = _op(80, pb.Fetch, CONSUME, TOPIC, pb.FetchEnd, REPEAT)
    FETCHED = _frame(81, None, BROKER)
    FETCH_END = _frame(82, pb.FetchEnd, BROKER)
    FIND_OFFSETS = _op(84, pb.FindOffsets, CONSUME, TOPIC, pb.OffsetsFound, REPEAT)
    OFFSETS_FOUND = _frame(85, pb.OffsetsFound, BROKER)
    LIST_OFFSETS = _op(86, pb.ListOffsets, DESCRIBE, LISTED, pb.OffsetsListed, REPEAT)
    OFFSETS_LISTED = _frame(87, pb.OffsetsListed, BROKER)
    FIND_SEGMENTS = _op(
        *(88, pb.FindSegments, CONSUME, LISTED, pb.SegmentsFound, REPEAT),
        targets=(Target("ranges.topic", TOPIC, None),),
    )
    SEGMENTS_FOUND = _frame(89, pb.SegmentsFound, BROKER)

    CREATE_NAMESPACE = _op(96, pb.CreateNamespace, CREATE, NAMESPACE)
    DELETE_NAMESPACE = _op(97, pb.DeleteNamespace, MANAGE, NAMESPACE)
    LIST_NAMESPACES = _op(
        98, pb.ListNamespaces, DESCRIBE, LISTED, pb.Namespaces, REPEAT
    )
    NAMESPACES = _frame(99, pb.Namespaces, BROKER)
    DESCRIBE_NAMESPACE = _op(
        100, pb.DescribeNamespace, DESCRIBE, NAMESPACE, pb.NamespaceDescription, REPEAT
    )
    NAMESPACE_DESCRIPTION = _frame(101, pb.NamespaceDescription, BROKER)

    REGISTER_SCHEMA = _op(
        112,
        pb.RegisterSchema,
        SCHEMA_WRITE,
        SUBJECT,
        pb.SchemaRegistered,
        REPEAT,
        targets=(Target("references.subject", SUBJECT, SCHEMA_READ),),
    )
    SCHEMA_REGISTERED = _frame(113, pb.SchemaRegistered, BROKER)
    GET_SCHEMA = _op(114, pb.GetSchema, SCHEMA_READ, SUBJECT, pb.SchemaVersion, REPEAT)
    SCHEMA_VERSION = _frame(115, pb.SchemaVersion, BROKER)
    LIST_SCHEMA_VERSIONS = _op(
        116, pb.ListSchemaVersions, SCHEMA_READ, SUBJECT, pb.SchemaVersions, REPEAT
    )
    SCHEMA_VERSIONS = _frame(117, pb.SchemaVersions, BROKER)
    LIST_SUBJECTS = _op(118, pb.ListSubjects, DESCRIBE, LISTED, pb.Subjects, REPEAT)
    SUBJECTS = _frame(119, pb.Subjects, BROKER)
    DESCRIBE_SUBJECT = _op(
        120, pb.DescribeSubject, SCHEMA_READ, SUBJECT, pb.SubjectDescription, REPEAT
    )
    SUBJECT_DESCRIPTION = _frame(121, pb.SubjectDescription, BROKER)
    CHECK_SCHEMA = _op(
        122, pb.CheckSchema, SCHEMA_READ, SUBJECT, pb.SchemaChecked, REPEAT
    )
    SCHEMA_CHECKED = _frame(123, pb.SchemaChecked, BROKER)
    SET_COMPATIBILITY = _op(124, pb.SetCompatibility, MANAGE, SUBJECT, pb.Ok, REPEAT)
    DELETE_SCHEMA = _op(125, pb.DeleteSchema, MANAGE, SUBJECT)
    GET_TOPIC_SCHEMA = _op(
        127, pb.GetTopicSchema, DESCRIBE, TOPIC, pb.TopicSchemaAnswer, REPEAT
    )
    TOPIC_SCHEMA = _frame(128, pb.TopicSchemaAnswer, BROKER)

    TRIM_TOPIC = _op(129, pb.TrimTopic, MANAGE, TOPIC, pb.RetentionDrops, REPEAT)

    HOLD_TOPIC = _op(136, pb.HoldTopic, MANAGE, TOPIC, pb.Ok, REPEAT)
    RELEASE_TOPIC = _op(137, pb.ReleaseTopic, MANAGE, TOPIC)
    APPLY_RETENTION = _op(142, pb.ApplyRetention, MANAGE, TOPIC, pb.RetentionDrops)
    RETENTION_DROPS = _frame(143, pb.RetentionDrops, BROKER)

    OPEN_STAGE = _op(
        *(144, pb.OpenStage, PRODUCE, TOPIC, pb.StageOpened),
        on_channel=True,
        targets=(
            Target("query", STAGING, None),
            Target("schema.subject", SUBJECT, SCHEMA_READ),
        ),
    )
    STAGE_OPENED = _frame(145, pb.StageOpened, BROKER, on_channel=True)
    CLOSE_STAGE = _op(146, pb.CloseStage, PRODUCE, CHANNEL, on_channel=True)
    STAGE = _frame(147, None, CLIENT, on_channel=True)
    STAGED = _frame(148, pb.Staged, BROKER, on_channel=True)
    FINISH_PART = _op(149, pb.FinishPart, PRODUCE, STAGING, pb.PartFinished, REPEAT)
    PART_FINISHED = _frame(150, pb.PartFinished, BROKER)
    DROP_PART = _op(151, pb.DropPart, PRODUCE, STAGING)
    COMMIT_STAGED = _op(
        *(152, pb.CommitStaged, PRODUCE, STAGING, pb.StagedCommitted),
        targets=(Target("acks.topic", TOPIC, CONSUME),),
    )
    STAGED_COMMITTED = _frame(153, pb.StagedCommitted, BROKER)
    DROP_STAGED = _op(154, pb.DropStaged, PRODUCE, STAGING, pb.Ok, REPEAT)
    DESCRIBE_STAGING = _op(
        155, pb.DescribeStaging, PRODUCE, STAGING, pb.StagingDescription, REPEAT
    )
    STAGING_DESCRIPTION = _frame(156, pb.StagingDescription, BROKER)
    BEGIN_TRANSACTION = _op(
        157, pb.BeginTransaction, PRODUCE, STAGING, pb.TransactionBegun, REPEAT
    )
    TRANSACTION_BEGUN = _frame(158, pb.TransactionBegun, BROKER)
    RELEASE_QUERY = _op(159, pb.ReleaseQuery, CLUSTER_ADMIN, CLUSTER)

    DESCRIBE_STORAGE = _op(
        160, pb.DescribeStorage, DESCRIBE, CLUSTER, pb.StorageDescription, REPEAT
    )
    STORAGE_DESCRIPTION = _frame(161, pb.StorageDescription, BROKER)
    UPLOAD_SEGMENTS = _op(162, pb.UploadSegments, CLUSTER_ADMIN, CLUSTER)
    EVICT_SEGMENTS = _op(
        163, pb.EvictSegments, CLUSTER_ADMIN, CLUSTER, pb.SegmentsEvicted
    )
    SEGMENTS_EVICTED = _frame(164, pb.SegmentsEvicted, BROKER)
    VERIFY_SEGMENTS = _op(
        *(165, pb.VerifySegments, CLUSTER_ADMIN, CLUSTER, pb.SegmentsVerified, REPEAT),
        targets=(Target("source", STORE, None),),
    )
    SEGMENTS_VERIFIED = _frame(166, pb.SegmentsVerified, BROKER)
    COPY_SEGMENTS = _op(
        *(167, pb.CopySegments, CLUSTER_ADMIN, CLUSTER, pb.SegmentsVerified, REPEAT),
        targets=(Target("store", STORE, None),),
    )
    LIST_FINDINGS = _op(168, pb.ListFindings, DESCRIBE, LISTED, pb.Findings, REPEAT)
    FINDINGS = _frame(169, pb.Findings, BROKER)
    DESCRIBE_ACTIVITY = _op(
        170, pb.DescribeActivity, DESCRIBE, CLUSTER, pb.ActivityHistory, REPEAT
    )
    DESCRIBE_TOPIC_ACTIVITY = _op(
        171, pb.DescribeTopicActivity, DESCRIBE, TOPIC, pb.ActivityHistory, REPEAT
    )
    ACTIVITY_HISTORY = _frame(172, pb.ActivityHistory, BROKER)

    SET_CONNECTOR = _op(176, pb.SetConnector, CLUSTER_ADMIN, CLUSTER, pb.ConnectorSet)
    CONNECTOR_SET = _frame(177, pb.ConnectorSet, BROKER)
    DELETE_CONNECTOR = _op(178, pb.DeleteConnector, CLUSTER_ADMIN, CLUSTER)
    OPERATE_CONNECTOR = _op(179, pb.OperateConnector, MANAGE, TOPIC)
    REPORT_CONNECTORS = _op(180, pb.ReportConnectors, CONSUME, TOPIC, pb.Ok, REPEAT)
    LIST_CONNECTORS = _op(
        181, pb.ListConnectors, DESCRIBE, LISTED, pb.Connectors, REPEAT
    )
    CONNECTORS = _frame(182, pb.Connectors, BROKER)

    CREATE_BACKUP = _op(
        *(192, pb.CreateBackup, CLUSTER_ADMIN, CLUSTER, pb.BackupProgress),
        targets=(Target("store", STORE, None),),
    )
    DESCRIBE_BACKUP = _op(
        193, pb.DescribeBackup, DESCRIBE, CLUSTER, pb.BackupProgress, REPEAT
    )
    BACKUP_PROGRESS = _frame(194, pb.BackupProgress, BROKER)

    DESCRIBE_CLUSTER = _op(
        200, pb.DescribeCluster, DESCRIBE, CLUSTER, pb.ClusterDescription, REPEAT
    )
    CLUSTER_DESCRIPTION = _frame(201, pb.ClusterDescription, BROKER)
    SET_BROKER_MODE = _op(202, pb.SetBrokerMode, CLUSTER_ADMIN, CLUSTER, pb.Ok, REPEAT)
    MOVE_TOPIC = _op(203, pb.MoveTopic, CLUSTER_ADMIN, CLUSTER, pb.ShardMoves, REPEAT)
    SHARD_MOVES = _frame(204, pb.ShardMoves, BROKER)
    REBALANCE = _op(205, pb.Rebalance, CLUSTER_ADMIN, CLUSTER, pb.ShardMoves, REPEAT)

    FORGET_BROKER = _op(
        206, pb.ForgetBroker, CLUSTER_ADMIN, CLUSTER, pb.ShardMoves, REPEAT
    )

    CONFIGURE_TOPIC = _op(
        *(209, pb.ConfigureTopic, MANAGE, TOPIC, pb.Ok, REPEAT),
        targets=(Target("settings.schema.subject", SUBJECT, SCHEMA_READ),),
    )
    CONFIGURE_SUBSCRIPTION = _op(
        *(210, pb.ConfigureSubscription, MANAGE, TOPIC, pb.Ok, REPEAT),
        targets=(Target(DEAD_LETTER_TOPIC, TOPIC, PRODUCE),),
    )
    CONFIGURE_NAMESPACE = _op(
        211, pb.ConfigureNamespace, MANAGE, NAMESPACE, pb.Ok, REPEAT
    )

    CREATE_API_KEY = _op(216, pb.CreateApiKey, CLUSTER_ADMIN, CLUSTER, pb.ApiKeyCreated)
    API_KEY_CREATED = _frame(217, pb.ApiKeyCreated, BROKER)
    LIST_API_KEYS = _op(218, pb.ListApiKeys, CLUSTER_ADMIN, CLUSTER, pb.ApiKeys, REPEAT)
    API_KEYS = _frame(219, pb.ApiKeys, BROKER)
    REVOKE_API_KEY = _op(220, pb.RevokeApiKey, CLUSTER_ADMIN, CLUSTER)
    ROTATE_API_KEY = _op(221, pb.RotateApiKey, CLUSTER_ADMIN, CLUSTER, pb.ApiKeyCreated)

    LIST_ROLES = _op(224, pb.ListRoles, DESCRIBE, LISTED, pb.Roles, REPEAT)
    ROLES = _frame(225, pb.Roles, BROKER)
    SET_ROLE = _op(226, pb.SetRole, GRANT, CHANGED, pb.Ok, REPEAT)
    DELETE_ROLE = _op(227, pb.DeleteRole, GRANT, CHANGED)
    LIST_BINDINGS = _op(228, pb.ListBindings, DESCRIBE, LISTED, pb.Bindings, REPEAT)
    BINDINGS = _frame(229, pb.Bindings, BROKER)
    ADD_BINDING = _op(230, pb.AddBinding, GRANT, CHANGED, pb.BindingAdded, REPEAT)
    BINDING_ADDED = _frame(231, pb.BindingAdded, BROKER)
    REMOVE_BINDING = _op(232, pb.RemoveBinding, GRANT, CHANGED)
    WHO_AM_I = _op(233, pb.WhoAmI, DESCRIBE, ANYTHING, pb.Identity, REPEAT)
    IDENTITY = _frame(234, pb.Identity, BROKER)
    CHECK_ACCESS = _op(
        235, pb.CheckAccess, DESCRIBE, ANYTHING, pb.AccessDecision, REPEAT
    )
    ACCESS_DECISION = _frame(236, pb.AccessDecision, BROKER)

    SET_QUOTA = _op(240, pb.SetQuota, CLUSTER_ADMIN, CLUSTER, pb.Ok, REPEAT)
    REMOVE_QUOTA = _op(241, pb.RemoveQuota, CLUSTER_ADMIN, CLUSTER)
    LIST_QUOTAS = _op(242, pb.ListQuotas, DESCRIBE, LISTED, pb.Quotas, REPEAT)
    QUOTAS = _frame(243, pb.Quotas, BROKER)

    LIST_CONNECTIONS = _op(
        244, pb.ListConnections, CLUSTER_ADMIN, CLUSTER, pb.Connections, REPEAT
    )
    CONNECTIONS = _frame(245, pb.Connections, BROKER)
    CLOSE_CONNECTION = _op(246, pb.CloseConnection, CLUSTER_ADMIN, CLUSTER)


KIND_OF: dict[type[Message], Kind] = {
    kind.body: kind for kind in Kind if kind.body is not None
}
"""The kind of frame that carries a control message."""

OPERATIONS = frozenset(kind for kind in Kind if kind.permission is not None)

READS = frozenset(
    {
        kind
        for kind in OPERATIONS
        if kind.permission in {Permission.DESCRIBE, Permission.SCHEMA_READ}
    }
    | {
        Kind.FETCH,
        Kind.FIND_OFFSETS,
        Kind.FIND_SEGMENTS,
        Kind.LIST_API_KEYS,
        Kind.LIST_CONNECTIONS,
        Kind.LIST_SEGMENTS,
        Kind.VERIFY_SEGMENTS,
    }
)
"""The operations that end with their connection, because nobody gets the answer."""


def is_repeatable(request: Message) -> bool:
    """Return whether *request* may be sent again if it got no answer."""
    kind = KIND_OF[type(request)]
    return kind.is_repeatable or bool(getattr(request, "exist_ok", False))
