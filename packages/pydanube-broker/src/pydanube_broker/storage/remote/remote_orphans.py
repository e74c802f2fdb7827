"""
The search for orphans in the remote object store.

Crashes leave remote orphans, and so do uploads whose outcome is unknown and deletions
that were not finished.  One slow search goes through all objects in pages, however
many topics there are.  It deletes an orphan that is older than ``orphan_keep_s``, as
it may belong to a topic whose metadata was lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial

from pydanube.model.errors import BrokerError
from pydanube.model.ids import TopicId
from pydanube.objects.store import Objects
from pydanube.wire.files.segment_format import ObjectName, parse_object_name
from pydanube_broker.storage.journal.journal import Journal
from pydanube_broker.storage.pure.upload_planning import is_orphan
from pydanube_broker.storage.segments.manifest import Manifest
from pydanube_broker.storage.segments.segments import topic_id_of
from pydanube_broker.storage.segments.topic_log import TopicLog

log = logging.getLogger(__name__)

SEARCH_INTERVAL_S = 86_400.0
"""The time between two searches."""
PAGE_PAUSE_S = 1.0
"""The pause after each page."""
PAGE = 1000
"""The number of names in a page."""

_RETRY_S = 600.0


class RemoteOrphans:
    """
    Deletes orphans from the remote store; see run().

    Bounds: A search needs about 100 bytes of memory for each segment in the manifest.
    """

    def __init__(
        self,
        remote: Objects,
        logs: Mapping[TopicId, TopicLog],
        *,
        prefix: str,
        keep_s: float,
        journal: Journal,
        manifest: Manifest,
        is_busy: Callable[[str], bool],
        wall_clock: Callable[[], int],
    ) -> None:
        """*is_busy* returns whether an object is being uploaded."""
        self._remote = remote
        self._logs = logs
        self._prefix = prefix
        self._keep_us = keep_s * 1_000_000
        self._journal = journal
        self._manifest = manifest
        self._is_busy = is_busy
        self._wall_clock = wall_clock

    async def run(self) -> None:
        """Search for orphans once a day, forever."""
        while True:
            pause_s = SEARCH_INTERVAL_S
            try:
                await self.search()
            except BrokerError as error:
                pause_s = _RETRY_S
                log.warning(
                    "the search for orphans in the remote store failed; it is repeated "
                    "in %g s: %s",
                    pause_s,
                    error,
                )
            await asyncio.sleep(pause_s)

    async def search(self) -> None:
        """
        Go through all objects once, and delete the old orphans.

        Raises:
            ObjectsUnavailable, MetadataUnavailable: The search was not completed.
        """
        if not self._remote.supports_listing:
            return
        # Hashes take less memory than names; a collision only hides an orphan.
        known = {
            hash(entry.object_name) async for _, entry in self._manifest.all_segments()
        }
        after = ""
        while page := await self._remote.names(
            self._prefix, after=after, count_max=PAGE
        ):
            for name in page:
                parsed = parse_object_name(name)
                if parsed is not None and hash(name) not in known:
                    await self._examine(name, parsed)
            after = page[-1]
            await asyncio.sleep(PAGE_PAUSE_S if len(page) == PAGE else 0)

    async def _examine(self, name: str, parsed: ObjectName) -> None:
        found = await self._remote.stat(name)
        # A store that does not know ages keeps orphans.
        if found is None or found.modified_at is None:
            return
        if self._wall_clock() - found.modified_at < self._keep_us:
            return
        source = partial(self._remote.open, name)
        topic_id = await asyncio.to_thread(topic_id_of, source)
        if topic_id is None or self._is_busy(name):
            # It is not a segment, or cannot be read now.
            return
        if await self._is_orphan(name, parsed, TopicId(topic_id)):
            log.info("deleting the orphan %s from the remote store", name)
            await self._remote.delete(name)

    async def _is_orphan(
        self, name: str, parsed: ObjectName, topic_id: TopicId
    ) -> bool:
        topic_log = self._logs.get(topic_id)
        if topic_log is not None:
            segments = topic_log.segments
            epoch, end_offset = int(topic_log.epoch), int(topic_log.end_offset)
        else:
            segments = await self._manifest.load(topic_id)
            state = self._journal.state.topics.get(topic_id)
            if not segments and state is None:
                # The topic was deleted.
                return True
            epochs = [segment.epoch for segment in segments]
            ends = [segment.end for segment in segments]
            if state is not None:
                epochs.append(state.epoch)
                ends.append(state.end_offset)
            epoch, end_offset = max(epochs), max(ends)
        return is_orphan(name, parsed, segments, epoch=epoch, end_offset=end_offset)
