"""Number types that the type checker keeps apart, and stable ids."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import NewType

Offset = NewType("Offset", int)
"""The position of a message in its topic, from 0."""

Epoch = NewType("Epoch", int)
"""The number of times a topic was claimed; writes of an older epoch are refused."""

TopicId = NewType("TopicId", int)
"""The number of a topic until it is deleted; a topic created again gets a new one."""

ProducerId = NewType("ProducerId", int)
"""The number of a named producer within its topic."""

Sequence = NewType("Sequence", int)
"""A producer's count of its messages, from 0, without gaps."""

NUMBER_BITS = 53
"""The most bits that JavaScript and jq represent exactly."""


def stable_id(name: tuple[str, ...], attempt: int = 0) -> int:
    """
    Return a number from 1 to 2**53 - 1 for *name*, always the same one.

    A higher *attempt* returns another number, for callers whose number is taken.
    """
    # Names are printable, so no part contains the separator.
    text = "\0".join((*name, str(attempt)) if attempt else name)
    digest = blake2b(text.encode(), digest_size=8).digest()
    return (int.from_bytes(digest) >> (64 - NUMBER_BITS)) or 1


@lru_cache(maxsize=4096)
def producer_id_of(topic: str, producer: str) -> int:
    """Return the number of a topic's producer in Danube's API, always the same one."""
    return stable_id(("producer", topic, producer))
