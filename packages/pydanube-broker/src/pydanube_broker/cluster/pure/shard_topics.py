"""
Which shard a topic belongs to.

The shard is chosen once, when the topic is created, and recorded with the topic.
"""

from __future__ import annotations

from crc32c import crc32c

from pydanube.model.names import TopicName


def shard_of(name: TopicName, shard_count: int) -> int:
    """Return the shard of a new topic, out of *shard_count*."""
    checksum: int = crc32c(str(name).encode())
    return checksum % shard_count
