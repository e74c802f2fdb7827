"""Writing the load of a session's shards to the metadata store, for the controller."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping

from pydanube.model.errors import MetadataUnavailable, RevisionConflict, SessionLost
from pydanube.model.ids import TopicId
from pydanube_broker.cluster.pure.load import LoadMeter, TopicTraffic
from pydanube_broker.cluster.session import ClusterSession
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.cluster_records import LoadRecord
from pydanube_broker.metadata.store import MetadataStore, Put, Unchanged

log = logging.getLogger(__name__)

INTERVAL_S = 10.0
"""How often a session reports its load."""


class LoadReports:
    """The reports of one session; ``run`` does the work."""

    def __init__(
        self,
        session: ClusterSession,
        store: MetadataStore,
        *,
        find_traffic: Callable[[], Mapping[TopicId, TopicTraffic]],
        find_served: Callable[[], Collection[int]],
        clock: Callable[[], float],
        wall_clock_us: Callable[[], int],
        interval_s: float = INTERVAL_S,
    ) -> None:
        """
        *find_traffic* returns the traffic of the open topics.

        *find_served* returns the shards that this session serves.
        """
        self._session = session
        self._store = store
        self._find_traffic = find_traffic
        self._find_served = find_served
        self._clock = clock
        self._wall_clock_us = wall_clock_us
        self._interval_s = interval_s
        self._meter = LoadMeter()

    async def run(self) -> None:
        """Report the load now and then, until the session is over."""
        while not self._session.is_over:
            await asyncio.sleep(self._interval_s)
            loads = self._meter.measure(
                self._find_traffic(), self._find_served(), self._clock()
            )
            session = self._session
            key = keys.LOADS.key(session.session_id)
            record = LoadRecord(
                measured_at=self._wall_clock_us(),
                shards=loads,
                is_strained=session.lease.is_strained,
            )
            try:
                await self._store.transaction(
                    [Unchanged(session.key, session.revision)],
                    [Put(key, record, session.lease)],
                )
            except (MetadataUnavailable, RevisionConflict, SessionLost) as error:
                # The next report follows, unless the session is over.
                log.debug("the load was not reported: %s", error)
