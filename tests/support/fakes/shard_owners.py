"""The owners of shards of a cluster that a test describes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pydanube_broker.cluster.shard_owners import TakeoverCounts
from pydanube_broker.metadata.cluster_records import SessionRecord
from pydanube_broker.metadata.sessions import Session


class KnownOwners:
    """The owners that a test sets; implements ``broker.shards.Owners``."""

    lease: Session

    def __init__(self, check_session: Callable[[], None] = lambda: None) -> None:
        self.waits: dict[int, str] = {}
        self.counts = TakeoverCounts()
        self.by_shard: dict[int, SessionRecord] = {}
        self.elsewhere: set[int] = set()
        self.check_session = check_session
        self._changed = asyncio.Event()

    def others(self) -> list[SessionRecord]:
        return list(self.by_shard.values())

    def find_owner(self, shard: int) -> SessionRecord | None:
        return self.by_shard.get(shard)

    def owns(self, shard: int) -> bool:
        del shard
        return False

    def find_epoch(self, shard: int) -> int:
        del shard
        return 0

    def is_elsewhere(self, shard: int) -> bool:
        return shard in self.elsewhere

    def note_change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_for_change(self) -> None:
        await self._changed.wait()
