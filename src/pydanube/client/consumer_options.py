"""The options of a consumer."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydanube.model.errors import InvalidRequest
from pydanube.model.names import parse_client_name, parse_subscription
from pydanube.model.policy import Position, SubscriptionType
from pydanube.model.positions import PositionLike, parse_choice, to_position

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydanube.client.writer_schemas import ValueDecoding


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

    @classmethod
    def of(
        cls,
        subscription: str,
        type: str,  # noqa: A002  # As in Client.consumer.
        start: PositionLike,
        name: str | None,
        *,
        ack_timeout_s: float | None,
        prefetch_messages: int | None,
        prefetch_bytes: int,
        key_filters: Iterable[str],
        priority: int,
        decoding: ValueDecoding,
    ) -> ConsumerOptions:
        """Return the options that ``Client.consumer`` is called with."""
        type_ = parse_choice("type", type, SubscriptionType)
        if prefetch_messages is None:
            is_shared = type_ in (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED)
            prefetch_messages = 1_000 if is_shared else 10_000
        if prefetch_messages < 1 or prefetch_bytes < 1:
            raise InvalidRequest(
                f"prefetch_messages is {prefetch_messages} and prefetch_bytes is "
                f"{prefetch_bytes}: both must be at least 1"
            )
        if isinstance(key_filters, str):
            raise InvalidRequest(
                f"key_filters is {key_filters!r}: pass a list, for example ['user-*']"
            )
        filters = tuple(key_filters)
        if filters and type_ is not SubscriptionType.KEY_SHARED:
            raise InvalidRequest("only key-shared subscriptions have key filters")
        return cls(
            subscription=parse_subscription(subscription),
            type=type_,
            start=to_position(start),
            name=(
                f"consumer-{uuid.uuid4().hex[:12]}"
                if name is None
                else parse_client_name("consumer", name)
            ),
            ack_timeout_s=ack_timeout_s,
            prefetch_messages=prefetch_messages,
            prefetch_bytes=prefetch_bytes,
            key_filters=filters,
            priority=priority,
            decoding=decoding,
        )
