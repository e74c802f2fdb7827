"""The messages of a batch that fulfil conditions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from pydanube.client.messages.messages import Message, MessageBatch
from pydanube.model.errors import InvalidPayload, SchemaNotFound
from pydanube_cli.messages.pure.conditions import Condition


def select_messages(
    batch: MessageBatch, conditions: Sequence[Condition]
) -> MessageBatch:
    """
    Return the messages of *batch* that fulfil all *conditions*.

    A message whose payload cannot be decoded fulfils no condition on its value.
    """
    if not conditions:
        return batch
    selected = (each for each in batch if _is_selected(each, conditions))
    return MessageBatch.of(batch.topic, selected)


def _is_selected(message: Message, conditions: Sequence[Condition]) -> bool:
    parts: dict[str, Any] = {}
    for each in conditions:
        if each.root not in parts:
            try:
                parts[each.root] = _part_of(message, each.root)
            except InvalidPayload:
                return False
        if not each.accepts(parts[each.root]):
            return False
    return True


def _part_of(message: Message, root: str) -> Any:
    match root:
        case "key":
            return message.key
        case "attributes":
            return message.attributes
        case _:
            return _value_of(message)


def _value_of(message: Message) -> Any:
    """
    Return the value by the message's schema; without a schema, the payload is JSON.

    Raises:
        InvalidPayload: The payload cannot be decoded.
    """
    try:
        return message.value
    except SchemaNotFound as error:
        if message.schema_id:
            raise InvalidPayload(str(error)) from error
    try:
        return msgspec.json.decode(message.payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidPayload(f"not JSON: {error}") from error
