"""The UUIDs by which Kafka clients know topics."""

from __future__ import annotations

from uuid import UUID

_UPPER = int.from_bytes(b"danube\x80\0")


def uuid_of(topic_id: int) -> UUID:
    """Return the UUID of a topic whose first partition has the id *topic_id*."""
    return UUID(int=_UPPER << 64 | topic_id)
