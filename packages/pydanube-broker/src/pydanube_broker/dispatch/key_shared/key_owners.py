"""The owners of the keys of a key-shared subscription."""

from __future__ import annotations

from collections.abc import Sequence

from pydanube_broker.dispatch.key_shared.hash_ring import HashRing
from pydanube_broker.dispatch.key_shared.key_filters import KeyFilters
from pydanube_broker.dispatch.message_spans import NOBODY

OWNERS_REMEMBERED_MAX = 16_384
"""About 2 MB."""


class _PriorityGroup:
    """The consumers of one priority."""

    __slots__ = ("accepting", "filtering", "ring")

    def __init__(self) -> None:
        self.ring = HashRing()
        self.accepting: set[int] = set()
        """The consumers that accept every key."""
        self.filtering: dict[int, KeyFilters] = {}
        """The consumers that accept some keys."""

    def find(self, key: bytes) -> int | None:
        """Return the owner of *key* among the consumers that accept it, or None."""
        if not self.filtering:
            return self.ring.owner_of(key)
        eligible = self.accepting.union(
            consumer
            for consumer, filters in self.filtering.items()
            if filters.accept(key)
        )
        return self.ring.owner_of(key, eligible) if eligible else None


class KeyOwners:
    """
    The owner of each key among the consumers that accept it.

    The consumers with the lowest priority value share the keys by consistent hashing:
    when a consumer joins or leaves, few other keys change their owner.  A key that no
    consumer accepts belongs to NOBODY.
    """

    __slots__ = ("_groups", "_owners", "_priorities")

    def __init__(self) -> None:
        self._priorities: dict[int, int] = {}
        # By priority, lowest first.
        self._groups: dict[int, _PriorityGroup] = {}
        # A cache; joining and leaving consumers clear it.
        self._owners: dict[bytes, int] = {}

    def add(
        self, consumer: int, priority: int, filters: KeyFilters, name: str = ""
    ) -> None:
        """
        Add *consumer* to the owners.

        Its keys depend on *name*, so a consumer that reconnects under its name gets
        its keys back.  The number of the consumer is used only if it has no name:
        numbers are the same in every subscription, so the same keys would always
        share a consumer.
        """
        group = self._groups.get(priority)
        if group is None:
            group = _PriorityGroup()
            self._groups = dict(sorted([*self._groups.items(), (priority, group)]))
        group.ring.add(consumer, name or str(consumer))
        if filters:
            group.filtering[consumer] = filters
        else:
            group.accepting.add(consumer)
        self._priorities[consumer] = priority
        self._owners.clear()

    def remove(self, consumer: int) -> None:
        """Remove *consumer*; others own its keys."""
        priority = self._priorities.pop(consumer)
        group = self._groups[priority]
        group.ring.remove(consumer)
        group.filtering.pop(consumer, None)
        group.accepting.discard(consumer)
        if not group.filtering and not group.accepting:
            del self._groups[priority]
        self._owners.clear()

    @property
    def priority_max(self) -> int | None:
        """The highest priority value whose consumers may own a key; None: no limit."""
        for priority, group in self._groups.items():
            # These accept every key, so higher priority values get none.
            if group.accepting:
                return priority
        return None

    def owners_of(self, keys: Sequence[bytes]) -> list[int]:
        """Return the owners of *keys*."""
        owners = self._owners
        found: list[int | None] = list(map(owners.get, keys))
        if None not in found:
            return found  # type: ignore[return-value]  # None is not in it.
        if len(owners) > OWNERS_REMEMBERED_MAX:
            owners.clear()
        for at, owner in enumerate(found):
            if owner is None:
                key = keys[at]
                found[at] = owners[key] = self._find(key)
        return found  # type: ignore[return-value]

    def _find(self, key: bytes) -> int:
        for group in self._groups.values():
            owner = group.find(key)
            if owner is not None:
                return owner
            if group.accepting:
                break
        return NOBODY
