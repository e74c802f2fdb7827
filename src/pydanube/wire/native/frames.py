"""
Frames of the native protocol: what they are, and how a byte stream is cut into them.

A frame is ``u32 length | u8 kind | u8 flags | u16 channel | u32 correlation |
body``, little-endian; *length* counts what follows it.  ``docs/format/stream.md``
is the normative description; the table ``KINDS`` is where a frame's body, its
sender and its answer are declared, once, for both sides and for that page.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import TYPE_CHECKING

from pydanube.model.errors import ProtocolViolation
from pydanube.wire.pb import stream_pb2 as pb

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from pydanube.wire.batches import Buffer

FRAME_BYTES_MAX = 8 * 1024 * 1024
"""The longest frame, unless the two sides agree on another limit."""
FRAME_OVERHEAD_BYTES = 64
"""What stands before a batch in a frame takes less."""
GROWTH_BYTES_MAX = 16 * 1024
"""
A batch grows by less after it was published.

Sealing adds the producer's name, the publish time and the offset as columns. A dead
letter names its origin: 6 KiB of attributes, and ``HISTORY_BYTES_MAX`` of earlier
ones.
"""
HANDSHAKE_BYTES_MAX = 64 * 1024
"""The longest frame before the client is known."""

_LENGTH = struct.Struct("<I")
_HEADER = struct.Struct("<IBBHI")
HEADER_BYTES = _HEADER.size
_COUNTED_HEADER_BYTES = HEADER_BYTES - _LENGTH.size

RECEIVE_BUFFER_BYTES = 32 * 1024
FREE_BUFFERS_MAX = 16
"""How many receive buffers are kept for whoever receives next."""
"""Every connection keeps one; a longer frame gets a buffer of its own size."""


def batch_bytes_max(frame_bytes_max: int) -> int:
    """
    The longest batch, before compression, that a broker takes from producers.

    Whatever becomes of its messages, they fit into frames of *frame_bytes_max*.
    """
    return frame_bytes_max - FRAME_OVERHEAD_BYTES - GROWTH_BYTES_MAX


class Side(Enum):
    """Who sends a kind of frame."""

    CLIENT = "client"
    BROKER = "broker"
    BOTH = "both"


class Kind(IntEnum):
    """What a frame is; numbers are wire format and are never used twice."""

    # Kinds are looked up for every frame, and what enums have is Python.
    __hash__ = int.__hash__

    HELLO = 1
    WELCOME = 2
    ERROR = 3
    OK = 4
    PING = 5
    PONG = 6
    GOODBYE = 7

    LOOKUP = 16
    LOCATION = 17
    CREATE_TOPIC = 18
    DELETE_TOPIC = 19
    LIST_TOPICS = 20
    TOPICS = 21
    DESCRIBE_TOPIC = 22
    TOPIC_DESCRIPTION = 23
    LIST_SEGMENTS = 24
    SEGMENTS = 25
    SET_TOPIC_LIMITS = 26
    ADD_PARTITIONS = 27
    LIST_PARTITIONS = 28
    PARTITIONS = 29
    REPLACE_SEGMENTS = 30
    SEGMENTS_REPLACED = 31

    OPEN_PRODUCER = 32
    PRODUCER_OPENED = 33
    CLOSE_PRODUCER = 34
    PUBLISH = 35
    RECEIPT = 36

    OPEN_CONSUMER = 48
    CONSUMER_OPENED = 49
    CLOSE_CONSUMER = 50
    CONSUMER_STATE = 51
    CREDIT = 52
    DELIVERY = 53
    ACK = 54
    NACK = 55
    SEEK = 56

    CREATE_SUBSCRIPTION = 64
    DELETE_SUBSCRIPTION = 65
    DESCRIBE_SUBSCRIPTION = 66
    SUBSCRIPTION_DESCRIPTION = 67
    REPORT_PROGRESS = 68
    DESCRIBE_SETTINGS = 69
    SETTINGS = 70
    SET_FAILURE_POLICY = 71
    SET_DISPATCH_LIMITS = 72
    PAUSE = 73
    SEEK_SUBSCRIPTION = 74
    SKIP = 75
    MARK_DONE = 76

    FETCH = 80
    FETCHED = 81
    FETCH_END = 82
    MOVED = 83
    FIND_OFFSETS = 84
    OFFSETS_FOUND = 85

    CREATE_NAMESPACE = 96
    DELETE_NAMESPACE = 97
    LIST_NAMESPACES = 98
    NAMESPACES = 99
    DESCRIBE_NAMESPACE = 100
    NAMESPACE_DESCRIPTION = 101
    SET_NAMESPACE_POLICY = 102

    REGISTER_SCHEMA = 112
    SCHEMA_REGISTERED = 113
    GET_SCHEMA = 114
    SCHEMA_VERSION = 115
    LIST_SCHEMA_VERSIONS = 116
    SCHEMA_VERSIONS = 117
    LIST_SUBJECTS = 118
    SUBJECTS = 119
    DESCRIBE_SUBJECT = 120
    SUBJECT_DESCRIPTION = 121
    CHECK_SCHEMA = 122
    SCHEMA_CHECKED = 123
    SET_COMPATIBILITY = 124
    DELETE_SCHEMA = 125
    BIND_SCHEMA = 126
    GET_TOPIC_SCHEMA = 127
    TOPIC_SCHEMA = 128

    HOLD_TOPIC = 136
    RELEASE_TOPIC = 137
    SET_ON_CORRUPTION = 138

    OPEN_STAGE = 144
    STAGE_OPENED = 145
    CLOSE_STAGE = 146
    STAGE = 147
    STAGED = 148
    FINISH_PART = 149
    PART_FINISHED = 150
    DROP_PART = 151
    COMMIT_STAGED = 152
    STAGED_COMMITTED = 153
    DROP_STAGED = 154
    DESCRIBE_STAGING = 155
    STAGING_DESCRIPTION = 156


@dataclass(frozen=True, slots=True, kw_only=True)
class KindRule:
    """What holds for every frame of one kind."""

    kind: Kind
    body: type[Message] | None
    """The control message; None for a batch."""
    sender: Side
    answer: Kind | None = None
    """What a request is answered with, if not with an ERROR."""
    on_channel: bool = False
    """Whether the frame belongs to one producer or consumer."""
    revision: int = 0
    """A peer of an older revision does not know the kind."""


def _rules() -> dict[Kind, KindRule]:
    client, broker, both = Side.CLIENT, Side.BROKER, Side.BOTH
    rows: list[tuple[Kind, type[Message] | None, Side, Kind | None, bool]] = [
        (Kind.HELLO, pb.Hello, client, Kind.WELCOME, False),
        (Kind.WELCOME, pb.Welcome, broker, None, False),
        (Kind.ERROR, pb.Error, broker, None, False),
        (Kind.OK, pb.Ok, broker, None, False),
        (Kind.PING, pb.Ping, client, Kind.PONG, False),
        (Kind.PONG, pb.Pong, broker, None, False),
        (Kind.GOODBYE, pb.Goodbye, both, None, False),
        (Kind.LOOKUP, pb.Lookup, client, Kind.LOCATION, False),
        (Kind.LOCATION, pb.Location, broker, None, False),
        (Kind.CREATE_TOPIC, pb.CreateTopic, client, Kind.OK, False),
        (Kind.DELETE_TOPIC, pb.DeleteTopic, client, Kind.OK, False),
        (Kind.LIST_TOPICS, pb.ListTopics, client, Kind.TOPICS, False),
        (Kind.TOPICS, pb.Topics, broker, None, False),
        (Kind.DESCRIBE_TOPIC, pb.DescribeTopic, client, Kind.TOPIC_DESCRIPTION, False),
        (Kind.TOPIC_DESCRIPTION, pb.TopicDescription, broker, None, False),
        (Kind.LIST_SEGMENTS, pb.ListSegments, client, Kind.SEGMENTS, False),
        (Kind.SEGMENTS, pb.Segments, broker, None, False),
        (Kind.SET_TOPIC_LIMITS, pb.SetTopicLimits, client, Kind.OK, False),
        (Kind.ADD_PARTITIONS, pb.AddPartitions, client, Kind.OK, False),
        (Kind.LIST_PARTITIONS, pb.ListPartitions, client, Kind.PARTITIONS, False),
        (Kind.PARTITIONS, pb.Partitions, broker, None, False),
        (
            Kind.REPLACE_SEGMENTS,
            pb.ReplaceSegments,
            client,
            Kind.SEGMENTS_REPLACED,
            False,
        ),
        (Kind.SEGMENTS_REPLACED, pb.SegmentsReplaced, broker, None, False),
        (Kind.OPEN_PRODUCER, pb.OpenProducer, client, Kind.PRODUCER_OPENED, True),
        (Kind.PRODUCER_OPENED, pb.ProducerOpened, broker, None, True),
        (Kind.CLOSE_PRODUCER, pb.CloseProducer, client, Kind.OK, True),
        (Kind.PUBLISH, None, client, None, True),
        (Kind.RECEIPT, pb.Receipt, broker, None, True),
        (Kind.OPEN_CONSUMER, pb.OpenConsumer, client, Kind.CONSUMER_OPENED, True),
        (Kind.CONSUMER_OPENED, pb.ConsumerOpened, broker, None, True),
        (Kind.CLOSE_CONSUMER, pb.CloseConsumer, client, Kind.OK, True),
        (Kind.CONSUMER_STATE, pb.ConsumerState, broker, None, True),
        (Kind.CREDIT, pb.Credit, client, None, True),
        (Kind.DELIVERY, None, broker, None, True),
        (Kind.ACK, pb.Ack, client, Kind.OK, True),
        (Kind.NACK, pb.Nack, client, None, True),
        (Kind.SEEK, pb.Seek, client, Kind.OK, True),
        (Kind.CREATE_SUBSCRIPTION, pb.CreateSubscription, client, Kind.OK, False),
        (Kind.DELETE_SUBSCRIPTION, pb.DeleteSubscription, client, Kind.OK, False),
        (
            Kind.DESCRIBE_SUBSCRIPTION,
            pb.DescribeSubscription,
            client,
            Kind.SUBSCRIPTION_DESCRIPTION,
            False,
        ),
        (
            Kind.SUBSCRIPTION_DESCRIPTION,
            pb.SubscriptionDescription,
            broker,
            None,
            False,
        ),
        (Kind.REPORT_PROGRESS, pb.ReportProgress, client, Kind.OK, False),
        (Kind.DESCRIBE_SETTINGS, pb.DescribeSettings, client, Kind.SETTINGS, False),
        (Kind.SETTINGS, pb.Settings, broker, None, False),
        (Kind.SET_FAILURE_POLICY, pb.SetFailurePolicy, client, Kind.OK, False),
        (Kind.SET_DISPATCH_LIMITS, pb.SetDispatchLimits, client, Kind.OK, False),
        (Kind.PAUSE, pb.Pause, client, Kind.OK, False),
        (Kind.SEEK_SUBSCRIPTION, pb.SeekSubscription, client, Kind.OK, False),
        (Kind.SKIP, pb.Skip, client, Kind.OK, False),
        (Kind.MARK_DONE, pb.MarkDone, client, Kind.OK, False),
        (Kind.FETCH, pb.Fetch, client, Kind.FETCH_END, False),
        (Kind.FETCHED, None, broker, None, False),
        (Kind.FETCH_END, pb.FetchEnd, broker, None, False),
        (Kind.MOVED, pb.Moved, broker, None, True),
        (Kind.FIND_OFFSETS, pb.FindOffsets, client, Kind.OFFSETS_FOUND, False),
        (Kind.OFFSETS_FOUND, pb.OffsetsFound, broker, None, False),
        (Kind.CREATE_NAMESPACE, pb.CreateNamespace, client, Kind.OK, False),
        (Kind.DELETE_NAMESPACE, pb.DeleteNamespace, client, Kind.OK, False),
        (Kind.LIST_NAMESPACES, pb.ListNamespaces, client, Kind.NAMESPACES, False),
        (Kind.NAMESPACES, pb.Namespaces, broker, None, False),
        (
            Kind.DESCRIBE_NAMESPACE,
            pb.DescribeNamespace,
            client,
            Kind.NAMESPACE_DESCRIPTION,
            False,
        ),
        (Kind.NAMESPACE_DESCRIPTION, pb.NamespaceDescription, broker, None, False),
        (Kind.SET_NAMESPACE_POLICY, pb.SetNamespacePolicy, client, Kind.OK, False),
        (
            Kind.REGISTER_SCHEMA,
            pb.RegisterSchema,
            client,
            Kind.SCHEMA_REGISTERED,
            False,
        ),
        (Kind.SCHEMA_REGISTERED, pb.SchemaRegistered, broker, None, False),
        (Kind.GET_SCHEMA, pb.GetSchema, client, Kind.SCHEMA_VERSION, False),
        (Kind.SCHEMA_VERSION, pb.SchemaVersion, broker, None, False),
        (
            Kind.LIST_SCHEMA_VERSIONS,
            pb.ListSchemaVersions,
            client,
            Kind.SCHEMA_VERSIONS,
            False,
        ),
        (Kind.SCHEMA_VERSIONS, pb.SchemaVersions, broker, None, False),
        (Kind.LIST_SUBJECTS, pb.ListSubjects, client, Kind.SUBJECTS, False),
        (Kind.SUBJECTS, pb.Subjects, broker, None, False),
        (
            Kind.DESCRIBE_SUBJECT,
            pb.DescribeSubject,
            client,
            Kind.SUBJECT_DESCRIPTION,
            False,
        ),
        (Kind.SUBJECT_DESCRIPTION, pb.SubjectDescription, broker, None, False),
        (Kind.CHECK_SCHEMA, pb.CheckSchema, client, Kind.SCHEMA_CHECKED, False),
        (Kind.SCHEMA_CHECKED, pb.SchemaChecked, broker, None, False),
        (Kind.SET_COMPATIBILITY, pb.SetCompatibility, client, Kind.OK, False),
        (Kind.DELETE_SCHEMA, pb.DeleteSchema, client, Kind.OK, False),
        (Kind.BIND_SCHEMA, pb.BindSchema, client, Kind.OK, False),
        (Kind.GET_TOPIC_SCHEMA, pb.GetTopicSchema, client, Kind.TOPIC_SCHEMA, False),
        (Kind.TOPIC_SCHEMA, pb.TopicSchemaAnswer, broker, None, False),
        (Kind.HOLD_TOPIC, pb.HoldTopic, client, Kind.OK, False),
        (Kind.RELEASE_TOPIC, pb.ReleaseTopic, client, Kind.OK, False),
        (Kind.SET_ON_CORRUPTION, pb.SetOnCorruption, client, Kind.OK, False),
        (Kind.OPEN_STAGE, pb.OpenStage, client, Kind.STAGE_OPENED, True),
        (Kind.STAGE_OPENED, pb.StageOpened, broker, None, True),
        (Kind.CLOSE_STAGE, pb.CloseStage, client, Kind.OK, True),
        (Kind.STAGE, None, client, None, True),
        (Kind.STAGED, pb.Staged, broker, None, True),
        (Kind.FINISH_PART, pb.FinishPart, client, Kind.PART_FINISHED, False),
        (Kind.PART_FINISHED, pb.PartFinished, broker, None, False),
        (Kind.DROP_PART, pb.DropPart, client, Kind.OK, False),
        (Kind.COMMIT_STAGED, pb.CommitStaged, client, Kind.STAGED_COMMITTED, False),
        (Kind.STAGED_COMMITTED, pb.StagedCommitted, broker, None, False),
        (Kind.DROP_STAGED, pb.DropStaged, client, Kind.OK, False),
        (
            Kind.DESCRIBE_STAGING,
            pb.DescribeStaging,
            client,
            Kind.STAGING_DESCRIPTION,
            False,
        ),
        (Kind.STAGING_DESCRIPTION, pb.StagingDescription, broker, None, False),
    ]
    return {
        kind: KindRule(
            kind=kind,
            body=body,
            sender=sender,
            answer=answer,
            on_channel=on_channel,
            revision=_revision_of(kind),
        )
        for kind, body, sender, answer, on_channel in rows
    }


def _revision_of(kind: Kind) -> int:
    """In which revision *kind* was added."""
    if kind > Kind.TOPIC_SCHEMA or kind in _REVISION_3:
        return 3
    if kind >= Kind.REGISTER_SCHEMA:
        return 2
    return 1 if kind in _REVISION_1 else 0


_REVISION_3: set[int] = {30, 31, 84, 85}
_REVISION_1 = {
    *range(Kind.SET_TOPIC_LIMITS, Kind.PARTITIONS + 1),
    *range(Kind.DESCRIBE_SETTINGS, Kind.MARK_DONE + 1),
    *range(Kind.CREATE_NAMESPACE, Kind.SET_NAMESPACE_POLICY + 1),
}


KINDS: dict[Kind, KindRule] = _rules()
assert set(KINDS) == set(Kind)
_KIND_NUMBERS = {int(kind): kind for kind in Kind}


@dataclass(slots=True)
class RawFrame:
    """One frame whose body has not been looked at."""

    kind: Kind
    channel: int
    correlation: int
    body: bytearray


def header(kind: Kind, channel: int, correlation: int, body_length: int) -> bytes:
    """The 12 bytes before a body of *body_length* bytes."""
    return _HEADER.pack(
        _COUNTED_HEADER_BYTES + body_length, kind, 0, channel, correlation
    )


class FrameReader:
    """
    Cuts received bytes into frames.

    Made for ``asyncio.BufferedProtocol``: the socket writes into ``get_buffer``.
    Bounds: It holds one receive buffer while part of a frame is there, and the body
    of one frame that is longer.  The length of that frame was checked before, and
    its memory is taken by the next ``get_buffer``.
    """

    def __init__(self, frame_bytes_max: int = HANDSHAKE_BYTES_MAX) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._view: memoryview | None = None
        self._start = 0
        self._end = 0
        # A frame that does not fit into the buffer, and its body as far as it came.
        self._long: RawFrame | None = None
        self._long_filled = 0
        self._long_bytes = 0

    @property
    def long_frame_bytes(self) -> int:
        """How long a frame is that does not fit into the buffer; 0 without one."""
        return self._long_bytes

    @property
    def has_partial_frame(self) -> bool:
        """Whether bytes are there that make no complete frame."""
        return self._start != self._end or self._long_bytes > 0

    def get_buffer(self) -> memoryview:
        """Where the next received bytes go; empty only if frames fill the buffer."""
        long = self._long
        if long is not None:
            if len(long.body) < self._long_bytes:
                body = bytearray(self._long_bytes)
                body[: self._long_filled] = long.body
                long.body = body
            return memoryview(long.body)[self._long_filled :]
        if self._view is None:
            self._view = _take_buffer()
        elif self._start:
            self._move_to_front(self._view)
        return self._view[self._end :]

    def received(self, count: int) -> list[RawFrame]:
        """
        Take note of *count* bytes in the buffer; return the frames they complete.

        Raises:
            ProtocolViolation: A frame is longer than allowed or of no known
                kind; nothing after it can be trusted.
        """
        self.add(count)
        frames = []
        while (frame := self.next_frame()) is not None:
            frames.append(frame)
        return frames

    def feed(self, data: Buffer) -> list[RawFrame]:
        """Take bytes that somebody else received; return the frames they complete."""
        frames: list[RawFrame] = []
        view = memoryview(data)
        while view:
            buffer = self.get_buffer()
            count = min(len(buffer), len(view))
            buffer[:count] = view[:count]
            view = view[count:]
            frames += self.received(count)
        return frames

    def add(self, count: int) -> None:
        """Take note of *count* bytes in the buffer."""
        if self._long is None:
            self._end += count
        else:
            self._long_filled += count

    def next_frame(self) -> RawFrame | None:
        """
        Return the next complete frame, or None if more bytes are needed.

        Raises: As ``received``.
        """
        long, view = self._long, self._view
        if long is not None:
            if self._long_filled < self._long_bytes:
                return None
            self._long, self._long_bytes = None, 0
            return long
        start, end = self._start, self._end
        if end - start < HEADER_BYTES or view is None:
            if start == end:
                self._release_buffer()
            return None
        length, number, flags, channel, correlation = _HEADER.unpack_from(view, start)
        body_length = length - _COUNTED_HEADER_BYTES
        if body_length < 0 or length > self.frame_bytes_max:
            raise ProtocolViolation(
                f"a frame of {length} bytes; allowed are "
                f"{_COUNTED_HEADER_BYTES} to {self.frame_bytes_max}"
            )
        kind = _KIND_NUMBERS.get(number)
        if kind is None or flags:
            raise ProtocolViolation(
                f"a frame of unknown kind {number} or flags {flags:#x}"
            )
        body_at = start + HEADER_BYTES
        if end - body_at >= body_length:
            self._start = body_at + body_length
            body = bytearray(view[body_at : self._start])
            return RawFrame(kind, channel, correlation, body)
        if HEADER_BYTES + body_length > RECEIVE_BUFFER_BYTES:
            body = bytearray(view[body_at:end])
            self._long = RawFrame(kind, channel, correlation, body)
            self._long_filled = end - body_at
            self._long_bytes = body_length
            self._release_buffer()
        return None

    def release(self) -> None:
        """Give all memory back; nothing more is received."""
        self._long, self._long_bytes, self._long_filled = None, 0, 0
        self._release_buffer()

    def _release_buffer(self) -> None:
        view, self._view = self._view, None
        self._start = self._end = 0
        if view is not None and len(_free_buffers) < FREE_BUFFERS_MAX:
            _free_buffers.append(view)

    def _move_to_front(self, view: memoryview) -> None:
        length = self._end - self._start
        view[:length] = bytes(view[self._start : self._end])
        self._start, self._end = 0, length


_free_buffers: list[memoryview] = []
"""Receive buffers that no connection needs at the moment."""


def _take_buffer() -> memoryview:
    try:
        return _free_buffers.pop()
    except IndexError:
        return memoryview(bytearray(RECEIVE_BUFFER_BYTES))
