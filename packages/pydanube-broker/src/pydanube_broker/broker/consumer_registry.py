"""
Consumers that keep their number across restarts of the broker.

Some clients of the original Danube subscribe once and then request messages by the
consumer's number for ever.  They never subscribe again, whatever they are told, so the
broker stores the numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydanube_broker.metadata import keys
from pydanube_broker.metadata.records import ConsumerRecord
from pydanube_broker.metadata.store import Delete, MetadataStore, Put


class ConsumerRegistry:
    """The stored consumers by number; the gRPC server assigns the numbers."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def load(self) -> dict[int, ConsumerRecord]:
        """Return all stored consumers."""
        return {
            int(keys.CONSUMERS.name_of(path)): stored.value
            for path, stored in await self._store.scan_valid(keys.CONSUMERS)
        }

    async def change(
        self, changed: Mapping[int, ConsumerRecord], deleted: Iterable[int] = ()
    ) -> None:
        """
        Store consumers, and delete others.

        Durability: On return all changes are on disk; after an error, none is.
        """
        operations: list[Put[Any] | Delete[Any]] = [
            Delete(keys.CONSUMERS.key(number)) for number in deleted
        ]
        operations += [
            Put(keys.CONSUMERS.key(number), record)
            for number, record in changed.items()
        ]
        await self._store.transaction([], operations)
