"""Deleting the reply topics of clients that ended without deleting them."""

from __future__ import annotations

import asyncio
import logging

from pydanube.model.errors import BrokerError, NotOwner, TopicNotFound
from pydanube.model.names import SYSTEM_NAMESPACE, TopicName
from pydanube.model.request_reply import REPLY_TOPIC_PREFIX
from pydanube_broker.broker.governance.catalog import Catalog
from pydanube_broker.broker.topics.shards import Shards
from pydanube_broker.broker.topics.topics import Topics

log = logging.getLogger(__name__)

UNUSED_S = 600.0
"""The time without a consumer after which a reply topic is deleted."""


class ReplyTopics:
    """
    The reply topics that this broker serves.

    A client deletes its reply topic when it closes.  That of a client that was killed
    has no consumer any more, and nobody else may read it.  Repliers may still have
    producers, which they open again for other topics.
    """

    def __init__(self, topics: Topics, catalog: Catalog, shards: Shards | None) -> None:
        """*shards* are given in a cluster."""
        self._topics = topics
        self._catalog = catalog
        self._shards = shards
        self._unused: set[TopicName] = set()

    async def run(self) -> None:
        """Delete reply topics that had no consumer for ``UNUSED_S``, forever."""
        while True:
            await asyncio.sleep(UNUSED_S)
            try:
                await self.delete_unused()
            except BrokerError as error:
                log.warning("unused reply topics are not deleted: %s", error)

    async def delete_unused(self) -> None:
        """
        Delete those that have no consumer and had none at the previous call.

        A client that returns later creates its topic again for its next request.  One
        that cannot be deleted, such as one that moves to another broker, holds up none
        of the others, and is tried again.

        Raises:
            BrokerError: They cannot be listed.
        """
        before, self._unused = self._unused, set()
        for name in await self._find_unused():
            if name not in before:
                self._unused.add(name)
                continue
            try:
                await self._topics.delete(name, force=True)
            except (NotOwner, TopicNotFound):
                # Its new owner looks after it, or somebody has deleted it.
                continue
            except BrokerError as error:
                self._unused.add(name)
                log.warning("%s, which nobody uses, is not deleted: %s", name, error)

    async def _find_unused(self) -> list[TopicName]:
        records = await self._catalog.records(SYSTEM_NAMESPACE)
        return [
            name
            for name, record in records
            if str(name).startswith(REPLY_TOPIC_PREFIX)
            and (self._shards is None or self._shards.serves(record.shard))
            and not self._is_consumed(name)
        ]

    def _is_consumed(self, name: TopicName) -> bool:
        topic = self._topics.find_open(name)
        return topic is not None and topic.counts.consumers > 0
