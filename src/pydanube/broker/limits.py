"""
The limits of a topic: their ranges, the publish rate, and the size of messages.

Pure: without connections and clocks.  A limit of 0 means no limit.
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
"""The original Danube's tools use unsigned 32-bit integers."""

BURST_S = 1.0
"""A topic that was idle may publish this many seconds' worth at once."""


class PublishRate:
    """
    A publish rate limit, enforced by delays.

    Messages above the rate are accepted, and delay those that follow.
    """

    def __init__(self, messages_per_s: float, now: float) -> None:
        self.messages_per_s = messages_per_s
        # When the rate is met again; in the past by up to the allowed burst.
        self._paid_at = now - BURST_S

    def take(self, count: int, now: float) -> None:
        """Count published messages."""
        begin = max(self._paid_at, now - BURST_S)
        self._paid_at = begin + count / self.messages_per_s

    def delay_s(self, now: float) -> float:
        """Return the seconds to wait before the next message."""
        return max(0.0, self._paid_at - now)

    def change(self, messages_per_s: float, now: float) -> None:
        """Change the rate, also for the delay of messages already published."""
        debt = self.delay_s(now) * self.messages_per_s
        self.messages_per_s = messages_per_s
        if debt:
            self._paid_at = now + debt / messages_per_s


def check_policy(policy: NamespacePolicy) -> None:
    """
    Raise if a limit is out of range.

    Raises:
        InvalidRequest: A limit is not between 0 and ``LIMIT_MAX``.
    """
    for field in fields(policy):
        limit = getattr(policy, field.name)
        if not 0 <= limit <= LIMIT_MAX:
            raise InvalidRequest(
                f"{field.name} must be 0 (no limit) to {LIMIT_MAX}, not {limit}"
            )


def verify(frame: BatchFrame, size_max: int, topic: TopicName) -> None:
    """
    Verify a published batch, and check its number and size of messages.

    Raises:
        CorruptBatch: The bytes are not the batch that the header describes.
        InvalidRequest: It has more than ``BATCH_MESSAGES_MAX`` messages.
        MessageTooLarge: A message is longer than *size_max* bytes.
    """
    if frame.count > BATCH_MESSAGES_MAX:
        # Checked before anything is decoded.
        raise InvalidRequest(
            f"a batch for {topic} has {frame.count} messages; at most "
            f"{BATCH_MESSAGES_MAX} are allowed: send several batches"
        )
    # A small batch has no large message, so usually none needs to be measured.
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
    """Return the error for a message of *size* bytes."""
    return MessageTooLarge(
        f"Message size {size} exceeds maximum allowed {size_max} for topic {topic}"
    )
