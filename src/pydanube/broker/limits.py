"""
What the limits of a topic mean: who is let in, what is too large, who has to wait.

Nothing here knows a connection or a clock.  A limit of 0 is none.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from pydanube.model.errors import InvalidRequest, MessageTooLarge
from pydanube.wire.batches import BATCH_MESSAGES_MAX

if TYPE_CHECKING:
    from pydanube.model.names import TopicName
    from pydanube.model.policy import NamespacePolicy
    from pydanube.wire.batches import BatchFrame

LIMIT_MAX = 2**32 - 1
"""Danube's tools know limits as unsigned numbers of 32 bits."""

BURST_S = 1.0
"""Who published nothing for so long may publish that much at once."""


class PublishRate:
    """
    A rate that is kept by debt: whatever was published is taken and counted.

    Who is ahead of the rate is told how long to wait until it has caught up.
    """

    def __init__(self, messages_per_s: float, now: float) -> None:
        self.messages_per_s = messages_per_s
        # When the debt is paid; in the past, as far as a burst is allowed.
        self._paid_at = now - BURST_S

    def take(self, count: int, now: float) -> None:
        """So many messages were published."""
        begin = max(self._paid_at, now - BURST_S)
        self._paid_at = begin + count / self.messages_per_s

    def delay_s(self, now: float) -> float:
        """How long to wait before the next message; 0 if it may come."""
        return max(0.0, self._paid_at - now)

    def change(self, messages_per_s: float, now: float) -> None:
        """Another rate holds; what was published already is paid at that rate."""
        debt = self.delay_s(now) * self.messages_per_s
        self.messages_per_s = messages_per_s
        if debt:
            self._paid_at = now + debt / messages_per_s


def check_policy(policy: NamespacePolicy) -> None:
    """
    Let a policy pass that a topic can follow.

    Raises:
        InvalidRequest: A limit is negative or beyond what tools can show.
    """
    for field in fields(policy):
        limit = getattr(policy, field.name)
        if not 0 <= limit <= LIMIT_MAX:
            raise InvalidRequest(
                f"{field.name} must be 0 (no limit) to {LIMIT_MAX}, not {limit}"
            )


def verify(frame: BatchFrame, size_max: int, topic: TopicName) -> None:
    """
    Check a published batch as its ``verify`` does, and the size of its messages.

    Raises:
        CorruptBatch: The bytes are not the batch that the header describes.
        InvalidRequest: It has more than ``BATCH_MESSAGES_MAX`` messages.
        MessageTooLarge: A message is longer than *size_max* bytes.
    """
    if frame.count > BATCH_MESSAGES_MAX:
        # Before anything is decoded.
        raise InvalidRequest(
            f"a batch of {frame.count} messages for {topic}; a batch has at most "
            f"{BATCH_MESSAGES_MAX}: send it in several"
        )
    # No message is longer than the whole, so nearly always nothing is measured.
    if not size_max or frame.plain_body_bytes <= size_max:
        frame.verify()
        return
    small = frame.decode_small_batch()
    if small is not None:
        frame.verify()
        size = small.longest
    else:
        lengths = pc.binary_length(frame.check().column("payload"))
        size = pc.max(lengths).as_py()
    if size > size_max:
        raise too_large(size, size_max, topic)


def too_large(size: int, size_max: int, topic: TopicName) -> MessageTooLarge:
    """What the sender of a message of *size* bytes is told."""
    return MessageTooLarge(
        f"Message size {size} exceeds maximum allowed {size_max} for topic {topic}"
    )
