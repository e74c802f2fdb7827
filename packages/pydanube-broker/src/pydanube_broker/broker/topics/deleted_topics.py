"""Removing the contents of deleted topics, again and again if that fails."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from pydanube.model.errors import BrokerError
from pydanube.model.ids import TopicId
from pydanube.model.names import TopicName
from pydanube.model.retry import RetryPolicy
from pydanube_broker.broker.topics.shards import Shards
from pydanube_broker.broker.topics.topics import Topics
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.store import MetadataStore
from pydanube_broker.storage.segments.topic_openings import Leftover

log = logging.getLogger(__name__)

RETRIES = RetryPolicy(first_s=1.0, max_s=5.0)
"""
The pauses before contents that could not be removed are removed again.

Meanwhile nobody can create a topic of the name, so the longest is short.
"""


class DeletedTopics:
    """
    The deleted topics whose contents this broker removes.

    The broker that deletes a topic removes its contents at once if it serves the topic.
    This class removes those of topics that other brokers of a cluster have deleted, and
    those that are left after a failure or by an earlier owner.  Until then, no topic of
    the name can be created.
    """

    def __init__(
        self, topics: Topics, store: MetadataStore, shards: Shards | None
    ) -> None:
        """*shards* are given in a cluster."""
        self._topics = topics
        self._store = store
        self._shards = shards

    async def run(self) -> None:
        """
        Remove contents whenever some are left, forever.

        After a failure it tries again soon, and at once when the broker takes a shard
        over or a topic is deleted, but not within ``RETRIES.first_s``.
        """
        leftovers, failures = self._topics.leftovers, 0
        while True:
            await leftovers.wait()
            leftovers.clear()
            try:
                await self.remove_all()
            except BrokerError as error:
                log.warning("deleted topics cannot be listed: %s", error)
                leftovers.set()
            failures = failures + 1 if leftovers.is_set() else 0
            if failures:
                # The failure has set it; now a takeover may.
                leftovers.clear()
                await asyncio.sleep(RETRIES.first_s)
                with suppress(TimeoutError):
                    async with asyncio.timeout(
                        RETRIES.delay_s(failures) - RETRIES.first_s
                    ):
                        await leftovers.wait()
                leftovers.set()

    async def remove_all(self) -> None:
        """
        Do ``remove`` for all deleted topics.

        Raises:
            MetadataUnavailable: They cannot be listed.
        """
        for path, _ in await self._store.scan_valid(keys.DELETED_TOPICS):
            await self.remove(TopicName.parse("/" + keys.DELETED_TOPICS.name_of(path)))

    async def remove(self, name: TopicName) -> None:
        """
        Remove the contents of a deleted topic, if this broker serves its shard.

        If that fails, it is tried again, also by the next owner.

        Raises:
            MetadataUnavailable: The record of the deletion cannot be read.
        """
        topics = self._topics
        async with topics.lock.shared(), topics.locks.of(name):
            stored = await self._store.get(keys.deleted_topic(name))
            if stored is None:
                return
            topic_id, leftover = TopicId(stored.value.topic_id), None
            if self._shards is not None:
                shard = stored.value.shard
                if shard is None or shard not in self._shards.served:
                    return
                leftover = Leftover(str(name), self._shards.served[shard], shard)
            topic = topics.opened.get(name)
            if topic is not None and topic.topic_id == topic_id:
                topics.close_deleted(topic)
        if topic_id in topics.removals:
            # Another task removes them.
            return
        log.info("removing the contents of the deleted topic %s", name)
        try:
            await topics.remove_content(topic_id, name, leftover)
        except Exception as error:  # noqa: BLE001  # Other topics go on.
            topics.failures.report(name, "removing its contents", error)
