"""Numbers that mean different things, told apart by the type checker."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import NewType

Offset = NewType("Offset", int)
"""The place of a message in its topic: 0 for the first, no gaps."""

Epoch = NewType("Epoch", int)
"""How many times a topic has been claimed; writes of an older epoch are refused."""

TopicId = NewType("TopicId", int)
"""A topic's number for its whole life; a topic created again gets a new one."""

ProducerId = NewType("ProducerId", int)
"""A named producer's number within its topic."""

Sequence = NewType("Sequence", int)
"""A producer's own count of messages: 0 for its first, no gaps."""

NUMBER_BITS = 53
"""So many survive JavaScript, jq and Java's signed numbers."""


def number_of(name: tuple[str, ...], attempt: int = 0) -> int:
    """
    A number from 1 to 2**53 - 1 for *name*, always the same.

    *attempt* gives the next one, for whoever finds that number taken.
    """
    # No part holds the separator: names are printable.
    text = "\0".join((*name, str(attempt)) if attempt else name)
    digest = blake2b(text.encode(), digest_size=8).digest()
    return (int.from_bytes(digest) >> (64 - NUMBER_BITS)) or 1


@lru_cache(maxsize=4096)
def producer_id_of(topic: str, producer: str) -> int:
    """The number of a topic's producer in Danube's interface, always the same."""
    return number_of(("producer", topic, producer))
