"""Opening and closing the topics of shards that a broker takes over and leaves."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress

from pydanube.model.errors import BrokerError, Closed, Unavailable
from pydanube.model.ids import Epoch, TopicId
from pydanube.model.names import TopicName
from pydanube_broker.broker.publishing.topic import Topic
from pydanube_broker.broker.topics.shards import Shards
from pydanube_broker.broker.topics.subscription_store import SubscriptionStore
from pydanube_broker.broker.topics.topics import Topics
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.store import MetadataStore
from pydanube_broker.storage.storage import Storage

log = logging.getLogger(__name__)


class ShardServing:
    """
    The topics of a broker's shards; implements ``cluster.journal_host.ShardServer``.

    Topics are opened on first use, except those with messages that are not sealed, and
    those with messages that have failed: a blocked subscription must be reported.
    """

    def __init__(
        self,
        shards: Shards,
        topics: Topics,
        subscriptions: SubscriptionStore,
        *,
        store: MetadataStore,
        storage: Storage,
        on_served: Callable[[], None],
    ) -> None:
        """*on_served* is called whenever a shard is served."""
        self._shards = shards
        self._topics = topics
        self._subscriptions = subscriptions
        self._store = store
        self._storage = storage
        self._on_served = on_served

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
        self._shards.owners.note_change()
        unsealed = [
            TopicName.parse(name)
            for topic_id, name in topics.items()
            if self._storage.must_be_opened(topic_id)
        ]
        for topic, error in await self._topics.open_recovered(unsealed):
            if isinstance(error, Unavailable | Closed):
                raise error
            self._topics.failures.report(topic, "opening it", error)
        await self._remove_unknown(shard, topics)
        # An earlier owner may have left contents of deleted topics.
        self._topics.leftovers.set()
        self._on_served()

    async def served_ids(self) -> set[TopicId]:
        """Return the ids of all topics in the shards that this broker serves."""
        ids = set()
        for path in await self._store.paths(keys.SHARD_TOPICS):
            shard, _, topic_id = keys.SHARD_TOPICS.name_of(path).partition("/")
            if self._shards.serves(int(shard)):
                ids.add(TopicId(int(topic_id)))
        return ids

    async def _remove_unknown(self, shard: int, topics: Mapping[TopicId, str]) -> None:
        """Remove what was adopted of topics that were deleted during the takeover."""
        prefix = keys.SHARD_TOPICS.within(shard)
        stored = await self._store.scan(prefix)
        known = {TopicId(int(prefix.name_of(path))) for path, _ in stored}
        for topic_id in topics.keys() - known:
            await self.remove_unknown(topic_id, TopicName.parse(topics[topic_id]))

    async def remove_unknown(self, topic_id: TopicId, name: TopicName) -> None:
        """
        Remove what this broker has of a topic that the metadata store does not know.

        Another broker may have removed the contents, and the record of the deletion,
        between two steps of the takeover of the shard.
        """
        async with self._topics.lock.shared(), self._topics.locks.of(name):
            known = self._storage.logs.get(topic_id)
            content = known or self._storage.find_state(topic_id)
            if content is None or content.shard is None:
                return
            if self._shards.served.get(content.shard) != content.epoch:
                return
            stored = await self._store.get(keys.topic(name))
            if stored is not None and stored.value.topic_id == topic_id:
                return
        log.info("removing what is left of the deleted topic %s", name)
        try:
            await self._topics.remove_content(topic_id, name)
        except Exception as error:  # noqa: BLE001  # The next owner will try again.
            self._topics.failures.report(name, "removing its contents", error)

    async def close_failed(self, name: TopicName) -> None:
        """Close a topic after an unexpected error; the next request opens it again."""
        async with self._topics.lock.shared(), self._topics.locks.of(name):
            topic = self._topics.opened.pop(name, None)
            if topic is None:
                return
            reason = Unavailable(f"{name} was closed after an error: open it again")
            self._subscriptions.cursors.leave(topic.topic_id, reason)
            try:
                self._release(topic, reason)
            except Exception as error:  # noqa: BLE001  # It is not used any more.
                self._topics.failures.report(name, "closing it", error)
            with suppress(BrokerError):
                # It is opened with the cursors in the journal.
                await self._storage.journal.sync()

    def refuse_messages(self, shard: int) -> None:
        """
        Accept no more messages, but go on with those that were appended.

        Acknowledgements of consumers are not confirmed any more: their cursors would
        be behind the mark that ends the shard, which the next owner does not read.
        """
        self._shards.served.pop(shard, None)
        for topic in self._topics.opened.of_shard(shard):
            topic.refusal = topic.gone = self._shards.not_owner(topic.name, shard)
            topic.registrations.reject_queued(topic.refusal)
            self._subscriptions.cursors.leave(topic.topic_id, topic.refusal)

    def stop(self, shard: int) -> None:
        """Deliver nothing more, and disconnect producers and consumers."""
        self._shards.served.pop(shard, None)
        for topic_log in self._storage.logs.of_shard(shard):
            name = TopicName.parse(topic_log.name)
            reason = self._shards.not_owner(name, shard)
            self._storage.release_log(topic_log.topic_id, reason)
        for topic in self._topics.opened.of_shard(shard):
            # Another broker may serve it now.
            del self._topics.opened[topic.name]
            try:
                self._release(topic, self._shards.not_owner(topic.name, shard))
            except Exception as error:  # noqa: BLE001  # The others are closed.
                self._topics.failures.report(topic.name, "closing it", error)

    def _release(self, topic: Topic, reason: BrokerError) -> None:
        names = list(topic.subscriptions)
        topic.close(reason)
        self._subscriptions.cursors.forget(topic.topic_id, names, reason)
        self._subscriptions.cursors.forget_left(topic.topic_id)
