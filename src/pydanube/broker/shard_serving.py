"""Opening and closing the topics of shards that a broker takes over and leaves."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from pydanube.broker.shards import Shards
from pydanube.broker.subscription_store import SubscriptionStore
from pydanube.broker.topics import Topics, topics_of_shard
from pydanube.metadata import keys
from pydanube.metadata.store import MetadataStore
from pydanube.model.errors import BrokerError, Closed, Unavailable
from pydanube.model.ids import Epoch, TopicId
from pydanube.model.names import TopicName
from pydanube.storage.storage import Storage
from pydanube.storage.topic_openings import Leftover

log = logging.getLogger(__name__)


class ShardServing:
    """
    The topics of a broker's shards; implements ``cluster.journal_host.ShardServer``.

    Topics are opened on first use, except those with messages that are not sealed.
    """

    def __init__(
        self,
        shards: Shards,
        topics: Topics,
        subscriptions: SubscriptionStore,
        *,
        store: MetadataStore,
        storage: Storage,
    ) -> None:
        self._shards = shards
        self._topics = topics
        self._subscriptions = subscriptions
        self._store = store
        self._storage = storage
        self.on_served: Callable[[], None] = lambda: None
        """Called when a shard is served."""

    async def serve(
        self, shard: int, epoch: int, topics: Mapping[TopicId, str]
    ) -> None:
        """
        Serve *topics*, whose states and recovered batches are in the journal.

        A topic that cannot be opened does not keep the others from being served.

        Raises:
            Unavailable: Not all of them are open yet; call it again.
        """
        self._shards.served[shard] = Epoch(epoch)
        self._shards.on_change()
        await self._remove_deleted(shard)
        unsealed = [
            TopicName.parse(name)
            for topic_id, name in topics.items()
            if self._storage.has_recovered(topic_id)
        ]
        for name, error in await self._topics.open_recovered(unsealed):
            if isinstance(error, Unavailable | Closed):
                raise error
            log.warning("%s cannot be opened: %s", name, error)
        self.on_served()

    async def served_ids(self) -> set[TopicId]:
        """Return the ids of all topics in the shards that this broker serves."""
        ids = set()
        for path, _ in await self._store.scan(keys.SHARD_TOPICS):
            shard, _, topic_id = keys.SHARD_TOPICS.name_of(path).partition("/")
            if self._shards.serves(int(shard)):
                ids.add(TopicId(int(topic_id)))
        return ids

    async def _remove_deleted(self, shard: int) -> None:
        """Remove what an earlier owner has left of deleted topics."""
        for path, stored in await self._store.scan(keys.DELETED_TOPICS):
            if stored.value.shard == shard:
                await self.remove_deleted(
                    TopicId(int(keys.DELETED_TOPICS.name_of(path)))
                )

    async def remove_deleted(self, topic_id: TopicId) -> None:
        """
        Remove the contents of a deleted topic, if this broker serves its shard.

        If that fails, the next owner tries again.
        """
        async with self._topics.lock:
            stored = await self._store.get(keys.DELETED_TOPICS.key(topic_id))
            if stored is None or stored.value.shard not in self._shards.served:
                return
            record, epoch = stored.value, self._shards.served[stored.value.shard]
            for topic in topics_of_shard(self._topics.opened, stored.value.shard):
                if topic.topic_id == topic_id:
                    self._topics.close_deleted(topic)
            log.info("removing the contents of the deleted topic %s", record.name)
            leftover = Leftover(record.name, epoch, stored.value.shard)
            try:
                await self._topics.remove_content(topic_id, leftover)
            except BrokerError as error:
                log.warning("the next owner will try again: %s", error)

    def refuse_messages(self, shard: int) -> None:
        """
        Accept no more messages, but go on with those that were appended.

        Acknowledgements of consumers are not confirmed any more: their cursors would
        be behind the mark that ends the shard, which the next owner does not read.
        """
        self._shards.served.pop(shard, None)
        for topic in topics_of_shard(self._topics.opened, shard):
            topic.refusal = topic.gone = self._shards.not_owner(topic.name, shard)
            topic.registrations.reject_queued(topic.refusal)
            self._subscriptions.cursors.leave(topic.topic_id, topic.refusal)

    def stop(self, shard: int) -> None:
        """Deliver nothing more, and disconnect producers and consumers."""
        self._shards.served.pop(shard, None)
        self._topics.release_shard(shard)
