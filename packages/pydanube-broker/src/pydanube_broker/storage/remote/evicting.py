"""
Evicting: removing local copies of uploaded segments, so that the disk budget holds.

Whatever adds a local copy reserves room for it first; see Evictor.room().  Then the
budget is exceeded only by segments that must not be evicted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext

from pydanube.model.errors import BrokerError
from pydanube.model.ids import TopicId
from pydanube.model.retry import RetryPolicy
from pydanube_broker.storage.pure.upload_planning import (
    SegmentTiers,
    TrackedSegment,
    plan_room,
)
from pydanube_broker.storage.remote.tiered_objects import TieredObjects
from pydanube_broker.storage.segments.manifest import Manifest
from pydanube_broker.storage.segments.topic_log import TopicLog

log = logging.getLogger(__name__)

_RETRIES = RetryPolicy(first_s=1.0, max_s=60.0)


class Evictor:
    """Keeps the local copies of segments within a budget; see run()."""

    def __init__(
        self,
        bytes_max: int,
        objects: TieredObjects,
        tiers: SegmentTiers,
        logs: Mapping[TopicId, TopicLog],
        manifest: Manifest,
    ) -> None:
        self.bytes_max = bytes_max
        """The budget."""
        self.is_allowed = False
        """
        Whether it is known that the remote store is the right one.

        Nothing is evicted before.
        """
        self.count = 0
        """The number of evictions since the start."""
        self.byte_count = 0
        """The size of the copies that they removed."""
        self._objects = objects
        self._tiers = tiers
        self._logs = logs
        self._manifest = manifest
        # The size of the copies that are about to be added.
        self._reserved = 0
        self._is_excess = asyncio.Event()
        self._making_room = asyncio.Lock()

    async def run(self) -> None:
        """Evict whenever the budget is exceeded, forever."""
        failures = 0
        while True:
            await self._is_excess.wait()
            self._is_excess.clear()
            try:
                await self._make_room()
            except BrokerError as error:
                failures += 1
                log.warning("local segments cannot be evicted: %s", error)
                await asyncio.sleep(_RETRIES.delay_s(failures))
                self._is_excess.set()
            else:
                failures = 0

    def check(self) -> None:
        """Evict soon if the budget is exceeded."""
        if self._wanted_bytes > self.bytes_max:
            self._is_excess.set()

    @asynccontextmanager
    async def room(self, byte_count: int) -> AsyncIterator[None]:
        """
        Make room for *byte_count* bytes, which the body adds to the local copies.

        The caller must hold no lock of a topic, because evicting takes them.  If too
        little can be evicted, the body exceeds the budget.
        """
        self._reserved += byte_count
        try:
            try:
                await self._make_room()
            except BrokerError:
                # run() tries again, and logs the reason.
                self._is_excess.set()
            yield
        finally:
            self._reserved -= byte_count

    async def evict(self, chosen: Iterable[TrackedSegment]) -> tuple[int, int]:
        """Evict the local copies *chosen*; return the number and size of them."""
        count = byte_count = 0
        for segment in chosen:
            name = segment.object_name
            async with self._maintenance(segment.topic_id):
                # It may have been deleted meanwhile.
                if self._tiers.cached.get(name) is not segment:
                    continue
                await self._objects.evict(name)
                if self._tiers.cached.get(name) is not segment:
                    continue
                self._tiers.remove(name)
            count += 1
            byte_count += segment.byte_count
        self.count += count
        self.byte_count += byte_count
        return count, byte_count

    @property
    def _wanted_bytes(self) -> int:
        return self._tiers.local_bytes + self._reserved

    async def _make_room(self) -> None:
        if self._wanted_bytes <= self.bytes_max or not self.is_allowed:
            return
        # One at a time, so that each plan counts what the one before has evicted.
        async with self._making_room:
            held = await self._manifest.held_topics()
            cached = (s for s in self._tiers.cached.values() if s.topic_id not in held)
            await self.evict(plan_room(cached, self._wanted_bytes, self.bytes_max))

    def _maintenance(self, topic_id: TopicId) -> AbstractAsyncContextManager[object]:
        """Return the lock of a topic, if it is open."""
        topic_log = self._logs.get(topic_id)
        return nullcontext() if topic_log is None else topic_log.maintenance
