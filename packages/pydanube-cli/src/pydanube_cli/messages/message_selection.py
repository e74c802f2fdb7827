"""The messages of a batch that fulfil conditions."""

from __future__ import annotations

from collections.abc import Sequence

from pydanube.client.messages.messages import Message, MessageBatch
from pydanube.model.errors import InvalidPayload
from pydanube_cli.messages.message_fields import MessageParts
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
    selected = (each for each in batch if is_selected(each, conditions))
    return MessageBatch.of(batch.topic, selected)


def is_selected(message: Message, conditions: Sequence[Condition]) -> bool:
    """Return whether *message* fulfils all *conditions*; as ``select_messages``."""
    parts = MessageParts(message)
    try:
        return all(each.accepts(parts.get(each.root)) for each in conditions)
    except InvalidPayload:
        return False
