"""Which consumer of a key-shared subscription a key belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydanube.dispatch.hash_ring import HashRing
from pydanube.dispatch.stretches import NOBODY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydanube.dispatch.key_filters import KeyFilters

OWNERS_REMEMBERED_MAX = 16_384
"""About 2 MB."""


class KeyOwners:
    """
    The owner of each key among the consumers that accept it.

    Of these, the ones with the lowest priority value share the keys by consistent
    hashing: when a consumer comes or goes, few other keys change their owner.  A key
    that nobody accepts belongs to NOBODY.
    """

    __slots__ = (
        "_filters",
        "_is_open",
        "_levels",
        "_owners",
        "_priorities",
        "_ring",
        "owning",
    )

    def __init__(self) -> None:
        self._ring = HashRing()
        self._filters: dict[int, KeyFilters] = {}
        self._priorities: dict[int, int] = {}
        # By priority: who accepts every key, and who may accept some.
        self._levels: list[tuple[set[int], dict[int, KeyFilters]]] = []
        # Everybody accepts every key, and all have the same priority.
        self._is_open = True
        # What was found out since somebody came or went.
        self._owners: dict[bytes, int] = {}
        self.owning: set[int] = set()
        """The consumers to which any key may belong."""

    def add(self, consumer: int, priority: int, filters: KeyFilters) -> None:
        """Let *consumer* have its share of the keys."""
        self._ring.add(consumer, str(consumer))
        self._filters[consumer] = filters
        self._priorities[consumer] = priority
        self._arrange()

    def remove(self, consumer: int) -> None:
        """Leave the keys of *consumer* to others."""
        self._ring.remove(consumer)
        del self._filters[consumer]
        del self._priorities[consumer]
        self._arrange()

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
        owner = None
        if self._is_open:
            owner = self._ring.owner_of(key)
        for accepting, choosy in self._levels if owner is None else ():
            eligible = accepting.union(
                consumer for consumer, filters in choosy.items() if filters.accept(key)
            )
            if eligible:
                owner = self._ring.owner_of(key, eligible)
                break
        return NOBODY if owner is None else owner

    def _arrange(self) -> None:
        self._owners.clear()
        self._levels = []
        for priority in sorted(set(self._priorities.values())):
            level = [c for c, its in self._priorities.items() if its == priority]
            choosy = {c: self._filters[c] for c in level if self._filters[c]}
            accepting = {c for c in level if c not in choosy}
            self._levels.append((accepting, choosy))
            if accepting:
                # They leave nothing to those who come after them.
                break
        self.owning = {c for level in self._levels for part in level for c in part}
        self._is_open = not any(self._filters.values()) and (
            len(set(self._priorities.values())) <= 1
        )
