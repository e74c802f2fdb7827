"""The options of producers and consumers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from os import urandom
from typing import Any, Protocol, Required, TypedDict

from pydanube.client.messages.messages import Message
from pydanube.client.messages.writer_schemas import ValueDecoding
from pydanube.model.arguments import check
from pydanube.model.choices import AccessName, CompressionName, SubscriptionTypeName
from pydanube.model.errors import InvalidRequest
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.names import parse_client_name
from pydanube.model.policy import (
    Position,
    ProducerAccess,
    SubscriptionType,
    TopicPolicy,
)
from pydanube.model.positions import PositionLike
from pydanube.model.schemas import ProducerSchema
from pydanube.wire.batches import Codec, check_codec

LATEST = "latest"
"""The default version of a subject."""

_CODECS = {None: Codec.NONE, "lz4": Codec.LZ4, "zstd": Codec.ZSTD}


class ProducerKeywords(TypedDict, total=False):
    """
    The options of ``Client.producer`` that all producers have.

    Options:
        name: Identifies the producer across restarts: a newer producer of the same
            name fences an older one.  None: a random name.
        reliable: If the topic does not exist, create it as a reliable or non-reliable
            one; if it exists, require that kind.  None: create a reliable one, accept
            either.
        compression: ``"lz4"``, ``"zstd"`` or None.
        access: ``"shared"``: other producers may publish, too.  Otherwise this is the
            only producer of the topic: ``"exclusive"`` fails while there is another,
            ``"exclusive_wait"`` waits until the others have gone,
            ``"exclusive_fence"`` fences the others.
        partitions: If the topic does not exist, create it with this number of
            partitions; None: without partitions.

    Raises, when the producer is opened:
        TopicNotFound: The topic does not exist, and the broker does not create it.
        AlreadyExists: The topic is not of the kind that *reliable* requires.
        ProducerBusy: Another producer has, or this one wants, exclusive access.
    """

    name: str | None
    reliable: bool | None
    compression: CompressionName | None
    access: AccessName
    partitions: int | None


class TypedProducerKeywords(ProducerKeywords, total=False):
    """
    The options of ``Client.producer`` for producers of values.

    Options:
        schema: The schema of the values: a ``Schema``, or a class to derive it from.
            None with a *subject*: the schema of the subject.
        subject: The subject in the schema registry; None: the one that the topic is
            bound to, or else one named after the topic, ``default-orders``.
        schema_version: The version of the subject to write; ``"latest"``: the version
            that *schema* is, or the latest if there is no *schema*.
        schema_version_min: Refuse to write an older version than this.
        Others: As in ``ProducerKeywords``.

    Raises, when the producer is opened, besides the errors of all producers:
        SchemaNotFound: The subject or the version does not exist.
        IncompatibleSchema: *schema* is not compatible with the subject.
        OtherSchema: The topic is bound to another subject or version.
    """

    schema_version: int | str
    schema_version_min: int | None


class ConsumerKeywords(TypedDict, total=False):
    """
    The options of ``Client.consumer``.

    For a topic with partitions, the consumer receives the messages of all.  In a
    pattern of names, ``*`` stands for any text and ``?`` for one character.  A topic
    that is named and missing is created, as producers do, if the broker's setting
    ``topics.auto_create`` and the client's permissions allow it.

    Options:
        subscription: The name under which the broker remembers the progress, on each
            topic.
        type: ``"exclusive"``, ``"failover"``, ``"shared"`` or ``"key_shared"``.
        start: Where a new subscription begins: ``"latest"`` or ``"earliest"``, an
            offset, or a datetime for messages published since then.
        name: Identifies the consumer; a newer consumer of the same name replaces an
            older one.  None: a random name.
        ack_timeout_s: How long after its delivery an unacknowledged message is
            delivered again.  None: the subscription's setting, by default 30 s.
        prefetch_messages: How many messages the broker may send ahead; by default
            10,000, or 1,000 for shared and key-shared subscriptions.
        prefetch_bytes: How many bytes, before compression, it may send ahead.
        key_filters: For key-shared subscriptions: receive only keys that match one of
            these patterns, in which ``*`` stands for any text and ``?`` for one
            character.
        priority: For shared subscriptions: consumers with a lower number are served
            first, the others receive what these cannot take.
        schema: The reader schema, a class or a ``Schema`` with a class: what
            ``message.value`` is built as, and what messages without a schema are
            decoded as.  None: plain values, by each message's writer schema.

    Raises, when the consumer is opened:
        TopicNotFound: There is no such topic, and it may not be created.
        NamespaceNotFound: The namespace does not exist.
        ConsumerBusy: The subscription is exclusive and has a consumer.
    """

    subscription: Required[str]
    type: SubscriptionTypeName
    start: PositionLike
    name: str | None
    ack_timeout_s: float | None
    prefetch_messages: int | None
    prefetch_bytes: int
    key_filters: Iterable[str]
    priority: int


class ReadKeywords(TypedDict, total=False):
    """
    The options of ``Client.read``.

    Partitions are read one after the other; with *follow*, all at the same time: each
    in its order, and none between them.

    Options:
        start: An offset, ``"earliest"`` or ``"latest"``; or a datetime, for messages
            published since then.
        end: The first offset not to read; None: the present end of the topic.
        follow: Wait for new messages, until *end* or without end.  Partitions that are
            added are found within 5 seconds, and read from their beginning.
        prefetch_bytes: How many bytes, before compression, the reader holds: those that
            are iterated, and those that it requests ahead.
        schema: The reader schema, as in ``ConsumerKeywords``.

    Raises, while the batches are iterated:
        OffsetDropped: Retention has dropped *start*; the error names the first offset
            that still exists.
        TopicNotFound: There is no such topic, or it was deleted and created again while
            it was read.
        InvalidRequest: The topic has partitions, and an offset needs one of them; or it
            has more than 128, which are too many to follow together.
    """

    start: PositionLike
    end: int | None
    follow: bool
    prefetch_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """The options of a producer."""

    name: str
    is_anonymous: bool
    """True if the client chose the name."""
    policy: TopicPolicy | None = field(default_factory=TopicPolicy)
    """The policy of the topic if it does not exist yet; None: do not create it."""
    takes_any_kind: bool = True
    """True if an existing topic may be reliable or not."""
    codec: Codec = Codec.NONE
    access: ProducerAccess = ProducerAccess.SHARED
    schema: ProducerSchema | None = None
    """The version of a subject that payloads are written with; None: no schema."""


class SendReply(Protocol):
    """Publishes the reply to a message, as ``Consumer.reply`` does."""

    async def __call__(
        self,
        request: Message,
        payload: bytes | str,
        *,
        attributes: Mapping[str, str] | None,
        error: str | None,
    ) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """The options of a consumer."""

    subscription: str
    type: SubscriptionType
    start: Position
    name: str
    ack_timeout_s: float | None
    prefetch_messages: int
    prefetch_bytes: int
    key_filters: tuple[str, ...]
    priority: int
    decoding: ValueDecoding
    """Decodes payloads to values."""
    send_reply: SendReply
    """Publishes the reply to a message."""

    def __post_init__(self) -> None:
        if self.prefetch_messages < 1 or self.prefetch_bytes < 1:
            raise InvalidRequest(
                f"prefetch_messages is {self.prefetch_messages} and prefetch_bytes is "
                f"{self.prefetch_bytes}: both must be at least 1"
            )
        if self.key_filters and self.type is not SubscriptionType.KEY_SHARED:
            raise InvalidRequest("only key-shared subscriptions have key filters")


def parse_or_choose_name(what: str, name: str | None) -> str:
    """Return the name of a producer or consumer, a random one if *name* is None."""
    if name is None:
        return f"{what}-{urandom(6).hex()}"
    return parse_client_name(what, name)


def parse_codec(compression: str | None) -> Codec:
    """
    Return the codec that *compression* names.

    Raises:
        InvalidRequest: There is no such codec, or it needs Arrow, which is not
            installed.
    """
    if compression not in _CODECS:
        raise InvalidRequest(
            f"compression is 'lz4', 'zstd' or None, not {compression!r}"
        )
    check_codec(_CODECS[compression])
    return _CODECS[compression]


def parse_version(version: int | str) -> int | None:
    """
    Return the number of a version; None: the latest.

    Raises:
        InvalidRequest: *version* is neither ``"latest"`` nor a positive number.
    """
    if version == LATEST:
        return None
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise InvalidRequest(
            f"schema_version is a number from 1 on, or 'latest', not {version!r}"
        )
    return version


def check_max_messages(receive_batch: Callable[..., Any], count: int) -> None:
    """Raise unless *count* is the maximum of *receive_batch*."""
    try:
        is_valid = count >= 1
    except TypeError:
        check(receive_batch, {"max_messages": count})
        raise
    if not is_valid:
        raise InvalidRequest(f"max_messages is {count}: it must be at least 1")
