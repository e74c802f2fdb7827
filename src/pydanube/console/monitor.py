"""The samples that a console takes of its brokers, while somebody looks at them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable
from typing import TypeVar

from pydanube.client.client import Client
from pydanube.client.described_topics import describe_all
from pydanube.console.history import INTERVAL_S, History
from pydanube.model.activity import Sample
from pydanube.model.clusters import ClusterBroker, ClusterDescription
from pydanube.model.descriptions import StorageDescription
from pydanube.model.errors import BrokerError, PermissionDenied
from pydanube.model.subscription_lag import lags_of

log = logging.getLogger(__name__)

T = TypeVar("T")

SHARE_MAX = 0.1
"""Samples take at most this part of the time, so that they do not load the broker."""
TOPICS_MAX = 1000
"""Further topics are listed, but not sampled."""
WATCHED_S = 10.0
"""After this time without a page that shows samples, none are taken."""

NO_STORAGE = StorageDescription(remote_url="", local_bytes=0)


class Monitor:
    """Samples of what one user may see."""

    def __init__(self, client: Client) -> None:
        self.history = History()
        self.storages: dict[str, StorageDescription] = {}
        """By broker; empty if the user may not know."""
        self.cluster: ClusterDescription | None = None
        """Without a cluster, the only broker; None: the user may not know."""
        self.names: list[str] = []
        """All topics and partitions."""
        self.error = ""
        """Why the last sample failed."""
        self._client = client
        self._watched_until = 0.0
        self._wake = asyncio.Event()
        self._sampled = asyncio.Event()

    def watch(self) -> None:
        """Take samples for the next ``WATCHED_S``."""
        self._watched_until = time.monotonic() + WATCHED_S
        self._wake.set()

    async def first(self) -> None:
        """Wait until there is a sample, or an error."""
        self.watch()
        await self._sampled.wait()

    async def run(self) -> None:
        """Take samples while somebody watches, until cancelled."""
        while True:
            began = time.monotonic()
            if began > self._watched_until:
                self._wake.clear()
                await self._wake.wait()
                continue
            try:
                await self._take()
                self.error = ""
            except BrokerError as error:
                self.error = str(error)
                log.info("no sample: %s", error)
            except Exception as error:
                # The sessions of other users go on.
                self.error = f"a failure of the console: {type(error).__name__}"
                log.exception("no sample")
            self._sampled.set()
            elapsed_s = time.monotonic() - began
            await asyncio.sleep(max(INTERVAL_S, elapsed_s / SHARE_MAX))

    async def _take(self) -> None:
        client = self._client
        names = sorted(await client.topics())
        found = await describe_all(client, names[:TOPICS_MAX])
        storages = await _if_permitted(client.describe_storages()) or {}
        cluster = await _if_permitted(client.describe_cluster())
        if cluster is not None and not cluster.brokers:
            broker = await client.describe_broker()
            alone = ClusterBroker(broker_id=broker.broker_id, url=broker.url)
            cluster = ClusterDescription(brokers=(alone,))
            storages = dict(zip([broker.broker_id], storages.values(), strict=False))
        self.storages, self.cluster = storages, cluster
        self.names = names
        self.history.add(
            Sample(
                taken_at=time.monotonic(),
                topics=found,
                topic_count=len(names),
                storage=next(iter(self.storages.values()), NO_STORAGE),
            ),
            lags_of(found, time.time_ns() // 1000),
        )


async def _if_permitted(request: Awaitable[T]) -> T | None:
    try:
        return await request
    except PermissionDenied:
        return None
