"""Which consumer of a key-shared subscription a key belongs to."""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING

from pydanube.dispatch.key_shared.hash_ring import HashRing
from pydanube.dispatch.message_spans import NOBODY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydanube.dispatch.key_shared.key_filters import KeyFilters

OWNERS_REMEMBERED_MAX = 16_384
"""About 2 MB."""


class _Level:
    """The consumers of one priority."""

    __slots__ = ("accepting", "choosy", "ring")

    def __init__(self) -> None:
        self.ring = HashRing()
        self.accepting: set[int] = set()
        """The consumers that accept every key."""
        self.choosy: dict[int, KeyFilters] = {}
        """The consumers that accept some keys."""

    def find(self, key: bytes) -> int | None:
        """The owner of *key* among the consumers that accept it, or None."""
        if not self.choosy:
            return self.ring.owner_of(key)
        eligible = self.accepting.union(
            consumer for consumer, filters in self.choosy.items() if filters.accept(key)
        )
        return self.ring.owner_of(key, eligible) if eligible else None


class KeyOwners:
    """
    The owner of each key among the consumers that accept it.

    Of these, the ones with the lowest priority value share the keys by consistent
    hashing: when a consumer comes or goes, few other keys change their owner.  A key
    that nobody accepts belongs to NOBODY.
    """

    __slots__ = ("_levels", "_order", "_owners", "_priorities")

    def __init__(self) -> None:
        self._priorities: dict[int, int] = {}
        self._levels: dict[int, _Level] = {}
        # The priorities of the levels, in order.
        self._order: list[int] = []
        # What was found out since somebody came or went.
        self._owners: dict[bytes, int] = {}

    def add(
        self, consumer: int, priority: int, filters: KeyFilters, name: str = ""
    ) -> None:
        """
        Let *consumer* have its share of the keys.

        The share follows from *name*, so a consumer that comes again under its name
        gets its keys back.  Numbers of consumers, which are the same in every
        subscription, are used only without a name: with them, the same keys would
        always share a consumer.
        """
        level = self._levels.get(priority)
        if level is None:
            level = self._levels[priority] = _Level()
            insort(self._order, priority)
        level.ring.add(consumer, name or str(consumer))
        if filters:
            level.choosy[consumer] = filters
        else:
            level.accepting.add(consumer)
        self._priorities[consumer] = priority
        self._owners.clear()

    def remove(self, consumer: int) -> None:
        """Leave the keys of *consumer* to others."""
        priority = self._priorities.pop(consumer)
        level = self._levels[priority]
        level.ring.remove(consumer)
        level.choosy.pop(consumer, None)
        level.accepting.discard(consumer)
        if not level.choosy and not level.accepting:
            del self._levels[priority]
            self._order.remove(priority)
        self._owners.clear()

    @property
    def priority_max(self) -> int | None:
        """The highest priority value whose consumers may own a key; None: any may."""
        for priority in self._order:
            # They leave nothing to those who come after them.
            if self._levels[priority].accepting:
                return priority
        return None

    def of(self, keys: Sequence[bytes]) -> list[int]:
        """The owners of *keys*."""
        owners = self._owners
        # The values are numbers of consumers or missing.
        found: list[int | None] = list(map(owners.get, keys))
        if None not in found:
            return found  # type: ignore[return-value]  # None is not in there.
        if len(owners) > OWNERS_REMEMBERED_MAX:
            owners.clear()
        for at, owner in enumerate(found):
            if owner is None:
                key = keys[at]
                found[at] = owners[key] = self._find(key)
        return found  # type: ignore[return-value]

    def _find(self, key: bytes) -> int:
        for priority in self._order:
            level = self._levels[priority]
            owner = level.find(key)
            if owner is not None:
                return owner
            if level.accepting:
                break
        return NOBODY
