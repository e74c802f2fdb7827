"""
Retention holds: external readers that rely on a topic's segments as they are.

A table that registers segments without copying them adds a hold before it lists the
segments.  From then on none of them is dropped or replaced, and the topic cannot be
deleted without force.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from pydanube.model.descriptions import Hold
from pydanube.model.errors import InvalidRequest, NotFound
from pydanube.model.ids import TopicId
from pydanube_broker.broker.topics.owned_changes import change_owned
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.records import HoldRecord
from pydanube_broker.metadata.store import Delete, MetadataStore, Put
from pydanube_broker.storage.segments.topic_log import TopicLog

log = logging.getLogger(__name__)

US_PER_S = 1_000_000
HOLDS_MAX = 100
"""The number of holds that one topic may have."""


class RetentionHolds:
    """The retention holds of all topics, in the metadata store."""

    def __init__(self, store: MetadataStore, wall_clock_us: Callable[[], int]) -> None:
        self._store = store
        self._wall_clock_us = wall_clock_us

    async def load(self, topic_log: TopicLog) -> None:
        """Load a topic's holds; must be called before segments can be dropped."""
        holds = await self.list(topic_log.topic_id)
        topic_log.holds = frozenset(hold.name for hold in holds)

    async def list(self, topic_id: TopicId) -> tuple[Hold, ...]:
        """Return the holds of a topic, sorted by name."""
        prefix = keys.HOLDS.within(topic_id)
        return tuple(
            Hold(
                name=prefix.name_of(path),
                reason=stored.value.reason,
                created_at=stored.value.created_at,
                expires_at=stored.value.expires_at,
            )
            for path, stored in await self._store.scan(prefix)
        )

    async def find_expired(self) -> set[TopicId]:
        """Return the topics with holds that have expired."""
        now = self._wall_clock_us()
        found = await self._store.scan(keys.HOLDS)
        return {
            TopicId(int(keys.HOLDS.name_of(path).partition("/")[0]))
            for path, stored in found
            if _is_over(stored.value.expires_at, now)
        }

    async def remove_expired(self, topic_log: TopicLog) -> None:
        """
        Remove the holds of a topic that have expired.

        Raises:
            NotOwner: Another broker serves the topic now; nothing was changed.
        """
        async with topic_log.maintenance:
            now = self._wall_clock_us()
            for hold in await self.list(topic_log.topic_id):
                if _is_over(hold.expires_at, now):
                    key = keys.HOLDS.key(topic_log.topic_id, hold.name)
                    await change_owned(self._store, topic_log, [Delete(key)])
                    topic_log.holds -= {hold.name}
                    log.info("the hold %s on %s has expired", hold.name, topic_log.name)

    async def add(
        self,
        topic_log: TopicLog,
        name: str,
        reason: str,
        *,
        expires_in_s: float | None = None,
    ) -> None:
        """
        Add the hold *name* to a topic, or change its reason and expiry.

        Durability: On return the hold is on disk, and none of the topic's present or
            later segments is dropped or replaced until the hold is removed.

        Raises:
            InvalidRequest: The topic has HOLDS_MAX other holds.
            NotOwner: Another broker serves the topic now; nothing was changed.
        """
        async with topic_log.maintenance:
            if name not in topic_log.holds and len(topic_log.holds) >= HOLDS_MAX:
                raise InvalidRequest(
                    f"{topic_log.name} has {HOLDS_MAX} holds already; release one"
                )
            now, expires_at = self._wall_clock_us(), None
            if expires_in_s is not None:
                expires_at = now + int(expires_in_s * US_PER_S)
            record = HoldRecord(reason=reason, created_at=now, expires_at=expires_at)
            key = keys.HOLDS.key(topic_log.topic_id, name)
            await change_owned(self._store, topic_log, [Put(key, record)])
            topic_log.holds |= {name}

    async def remove(self, topic_log: TopicLog, name: str) -> None:
        """
        Remove the hold *name* from a topic.

        Raises:
            NotFound: The topic has no such hold.
            NotOwner: Another broker serves the topic now; nothing was changed.
        """
        async with topic_log.maintenance:
            key = keys.HOLDS.key(topic_log.topic_id, name)
            if await self._store.get(key) is None:
                raise NotFound(f"{topic_log.name} has no retention hold {name!r}")
            await change_owned(self._store, topic_log, [Delete(key)])
            topic_log.holds -= {name}


def _is_over(expires_at: int | None, now: int) -> bool:
    return expires_at is not None and expires_at <= now
