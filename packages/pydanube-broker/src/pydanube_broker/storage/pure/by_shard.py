"""Dictionaries of open topics that also find those of one shard."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

K = TypeVar("K")


class InShard(Protocol):
    """A topic, or a part of one."""

    @property
    def shard(self) -> int | None:
        """The shard of the topic, which never changes; None without a cluster."""


V = TypeVar("V", bound=InShard)


class ByShard(dict[K, V]):
    """
    A dictionary whose values belong to shards.

    Values are added by assignment, and removed by ``del`` and ``pop``.

    Bounds: The work for one shard grows with its values only.
    """

    def __init__(self) -> None:
        super().__init__()
        self._shards: dict[int | None, dict[K, V]] = {}

    def of_shard(self, shard: int) -> list[V]:
        """Return the values of a shard."""
        return list(self._shards.get(shard, {}).values())

    def __setitem__(self, key: K, value: V) -> None:
        if key in self:
            self._forget(key)
        super().__setitem__(key, value)
        self._shards.setdefault(value.shard, {})[key] = value

    def __delitem__(self, key: K) -> None:
        self._forget(key)
        super().__delitem__(key)

    def pop(self, key: K, *default: Any) -> Any:
        """Remove a key and return its value, or else the default, as a dict does."""
        if key in self:
            self._forget(key)
        return super().pop(key, *default)

    def _forget(self, key: K) -> None:
        shard = self[key].shard
        del self._shards[shard][key]
        if not self._shards[shard]:
            del self._shards[shard]
