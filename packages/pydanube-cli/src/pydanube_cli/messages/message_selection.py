"""The messages of a batch that fulfil conditions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydanube.client.messages.messages import Message, MessageBatch
from pydanube.model.errors import InvalidPayload
from pydanube_cli.messages.message_fields import part_of
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
                parts[each.root] = part_of(message, each.root)
            except InvalidPayload:
                return False
        if not each.accepts(parts[each.root]):
            return False
    return True
