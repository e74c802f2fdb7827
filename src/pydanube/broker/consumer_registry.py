"""
Consumers that are known by a number, also after a restart.

Some clients of Danube subscribe once and then ask for their messages by number, for
ever: they do not subscribe again, whatever they are told.  So it is kept who has which
number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydanube.metadata import keys
from pydanube.metadata.store import Delete, Put

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pydanube.metadata.records import ConsumerRecord
    from pydanube.metadata.store import MetadataStore


class ConsumerRegistry:
    """Who has which number; whoever gives the numbers out says so."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def load(self) -> dict[int, ConsumerRecord]:
        """Everybody who is known."""
        return {
            int(keys.CONSUMERS.name_of(path)): stored.value
            for path, stored in await self._store.scan(keys.CONSUMERS)
        }

    async def change(
        self, known: Mapping[int, ConsumerRecord], forgotten: Iterable[int] = ()
    ) -> None:
        """
        Know some, and forget others.

        Durability: On return it is on disk, all of it or nothing.
        """
        operations: list[Put[Any] | Delete[Any]] = [
            Delete(keys.consumer(number)) for number in forgotten
        ]
        operations += [
            Put(keys.consumer(number), record) for number, record in known.items()
        ]
        await self._store.transaction([], operations)
