"""
Holds: somebody outside relies on a topic's segments as they are.

A table that registers segments where they are, without copying them, takes a hold
before it asks which segments there are.  From then on none of them is dropped or
replaced, and the topic is not deleted without force.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydanube.metadata import keys
from pydanube.metadata.records import HoldRecord
from pydanube.model.descriptions import Hold
from pydanube.model.errors import InvalidRequest, NotFound, TopicHeld

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydanube.metadata.store import MetadataStore
    from pydanube.model.ids import TopicId
    from pydanube.storage.topic_log import TopicLog

HOLDS_MAX = 100
"""So many may hold one topic."""


class RetentionHolds:
    """Who holds which topic; remembered in the metadata store."""

    def __init__(self, store: MetadataStore, wall_clock_us: Callable[[], int]) -> None:
        self._store = store
        self._wall_clock_us = wall_clock_us

    async def load(self, topic_log: TopicLog) -> None:
        """Let the log know who holds it; before anything can be dropped of it."""
        topic_log.holds = frozenset(
            hold.name for hold in await self.of(topic_log.topic_id)
        )

    async def of(self, topic_id: TopicId) -> tuple[Hold, ...]:
        """Who holds a topic, by name."""
        prefix = keys.holds_of(topic_id)
        return tuple(
            Hold(
                name=prefix.name_of(path),
                reason=stored.value.reason,
                created_at=stored.value.created_at,
            )
            for path, stored in await self._store.scan(prefix)
        )

    async def take(self, topic_log: TopicLog, name: str, reason: str) -> None:
        """
        Have *name* hold the topic; if it does already, it has another reason now.

        Durability: On return it is on disk, and nothing is on its way that would
            drop or replace a segment.

        Raises:
            InvalidRequest: HOLDS_MAX others hold it.
        """
        async with topic_log.maintenance:
            if name not in topic_log.holds and len(topic_log.holds) >= HOLDS_MAX:
                raise InvalidRequest(
                    f"{topic_log.name} is held by {HOLDS_MAX} others already"
                )
            record = HoldRecord(reason=reason, created_at=self._wall_clock_us())
            await self._store.put(keys.hold(topic_log.topic_id, name), record)
            topic_log.holds |= {name}

    async def release(self, topic_log: TopicLog, name: str) -> None:
        """
        Have *name* not hold the topic any more.

        Raises:
            NotFound: It does not.
        """
        async with topic_log.maintenance:
            if not await self._store.delete(keys.hold(topic_log.topic_id, name)):
                raise NotFound(f"{topic_log.name} is not held by {name!r}")
            topic_log.holds -= {name}


def check_no_holds(topic_log: TopicLog) -> None:
    """
    Let a topic pass that nobody holds.

    Raises:
        TopicHeld: Somebody does.
    """
    if topic_log.holds:
        raise TopicHeld(
            f"{topic_log.name} is held by {', '.join(sorted(topic_log.holds))}; "
            "release it first, or force the deletion"
        )
