from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SubscriptionType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EXCLUSIVE: _ClassVar[SubscriptionType]
    SHARED: _ClassVar[SubscriptionType]
    FAILOVER: _ClassVar[SubscriptionType]

class Start(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LATEST: _ClassVar[Start]
    EARLIEST: _ClassVar[Start]
EXCLUSIVE: SubscriptionType
SHARED: SubscriptionType
FAILOVER: SubscriptionType
LATEST: Start
EARLIEST: Start

class Hello(_message.Message):
    __slots__ = ("version_min", "version_max", "client", "token", "frame_bytes_max")
    VERSION_MIN_FIELD_NUMBER: _ClassVar[int]
    VERSION_MAX_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    FRAME_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    version_min: int
    version_max: int
    client: str
    token: str
    frame_bytes_max: int
    def __init__(self, version_min: _Optional[int] = ..., version_max: _Optional[int] = ..., client: _Optional[str] = ..., token: _Optional[str] = ..., frame_bytes_max: _Optional[int] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("version", "broker", "broker_id", "frame_bytes_max")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    BROKER_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    FRAME_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    version: int
    broker: str
    broker_id: str
    frame_bytes_max: int
    def __init__(self, version: _Optional[int] = ..., broker: _Optional[str] = ..., broker_id: _Optional[str] = ..., frame_bytes_max: _Optional[int] = ...) -> None: ...

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
    __slots__ = ("reliable", "written_is_enough", "retention_age_s", "retention_bytes_max")
    RELIABLE_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_IS_ENOUGH_FIELD_NUMBER: _ClassVar[int]
    RETENTION_AGE_S_FIELD_NUMBER: _ClassVar[int]
    RETENTION_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    reliable: bool
    written_is_enough: bool
    retention_age_s: float
    retention_bytes_max: int
    def __init__(self, reliable: bool = ..., written_is_enough: bool = ..., retention_age_s: _Optional[float] = ..., retention_bytes_max: _Optional[int] = ...) -> None: ...

class CreateTopic(_message.Message):
    __slots__ = ("topic", "policy", "exist_ok")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    EXIST_OK_FIELD_NUMBER: _ClassVar[int]
    topic: str
    policy: TopicPolicy
    exist_ok: bool
    def __init__(self, topic: _Optional[str] = ..., policy: _Optional[_Union[TopicPolicy, _Mapping]] = ..., exist_ok: bool = ...) -> None: ...

class DeleteTopic(_message.Message):
    __slots__ = ("topic", "force")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    force: bool
    def __init__(self, topic: _Optional[str] = ..., force: bool = ...) -> None: ...

class ListTopics(_message.Message):
    __slots__ = ("namespace",)
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    def __init__(self, namespace: _Optional[str] = ...) -> None: ...

class Topics(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topics: _Optional[_Iterable[str]] = ...) -> None: ...

class DescribeTopic(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class TopicDescription(_message.Message):
    __slots__ = ("topic", "topic_id", "policy", "epoch", "base_offset", "end_offset", "sealed_offset", "tail_bytes", "segment_bytes", "segment_count", "producers", "subscriptions", "dropped")
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
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[int] = ..., policy: _Optional[_Union[TopicPolicy, _Mapping]] = ..., epoch: _Optional[int] = ..., base_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., sealed_offset: _Optional[int] = ..., tail_bytes: _Optional[int] = ..., segment_bytes: _Optional[int] = ..., segment_count: _Optional[int] = ..., producers: _Optional[_Iterable[str]] = ..., subscriptions: _Optional[_Iterable[_Union[SubscriptionDescription, _Mapping]]] = ..., dropped: _Optional[int] = ...) -> None: ...

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
    __slots__ = ("base_offset", "end_offset", "epoch", "byte_count", "url", "count")
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    BYTE_COUNT_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    base_offset: int
    end_offset: int
    epoch: int
    byte_count: int
    url: str
    count: int
    def __init__(self, base_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., epoch: _Optional[int] = ..., byte_count: _Optional[int] = ..., url: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class Segments(_message.Message):
    __slots__ = ("topic_id", "segments", "base_offset", "sealed_offset", "end_offset")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SEALED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    segments: _containers.RepeatedCompositeFieldContainer[Segment]
    base_offset: int
    sealed_offset: int
    end_offset: int
    def __init__(self, topic_id: _Optional[int] = ..., segments: _Optional[_Iterable[_Union[Segment, _Mapping]]] = ..., base_offset: _Optional[int] = ..., sealed_offset: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...

class OpenProducer(_message.Message):
    __slots__ = ("topic", "name", "policy", "producer_id", "producer_epoch", "is_anonymous", "takes_any_kind")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    IS_ANONYMOUS_FIELD_NUMBER: _ClassVar[int]
    TAKES_ANY_KIND_FIELD_NUMBER: _ClassVar[int]
    topic: str
    name: str
    policy: TopicPolicy
    producer_id: int
    producer_epoch: int
    is_anonymous: bool
    takes_any_kind: bool
    def __init__(self, topic: _Optional[str] = ..., name: _Optional[str] = ..., policy: _Optional[_Union[TopicPolicy, _Mapping]] = ..., producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., is_anonymous: bool = ..., takes_any_kind: bool = ...) -> None: ...

class ProducerOpened(_message.Message):
    __slots__ = ("producer_id", "producer_epoch", "next_sequence", "reliable", "batch_bytes_max")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    NEXT_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    RELIABLE_FIELD_NUMBER: _ClassVar[int]
    BATCH_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    producer_epoch: int
    next_sequence: int
    reliable: bool
    batch_bytes_max: int
    def __init__(self, producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., next_sequence: _Optional[int] = ..., reliable: bool = ..., batch_bytes_max: _Optional[int] = ...) -> None: ...

class CloseProducer(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Receipt(_message.Message):
    __slots__ = ("base_sequence", "base_offset")
    BASE_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    base_sequence: _containers.RepeatedScalarFieldContainer[int]
    base_offset: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, base_sequence: _Optional[_Iterable[int]] = ..., base_offset: _Optional[_Iterable[int]] = ...) -> None: ...

class OpenConsumer(_message.Message):
    __slots__ = ("topic", "subscription", "name", "type", "start", "ack_timeout_s")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    ACK_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    topic: str
    subscription: str
    name: str
    type: SubscriptionType
    start: Start
    ack_timeout_s: float
    def __init__(self, topic: _Optional[str] = ..., subscription: _Optional[str] = ..., name: _Optional[str] = ..., type: _Optional[_Union[SubscriptionType, str]] = ..., start: _Optional[_Union[Start, str]] = ..., ack_timeout_s: _Optional[float] = ...) -> None: ...

class ConsumerOpened(_message.Message):
    __slots__ = ("reliable", "cursor")
    RELIABLE_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    reliable: bool
    cursor: int
    def __init__(self, reliable: bool = ..., cursor: _Optional[int] = ...) -> None: ...

class ConsumerState(_message.Message):
    __slots__ = ("is_active",)
    IS_ACTIVE_FIELD_NUMBER: _ClassVar[int]
    is_active: bool
    def __init__(self, is_active: bool = ...) -> None: ...

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
    __slots__ = ("base", "end")
    BASE_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    base: _containers.RepeatedScalarFieldContainer[int]
    end: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, base: _Optional[_Iterable[int]] = ..., end: _Optional[_Iterable[int]] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("ranges", "through")
    RANGES_FIELD_NUMBER: _ClassVar[int]
    THROUGH_FIELD_NUMBER: _ClassVar[int]
    ranges: OffsetRanges
    through: int
    def __init__(self, ranges: _Optional[_Union[OffsetRanges, _Mapping]] = ..., through: _Optional[int] = ...) -> None: ...

class Nack(_message.Message):
    __slots__ = ("ranges",)
    RANGES_FIELD_NUMBER: _ClassVar[int]
    ranges: OffsetRanges
    def __init__(self, ranges: _Optional[_Union[OffsetRanges, _Mapping]] = ...) -> None: ...

class Seek(_message.Message):
    __slots__ = ("offset", "start")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    offset: int
    start: Start
    def __init__(self, offset: _Optional[int] = ..., start: _Optional[_Union[Start, str]] = ...) -> None: ...

class CreateSubscription(_message.Message):
    __slots__ = ("topic", "subscription", "type", "start")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    topic: str
    subscription: str
    type: SubscriptionType
    start: Start
    def __init__(self, topic: _Optional[str] = ..., subscription: _Optional[str] = ..., type: _Optional[_Union[SubscriptionType, str]] = ..., start: _Optional[_Union[Start, str]] = ...) -> None: ...

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
    __slots__ = ("subscription", "type", "cursor", "backlog", "in_flight", "consumers", "done")
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    subscription: str
    type: SubscriptionType
    cursor: int
    backlog: int
    in_flight: int
    consumers: _containers.RepeatedScalarFieldContainer[str]
    done: OffsetRanges
    def __init__(self, subscription: _Optional[str] = ..., type: _Optional[_Union[SubscriptionType, str]] = ..., cursor: _Optional[int] = ..., backlog: _Optional[int] = ..., in_flight: _Optional[int] = ..., consumers: _Optional[_Iterable[str]] = ..., done: _Optional[_Union[OffsetRanges, _Mapping]] = ...) -> None: ...

class ReportProgress(_message.Message):
    __slots__ = ("topic", "subscription", "offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    subscription: str
    offset: int
    def __init__(self, topic: _Optional[str] = ..., subscription: _Optional[str] = ..., offset: _Optional[int] = ...) -> None: ...

class Fetch(_message.Message):
    __slots__ = ("topic", "base_offset", "end_offset", "bytes_max", "wait_s")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    WAIT_S_FIELD_NUMBER: _ClassVar[int]
    topic: str
    base_offset: int
    end_offset: int
    bytes_max: int
    wait_s: float
    def __init__(self, topic: _Optional[str] = ..., base_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., bytes_max: _Optional[int] = ..., wait_s: _Optional[float] = ...) -> None: ...

class FetchEnd(_message.Message):
    __slots__ = ("next_offset", "base_offset", "end_offset")
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    next_offset: int
    base_offset: int
    end_offset: int
    def __init__(self, next_offset: _Optional[int] = ..., base_offset: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...

class Moved(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...
