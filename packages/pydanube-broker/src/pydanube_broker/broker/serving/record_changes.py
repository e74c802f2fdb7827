"""
Following the records of topics and namespaces, which other brokers of a cluster change.

Any broker changes the limits, the policy or the schema of a topic, or deletes it by
force; the broker that serves the topic applies that.
"""

from __future__ import annotations

import asyncio
import logging

from pydanube.aio.tasks import task_scope
from pydanube.model.errors import MetadataUnavailable, NamespaceNotFound
from pydanube.model.ids import TopicId
from pydanube.model.names import TopicName
from pydanube.model.retry import RetryPolicy
from pydanube_broker.broker.governance.namespaces import Namespaces
from pydanube_broker.broker.publishing.topic import Topic
from pydanube_broker.broker.serving.shard_serving import ShardServing
from pydanube_broker.broker.topics.topic_records import apply_records
from pydanube_broker.broker.topics.topic_schemas import TopicSchemas
from pydanube_broker.broker.topics.topics import Topics
from pydanube_broker.cluster.mirror import follow
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.records import (
    DeletedTopicRecord,
    NamespaceRecord,
    TopicRecord,
)
from pydanube_broker.metadata.store import Changes, MetadataStore

log = logging.getLogger(__name__)

_RETRIES = RetryPolicy(first_s=0.1, max_s=2.0)


class RecordChanges:
    """Applies changes of the records of one broker's open topics."""

    def __init__(
        self,
        store: MetadataStore,
        topics: Topics,
        namespaces: Namespaces,
        schemas: TopicSchemas,
        serving: ShardServing,
    ) -> None:
        self._store = store
        self._topics = topics
        self._namespaces = namespaces
        self._schemas = schemas
        self._serving = serving
        self._unknown: dict[TopicId, TopicName] = {}
        """Topics that were closed because they have no records any more."""
        self._changed: dict[TopicName, bytes | None] = {}
        """The open topics to which changes may have to be applied, with their new
        records as they are stored if nothing else has changed."""
        self._wake = asyncio.Event()
        self._has_unknown = asyncio.Event()

    async def run(self) -> None:
        """Apply changes until cancelled; one that was missed is applied later."""
        async with task_scope() as tasks:
            tasks.run(
                follow(self._store, keys.TOPICS, self._on_topics, self._on_begin),
                "follow the records of topics",
            )
            tasks.run(
                follow(self._store, keys.NAMESPACES, self._on_namespaces),
                "follow the records of namespaces",
            )
            tasks.run(
                follow(self._store, keys.DELETED_TOPICS, self._on_deleted),
                "follow the records of deleted topics",
            )
            tasks.run(self._remove_unknown(), "remove what is left of topics")
            await self._apply_all()

    def _on_begin(self) -> None:
        # An earlier watch may have missed changes.
        self._changed.update(dict.fromkeys(self._topics.opened))

    def _on_topics(self, changes: Changes[TopicRecord]) -> None:
        # A damaged record is read again, and fails its topic.
        damaged = dict.fromkeys(changes.damaged)
        for path, stored in {**changes.values, **damaged}.items():
            name = TopicName.parse("/" + keys.TOPICS.name_of(path))
            key = keys.topic(name)
            if name not in self._topics.opened and name not in self._topics.locks:
                continue
            is_more = name in self._changed and self._changed[name] is None
            record = None if stored is None or is_more else key.encode(stored.value)
            self._changed[name] = record
        self._wake.set()

    def _on_namespaces(self, changes: Changes[NamespaceRecord]) -> None:
        namespaces = {keys.NAMESPACES.name_of(path) for path in changes.values}
        self._changed |= {
            name: None
            for name in (*self._topics.opened, *self._topics.locks)
            if name.namespace in namespaces
        }
        self._wake.set()

    def _on_deleted(self, changes: Changes[DeletedTopicRecord]) -> None:
        if any(changes.values.values()):
            self._topics.leftovers.set()

    async def _apply_all(self) -> None:
        failures = 0
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                while self._changed:
                    await self._try_to_apply(next(iter(self._changed)))
                    failures = 0
            except MetadataUnavailable as error:
                failures += 1
                log.warning("changed records cannot be applied yet: %s", error)
                await asyncio.sleep(_RETRIES.delay_s(failures))
                self._wake.set()

    async def _remove_unknown(self) -> None:
        # In a task of its own, because an object store may be slow, and deleted topics
        # must be closed soon.
        failures = 0
        while True:
            await self._has_unknown.wait()
            self._has_unknown.clear()
            try:
                while self._unknown:
                    topic_id, name = next(iter(self._unknown.items()))
                    await self._serving.remove_unknown(topic_id, name)
                    del self._unknown[topic_id]
                failures = 0
            except MetadataUnavailable as error:
                failures += 1
                log.warning("contents of deleted topics are not removed yet: %s", error)
                await asyncio.sleep(_RETRIES.delay_s(failures))
                self._has_unknown.set()

    async def _try_to_apply(self, name: TopicName) -> None:
        try:
            await self._apply(name)
        except MetadataUnavailable:
            raise
        except Exception as error:  # noqa: BLE001  # The others go on.
            self._topics.failures.report(name, "applying its record", error)
            self._changed.pop(name, None)
            await self._serving.close_failed(name)

    async def _apply(self, name: TopicName) -> None:
        # This broker applies its own changes under the lock, so the records are read
        # again: what the watch reported may be older.
        async with self._topics.lock.shared(), self._topics.locks.of(name):
            topic = self._topics.opened.get(name)
            reported = self._changed[name]
            # Most changes are those that this broker has made.
            if topic is not None and (reported is None or reported != topic.record):
                stored = await self._store.get(keys.topic(name))
                if stored is None or stored.value.topic_id != topic.topic_id:
                    if self._topics.close_deleted(topic):
                        self._unknown[topic.topic_id] = name
                        self._has_unknown.set()
                else:
                    await self._apply_record(topic, stored.value)
            if self._changed[name] is reported:
                del self._changed[name]

    async def _apply_record(self, topic: Topic, record: TopicRecord) -> None:
        try:
            namespace = (await self._namespaces.find(topic.name.namespace)).value
        except NamespaceNotFound:
            return
        apply_records(topic, record, namespace, self._schemas)
