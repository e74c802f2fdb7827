"""
Numbers for producers and consumers, and who has which.

The interface of Danube names a producer or consumer by a number that the broker gave
it.  Ours are made from names, so they are the same after a reconnect and after a
restart: a client that goes on asking about an old number asks about itself.  53 bits
survive JavaScript, jq and Java's signed numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from pydanube.model.ids import stable_id

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class IdRegistry(Generic[T]):
    """Things of one kind by name and by number; no two have the same number."""

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
        """Put *thing* in under *name*, which is new here; its number."""
        assert name not in self._numbers
        attempt = 0
        while (number := self._stable_id((self._kind, *name), attempt)) in self._things:
            # Once in ten thousand brokers with a million producers each.
            attempt += 1
        self.restore(name, number, thing)
        return number

    def restore(self, name: tuple[str, ...], number: int, thing: T) -> None:
        """Put *thing* in under the number that it had before."""
        assert name not in self._numbers
        assert number not in self._things
        self._numbers[name] = number
        self._things[number] = thing

    def remove(self, name: tuple[str, ...]) -> None:
        """Take out what is under *name*."""
        del self._things[self._numbers.pop(name)]

    def get(self, number: int) -> T | None:
        """What has this number."""
        return self._things.get(number)

    def find(self, name: tuple[str, ...]) -> T | None:
        """What is under *name*."""
        number = self._numbers.get(name)
        return None if number is None else self._things[number]

    def values(self) -> list[T]:
        """Everything, in the order in which it was added."""
        return list(self._things.values())
