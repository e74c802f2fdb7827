from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CorruptionPolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CORRUPTION_STOP: _ClassVar[CorruptionPolicy]
    CORRUPTION_SKIP: _ClassVar[CorruptionPolicy]

class ProducerAccess(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACCESS_SHARED: _ClassVar[ProducerAccess]
    ACCESS_EXCLUSIVE: _ClassVar[ProducerAccess]
    ACCESS_EXCLUSIVE_WAIT: _ClassVar[ProducerAccess]
    ACCESS_EXCLUSIVE_FENCE: _ClassVar[ProducerAccess]

class SubscriptionType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EXCLUSIVE: _ClassVar[SubscriptionType]
    SHARED: _ClassVar[SubscriptionType]
    FAILOVER: _ClassVar[SubscriptionType]
    KEY_SHARED: _ClassVar[SubscriptionType]

class Start(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LATEST: _ClassVar[Start]
    EARLIEST: _ClassVar[Start]

class Backoff(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BACKOFF_EXPONENTIAL: _ClassVar[Backoff]
    BACKOFF_FIXED: _ClassVar[Backoff]

class PoisonPolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    POISON_BLOCK: _ClassVar[PoisonPolicy]
    POISON_DEAD_LETTER: _ClassVar[PoisonPolicy]
    POISON_DROP: _ClassVar[PoisonPolicy]

class FindingKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FINDING_CORRUPT_SEGMENT: _ClassVar[FindingKind]
    FINDING_BLOCKED: _ClassVar[FindingKind]
    FINDING_DEAD_LETTERS: _ClassVar[FindingKind]
    FINDING_LATE: _ClassVar[FindingKind]
    FINDING_PAUSED: _ClassVar[FindingKind]

class CopyState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COPY_NONE: _ClassVar[CopyState]
    COPY_INTACT: _ClassVar[CopyState]
    COPY_DAMAGED: _ClassVar[CopyState]
    COPY_MISSING: _ClassVar[CopyState]
    COPY_UNKNOWN: _ClassVar[CopyState]
    COPY_REPAIRED: _ClassVar[CopyState]
CORRUPTION_STOP: CorruptionPolicy
CORRUPTION_SKIP: CorruptionPolicy
ACCESS_SHARED: ProducerAccess
ACCESS_EXCLUSIVE: ProducerAccess
ACCESS_EXCLUSIVE_WAIT: ProducerAccess
ACCESS_EXCLUSIVE_FENCE: ProducerAccess
EXCLUSIVE: SubscriptionType
SHARED: SubscriptionType
FAILOVER: SubscriptionType
KEY_SHARED: SubscriptionType
LATEST: Start
EARLIEST: Start
BACKOFF_EXPONENTIAL: Backoff
BACKOFF_FIXED: Backoff
POISON_BLOCK: PoisonPolicy
POISON_DEAD_LETTER: PoisonPolicy
POISON_DROP: PoisonPolicy
FINDING_CORRUPT_SEGMENT: FindingKind
FINDING_BLOCKED: FindingKind
FINDING_DEAD_LETTERS: FindingKind
FINDING_LATE: FindingKind
FINDING_PAUSED: FindingKind
COPY_NONE: CopyState
COPY_INTACT: CopyState
COPY_DAMAGED: CopyState
COPY_MISSING: CopyState
COPY_UNKNOWN: CopyState
COPY_REPAIRED: CopyState

class Hello(_message.Message):
    __slots__ = ("revision_min", "revision_max", "client", "token", "frame_bytes_max", "codecs")
    REVISION_MIN_FIELD_NUMBER: _ClassVar[int]
    REVISION_MAX_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    FRAME_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    CODECS_FIELD_NUMBER: _ClassVar[int]
    revision_min: int
    revision_max: int
    client: str
    token: str
    frame_bytes_max: int
    codecs: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, revision_min: _Optional[int] = ..., revision_max: _Optional[int] = ..., client: _Optional[str] = ..., token: _Optional[str] = ..., frame_bytes_max: _Optional[int] = ..., codecs: _Optional[_Iterable[int]] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("revision", "broker", "broker_id", "frame_bytes_max", "idle_timeout_s", "is_clustered", "identity", "http_port")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    BROKER_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    FRAME_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    IDLE_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    IS_CLUSTERED_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    HTTP_PORT_FIELD_NUMBER: _ClassVar[int]
    revision: int
    broker: str
    broker_id: str
    frame_bytes_max: int
    idle_timeout_s: float
    is_clustered: bool
    identity: Authenticated
    http_port: int
    def __init__(self, revision: _Optional[int] = ..., broker: _Optional[str] = ..., broker_id: _Optional[str] = ..., frame_bytes_max: _Optional[int] = ..., idle_timeout_s: _Optional[float] = ..., is_clustered: bool = ..., identity: _Optional[_Union[Authenticated, _Mapping]] = ..., http_port: _Optional[int] = ...) -> None: ...

class Authenticate(_message.Message):
    __slots__ = ("token",)
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    token: str
    def __init__(self, token: _Optional[str] = ...) -> None: ...

class Authenticated(_message.Message):
    __slots__ = ("principal", "method", "groups", "expires_in_s")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_IN_S_FIELD_NUMBER: _ClassVar[int]
    principal: str
    method: str
    groups: _containers.RepeatedScalarFieldContainer[str]
    expires_in_s: float
    def __init__(self, principal: _Optional[str] = ..., method: _Optional[str] = ..., groups: _Optional[_Iterable[str]] = ..., expires_in_s: _Optional[float] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("code", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class Ok(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Ping(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Pong(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Goodbye(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class Lookup(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class Location(_message.Message):
    __slots__ = ("url",)
    URL_FIELD_NUMBER: _ClassVar[int]
    url: str
    def __init__(self, url: _Optional[str] = ...) -> None: ...

class TopicPolicy(_message.Message):
    __slots__ = ("non_reliable", "written_is_enough", "retention", "ttl_s", "on_corruption", "seal_bytes", "seal_age_s", "deduplication")
    NON_RELIABLE_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_IS_ENOUGH_FIELD_NUMBER: _ClassVar[int]
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    TTL_S_FIELD_NUMBER: _ClassVar[int]
    ON_CORRUPTION_FIELD_NUMBER: _ClassVar[int]
    SEAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    SEAL_AGE_S_FIELD_NUMBER: _ClassVar[int]
    DEDUPLICATION_FIELD_NUMBER: _ClassVar[int]
    non_reliable: bool
    written_is_enough: bool
    retention: Retention
    ttl_s: float
    on_corruption: CorruptionPolicy
    seal_bytes: int
    seal_age_s: float
    deduplication: Deduplication
    def __init__(self, non_reliable: bool = ..., written_is_enough: bool = ..., retention: _Optional[_Union[Retention, _Mapping]] = ..., ttl_s: _Optional[float] = ..., on_corruption: _Optional[_Union[CorruptionPolicy, str]] = ..., seal_bytes: _Optional[int] = ..., seal_age_s: _Optional[float] = ..., deduplication: _Optional[_Union[Deduplication, _Mapping]] = ...) -> None: ...

class Deduplication(_message.Message):
    __slots__ = ("age_s", "messages_max")
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_MAX_FIELD_NUMBER: _ClassVar[int]
    age_s: float
    messages_max: int
    def __init__(self, age_s: _Optional[float] = ..., messages_max: _Optional[int] = ...) -> None: ...

class Retention(_message.Message):
    __slots__ = ("age_s", "bytes_max", "drops_acknowledged")
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    DROPS_ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    age_s: float
    bytes_max: int
    drops_acknowledged: bool
    def __init__(self, age_s: _Optional[float] = ..., bytes_max: _Optional[int] = ..., drops_acknowledged: bool = ...) -> None: ...

class NamespacePolicy(_message.Message):
    __slots__ = ("max_producers_per_topic", "max_subscriptions_per_topic", "max_consumers_per_topic", "max_consumers_per_subscription", "max_publish_rate", "max_subscription_dispatch_rate", "max_message_size")
    MAX_PRODUCERS_PER_TOPIC_FIELD_NUMBER: _ClassVar[int]
    MAX_SUBSCRIPTIONS_PER_TOPIC_FIELD_NUMBER: _ClassVar[int]
    MAX_CONSUMERS_PER_TOPIC_FIELD_NUMBER: _ClassVar[int]
    MAX_CONSUMERS_PER_SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    MAX_PUBLISH_RATE_FIELD_NUMBER: _ClassVar[int]
    MAX_SUBSCRIPTION_DISPATCH_RATE_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    max_producers_per_topic: int
    max_subscriptions_per_topic: int
    max_consumers_per_topic: int
    max_consumers_per_subscription: int
    max_publish_rate: int
    max_subscription_dispatch_rate: int
    max_message_size: int
    def __init__(self, max_producers_per_topic: _Optional[int] = ..., max_subscriptions_per_topic: _Optional[int] = ..., max_consumers_per_topic: _Optional[int] = ..., max_consumers_per_subscription: _Optional[int] = ..., max_publish_rate: _Optional[int] = ..., max_subscription_dispatch_rate: _Optional[int] = ..., max_message_size: _Optional[int] = ...) -> None: ...

class CreateTopic(_message.Message):
    __slots__ = ("topic", "policy", "exist_ok", "partitions")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    EXIST_OK_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    policy: TopicPolicy
    exist_ok: bool
    partitions: int
    def __init__(self, topic: _Optional[str] = ..., policy: _Optional[_Union[TopicPolicy, _Mapping]] = ..., exist_ok: bool = ..., partitions: _Optional[int] = ...) -> None: ...

class DeleteTopic(_message.Message):
    __slots__ = ("topic", "force")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    force: bool
    def __init__(self, topic: _Optional[str] = ..., force: bool = ...) -> None: ...

class ListTopics(_message.Message):
    __slots__ = ("namespace", "after", "limit", "has_places")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    HAS_PLACES_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    after: str
    limit: int
    has_places: bool
    def __init__(self, namespace: _Optional[str] = ..., after: _Optional[str] = ..., limit: _Optional[int] = ..., has_places: bool = ...) -> None: ...

class Topics(_message.Message):
    __slots__ = ("topics", "has_more", "places")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    PLACES_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    has_more: bool
    places: _containers.RepeatedCompositeFieldContainer[TopicPlace]
    def __init__(self, topics: _Optional[_Iterable[str]] = ..., has_more: bool = ..., places: _Optional[_Iterable[_Union[TopicPlace, _Mapping]]] = ...) -> None: ...

class TopicPlace(_message.Message):
    __slots__ = ("broker_id", "shard")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    broker_id: str
    shard: int
    def __init__(self, broker_id: _Optional[str] = ..., shard: _Optional[int] = ...) -> None: ...

class DescribeTopic(_message.Message):
    __slots__ = ("topic", "limit", "first")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    topic: str
    limit: int
    first: int
    def __init__(self, topic: _Optional[str] = ..., limit: _Optional[int] = ..., first: _Optional[int] = ...) -> None: ...

class TopicDescription(_message.Message):
    __slots__ = ("topic", "topic_id", "policy", "epoch", "base_offset", "end_offset", "sealed_offset", "tail_bytes", "segment_bytes", "segment_count", "producers", "subscriptions", "dropped", "limits", "own_limits", "schema", "message_count", "holds", "has_more", "retention", "broker_id", "shard")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SEALED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TAIL_BYTES_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_COUNT_FIELD_NUMBER: _ClassVar[int]
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    OWN_LIMITS_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    HOLDS_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: int
    policy: TopicPolicy
    epoch: int
    base_offset: int
    end_offset: int
    sealed_offset: int
    tail_bytes: int
    segment_bytes: int
    segment_count: int
    producers: _containers.RepeatedScalarFieldContainer[str]
    subscriptions: _containers.RepeatedCompositeFieldContainer[SubscriptionDescription]
    dropped: int
    limits: NamespacePolicy
    own_limits: NamespacePolicy
    schema: TopicSchema
    message_count: int
    holds: _containers.RepeatedCompositeFieldContainer[Hold]
    has_more: bool
    retention: Retention
    broker_id: str
    shard: int
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[int] = ..., policy: _Optional[_Union[TopicPolicy, _Mapping]] = ..., epoch: _Optional[int] = ..., base_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., sealed_offset: _Optional[int] = ..., tail_bytes: _Optional[int] = ..., segment_bytes: _Optional[int] = ..., segment_count: _Optional[int] = ..., producers: _Optional[_Iterable[str]] = ..., subscriptions: _Optional[_Iterable[_Union[SubscriptionDescription, _Mapping]]] = ..., dropped: _Optional[int] = ..., limits: _Optional[_Union[NamespacePolicy, _Mapping]] = ..., own_limits: _Optional[_Union[NamespacePolicy, _Mapping]] = ..., schema: _Optional[_Union[TopicSchema, _Mapping]] = ..., message_count: _Optional[int] = ..., holds: _Optional[_Iterable[_Union[Hold, _Mapping]]] = ..., has_more: bool = ..., retention: _Optional[_Union[Retention, _Mapping]] = ..., broker_id: _Optional[str] = ..., shard: _Optional[int] = ...) -> None: ...

class Hold(_message.Message):
    __slots__ = ("name", "reason", "created_at", "expires_at")
    NAME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    name: str
    reason: str
    created_at: int
    expires_at: int
    def __init__(self, name: _Optional[str] = ..., reason: _Optional[str] = ..., created_at: _Optional[int] = ..., expires_at: _Optional[int] = ...) -> None: ...

class ApplyRetention(_message.Message):
    __slots__ = ("topic", "is_dry_run", "namespace_retention", "retention", "inherits")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    IS_DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_RETENTION_FIELD_NUMBER: _ClassVar[int]
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    INHERITS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    is_dry_run: bool
    namespace_retention: Retention
    retention: Retention
    inherits: bool
    def __init__(self, topic: _Optional[str] = ..., is_dry_run: bool = ..., namespace_retention: _Optional[_Union[Retention, _Mapping]] = ..., retention: _Optional[_Union[Retention, _Mapping]] = ..., inherits: bool = ...) -> None: ...

class TrimTopic(_message.Message):
    __slots__ = ("topic", "before")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    before: Position
    def __init__(self, topic: _Optional[str] = ..., before: _Optional[_Union[Position, _Mapping]] = ...) -> None: ...

class DroppedSegment(_message.Message):
    __slots__ = ("base_offset", "end_offset", "count", "byte_count", "object_name", "last_publish_time")
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    BYTE_COUNT_FIELD_NUMBER: _ClassVar[int]
    OBJECT_NAME_FIELD_NUMBER: _ClassVar[int]
    LAST_PUBLISH_TIME_FIELD_NUMBER: _ClassVar[int]
    base_offset: int
    end_offset: int
    count: int
    byte_count: int
    object_name: str
    last_publish_time: int
    def __init__(self, base_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., count: _Optional[int] = ..., byte_count: _Optional[int] = ..., object_name: _Optional[str] = ..., last_publish_time: _Optional[int] = ...) -> None: ...

class RetentionDrops(_message.Message):
    __slots__ = ("topic", "base_offset", "segment_count", "message_count", "byte_count", "segments", "held_by", "has_subscriptions")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_COUNT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    BYTE_COUNT_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    HELD_BY_FIELD_NUMBER: _ClassVar[int]
    HAS_SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    base_offset: int
    segment_count: int
    message_count: int
    byte_count: int
    segments: _containers.RepeatedCompositeFieldContainer[DroppedSegment]
    held_by: _containers.RepeatedScalarFieldContainer[str]
    has_subscriptions: bool
    def __init__(self, topic: _Optional[str] = ..., base_offset: _Optional[int] = ..., segment_count: _Optional[int] = ..., message_count: _Optional[int] = ..., byte_count: _Optional[int] = ..., segments: _Optional[_Iterable[_Union[DroppedSegment, _Mapping]]] = ..., held_by: _Optional[_Iterable[str]] = ..., has_subscriptions: bool = ...) -> None: ...

class TopicSettings(_message.Message):
    __slots__ = ("limits", "retention", "on_corruption", "seal_bytes", "seal_age_s", "deduplication", "schema")
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    ON_CORRUPTION_FIELD_NUMBER: _ClassVar[int]
    SEAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    SEAL_AGE_S_FIELD_NUMBER: _ClassVar[int]
    DEDUPLICATION_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    limits: NamespacePolicy
    retention: Retention
    on_corruption: CorruptionPolicy
    seal_bytes: int
    seal_age_s: float
    deduplication: Deduplication
    schema: TopicSchema
    def __init__(self, limits: _Optional[_Union[NamespacePolicy, _Mapping]] = ..., retention: _Optional[_Union[Retention, _Mapping]] = ..., on_corruption: _Optional[_Union[CorruptionPolicy, str]] = ..., seal_bytes: _Optional[int] = ..., seal_age_s: _Optional[float] = ..., deduplication: _Optional[_Union[Deduplication, _Mapping]] = ..., schema: _Optional[_Union[TopicSchema, _Mapping]] = ...) -> None: ...

class ConfigureTopic(_message.Message):
    __slots__ = ("topic", "settings", "changes")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    settings: TopicSettings
    changes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topic: _Optional[str] = ..., settings: _Optional[_Union[TopicSettings, _Mapping]] = ..., changes: _Optional[_Iterable[str]] = ...) -> None: ...

class AddPartitions(_message.Message):
    __slots__ = ("topic", "partitions")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partitions: int
    def __init__(self, topic: _Optional[str] = ..., partitions: _Optional[int] = ...) -> None: ...

class ListPartitions(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class Partitions(_message.Message):
    __slots__ = ("topics", "is_partitioned")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    IS_PARTITIONED_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    is_partitioned: bool
    def __init__(self, topics: _Optional[_Iterable[str]] = ..., is_partitioned: bool = ...) -> None: ...

class ListSegments(_message.Message):
    __slots__ = ("topic", "base_offset", "end_offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    base_offset: int
    end_offset: int
    def __init__(self, topic: _Optional[str] = ..., base_offset: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...

class Segment(_message.Message):
    __slots__ = ("base_offset", "end_offset", "epoch", "byte_count", "url", "count", "object_name", "checksum", "first_publish_time", "last_publish_time", "sealed_at", "part_checksums", "is_uploaded", "remote_url")
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    BYTE_COUNT_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    OBJECT_NAME_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    FIRST_PUBLISH_TIME_FIELD_NUMBER: _ClassVar[int]
    LAST_PUBLISH_TIME_FIELD_NUMBER: _ClassVar[int]
    SEALED_AT_FIELD_NUMBER: _ClassVar[int]
    PART_CHECKSUMS_FIELD_NUMBER: _ClassVar[int]
    IS_UPLOADED_FIELD_NUMBER: _ClassVar[int]
    REMOTE_URL_FIELD_NUMBER: _ClassVar[int]
    base_offset: int
    end_offset: int
    epoch: int
    byte_count: int
    url: str
    count: int
    object_name: str
    checksum: int
    first_publish_time: int
    last_publish_time: int
    sealed_at: int
    part_checksums: bytes
    is_uploaded: bool
    remote_url: str
    def __init__(self, base_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., epoch: _Optional[int] = ..., byte_count: _Optional[int] = ..., url: _Optional[str] = ..., count: _Optional[int] = ..., object_name: _Optional[str] = ..., checksum: _Optional[int] = ..., first_publish_time: _Optional[int] = ..., last_publish_time: _Optional[int] = ..., sealed_at: _Optional[int] = ..., part_checksums: _Optional[bytes] = ..., is_uploaded: bool = ..., remote_url: _Optional[str] = ...) -> None: ...

class FindSegments(_message.Message):
    __slots__ = ("ranges",)
    RANGES_FIELD_NUMBER: _ClassVar[int]
    ranges: _containers.RepeatedCompositeFieldContainer[SegmentRange]
    def __init__(self, ranges: _Optional[_Iterable[_Union[SegmentRange, _Mapping]]] = ...) -> None: ...

class SegmentRange(_message.Message):
    __slots__ = ("topic", "base_offset", "end_offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    base_offset: int
    end_offset: int
    def __init__(self, topic: _Optional[str] = ..., base_offset: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...

class SegmentsFound(_message.Message):
    __slots__ = ("topics", "elsewhere", "has_more", "store_options")
    class StoreOptionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    ELSEWHERE_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    STORE_OPTIONS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[Segments]
    elsewhere: _containers.RepeatedCompositeFieldContainer[TopicsElsewhere]
    has_more: bool
    store_options: _containers.ScalarMap[str, str]
    def __init__(self, topics: _Optional[_Iterable[_Union[Segments, _Mapping]]] = ..., elsewhere: _Optional[_Iterable[_Union[TopicsElsewhere, _Mapping]]] = ..., has_more: bool = ..., store_options: _Optional[_Mapping[str, str]] = ...) -> None: ...

class TopicsElsewhere(_message.Message):
    __slots__ = ("url", "topics")
    URL_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    url: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, url: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ...) -> None: ...

class Segments(_message.Message):
    __slots__ = ("topic_id", "segments", "base_offset", "sealed_offset", "end_offset", "epoch", "store_options", "objects_url", "topic")
    class StoreOptionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SEALED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    STORE_OPTIONS_FIELD_NUMBER: _ClassVar[int]
    OBJECTS_URL_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    segments: _containers.RepeatedCompositeFieldContainer[Segment]
    base_offset: int
    sealed_offset: int
    end_offset: int
    epoch: int
    store_options: _containers.ScalarMap[str, str]
    objects_url: str
    topic: str
    def __init__(self, topic_id: _Optional[int] = ..., segments: _Optional[_Iterable[_Union[Segment, _Mapping]]] = ..., base_offset: _Optional[int] = ..., sealed_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., epoch: _Optional[int] = ..., store_options: _Optional[_Mapping[str, str]] = ..., objects_url: _Optional[str] = ..., topic: _Optional[str] = ...) -> None: ...

class ReplaceSegments(_message.Message):
    __slots__ = ("topic", "topic_id", "old", "new")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    OLD_FIELD_NUMBER: _ClassVar[int]
    NEW_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: int
    old: _containers.RepeatedScalarFieldContainer[str]
    new: _containers.RepeatedCompositeFieldContainer[NewSegment]
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[int] = ..., old: _Optional[_Iterable[str]] = ..., new: _Optional[_Iterable[_Union[NewSegment, _Mapping]]] = ...) -> None: ...

class NewSegment(_message.Message):
    __slots__ = ("object_name", "byte_count", "checksum")
    OBJECT_NAME_FIELD_NUMBER: _ClassVar[int]
    BYTE_COUNT_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    object_name: str
    byte_count: int
    checksum: int
    def __init__(self, object_name: _Optional[str] = ..., byte_count: _Optional[int] = ..., checksum: _Optional[int] = ...) -> None: ...

class SegmentsReplaced(_message.Message):
    __slots__ = ("removed",)
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    removed: int
    def __init__(self, removed: _Optional[int] = ...) -> None: ...

class HoldTopic(_message.Message):
    __slots__ = ("topic", "name", "reason", "expires_in_s")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_IN_S_FIELD_NUMBER: _ClassVar[int]
    topic: str
    name: str
    reason: str
    expires_in_s: float
    def __init__(self, topic: _Optional[str] = ..., name: _Optional[str] = ..., reason: _Optional[str] = ..., expires_in_s: _Optional[float] = ...) -> None: ...

class ReleaseTopic(_message.Message):
    __slots__ = ("topic", "name")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    topic: str
    name: str
    def __init__(self, topic: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class CreateNamespace(_message.Message):
    __slots__ = ("namespace", "policy", "exist_ok")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    EXIST_OK_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    policy: NamespacePolicy
    exist_ok: bool
    def __init__(self, namespace: _Optional[str] = ..., policy: _Optional[_Union[NamespacePolicy, _Mapping]] = ..., exist_ok: bool = ...) -> None: ...

class DeleteNamespace(_message.Message):
    __slots__ = ("namespace",)
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    def __init__(self, namespace: _Optional[str] = ...) -> None: ...

class ListNamespaces(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Namespaces(_message.Message):
    __slots__ = ("namespaces",)
    NAMESPACES_FIELD_NUMBER: _ClassVar[int]
    namespaces: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, namespaces: _Optional[_Iterable[str]] = ...) -> None: ...

class DescribeNamespace(_message.Message):
    __slots__ = ("namespace",)
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    def __init__(self, namespace: _Optional[str] = ...) -> None: ...

class NamespaceDescription(_message.Message):
    __slots__ = ("namespace", "policy", "topic_count", "retention")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    TOPIC_COUNT_FIELD_NUMBER: _ClassVar[int]
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    policy: NamespacePolicy
    topic_count: int
    retention: Retention
    def __init__(self, namespace: _Optional[str] = ..., policy: _Optional[_Union[NamespacePolicy, _Mapping]] = ..., topic_count: _Optional[int] = ..., retention: _Optional[_Union[Retention, _Mapping]] = ...) -> None: ...

class NamespaceSettings(_message.Message):
    __slots__ = ("policy", "retention")
    POLICY_FIELD_NUMBER: _ClassVar[int]
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    policy: NamespacePolicy
    retention: Retention
    def __init__(self, policy: _Optional[_Union[NamespacePolicy, _Mapping]] = ..., retention: _Optional[_Union[Retention, _Mapping]] = ...) -> None: ...

class ConfigureNamespace(_message.Message):
    __slots__ = ("namespace", "settings", "changes")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    settings: NamespaceSettings
    changes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, namespace: _Optional[str] = ..., settings: _Optional[_Union[NamespaceSettings, _Mapping]] = ..., changes: _Optional[_Iterable[str]] = ...) -> None: ...

class NewSchema(_message.Message):
    __slots__ = ("type", "definition", "message", "description", "created_by", "tags")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    DEFINITION_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    CREATED_BY_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    type: str
    definition: str
    message: str
    description: str
    created_by: str
    tags: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, type: _Optional[str] = ..., definition: _Optional[str] = ..., message: _Optional[str] = ..., description: _Optional[str] = ..., created_by: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ...) -> None: ...

class ReferencedVersion(_message.Message):
    __slots__ = ("name", "subject", "version")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    name: str
    subject: str
    version: int
    def __init__(self, name: _Optional[str] = ..., subject: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...

class RegisterSchema(_message.Message):
    __slots__ = ("subject", "schema", "references")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    REFERENCES_FIELD_NUMBER: _ClassVar[int]
    subject: str
    schema: NewSchema
    references: _containers.RepeatedCompositeFieldContainer[ReferencedVersion]
    def __init__(self, subject: _Optional[str] = ..., schema: _Optional[_Union[NewSchema, _Mapping]] = ..., references: _Optional[_Iterable[_Union[ReferencedVersion, _Mapping]]] = ...) -> None: ...

class SchemaRegistered(_message.Message):
    __slots__ = ("version", "is_new")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    IS_NEW_FIELD_NUMBER: _ClassVar[int]
    version: SchemaVersion
    is_new: bool
    def __init__(self, version: _Optional[_Union[SchemaVersion, _Mapping]] = ..., is_new: bool = ...) -> None: ...

class SchemaVersion(_message.Message):
    __slots__ = ("subject", "schema_id", "version", "type", "definition", "message", "fingerprint", "description", "created_at", "created_by", "tags", "references")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    DEFINITION_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    CREATED_BY_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    REFERENCES_FIELD_NUMBER: _ClassVar[int]
    subject: str
    schema_id: int
    version: int
    type: str
    definition: str
    message: str
    fingerprint: str
    description: str
    created_at: int
    created_by: str
    tags: _containers.RepeatedScalarFieldContainer[str]
    references: _containers.RepeatedCompositeFieldContainer[ReferencedVersion]
    def __init__(self, subject: _Optional[str] = ..., schema_id: _Optional[int] = ..., version: _Optional[int] = ..., type: _Optional[str] = ..., definition: _Optional[str] = ..., message: _Optional[str] = ..., fingerprint: _Optional[str] = ..., description: _Optional[str] = ..., created_at: _Optional[int] = ..., created_by: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ..., references: _Optional[_Iterable[_Union[ReferencedVersion, _Mapping]]] = ...) -> None: ...

class GetSchema(_message.Message):
    __slots__ = ("subject", "schema_id", "version")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    subject: str
    schema_id: int
    version: int
    def __init__(self, subject: _Optional[str] = ..., schema_id: _Optional[int] = ..., version: _Optional[int] = ...) -> None: ...

class ListSchemaVersions(_message.Message):
    __slots__ = ("subject", "after")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    subject: str
    after: int
    def __init__(self, subject: _Optional[str] = ..., after: _Optional[int] = ...) -> None: ...

class SchemaVersions(_message.Message):
    __slots__ = ("versions", "has_more")
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    versions: _containers.RepeatedCompositeFieldContainer[SchemaVersion]
    has_more: bool
    def __init__(self, versions: _Optional[_Iterable[_Union[SchemaVersion, _Mapping]]] = ..., has_more: bool = ...) -> None: ...

class ListSubjects(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Subjects(_message.Message):
    __slots__ = ("subjects",)
    SUBJECTS_FIELD_NUMBER: _ClassVar[int]
    subjects: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, subjects: _Optional[_Iterable[str]] = ...) -> None: ...

class DescribeSubject(_message.Message):
    __slots__ = ("subject",)
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    subject: str
    def __init__(self, subject: _Optional[str] = ...) -> None: ...

class SubjectDescription(_message.Message):
    __slots__ = ("subject", "schema_id", "type", "compatibility", "versions", "tags")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_ID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    COMPATIBILITY_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    subject: str
    schema_id: int
    type: str
    compatibility: str
    versions: _containers.RepeatedScalarFieldContainer[int]
    tags: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, subject: _Optional[str] = ..., schema_id: _Optional[int] = ..., type: _Optional[str] = ..., compatibility: _Optional[str] = ..., versions: _Optional[_Iterable[int]] = ..., tags: _Optional[_Iterable[str]] = ...) -> None: ...

class CheckSchema(_message.Message):
    __slots__ = ("subject", "schema", "compatibility")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    COMPATIBILITY_FIELD_NUMBER: _ClassVar[int]
    subject: str
    schema: NewSchema
    compatibility: str
    def __init__(self, subject: _Optional[str] = ..., schema: _Optional[_Union[NewSchema, _Mapping]] = ..., compatibility: _Optional[str] = ...) -> None: ...

class SchemaViolation(_message.Message):
    __slots__ = ("version", "direction", "path", "rule", "text")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DIRECTION_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    version: int
    direction: str
    path: str
    rule: str
    text: str
    def __init__(self, version: _Optional[int] = ..., direction: _Optional[str] = ..., path: _Optional[str] = ..., rule: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class SchemaChecked(_message.Message):
    __slots__ = ("violations", "has_more")
    VIOLATIONS_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    violations: _containers.RepeatedCompositeFieldContainer[SchemaViolation]
    has_more: bool
    def __init__(self, violations: _Optional[_Iterable[_Union[SchemaViolation, _Mapping]]] = ..., has_more: bool = ...) -> None: ...

class SetCompatibility(_message.Message):
    __slots__ = ("subject", "compatibility")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    COMPATIBILITY_FIELD_NUMBER: _ClassVar[int]
    subject: str
    compatibility: str
    def __init__(self, subject: _Optional[str] = ..., compatibility: _Optional[str] = ...) -> None: ...

class DeleteSchema(_message.Message):
    __slots__ = ("subject", "version", "force")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    subject: str
    version: int
    force: bool
    def __init__(self, subject: _Optional[str] = ..., version: _Optional[int] = ..., force: bool = ...) -> None: ...

class TopicSchema(_message.Message):
    __slots__ = ("subject", "policy", "validates_payload", "version", "version_min")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    VALIDATES_PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    VERSION_MIN_FIELD_NUMBER: _ClassVar[int]
    subject: str
    policy: str
    validates_payload: bool
    version: int
    version_min: int
    def __init__(self, subject: _Optional[str] = ..., policy: _Optional[str] = ..., validates_payload: bool = ..., version: _Optional[int] = ..., version_min: _Optional[int] = ...) -> None: ...

class GetTopicSchema(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class TopicSchemaAnswer(_message.Message):
    __slots__ = ("schema",)
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    schema: TopicSchema
    def __init__(self, schema: _Optional[_Union[TopicSchema, _Mapping]] = ...) -> None: ...

class SchemaReference(_message.Message):
    __slots__ = ("subject", "version", "version_min")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    VERSION_MIN_FIELD_NUMBER: _ClassVar[int]
    subject: str
    version: int
    version_min: int
    def __init__(self, subject: _Optional[str] = ..., version: _Optional[int] = ..., version_min: _Optional[int] = ...) -> None: ...

class OpenProducer(_message.Message):
    __slots__ = ("topic", "name", "policy", "producer_id", "producer_epoch", "is_anonymous", "takes_any_kind", "access", "schema")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    IS_ANONYMOUS_FIELD_NUMBER: _ClassVar[int]
    TAKES_ANY_KIND_FIELD_NUMBER: _ClassVar[int]
    ACCESS_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    topic: str
    name: str
    policy: TopicPolicy
    producer_id: int
    producer_epoch: int
    is_anonymous: bool
    takes_any_kind: bool
    access: ProducerAccess
    schema: SchemaReference
    def __init__(self, topic: _Optional[str] = ..., name: _Optional[str] = ..., policy: _Optional[_Union[TopicPolicy, _Mapping]] = ..., producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., is_anonymous: bool = ..., takes_any_kind: bool = ..., access: _Optional[_Union[ProducerAccess, str]] = ..., schema: _Optional[_Union[SchemaReference, _Mapping]] = ...) -> None: ...

class ProducerOpened(_message.Message):
    __slots__ = ("producer_id", "producer_epoch", "next_sequence", "reliable", "batch_bytes_max", "schema_id", "schema_version")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    NEXT_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    RELIABLE_FIELD_NUMBER: _ClassVar[int]
    BATCH_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_ID_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_VERSION_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    producer_epoch: int
    next_sequence: int
    reliable: bool
    batch_bytes_max: int
    schema_id: int
    schema_version: int
    def __init__(self, producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., next_sequence: _Optional[int] = ..., reliable: bool = ..., batch_bytes_max: _Optional[int] = ..., schema_id: _Optional[int] = ..., schema_version: _Optional[int] = ...) -> None: ...

class CloseProducer(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Receipt(_message.Message):
    __slots__ = ("base_sequence", "base_offset", "deduplicated")
    BASE_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DEDUPLICATED_FIELD_NUMBER: _ClassVar[int]
    base_sequence: _containers.RepeatedScalarFieldContainer[int]
    base_offset: _containers.RepeatedScalarFieldContainer[int]
    deduplicated: _containers.RepeatedCompositeFieldContainer[Deduplicated]
    def __init__(self, base_sequence: _Optional[_Iterable[int]] = ..., base_offset: _Optional[_Iterable[int]] = ..., deduplicated: _Optional[_Iterable[_Union[Deduplicated, _Mapping]]] = ...) -> None: ...

class Deduplicated(_message.Message):
    __slots__ = ("base_sequence", "offsets")
    BASE_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    base_sequence: int
    offsets: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, base_sequence: _Optional[int] = ..., offsets: _Optional[_Iterable[int]] = ...) -> None: ...

class Position(_message.Message):
    __slots__ = ("offset", "start", "publish_time")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_TIME_FIELD_NUMBER: _ClassVar[int]
    offset: int
    start: Start
    publish_time: int
    def __init__(self, offset: _Optional[int] = ..., start: _Optional[_Union[Start, str]] = ..., publish_time: _Optional[int] = ...) -> None: ...

class OpenConsumer(_message.Message):
    __slots__ = ("topic", "subscription", "name", "type", "position", "ack_timeout_s", "key_filters", "priority", "may_create")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    ACK_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    KEY_FILTERS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    MAY_CREATE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    subscription: str
    name: str
    type: SubscriptionType
    position: Position
    ack_timeout_s: float
    key_filters: _containers.RepeatedScalarFieldContainer[str]
    priority: int
    may_create: bool
    def __init__(self, topic: _Optional[str] = ..., subscription: _Optional[str] = ..., name: _Optional[str] = ..., type: _Optional[_Union[SubscriptionType, str]] = ..., position: _Optional[_Union[Position, _Mapping]] = ..., ack_timeout_s: _Optional[float] = ..., key_filters: _Optional[_Iterable[str]] = ..., priority: _Optional[int] = ..., may_create: bool = ...) -> None: ...

class ConsumerOpened(_message.Message):
    __slots__ = ("reliable", "cursor", "consumer_id", "ack_timeout_s", "generation")
    RELIABLE_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    ACK_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    reliable: bool
    cursor: int
    consumer_id: int
    ack_timeout_s: float
    generation: int
    def __init__(self, reliable: bool = ..., cursor: _Optional[int] = ..., consumer_id: _Optional[int] = ..., ack_timeout_s: _Optional[float] = ..., generation: _Optional[int] = ...) -> None: ...

class ConsumerState(_message.Message):
    __slots__ = ("is_active", "ack_timeout_s")
    IS_ACTIVE_FIELD_NUMBER: _ClassVar[int]
    ACK_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    is_active: bool
    ack_timeout_s: float
    def __init__(self, is_active: bool = ..., ack_timeout_s: _Optional[float] = ...) -> None: ...

class CloseConsumer(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Credit(_message.Message):
    __slots__ = ("messages", "bytes")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    messages: int
    bytes: int
    def __init__(self, messages: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class OffsetRanges(_message.Message):
    __slots__ = ("base", "end", "origin", "bits")
    BASE_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    BITS_FIELD_NUMBER: _ClassVar[int]
    base: _containers.RepeatedScalarFieldContainer[int]
    end: _containers.RepeatedScalarFieldContainer[int]
    origin: int
    bits: bytes
    def __init__(self, base: _Optional[_Iterable[int]] = ..., end: _Optional[_Iterable[int]] = ..., origin: _Optional[int] = ..., bits: _Optional[bytes] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("ranges", "through")
    RANGES_FIELD_NUMBER: _ClassVar[int]
    THROUGH_FIELD_NUMBER: _ClassVar[int]
    ranges: OffsetRanges
    through: int
    def __init__(self, ranges: _Optional[_Union[OffsetRanges, _Mapping]] = ..., through: _Optional[int] = ...) -> None: ...

class Nack(_message.Message):
    __slots__ = ("ranges", "delay_s", "reason")
    RANGES_FIELD_NUMBER: _ClassVar[int]
    DELAY_S_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ranges: OffsetRanges
    delay_s: float
    reason: str
    def __init__(self, ranges: _Optional[_Union[OffsetRanges, _Mapping]] = ..., delay_s: _Optional[float] = ..., reason: _Optional[str] = ...) -> None: ...

class Extend(_message.Message):
    __slots__ = ("ranges", "ack_timeout_s")
    RANGES_FIELD_NUMBER: _ClassVar[int]
    ACK_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    ranges: OffsetRanges
    ack_timeout_s: float
    def __init__(self, ranges: _Optional[_Union[OffsetRanges, _Mapping]] = ..., ack_timeout_s: _Optional[float] = ...) -> None: ...

class Release(_message.Message):
    __slots__ = ("ranges",)
    RANGES_FIELD_NUMBER: _ClassVar[int]
    ranges: OffsetRanges
    def __init__(self, ranges: _Optional[_Union[OffsetRanges, _Mapping]] = ...) -> None: ...

class Seek(_message.Message):
    __slots__ = ("offset", "start", "publish_time")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_TIME_FIELD_NUMBER: _ClassVar[int]
    offset: int
    start: Start
    publish_time: int
    def __init__(self, offset: _Optional[int] = ..., start: _Optional[_Union[Start, str]] = ..., publish_time: _Optional[int] = ...) -> None: ...

class CreateSubscription(_message.Message):
    __slots__ = ("topic", "subscription", "type", "position")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    subscription: str
    type: SubscriptionType
    position: Position
    def __init__(self, topic: _Optional[str] = ..., subscription: _Optional[str] = ..., type: _Optional[_Union[SubscriptionType, str]] = ..., position: _Optional[_Union[Position, _Mapping]] = ...) -> None: ...

class DeleteSubscription(_message.Message):
    __slots__ = ("topic", "subscription", "force")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    subscription: str
    force: bool
    def __init__(self, topic: _Optional[str] = ..., subscription: _Optional[str] = ..., force: bool = ...) -> None: ...

class DescribeSubscription(_message.Message):
    __slots__ = ("topic", "subscription")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    subscription: str
    def __init__(self, topic: _Optional[str] = ..., subscription: _Optional[str] = ...) -> None: ...

class SubscriptionDescription(_message.Message):
    __slots__ = ("subscription", "type", "cursor", "backlog", "in_flight", "consumers", "done", "backlog_bytes", "oldest_publish_time", "delayed", "blocked", "parked", "dead_letter_error", "is_paused", "settings", "counts", "stopped_by", "skipped", "note")
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_BYTES_FIELD_NUMBER: _ClassVar[int]
    OLDEST_PUBLISH_TIME_FIELD_NUMBER: _ClassVar[int]
    DELAYED_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_FIELD_NUMBER: _ClassVar[int]
    PARKED_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_ERROR_FIELD_NUMBER: _ClassVar[int]
    IS_PAUSED_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    STOPPED_BY_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    subscription: str
    type: SubscriptionType
    cursor: int
    backlog: int
    in_flight: int
    consumers: _containers.RepeatedScalarFieldContainer[str]
    done: OffsetRanges
    backlog_bytes: int
    oldest_publish_time: int
    delayed: int
    blocked: OffsetRanges
    parked: int
    dead_letter_error: str
    is_paused: bool
    settings: Settings
    counts: SubscriptionCounts
    stopped_by: str
    skipped: OffsetRanges
    note: str
    def __init__(self, subscription: _Optional[str] = ..., type: _Optional[_Union[SubscriptionType, str]] = ..., cursor: _Optional[int] = ..., backlog: _Optional[int] = ..., in_flight: _Optional[int] = ..., consumers: _Optional[_Iterable[str]] = ..., done: _Optional[_Union[OffsetRanges, _Mapping]] = ..., backlog_bytes: _Optional[int] = ..., oldest_publish_time: _Optional[int] = ..., delayed: _Optional[int] = ..., blocked: _Optional[_Union[OffsetRanges, _Mapping]] = ..., parked: _Optional[int] = ..., dead_letter_error: _Optional[str] = ..., is_paused: bool = ..., settings: _Optional[_Union[Settings, _Mapping]] = ..., counts: _Optional[_Union[SubscriptionCounts, _Mapping]] = ..., stopped_by: _Optional[str] = ..., skipped: _Optional[_Union[OffsetRanges, _Mapping]] = ..., note: _Optional[str] = ...) -> None: ...

class SubscriptionCounts(_message.Message):
    __slots__ = ("delivered", "redelivered", "nacked", "timed_out", "expired", "dead_lettered", "given_up", "skipped")
    DELIVERED_FIELD_NUMBER: _ClassVar[int]
    REDELIVERED_FIELD_NUMBER: _ClassVar[int]
    NACKED_FIELD_NUMBER: _ClassVar[int]
    TIMED_OUT_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTERED_FIELD_NUMBER: _ClassVar[int]
    GIVEN_UP_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    delivered: int
    redelivered: int
    nacked: int
    timed_out: int
    expired: int
    dead_lettered: int
    given_up: int
    skipped: int
    def __init__(self, delivered: _Optional[int] = ..., redelivered: _Optional[int] = ..., nacked: _Optional[int] = ..., timed_out: _Optional[int] = ..., expired: _Optional[int] = ..., dead_lettered: _Optional[int] = ..., given_up: _Optional[int] = ..., skipped: _Optional[int] = ...) -> None: ...

class FailurePolicy(_message.Message):
    __slots__ = ("redeliveries_max", "ack_timeout_s", "redelivery_delay_s", "redelivery_delay_s_max", "backoff", "poison", "dead_letter_topic", "dead_letter_expired")
    REDELIVERIES_MAX_FIELD_NUMBER: _ClassVar[int]
    ACK_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    REDELIVERY_DELAY_S_FIELD_NUMBER: _ClassVar[int]
    REDELIVERY_DELAY_S_MAX_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_FIELD_NUMBER: _ClassVar[int]
    POISON_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_TOPIC_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_EXPIRED_FIELD_NUMBER: _ClassVar[int]
    redeliveries_max: int
    ack_timeout_s: float
    redelivery_delay_s: float
    redelivery_delay_s_max: float
    backoff: Backoff
    poison: PoisonPolicy
    dead_letter_topic: str
    dead_letter_expired: bool
    def __init__(self, redeliveries_max: _Optional[int] = ..., ack_timeout_s: _Optional[float] = ..., redelivery_delay_s: _Optional[float] = ..., redelivery_delay_s_max: _Optional[float] = ..., backoff: _Optional[_Union[Backoff, str]] = ..., poison: _Optional[_Union[PoisonPolicy, str]] = ..., dead_letter_topic: _Optional[str] = ..., dead_letter_expired: bool = ...) -> None: ...

class DispatchLimits(_message.Message):
    __slots__ = ("unacked_messages_max", "unacked_messages_max_per_consumer")
    UNACKED_MESSAGES_MAX_FIELD_NUMBER: _ClassVar[int]
    UNACKED_MESSAGES_MAX_PER_CONSUMER_FIELD_NUMBER: _ClassVar[int]
    unacked_messages_max: int
    unacked_messages_max_per_consumer: int
    def __init__(self, unacked_messages_max: _Optional[int] = ..., unacked_messages_max_per_consumer: _Optional[int] = ...) -> None: ...

class DescribeSettings(_message.Message):
    __slots__ = ("topic", "subscription")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    subscription: str
    def __init__(self, topic: _Optional[str] = ..., subscription: _Optional[str] = ...) -> None: ...

class Settings(_message.Message):
    __slots__ = ("failure_policy", "limits", "is_paused")
    FAILURE_POLICY_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    IS_PAUSED_FIELD_NUMBER: _ClassVar[int]
    failure_policy: FailurePolicy
    limits: DispatchLimits
    is_paused: bool
    def __init__(self, failure_policy: _Optional[_Union[FailurePolicy, _Mapping]] = ..., limits: _Optional[_Union[DispatchLimits, _Mapping]] = ..., is_paused: bool = ...) -> None: ...

class ConfigureSubscription(_message.Message):
    __slots__ = ("topic", "subscription", "settings", "changes")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    subscription: str
    settings: Settings
    changes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topic: _Optional[str] = ..., subscription: _Optional[str] = ..., settings: _Optional[_Union[Settings, _Mapping]] = ..., changes: _Optional[_Iterable[str]] = ...) -> None: ...

class SeekSubscription(_message.Message):
    __slots__ = ("topic", "subscription", "to")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    topic: str
    subscription: str
    to: Position
    def __init__(self, topic: _Optional[str] = ..., subscription: _Optional[str] = ..., to: _Optional[_Union[Position, _Mapping]] = ...) -> None: ...

class Skip(_message.Message):
    __slots__ = ("topic", "subscription", "count")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    subscription: str
    count: int
    def __init__(self, topic: _Optional[str] = ..., subscription: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class MarkDone(_message.Message):
    __slots__ = ("topic", "subscription", "ranges")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    subscription: str
    ranges: OffsetRanges
    def __init__(self, topic: _Optional[str] = ..., subscription: _Optional[str] = ..., ranges: _Optional[_Union[OffsetRanges, _Mapping]] = ...) -> None: ...

class ReportProgress(_message.Message):
    __slots__ = ("topic", "subscription", "offset", "is_exact", "note")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    IS_EXACT_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    subscription: str
    offset: int
    is_exact: bool
    note: str
    def __init__(self, topic: _Optional[str] = ..., subscription: _Optional[str] = ..., offset: _Optional[int] = ..., is_exact: bool = ..., note: _Optional[str] = ...) -> None: ...

class Fetch(_message.Message):
    __slots__ = ("topic", "base_offset", "end_offset", "bytes_max", "wait_s", "publish_time")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    WAIT_S_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_TIME_FIELD_NUMBER: _ClassVar[int]
    topic: str
    base_offset: int
    end_offset: int
    bytes_max: int
    wait_s: float
    publish_time: int
    def __init__(self, topic: _Optional[str] = ..., base_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., bytes_max: _Optional[int] = ..., wait_s: _Optional[float] = ..., publish_time: _Optional[int] = ...) -> None: ...

class FetchEnd(_message.Message):
    __slots__ = ("next_offset", "base_offset", "end_offset")
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    next_offset: int
    base_offset: int
    end_offset: int
    def __init__(self, next_offset: _Optional[int] = ..., base_offset: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...

class FindOffsets(_message.Message):
    __slots__ = ("topic", "publish_time")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_TIME_FIELD_NUMBER: _ClassVar[int]
    topic: str
    publish_time: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., publish_time: _Optional[_Iterable[int]] = ...) -> None: ...

class OffsetsFound(_message.Message):
    __slots__ = ("offset", "base_offset", "end_offset")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    offset: _containers.RepeatedScalarFieldContainer[int]
    base_offset: int
    end_offset: int
    def __init__(self, offset: _Optional[_Iterable[int]] = ..., base_offset: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...

class ListOffsets(_message.Message):
    __slots__ = ("topics", "since")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    since: OffsetsRevision
    def __init__(self, topics: _Optional[_Iterable[str]] = ..., since: _Optional[_Union[OffsetsRevision, _Mapping]] = ...) -> None: ...

class OffsetsRevision(_message.Message):
    __slots__ = ("run", "revision")
    RUN_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    run: str
    revision: int
    def __init__(self, run: _Optional[str] = ..., revision: _Optional[int] = ...) -> None: ...

class OffsetsListed(_message.Message):
    __slots__ = ("topics", "elsewhere", "revision", "is_partial")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    ELSEWHERE_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    IS_PARTIAL_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[TopicOffsets]
    elsewhere: _containers.RepeatedCompositeFieldContainer[TopicsElsewhere]
    revision: OffsetsRevision
    is_partial: bool
    def __init__(self, topics: _Optional[_Iterable[_Union[TopicOffsets, _Mapping]]] = ..., elsewhere: _Optional[_Iterable[_Union[TopicsElsewhere, _Mapping]]] = ..., revision: _Optional[_Union[OffsetsRevision, _Mapping]] = ..., is_partial: bool = ...) -> None: ...

class TopicOffsets(_message.Message):
    __slots__ = ("topic", "topic_id", "base_offset", "end_offset", "sealed_offset", "tail_bytes", "is_reliable")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SEALED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TAIL_BYTES_FIELD_NUMBER: _ClassVar[int]
    IS_RELIABLE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: int
    base_offset: int
    end_offset: int
    sealed_offset: int
    tail_bytes: int
    is_reliable: bool
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[int] = ..., base_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., sealed_offset: _Optional[int] = ..., tail_bytes: _Optional[int] = ..., is_reliable: bool = ...) -> None: ...

class OpenStage(_message.Message):
    __slots__ = ("query", "version", "part", "part_id", "topic", "schema")
    QUERY_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    PART_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    query: str
    version: int
    part: str
    part_id: str
    topic: str
    schema: SchemaReference
    def __init__(self, query: _Optional[str] = ..., version: _Optional[int] = ..., part: _Optional[str] = ..., part_id: _Optional[str] = ..., topic: _Optional[str] = ..., schema: _Optional[_Union[SchemaReference, _Mapping]] = ...) -> None: ...

class StageOpened(_message.Message):
    __slots__ = ("producer", "next_sequence", "batch_bytes_max", "schema_id", "schema_version")
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    NEXT_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    BATCH_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_ID_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_VERSION_FIELD_NUMBER: _ClassVar[int]
    producer: str
    next_sequence: int
    batch_bytes_max: int
    schema_id: int
    schema_version: int
    def __init__(self, producer: _Optional[str] = ..., next_sequence: _Optional[int] = ..., batch_bytes_max: _Optional[int] = ..., schema_id: _Optional[int] = ..., schema_version: _Optional[int] = ...) -> None: ...

class CloseStage(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Staged(_message.Message):
    __slots__ = ("next_sequence",)
    NEXT_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    next_sequence: int
    def __init__(self, next_sequence: _Optional[int] = ...) -> None: ...

class FinishPart(_message.Message):
    __slots__ = ("query", "version", "part", "part_id", "batch_count", "message_count")
    QUERY_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    PART_ID_FIELD_NUMBER: _ClassVar[int]
    BATCH_COUNT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    query: str
    version: int
    part: str
    part_id: str
    batch_count: int
    message_count: int
    def __init__(self, query: _Optional[str] = ..., version: _Optional[int] = ..., part: _Optional[str] = ..., part_id: _Optional[str] = ..., batch_count: _Optional[int] = ..., message_count: _Optional[int] = ...) -> None: ...

class PartFinished(_message.Message):
    __slots__ = ("byte_count",)
    BYTE_COUNT_FIELD_NUMBER: _ClassVar[int]
    byte_count: int
    def __init__(self, byte_count: _Optional[int] = ...) -> None: ...

class DropPart(_message.Message):
    __slots__ = ("query", "version", "part", "part_id")
    QUERY_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    PART_ID_FIELD_NUMBER: _ClassVar[int]
    query: str
    version: int
    part: str
    part_id: str
    def __init__(self, query: _Optional[str] = ..., version: _Optional[int] = ..., part: _Optional[str] = ..., part_id: _Optional[str] = ...) -> None: ...

class StagedPart(_message.Message):
    __slots__ = ("name", "part_id", "batch_count", "message_count")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PART_ID_FIELD_NUMBER: _ClassVar[int]
    BATCH_COUNT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    name: str
    part_id: str
    batch_count: int
    message_count: int
    def __init__(self, name: _Optional[str] = ..., part_id: _Optional[str] = ..., batch_count: _Optional[int] = ..., message_count: _Optional[int] = ...) -> None: ...

class CommitStaged(_message.Message):
    __slots__ = ("query", "version", "parts", "is_transaction", "acks")
    QUERY_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    IS_TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    ACKS_FIELD_NUMBER: _ClassVar[int]
    query: str
    version: int
    parts: _containers.RepeatedCompositeFieldContainer[StagedPart]
    is_transaction: bool
    acks: _containers.RepeatedCompositeFieldContainer[TransactionAcks]
    def __init__(self, query: _Optional[str] = ..., version: _Optional[int] = ..., parts: _Optional[_Iterable[_Union[StagedPart, _Mapping]]] = ..., is_transaction: bool = ..., acks: _Optional[_Iterable[_Union[TransactionAcks, _Mapping]]] = ...) -> None: ...

class TransactionAcks(_message.Message):
    __slots__ = ("topic", "subscription", "consumer_id", "ranges", "note")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    subscription: str
    consumer_id: int
    ranges: OffsetRanges
    note: str
    def __init__(self, topic: _Optional[str] = ..., subscription: _Optional[str] = ..., consumer_id: _Optional[int] = ..., ranges: _Optional[_Union[OffsetRanges, _Mapping]] = ..., note: _Optional[str] = ...) -> None: ...

class BeginTransaction(_message.Message):
    __slots__ = ("query",)
    QUERY_FIELD_NUMBER: _ClassVar[int]
    query: str
    def __init__(self, query: _Optional[str] = ...) -> None: ...

class TransactionBegun(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    def __init__(self, version: _Optional[int] = ...) -> None: ...

class StagedCommitted(_message.Message):
    __slots__ = ("message_count", "is_repeat")
    MESSAGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    IS_REPEAT_FIELD_NUMBER: _ClassVar[int]
    message_count: int
    is_repeat: bool
    def __init__(self, message_count: _Optional[int] = ..., is_repeat: bool = ...) -> None: ...

class DropStaged(_message.Message):
    __slots__ = ("query", "version")
    QUERY_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    query: str
    version: int
    def __init__(self, query: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...

class ReleaseQuery(_message.Message):
    __slots__ = ("query",)
    QUERY_FIELD_NUMBER: _ClassVar[int]
    query: str
    def __init__(self, query: _Optional[str] = ...) -> None: ...

class DescribeStaging(_message.Message):
    __slots__ = ("query", "is_progress_only")
    QUERY_FIELD_NUMBER: _ClassVar[int]
    IS_PROGRESS_ONLY_FIELD_NUMBER: _ClassVar[int]
    query: str
    is_progress_only: bool
    def __init__(self, query: _Optional[str] = ..., is_progress_only: bool = ...) -> None: ...

class StagingDescription(_message.Message):
    __slots__ = ("committed_version", "is_finished", "part_count", "byte_count")
    COMMITTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    IS_FINISHED_FIELD_NUMBER: _ClassVar[int]
    PART_COUNT_FIELD_NUMBER: _ClassVar[int]
    BYTE_COUNT_FIELD_NUMBER: _ClassVar[int]
    committed_version: int
    is_finished: bool
    part_count: int
    byte_count: int
    def __init__(self, committed_version: _Optional[int] = ..., is_finished: bool = ..., part_count: _Optional[int] = ..., byte_count: _Optional[int] = ...) -> None: ...

class ListFindings(_message.Message):
    __slots__ = ("limit",)
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    limit: int
    def __init__(self, limit: _Optional[int] = ...) -> None: ...

class SubscriptionFinding(_message.Message):
    __slots__ = ("topic", "subscription", "kind", "text", "backlog", "age_s")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    topic: str
    subscription: str
    kind: FindingKind
    text: str
    backlog: int
    age_s: float
    def __init__(self, topic: _Optional[str] = ..., subscription: _Optional[str] = ..., kind: _Optional[_Union[FindingKind, str]] = ..., text: _Optional[str] = ..., backlog: _Optional[int] = ..., age_s: _Optional[float] = ...) -> None: ...

class Findings(_message.Message):
    __slots__ = ("subscriptions", "finding_count", "problem_count", "topic_count", "subscription_count", "backlog", "producers", "consumers", "byte_count", "published", "delivered", "dead_letter_routes")
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    FINDING_COUNT_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_COUNT_FIELD_NUMBER: _ClassVar[int]
    TOPIC_COUNT_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_COUNT_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_FIELD_NUMBER: _ClassVar[int]
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    BYTE_COUNT_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_ROUTES_FIELD_NUMBER: _ClassVar[int]
    subscriptions: _containers.RepeatedCompositeFieldContainer[SubscriptionFinding]
    finding_count: int
    problem_count: int
    topic_count: int
    subscription_count: int
    backlog: int
    producers: int
    consumers: int
    byte_count: int
    published: int
    delivered: int
    dead_letter_routes: _containers.RepeatedCompositeFieldContainer[DeadLetterRoute]
    def __init__(self, subscriptions: _Optional[_Iterable[_Union[SubscriptionFinding, _Mapping]]] = ..., finding_count: _Optional[int] = ..., problem_count: _Optional[int] = ..., topic_count: _Optional[int] = ..., subscription_count: _Optional[int] = ..., backlog: _Optional[int] = ..., producers: _Optional[int] = ..., consumers: _Optional[int] = ..., byte_count: _Optional[int] = ..., published: _Optional[int] = ..., delivered: _Optional[int] = ..., dead_letter_routes: _Optional[_Iterable[_Union[DeadLetterRoute, _Mapping]]] = ...) -> None: ...

class DeadLetterRoute(_message.Message):
    __slots__ = ("topic", "subscription", "dead_letter_topic")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    subscription: str
    dead_letter_topic: str
    def __init__(self, topic: _Optional[str] = ..., subscription: _Optional[str] = ..., dead_letter_topic: _Optional[str] = ...) -> None: ...

class DescribeActivity(_message.Message):
    __slots__ = ("step_s",)
    STEP_S_FIELD_NUMBER: _ClassVar[int]
    step_s: int
    def __init__(self, step_s: _Optional[int] = ...) -> None: ...

class DescribeTopicActivity(_message.Message):
    __slots__ = ("topic", "subscription", "step_s")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    STEP_S_FIELD_NUMBER: _ClassVar[int]
    topic: str
    subscription: str
    step_s: int
    def __init__(self, topic: _Optional[str] = ..., subscription: _Optional[str] = ..., step_s: _Optional[int] = ...) -> None: ...

class ActivityPoint(_message.Message):
    __slots__ = ("begins_at_s", "published_per_s", "delivered_per_s", "lag", "age_s")
    BEGINS_AT_S_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_PER_S_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_PER_S_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    begins_at_s: int
    published_per_s: float
    delivered_per_s: float
    lag: float
    age_s: float
    def __init__(self, begins_at_s: _Optional[int] = ..., published_per_s: _Optional[float] = ..., delivered_per_s: _Optional[float] = ..., lag: _Optional[float] = ..., age_s: _Optional[float] = ...) -> None: ...

class ActivityHistory(_message.Message):
    __slots__ = ("step_s", "points")
    STEP_S_FIELD_NUMBER: _ClassVar[int]
    POINTS_FIELD_NUMBER: _ClassVar[int]
    step_s: int
    points: _containers.RepeatedCompositeFieldContainer[ActivityPoint]
    def __init__(self, step_s: _Optional[int] = ..., points: _Optional[_Iterable[_Union[ActivityPoint, _Mapping]]] = ...) -> None: ...

class DescribeStorage(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StorageDescription(_message.Message):
    __slots__ = ("remote_url", "local_bytes", "local_bytes_max", "backlog_segments", "backlog_bytes", "backlog_age_s", "uploads", "uploaded_bytes", "upload_failures", "evictions", "evicted_bytes", "is_refusing", "problems", "journal_kind", "journal_url", "journal_bytes")
    REMOTE_URL_FIELD_NUMBER: _ClassVar[int]
    LOCAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    LOCAL_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_BYTES_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_AGE_S_FIELD_NUMBER: _ClassVar[int]
    UPLOADS_FIELD_NUMBER: _ClassVar[int]
    UPLOADED_BYTES_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_FAILURES_FIELD_NUMBER: _ClassVar[int]
    EVICTIONS_FIELD_NUMBER: _ClassVar[int]
    EVICTED_BYTES_FIELD_NUMBER: _ClassVar[int]
    IS_REFUSING_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    JOURNAL_KIND_FIELD_NUMBER: _ClassVar[int]
    JOURNAL_URL_FIELD_NUMBER: _ClassVar[int]
    JOURNAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    remote_url: str
    local_bytes: int
    local_bytes_max: int
    backlog_segments: int
    backlog_bytes: int
    backlog_age_s: float
    uploads: int
    uploaded_bytes: int
    upload_failures: int
    evictions: int
    evicted_bytes: int
    is_refusing: bool
    problems: _containers.RepeatedScalarFieldContainer[str]
    journal_kind: str
    journal_url: str
    journal_bytes: int
    def __init__(self, remote_url: _Optional[str] = ..., local_bytes: _Optional[int] = ..., local_bytes_max: _Optional[int] = ..., backlog_segments: _Optional[int] = ..., backlog_bytes: _Optional[int] = ..., backlog_age_s: _Optional[float] = ..., uploads: _Optional[int] = ..., uploaded_bytes: _Optional[int] = ..., upload_failures: _Optional[int] = ..., evictions: _Optional[int] = ..., evicted_bytes: _Optional[int] = ..., is_refusing: bool = ..., problems: _Optional[_Iterable[str]] = ..., journal_kind: _Optional[str] = ..., journal_url: _Optional[str] = ..., journal_bytes: _Optional[int] = ...) -> None: ...

class UploadSegments(_message.Message):
    __slots__ = ("topic", "is_sealing")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    IS_SEALING_FIELD_NUMBER: _ClassVar[int]
    topic: str
    is_sealing: bool
    def __init__(self, topic: _Optional[str] = ..., is_sealing: bool = ...) -> None: ...

class EvictSegments(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class SegmentsEvicted(_message.Message):
    __slots__ = ("count", "byte_count")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    BYTE_COUNT_FIELD_NUMBER: _ClassVar[int]
    count: int
    byte_count: int
    def __init__(self, count: _Optional[int] = ..., byte_count: _Optional[int] = ...) -> None: ...

class VerifySegments(_message.Message):
    __slots__ = ("topic", "after", "bytes_per_s", "is_repairing", "is_counting", "source")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    IS_REPAIRING_FIELD_NUMBER: _ClassVar[int]
    IS_COUNTING_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    after: str
    bytes_per_s: int
    is_repairing: bool
    is_counting: bool
    source: str
    def __init__(self, topic: _Optional[str] = ..., after: _Optional[str] = ..., bytes_per_s: _Optional[int] = ..., is_repairing: bool = ..., is_counting: bool = ..., source: _Optional[str] = ...) -> None: ...

class CopySegments(_message.Message):
    __slots__ = ("store", "after", "bytes_per_s", "is_counting", "is_finishing")
    STORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    IS_COUNTING_FIELD_NUMBER: _ClassVar[int]
    IS_FINISHING_FIELD_NUMBER: _ClassVar[int]
    store: str
    after: str
    bytes_per_s: int
    is_counting: bool
    is_finishing: bool
    def __init__(self, store: _Optional[str] = ..., after: _Optional[str] = ..., bytes_per_s: _Optional[int] = ..., is_counting: bool = ..., is_finishing: bool = ...) -> None: ...

class SegmentsVerified(_message.Message):
    __slots__ = ("segment_count", "byte_count", "without_checksum", "damaged", "after", "segments_left", "bytes_left", "copied_count")
    SEGMENT_COUNT_FIELD_NUMBER: _ClassVar[int]
    BYTE_COUNT_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_LEFT_FIELD_NUMBER: _ClassVar[int]
    BYTES_LEFT_FIELD_NUMBER: _ClassVar[int]
    COPIED_COUNT_FIELD_NUMBER: _ClassVar[int]
    segment_count: int
    byte_count: int
    without_checksum: int
    damaged: _containers.RepeatedCompositeFieldContainer[DamagedSegment]
    after: str
    segments_left: int
    bytes_left: int
    copied_count: int
    def __init__(self, segment_count: _Optional[int] = ..., byte_count: _Optional[int] = ..., without_checksum: _Optional[int] = ..., damaged: _Optional[_Iterable[_Union[DamagedSegment, _Mapping]]] = ..., after: _Optional[str] = ..., segments_left: _Optional[int] = ..., bytes_left: _Optional[int] = ..., copied_count: _Optional[int] = ...) -> None: ...

class DamagedSegment(_message.Message):
    __slots__ = ("object_name", "base_offset", "end_offset", "byte_count", "local", "remote", "problem")
    OBJECT_NAME_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    BYTE_COUNT_FIELD_NUMBER: _ClassVar[int]
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    REMOTE_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    object_name: str
    base_offset: int
    end_offset: int
    byte_count: int
    local: CopyState
    remote: CopyState
    problem: str
    def __init__(self, object_name: _Optional[str] = ..., base_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., byte_count: _Optional[int] = ..., local: _Optional[_Union[CopyState, str]] = ..., remote: _Optional[_Union[CopyState, str]] = ..., problem: _Optional[str] = ...) -> None: ...

class CreateBackup(_message.Message):
    __slots__ = ("store",)
    STORE_FIELD_NUMBER: _ClassVar[int]
    store: str
    def __init__(self, store: _Optional[str] = ...) -> None: ...

class DescribeBackup(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class BackupProgress(_message.Message):
    __slots__ = ("id", "url", "is_running", "error", "segment_count", "segments_done", "segments_shared", "byte_count", "bytes_done", "damaged")
    ID_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    IS_RUNNING_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_COUNT_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_DONE_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_SHARED_FIELD_NUMBER: _ClassVar[int]
    BYTE_COUNT_FIELD_NUMBER: _ClassVar[int]
    BYTES_DONE_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_FIELD_NUMBER: _ClassVar[int]
    id: str
    url: str
    is_running: bool
    error: str
    segment_count: int
    segments_done: int
    segments_shared: int
    byte_count: int
    bytes_done: int
    damaged: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[str] = ..., url: _Optional[str] = ..., is_running: bool = ..., error: _Optional[str] = ..., segment_count: _Optional[int] = ..., segments_done: _Optional[int] = ..., segments_shared: _Optional[int] = ..., byte_count: _Optional[int] = ..., bytes_done: _Optional[int] = ..., damaged: _Optional[_Iterable[str]] = ...) -> None: ...

class DescribeCluster(_message.Message):
    __slots__ = ("counts_topics",)
    COUNTS_TOPICS_FIELD_NUMBER: _ClassVar[int]
    counts_topics: bool
    def __init__(self, counts_topics: bool = ...) -> None: ...

class ClusterDescription(_message.Message):
    __slots__ = ("brokers", "shard_count", "unserved_count")
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    SHARD_COUNT_FIELD_NUMBER: _ClassVar[int]
    UNSERVED_COUNT_FIELD_NUMBER: _ClassVar[int]
    brokers: _containers.RepeatedCompositeFieldContainer[ClusterBroker]
    shard_count: int
    unserved_count: int
    def __init__(self, brokers: _Optional[_Iterable[_Union[ClusterBroker, _Mapping]]] = ..., shard_count: _Optional[int] = ..., unserved_count: _Optional[int] = ...) -> None: ...

class ClusterBroker(_message.Message):
    __slots__ = ("broker_id", "url", "mode", "is_controller", "shard_count", "incoming_count", "started_at", "zone", "session_id", "grpc_url", "admin_url", "http_url", "topic_count")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    IS_CONTROLLER_FIELD_NUMBER: _ClassVar[int]
    SHARD_COUNT_FIELD_NUMBER: _ClassVar[int]
    INCOMING_COUNT_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    GRPC_URL_FIELD_NUMBER: _ClassVar[int]
    ADMIN_URL_FIELD_NUMBER: _ClassVar[int]
    HTTP_URL_FIELD_NUMBER: _ClassVar[int]
    TOPIC_COUNT_FIELD_NUMBER: _ClassVar[int]
    broker_id: str
    url: str
    mode: str
    is_controller: bool
    shard_count: int
    incoming_count: int
    started_at: int
    zone: str
    session_id: str
    grpc_url: str
    admin_url: str
    http_url: str
    topic_count: int
    def __init__(self, broker_id: _Optional[str] = ..., url: _Optional[str] = ..., mode: _Optional[str] = ..., is_controller: bool = ..., shard_count: _Optional[int] = ..., incoming_count: _Optional[int] = ..., started_at: _Optional[int] = ..., zone: _Optional[str] = ..., session_id: _Optional[str] = ..., grpc_url: _Optional[str] = ..., admin_url: _Optional[str] = ..., http_url: _Optional[str] = ..., topic_count: _Optional[int] = ...) -> None: ...

class MoveTopic(_message.Message):
    __slots__ = ("topic", "broker_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    broker_id: str
    def __init__(self, topic: _Optional[str] = ..., broker_id: _Optional[str] = ...) -> None: ...

class Rebalance(_message.Message):
    __slots__ = ("dry_run",)
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    dry_run: bool
    def __init__(self, dry_run: bool = ...) -> None: ...

class ShardMoves(_message.Message):
    __slots__ = ("moves",)
    MOVES_FIELD_NUMBER: _ClassVar[int]
    moves: _containers.RepeatedCompositeFieldContainer[ShardMove]
    def __init__(self, moves: _Optional[_Iterable[_Union[ShardMove, _Mapping]]] = ...) -> None: ...

class ShardMove(_message.Message):
    __slots__ = ("shard", "source", "target", "topics", "topic_count")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_COUNT_FIELD_NUMBER: _ClassVar[int]
    shard: int
    source: str
    target: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    topic_count: int
    def __init__(self, shard: _Optional[int] = ..., source: _Optional[str] = ..., target: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ..., topic_count: _Optional[int] = ...) -> None: ...

class SetBrokerMode(_message.Message):
    __slots__ = ("broker_id", "mode", "reason")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    broker_id: str
    mode: str
    reason: str
    def __init__(self, broker_id: _Optional[str] = ..., mode: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class ForgetBroker(_message.Message):
    __slots__ = ("broker_id", "accept_loss")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_LOSS_FIELD_NUMBER: _ClassVar[int]
    broker_id: str
    accept_loss: bool
    def __init__(self, broker_id: _Optional[str] = ..., accept_loss: bool = ...) -> None: ...

class CreateApiKey(_message.Message):
    __slots__ = ("name", "principal", "groups", "expires_at")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    name: str
    principal: str
    groups: _containers.RepeatedScalarFieldContainer[str]
    expires_at: int
    def __init__(self, name: _Optional[str] = ..., principal: _Optional[str] = ..., groups: _Optional[_Iterable[str]] = ..., expires_at: _Optional[int] = ...) -> None: ...

class ApiKeyCreated(_message.Message):
    __slots__ = ("key", "description")
    KEY_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    key: str
    description: ApiKey
    def __init__(self, key: _Optional[str] = ..., description: _Optional[_Union[ApiKey, _Mapping]] = ...) -> None: ...

class ApiKey(_message.Message):
    __slots__ = ("name", "key_id", "principal", "groups", "created_at", "expires_at")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    name: str
    key_id: str
    principal: str
    groups: _containers.RepeatedScalarFieldContainer[str]
    created_at: int
    expires_at: int
    def __init__(self, name: _Optional[str] = ..., key_id: _Optional[str] = ..., principal: _Optional[str] = ..., groups: _Optional[_Iterable[str]] = ..., created_at: _Optional[int] = ..., expires_at: _Optional[int] = ...) -> None: ...

class ListApiKeys(_message.Message):
    __slots__ = ("after",)
    AFTER_FIELD_NUMBER: _ClassVar[int]
    after: str
    def __init__(self, after: _Optional[str] = ...) -> None: ...

class ApiKeys(_message.Message):
    __slots__ = ("keys", "has_more")
    KEYS_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedCompositeFieldContainer[ApiKey]
    has_more: bool
    def __init__(self, keys: _Optional[_Iterable[_Union[ApiKey, _Mapping]]] = ..., has_more: bool = ...) -> None: ...

class RevokeApiKey(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class RotateApiKey(_message.Message):
    __slots__ = ("name", "grace_s", "expires_at")
    NAME_FIELD_NUMBER: _ClassVar[int]
    GRACE_S_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    name: str
    grace_s: float
    expires_at: int
    def __init__(self, name: _Optional[str] = ..., grace_s: _Optional[float] = ..., expires_at: _Optional[int] = ...) -> None: ...

class Role(_message.Message):
    __slots__ = ("name", "permissions", "patterns", "is_built_in")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PERMISSIONS_FIELD_NUMBER: _ClassVar[int]
    PATTERNS_FIELD_NUMBER: _ClassVar[int]
    IS_BUILT_IN_FIELD_NUMBER: _ClassVar[int]
    name: str
    permissions: _containers.RepeatedScalarFieldContainer[str]
    patterns: _containers.RepeatedScalarFieldContainer[str]
    is_built_in: bool
    def __init__(self, name: _Optional[str] = ..., permissions: _Optional[_Iterable[str]] = ..., patterns: _Optional[_Iterable[str]] = ..., is_built_in: bool = ...) -> None: ...

class Binding(_message.Message):
    __slots__ = ("id", "member", "roles", "patterns")
    ID_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    ROLES_FIELD_NUMBER: _ClassVar[int]
    PATTERNS_FIELD_NUMBER: _ClassVar[int]
    id: str
    member: str
    roles: _containers.RepeatedScalarFieldContainer[str]
    patterns: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[str] = ..., member: _Optional[str] = ..., roles: _Optional[_Iterable[str]] = ..., patterns: _Optional[_Iterable[str]] = ...) -> None: ...

class ListRoles(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Roles(_message.Message):
    __slots__ = ("roles",)
    ROLES_FIELD_NUMBER: _ClassVar[int]
    roles: _containers.RepeatedCompositeFieldContainer[Role]
    def __init__(self, roles: _Optional[_Iterable[_Union[Role, _Mapping]]] = ...) -> None: ...

class SetRole(_message.Message):
    __slots__ = ("role",)
    ROLE_FIELD_NUMBER: _ClassVar[int]
    role: Role
    def __init__(self, role: _Optional[_Union[Role, _Mapping]] = ...) -> None: ...

class DeleteRole(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ListBindings(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Bindings(_message.Message):
    __slots__ = ("bindings",)
    BINDINGS_FIELD_NUMBER: _ClassVar[int]
    bindings: _containers.RepeatedCompositeFieldContainer[Binding]
    def __init__(self, bindings: _Optional[_Iterable[_Union[Binding, _Mapping]]] = ...) -> None: ...

class AddBinding(_message.Message):
    __slots__ = ("binding",)
    BINDING_FIELD_NUMBER: _ClassVar[int]
    binding: Binding
    def __init__(self, binding: _Optional[_Union[Binding, _Mapping]] = ...) -> None: ...

class BindingAdded(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class RemoveBinding(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class WhoAmI(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Identity(_message.Message):
    __slots__ = ("name", "method", "groups", "is_superuser", "is_enforced")
    NAME_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    IS_SUPERUSER_FIELD_NUMBER: _ClassVar[int]
    IS_ENFORCED_FIELD_NUMBER: _ClassVar[int]
    name: str
    method: str
    groups: _containers.RepeatedScalarFieldContainer[str]
    is_superuser: bool
    is_enforced: bool
    def __init__(self, name: _Optional[str] = ..., method: _Optional[str] = ..., groups: _Optional[_Iterable[str]] = ..., is_superuser: bool = ..., is_enforced: bool = ...) -> None: ...

class CheckAccess(_message.Message):
    __slots__ = ("member", "permission", "resource", "connector")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    PERMISSION_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    CONNECTOR_FIELD_NUMBER: _ClassVar[int]
    member: str
    permission: str
    resource: str
    connector: str
    def __init__(self, member: _Optional[str] = ..., permission: _Optional[str] = ..., resource: _Optional[str] = ..., connector: _Optional[str] = ...) -> None: ...

class AccessDecision(_message.Message):
    __slots__ = ("allowed", "rule")
    ALLOWED_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    allowed: bool
    rule: str
    def __init__(self, allowed: bool = ..., rule: _Optional[str] = ...) -> None: ...

class Quota(_message.Message):
    __slots__ = ("connections", "requests_per_s", "topics", "subscriptions", "bytes_in_per_s", "bytes_out_per_s", "storage_bytes", "sessions")
    CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_PER_S_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    BYTES_IN_PER_S_FIELD_NUMBER: _ClassVar[int]
    BYTES_OUT_PER_S_FIELD_NUMBER: _ClassVar[int]
    STORAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    connections: int
    requests_per_s: int
    topics: int
    subscriptions: int
    bytes_in_per_s: int
    bytes_out_per_s: int
    storage_bytes: int
    sessions: int
    def __init__(self, connections: _Optional[int] = ..., requests_per_s: _Optional[int] = ..., topics: _Optional[int] = ..., subscriptions: _Optional[int] = ..., bytes_in_per_s: _Optional[int] = ..., bytes_out_per_s: _Optional[int] = ..., storage_bytes: _Optional[int] = ..., sessions: _Optional[int] = ...) -> None: ...

class SetQuota(_message.Message):
    __slots__ = ("target", "quota")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    QUOTA_FIELD_NUMBER: _ClassVar[int]
    target: str
    quota: Quota
    def __init__(self, target: _Optional[str] = ..., quota: _Optional[_Union[Quota, _Mapping]] = ...) -> None: ...

class RemoveQuota(_message.Message):
    __slots__ = ("target",)
    TARGET_FIELD_NUMBER: _ClassVar[int]
    target: str
    def __init__(self, target: _Optional[str] = ...) -> None: ...

class ListQuotas(_message.Message):
    __slots__ = ("target", "after")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    target: str
    after: str
    def __init__(self, target: _Optional[str] = ..., after: _Optional[str] = ...) -> None: ...

class QuotaDescription(_message.Message):
    __slots__ = ("target", "quota", "used", "throttled_s", "refused_count", "is_default")
    class UsedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    TARGET_FIELD_NUMBER: _ClassVar[int]
    QUOTA_FIELD_NUMBER: _ClassVar[int]
    USED_FIELD_NUMBER: _ClassVar[int]
    THROTTLED_S_FIELD_NUMBER: _ClassVar[int]
    REFUSED_COUNT_FIELD_NUMBER: _ClassVar[int]
    IS_DEFAULT_FIELD_NUMBER: _ClassVar[int]
    target: str
    quota: Quota
    used: _containers.ScalarMap[str, int]
    throttled_s: float
    refused_count: int
    is_default: bool
    def __init__(self, target: _Optional[str] = ..., quota: _Optional[_Union[Quota, _Mapping]] = ..., used: _Optional[_Mapping[str, int]] = ..., throttled_s: _Optional[float] = ..., refused_count: _Optional[int] = ..., is_default: bool = ...) -> None: ...

class Quotas(_message.Message):
    __slots__ = ("quotas", "has_more")
    QUOTAS_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    quotas: _containers.RepeatedCompositeFieldContainer[QuotaDescription]
    has_more: bool
    def __init__(self, quotas: _Optional[_Iterable[_Union[QuotaDescription, _Mapping]]] = ..., has_more: bool = ...) -> None: ...

class ListConnections(_message.Message):
    __slots__ = ("after", "limit")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    after: int
    limit: int
    def __init__(self, after: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class ConnectionMember(_message.Message):
    __slots__ = ("topic", "name", "subscription")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    name: str
    subscription: str
    def __init__(self, topic: _Optional[str] = ..., name: _Optional[str] = ..., subscription: _Optional[str] = ...) -> None: ...

class ConnectionDescription(_message.Message):
    __slots__ = ("connection_id", "listener", "address", "client", "principal", "members", "member_count", "received_messages", "received_bytes", "sent_messages", "sent_bytes")
    CONNECTION_ID_FIELD_NUMBER: _ClassVar[int]
    LISTENER_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    MEMBER_COUNT_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    SENT_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    SENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    connection_id: int
    listener: str
    address: str
    client: str
    principal: str
    members: _containers.RepeatedCompositeFieldContainer[ConnectionMember]
    member_count: int
    received_messages: int
    received_bytes: int
    sent_messages: int
    sent_bytes: int
    def __init__(self, connection_id: _Optional[int] = ..., listener: _Optional[str] = ..., address: _Optional[str] = ..., client: _Optional[str] = ..., principal: _Optional[str] = ..., members: _Optional[_Iterable[_Union[ConnectionMember, _Mapping]]] = ..., member_count: _Optional[int] = ..., received_messages: _Optional[int] = ..., received_bytes: _Optional[int] = ..., sent_messages: _Optional[int] = ..., sent_bytes: _Optional[int] = ...) -> None: ...

class Connections(_message.Message):
    __slots__ = ("broker_id", "connections", "has_more", "connection_count")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    CONNECTION_COUNT_FIELD_NUMBER: _ClassVar[int]
    broker_id: str
    connections: _containers.RepeatedCompositeFieldContainer[ConnectionDescription]
    has_more: bool
    connection_count: int
    def __init__(self, broker_id: _Optional[str] = ..., connections: _Optional[_Iterable[_Union[ConnectionDescription, _Mapping]]] = ..., has_more: bool = ..., connection_count: _Optional[int] = ...) -> None: ...

class CloseConnection(_message.Message):
    __slots__ = ("connection_id", "reason")
    CONNECTION_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    connection_id: int
    reason: str
    def __init__(self, connection_id: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class SetConnector(_message.Message):
    __slots__ = ("name", "topic", "definition", "expected_revision", "is_paused")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    DEFINITION_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_REVISION_FIELD_NUMBER: _ClassVar[int]
    IS_PAUSED_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic: str
    definition: str
    expected_revision: int
    is_paused: bool
    def __init__(self, name: _Optional[str] = ..., topic: _Optional[str] = ..., definition: _Optional[str] = ..., expected_revision: _Optional[int] = ..., is_paused: bool = ...) -> None: ...

class ConnectorSet(_message.Message):
    __slots__ = ("revision",)
    REVISION_FIELD_NUMBER: _ClassVar[int]
    revision: int
    def __init__(self, revision: _Optional[int] = ...) -> None: ...

class DeleteConnector(_message.Message):
    __slots__ = ("name", "topic")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic: str
    def __init__(self, name: _Optional[str] = ..., topic: _Optional[str] = ...) -> None: ...

class OperateConnector(_message.Message):
    __slots__ = ("name", "topic", "is_paused", "is_restarted")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    IS_PAUSED_FIELD_NUMBER: _ClassVar[int]
    IS_RESTARTED_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic: str
    is_paused: bool
    is_restarted: bool
    def __init__(self, name: _Optional[str] = ..., topic: _Optional[str] = ..., is_paused: bool = ..., is_restarted: bool = ...) -> None: ...

class ConnectorReport(_message.Message):
    __slots__ = ("connector", "worker", "revision", "state", "messages", "lag", "retries", "error", "is_degraded", "changed_at", "reported_at")
    CONNECTOR_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    RETRIES_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    IS_DEGRADED_FIELD_NUMBER: _ClassVar[int]
    CHANGED_AT_FIELD_NUMBER: _ClassVar[int]
    REPORTED_AT_FIELD_NUMBER: _ClassVar[int]
    connector: str
    worker: str
    revision: int
    state: str
    messages: int
    lag: int
    retries: int
    error: str
    is_degraded: bool
    changed_at: int
    reported_at: int
    def __init__(self, connector: _Optional[str] = ..., worker: _Optional[str] = ..., revision: _Optional[int] = ..., state: _Optional[str] = ..., messages: _Optional[int] = ..., lag: _Optional[int] = ..., retries: _Optional[int] = ..., error: _Optional[str] = ..., is_degraded: bool = ..., changed_at: _Optional[int] = ..., reported_at: _Optional[int] = ...) -> None: ...

class ReportConnectors(_message.Message):
    __slots__ = ("topic", "reports")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    REPORTS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    reports: _containers.RepeatedCompositeFieldContainer[ConnectorReport]
    def __init__(self, topic: _Optional[str] = ..., reports: _Optional[_Iterable[_Union[ConnectorReport, _Mapping]]] = ...) -> None: ...

class ListConnectors(_message.Message):
    __slots__ = ("name", "after")
    NAME_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    name: str
    after: str
    def __init__(self, name: _Optional[str] = ..., after: _Optional[str] = ...) -> None: ...

class StoredConnector(_message.Message):
    __slots__ = ("name", "kind", "topic", "revision", "restarts", "is_paused", "author", "changed_at", "definition", "report")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    RESTARTS_FIELD_NUMBER: _ClassVar[int]
    IS_PAUSED_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    CHANGED_AT_FIELD_NUMBER: _ClassVar[int]
    DEFINITION_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: str
    topic: str
    revision: int
    restarts: int
    is_paused: bool
    author: str
    changed_at: int
    definition: str
    report: ConnectorReport
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[str] = ..., topic: _Optional[str] = ..., revision: _Optional[int] = ..., restarts: _Optional[int] = ..., is_paused: bool = ..., author: _Optional[str] = ..., changed_at: _Optional[int] = ..., definition: _Optional[str] = ..., report: _Optional[_Union[ConnectorReport, _Mapping]] = ...) -> None: ...

class Connectors(_message.Message):
    __slots__ = ("connectors", "has_more", "now")
    CONNECTORS_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    connectors: _containers.RepeatedCompositeFieldContainer[StoredConnector]
    has_more: bool
    now: int
    def __init__(self, connectors: _Optional[_Iterable[_Union[StoredConnector, _Mapping]]] = ..., has_more: bool = ..., now: _Optional[int] = ...) -> None: ...
