"""Messages that the broker itself publishes, and what they come from."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.names import TopicName
from pydanube.wire.batches import BatchFrame
from pydanube.wire.files.journal_format import INTERNAL_PREFIX

DEAD_LETTER_PRODUCERS = f"{INTERNAL_PREFIX}dead-letters/"
"""The beginning of the names of subscriptions as producers of dead letters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The origin of messages that the broker publishes; a producer of their topic."""

    producer: str
    """Its name as a producer, which begins with ``INTERNAL_PREFIX``."""
    generation: int
    """Rises when the same positions become new messages."""
    epoch: int
    """Rises with each broker that publishes for the source."""
    settled: int = 0
    """Messages at lower positions are never sent again."""


@dataclass(frozen=True, slots=True)
class InternalBatch:
    """Messages with one schema, and the position of each in its source."""

    positions: Sequence[int]
    frame: BatchFrame
    """Its header names the source as the producer."""


PublishInternally: TypeAlias = Callable[
    [TopicName, Source, Sequence[InternalBatch]], Awaitable[None]
]
"""``InternalPublisher.publish``"""
