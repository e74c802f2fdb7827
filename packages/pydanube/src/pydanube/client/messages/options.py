"""The options of producers and consumers."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, Required, TypedDict

from pydanube.client.messages.messages import Message
from pydanube.client.messages.writer_schemas import ValueDecoding
from pydanube.model.arguments import check
from pydanube.model.choices import AccessName, CompressionName, SubscriptionTypeName
from pydanube.model.errors import InvalidRequest
from pydanube.model.names import parse_client_name
from pydanube.model.policy import (
    Position,
    ProducerAccess,
    SubscriptionType,
    TopicPolicy,
)
from pydanube.model.positions import PositionLike
from pydanube.model.schemas import ProducerSchema
from pydanube.wire.batches import Codec

LATEST = "latest"
"""The default version of a subject."""

_CODECS = {None: Codec.NONE, "lz4": Codec.LZ4, "zstd": Codec.ZSTD}


class ProducerKeywords(TypedDict, total=False):
    """The options of ``Client.producer`` that all producers have."""

    name: str | None
    reliable: bool | None
    compression: CompressionName | None
    access: AccessName
    partitions: int | None


class TypedProducerKeywords(ProducerKeywords, total=False):
    """The options of ``Client.producer`` for producers of values."""

    schema_version: int | str
    schema_version_min: int | None


class ConsumerKeywords(TypedDict, total=False):
    """The options of ``Client.consumer``, except for the schema."""

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
    """The options of ``Client.read``, except for the schema."""

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
        return f"{what}-{uuid.uuid4().hex[:12]}"
    return parse_client_name(what, name)


def parse_codec(compression: str | None) -> Codec:
    """
    Return the codec that *compression* names.

    Raises:
        InvalidRequest: There is no such codec.
    """
    if compression not in _CODECS:
        raise InvalidRequest(
            f"compression is 'lz4', 'zstd' or None, not {compression!r}"
        )
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
