"""Numbers that mean different things, told apart by the type checker."""

from __future__ import annotations

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
