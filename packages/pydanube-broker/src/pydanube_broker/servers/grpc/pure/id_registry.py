"""
The numbers of producers and consumers.

The protocol of Danube identifies a producer or consumer by a number from the broker.
This broker derives the numbers from names, so they stay the same after a reconnect or
a restart, and an old number still identifies the same client.  They have 53 bits,
which JavaScript, jq and Java's signed numbers can represent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from pydanube.model.ids import stable_id

T = TypeVar("T")


class IdRegistry(Generic[T]):
    """Items of one kind by name and by number; numbers are unique."""

    def __init__(
        self,
        kind: str,
        *,
        stable_id: Callable[[tuple[str, ...], int], int] = stable_id,
    ) -> None:
        self._kind = kind
        self._stable_id = stable_id
        self._numbers: dict[tuple[str, ...], int] = {}
        self._things: dict[int, T] = {}

    def __len__(self) -> int:
        return len(self._things)

    def add(self, name: tuple[str, ...], thing: T) -> int:
        """Add *thing* under the new name *name*, and return its number."""
        assert name not in self._numbers
        attempt = 0
        while (number := self._stable_id((self._kind, *name), attempt)) in self._things:
            # Happens on one in 10,000 brokers with a million producers each.
            attempt += 1
        self.restore(name, number, thing)
        return number

    def restore(self, name: tuple[str, ...], number: int, thing: T) -> None:
        """Add *thing* under the number that it had before."""
        assert name not in self._numbers
        assert number not in self._things
        self._numbers[name] = number
        self._things[number] = thing

    def remove(self, name: tuple[str, ...]) -> None:
        """Remove the item under *name*."""
        del self._things[self._numbers.pop(name)]

    def get(self, number: int) -> T | None:
        """Return the item with this number, if any."""
        return self._things.get(number)

    def find(self, name: tuple[str, ...]) -> T | None:
        """Return the item under *name*, if any."""
        number = self._numbers.get(name)
        return None if number is None else self._things[number]

    def values(self) -> list[T]:
        """Return all items in the order in which they were added."""
        return list(self._things.values())
