"""
Looks at topics that do not open them.

After a start, or after a takeover of its shard, a topic is opened when it is used.
That writes to the journal and to the metadata store, and keeps the topic in memory.  To
describe a topic, neither is needed: the metadata store has its segments, subscriptions
and settings, and the journal its cursors.  A client may describe all topics of a broker
that uses few of them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from pydanube.broker.catalog import Catalog
from pydanube.broker.shards import Shards
from pydanube.broker.topic import ReliableTopic, Topic
from pydanube.broker.topic_loading import TopicLoader
from pydanube.broker.topics import Topics, require_reliable
from pydanube.metadata.records import TopicRecord
from pydanube.model.descriptions import TopicOffsets
from pydanube.model.errors import NotOwner, TopicNotFound, Unavailable
from pydanube.model.ids import Epoch, TopicId
from pydanube.model.names import TopicName
from pydanube.storage.idle_logs import IdleLog
from pydanube.storage.storage import Storage

_CLOSED = Unavailable("the topic is not open")


class TopicViews:
    """Looks at the topics of a broker."""

    def __init__(
        self,
        topics: Topics,
        catalog: Catalog,
        storage: Storage,
        loader: TopicLoader,
        shards: Shards | None,
    ) -> None:
        self._topics = topics
        self._catalog = catalog
        self._storage = storage
        self._loader = loader
        self._shards = shards

    @asynccontextmanager
    async def viewing(self, name: TopicName) -> AsyncIterator[Topic]:
        """
        Provide the topic *name* as it is at the moment; the body must not change it.

        It is opened only if that changes something, because messages of it are in the
        journal alone, or a subscription may be blocked.

        Raises:
            TopicNotFound: It does not exist.
            NotOwner: Another broker serves it.
            SessionLost: The session of this broker in the cluster is over.
        """
        view = None
        if name not in self._topics.opened:
            record = (await self._catalog.get_topic(name)).value
            if record.policy.is_reliable and self._serves(record):
                view = await self._view(name, record)
        if view is None:
            yield await self._topics.get(name)
            return
        try:
            yield view
        finally:
            view.close(_CLOSED)

    @asynccontextmanager
    async def viewing_reliable(self, name: TopicName) -> AsyncIterator[ReliableTopic]:
        """
        Do the same for a topic that must be reliable.

        Raises:
            InvalidRequest: It is not reliable.
        """
        async with self.viewing(name) as topic:
            yield require_reliable(topic)

    async def _view(self, name: TopicName, record: TopicRecord) -> Topic | None:
        """Return a topic that is not open; None: it must be opened."""
        topic_id = TopicId(record.topic_id)
        [known] = await self._storage.idle.find([topic_id])
        if known is None:
            return None
        topic_log = self._storage.idle.view(
            topic_id,
            str(name),
            self._epoch_of(name, record, known),
            record.policy,
            known,
            shard=record.shard,
        )
        try:
            view = await self._loader.load(name, record, topic_log)
        finally:
            # Nothing is appended, and the journal must not refer to it.
            topic_log.discard()
        if topic_id in self._storage.logs or not self._serves(record):
            # Its cursors may be later than its end.
            view.close(_CLOSED)
            return None
        return view

    async def offsets(
        self, names: Sequence[TopicName]
    ) -> dict[TopicName, TopicOffsets]:
        """
        Return the offsets of those topics that exist and that this broker serves.

        Raises:
            SessionLost: The session of this broker in the cluster is over.
        """
        if self._shards is not None:
            self._shards.check_session()
        opened = self._topics.opened
        found = {name: opened[name].offsets() for name in names if name in opened}
        rest = [name for name in names if name not in opened]
        stored = await self._catalog.find_each(rest)
        records = {
            name: each.value
            for name, each in zip(rest, stored, strict=True)
            if each is not None and self._serves(each.value)
        }
        reliable = [name for name in records if records[name].policy.is_reliable]
        idle = await self._storage.idle.find(
            [TopicId(records[name].topic_id) for name in reliable]
        )
        known = dict(zip(reliable, idle, strict=True))
        for name, record in records.items():
            at = known.get(name)
            if at is None and record.policy.is_reliable:
                with suppress(TopicNotFound, NotOwner):
                    found[name] = (await self._topics.get(name)).offsets()
            else:
                found[name] = _offsets_of(record, at)
        return found

    def _serves(self, record: TopicRecord) -> bool:
        return self._shards is None or self._shards.serves(record.shard)

    def _epoch_of(self, name: TopicName, record: TopicRecord, known: IdleLog) -> Epoch:
        if self._shards is not None:
            return self._shards.epoch_of(name, record.shard)
        return known.epoch


def _offsets_of(record: TopicRecord, known: IdleLog | None) -> TopicOffsets:
    """Return the offsets of a topic that is not open; *known* if it is reliable."""
    return TopicOffsets(
        topic_id=record.topic_id,
        base_offset=0 if known is None else known.base_offset,
        end_offset=0 if known is None else known.end_offset,
        sealed_offset=0 if known is None else known.end_offset,
        tail_bytes=0,
        is_reliable=record.policy.is_reliable,
    )
