"""
The limits of a topic: their ranges, and the size of messages.

Pure: without connections and clocks.  A limit of 0 means no limit.
"""

from __future__ import annotations

from dataclasses import fields

from pydanube.model.arrow import pc
from pydanube.model.batch import Column, check_attributes
from pydanube.model.errors import (
    CorruptBatch,
    InvalidRequest,
    MessageTooLarge,
    QuotaExceeded,
)
from pydanube.model.names import TopicName
from pydanube.model.policy import NamespacePolicy
from pydanube.wire.batches import BATCH_MESSAGES_MAX, BatchFrame, BatchHeader

LIMIT_MAX = 2**32 - 1
"""The original Danube's tools use unsigned 32-bit integers."""


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


def check_quota(what: str, count: int, count_max: int) -> None:
    """
    Raise if there are as many as allowed already.

    Raises:
        QuotaExceeded: *count* is not below *count_max* (0: no limit).
    """
    if 0 < count_max <= count:
        raise QuotaExceeded(f"{what}. Current: {count}, Limit: {count_max}")


def check_header(header: BatchHeader, producer: str) -> None:
    """Raise if a header names another producer, or columns that the broker adds."""
    if header.producer != producer:
        raise InvalidRequest(
            f"the batch names the producer {header.producer!r}; its channel belongs to "
            f"{producer!r}"
        )
    if header.columns & (Column.OFFSET | Column.PRODUCER):
        raise InvalidRequest("a batch must not have the columns offset and producer")


def verify(frame: BatchFrame, size_max: int, topic: TopicName) -> None:
    """
    Verify a published batch, and check its number and size of messages.

    Raises:
        InvalidRequest: It is damaged, has more than ``BATCH_MESSAGES_MAX`` messages, or
            has attributes that ``check_attributes`` refuses.
        MessageTooLarge: A message is longer than *size_max* bytes.
    """
    if frame.count > BATCH_MESSAGES_MAX:
        # Checked before anything is decoded.
        raise InvalidRequest(
            f"a batch for {topic} has {frame.count} messages; at most "
            f"{BATCH_MESSAGES_MAX} are allowed: send several batches"
        )
    try:
        size = _verify_and_measure(frame, size_max)
    except CorruptBatch as error:
        raise InvalidRequest(f"the batch is damaged: {error}") from error
    if size_max and size > size_max:
        raise too_large(size, size_max, topic)


def _verify_and_measure(frame: BatchFrame, size_max: int) -> int:
    """Return the size of the longest message, or of all if that is small enough."""
    needs_no_measure = not size_max or frame.plain_body_bytes <= size_max
    small = frame.decode_small_batch()
    if small is not None:
        frame.verify_small(small)
        return frame.plain_body_bytes if needs_no_measure else small.longest
    batch = frame.check()
    check_attributes(batch)
    if needs_no_measure:
        return frame.plain_body_bytes
    return int(pc.max(pc.binary_length(batch.column("payload"))).as_py())


def too_large(size: int, size_max: int, topic: TopicName) -> MessageTooLarge:
    """Return the error for a message of *size* bytes."""
    return MessageTooLarge(
        f"Message size {size} exceeds maximum allowed {size_max} for topic {topic}"
    )
