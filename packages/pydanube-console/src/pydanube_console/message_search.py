"""
The search for messages in a topic, which is bounded so that it does not hurt a broker.

Bounds: A search reads at most ``bytes_max`` bytes, ``READ_BYTES_PER_S`` in each second,
and finds at most the number of messages that its caller asks for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pydanube.client.client import Client
from pydanube.client.messages.messages import Message
from pydanube.model.errors import BrokerError
from pydanube.model.positions import PositionLike
from pydanube_console.pure.payloads import is_match

READ_BYTES_MAX = 256 * 1024 * 1024
READ_BYTES_PER_S = 16 * 1024 * 1024
FOUND_MAX = 200
PREFETCH_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class FoundMessage:
    """One message, with its value if a schema decodes it."""

    message: Message
    value: Any


@dataclass(slots=True)
class Search:
    """A search, which is running or has ended."""

    found: list[FoundMessage] = field(default_factory=list)
    message_count: int = 0
    """How many messages were read."""
    byte_count: int = 0
    next_offset: int | None = None
    """Where to continue; None: the search has reached the end."""
    is_cancelled: bool = False
    bytes_max: int = READ_BYTES_MAX

    async def run(
        self,
        client: Client,
        topic: str,
        *,
        start: PositionLike,
        count: int = 50,
        key: str = "",
        text: str = "",
        on_progress: Callable[[], object] = lambda: None,
    ) -> None:
        """
        Find *count* messages from *start* on whose key is *key*, and that have *text*.

        Raises: As ``Client.read``.
        """
        word = text.lower().encode()
        wanted = key.encode()
        count = min(count, FOUND_MAX)
        began = time.monotonic()
        batches = client.read(topic, start=start, prefetch_bytes=PREFETCH_BYTES)
        async for batch in batches:
            for message in batch:
                self.message_count += 1
                self.byte_count += len(message.payload)
                if (not wanted or message.key_bytes == wanted) and (
                    not word
                    or is_match(
                        word, message.payload, message.key_bytes, message.attributes
                    )
                ):
                    self.found.append(FoundMessage(message, value_of(message)))
                if len(self.found) >= count or self.byte_count >= self.bytes_max:
                    self.next_offset = message.offset + 1
                    return
            on_progress()
            if self.is_cancelled:
                self.next_offset = message.offset + 1
                return
            ahead_s = self.byte_count / READ_BYTES_PER_S - (time.monotonic() - began)
            await asyncio.sleep(max(0.0, ahead_s))


def value_of(message: Message) -> Any:
    """Return what the schema of a message decodes it to; None: it cannot be decoded."""
    try:
        return message.value
    except (BrokerError, ValueError):
        return None


def sample(messages: list[FoundMessage], shown_max: int) -> list[FoundMessage]:
    """Return at most *shown_max* of *messages*, equally far apart."""
    step = max(1, -(-len(messages) // shown_max))
    return messages[::step]
