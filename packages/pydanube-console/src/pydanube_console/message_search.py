"""
The search for messages in a topic, which is bounded so that it does not hurt a broker.

Bounds: A search reads at most ``bytes_max`` bytes, ``READ_BYTES_PER_S`` in each second,
and finds at most the number of messages that its caller asks for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from pydanube.client.client import Client
from pydanube.client.messages.messages import Message
from pydanube.model.errors import BrokerError
from pydanube.model.positions import PositionLike
from pydanube_cli.messages.message_selection import is_selected
from pydanube_cli.messages.pure.conditions import Condition
from pydanube_console.pure.payloads import is_match

READ_BYTES_MAX = 256 * 1024 * 1024
READ_BYTES_PER_S = 16 * 1024 * 1024
FOUND_MAX = 200
PREFETCH_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFilter:
    """The messages that a search is for; by default all."""

    key: str = ""
    """The whole key; empty: any."""
    text: str = ""
    """A part of the payload, the key or an attribute, in any case; empty: any."""
    conditions: tuple[Condition, ...] = ()
    """Conditions on fields, all of which must hold."""

    def accepts(self, message: Message) -> bool:
        """Return whether the search is for *message*."""
        if self.key and message.key_bytes != self.key.encode():
            return False
        if self.text and not is_match(
            self.text.lower().encode(),
            message.payload,
            message.key_bytes,
            message.attributes,
        ):
            return False
        return is_selected(message, self.conditions)


ALL = MessageFilter()


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
        wanted: MessageFilter = ALL,
        on_progress: Callable[[], object] = lambda: None,
    ) -> None:
        """
        Find *count* messages from *start* on that *wanted* accepts.

        Raises: As ``Client.read``.
        """
        count = min(count, FOUND_MAX)
        matches = self.matches(
            client, topic, start=start, wanted=wanted, on_progress=on_progress
        )
        async with aclosing(matches):
            async for message in matches:
                self.found.append(FoundMessage(message, value_of(message)))
                if len(self.found) >= count:
                    self.next_offset = message.offset + 1
                    return

    async def matches(
        self,
        client: Client,
        topic: str,
        *,
        start: PositionLike,
        wanted: MessageFilter,
        on_progress: Callable[[], object] = lambda: None,
    ) -> AsyncGenerator[Message, None]:
        """
        Yield the messages from *start* on that *wanted* accepts.

        Raises: As ``Client.read``.
        """
        began = time.monotonic()
        batches = client.read(topic, start=start, prefetch_bytes=PREFETCH_BYTES)
        async for batch in batches:
            for message in batch:
                self.message_count += 1
                self.byte_count += len(message.payload)
                if wanted.accepts(message):
                    yield message
                if self.byte_count >= self.bytes_max:
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
