"""
Looks at topics that do not open them.

After a start, or after a takeover of its shard, a topic is opened when it is used.
Opening writes to the journal and to the metadata store, and keeps the topic in memory.
A description needs neither: the metadata store has the segments, subscriptions and
settings of a topic, and the journal has its cursors.  A client may describe all topics
of a broker that uses few of them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import field
from typing import NamedTuple
from uuid import uuid4

from pydanube.model.descriptions import TopicOffsets
from pydanube.model.errors import NotOwner, TopicNotFound, Unavailable
from pydanube.model.ids import Epoch, Offset, TopicId
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.names import TopicName
from pydanube.model.segments import SegmentEntry
from pydanube_broker.broker.governance.catalog import Catalog
from pydanube_broker.broker.publishing.topic import ReliableTopic, Topic
from pydanube_broker.broker.topics.shards import Shards
from pydanube_broker.broker.topics.topic_loading import TopicLoader
from pydanube_broker.broker.topics.topics import Topics, require_reliable
from pydanube_broker.metadata.records import TopicRecord
from pydanube_broker.storage.segments.idle_logs import IdleLog
from pydanube_broker.storage.storage import Storage

CHANGED_TOPICS_MAX = 1000
"""The most topics that are named as changed; if there are more, look at all."""

_CLOSED = Unavailable("the topic is not open")
_EMPTY = IdleLog((), Offset(0), Epoch(0))


class TopicLook(NamedTuple):
    """The offsets and segments of a topic at one moment."""

    offsets: TopicOffsets
    segments: tuple[SegmentEntry, ...]


class OffsetsRevision(NamedTuple):
    """A moment in the changes of a broker's offsets."""

    run: str
    """Distinguishes brokers, and what they serve."""
    revision: int


@dataclass(frozen=True, slots=True)
class TopicLooks:
    """Looks at several topics."""

    found: dict[TopicName, TopicLook] = field(default_factory=dict)
    """The topics that this broker serves."""
    elsewhere: dict[str, list[TopicName]] = field(default_factory=dict)
    """The topics that other brokers of the cluster serve, by their URLs."""

    revision: OffsetsRevision | None = None
    """Changes after it may be missing here."""

    def add(self, topic: Topic) -> None:
        """Look at an open topic."""
        self.found[topic.name] = TopicLook(topic.offsets(), topic.segments)


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
        self._run = uuid4().hex

    @property
    def revision(self) -> OffsetsRevision:
        """The present moment; it has another run after shards have come or gone."""
        served = () if self._shards is None else tuple(self._shards.served.items())
        changes = self._storage.offset_changes
        return OffsetsRevision(f"{self._run}-{hash(served):x}", changes.revision)

    def changed_since(self, known: OffsetsRevision) -> list[TopicName] | None:
        """
        Return the topics whose offsets have changed since *known*.

        It is None if there are too many, or if that was too long ago.
        """
        if known.run != self.revision.run:
            return None
        changes = self._storage.offset_changes
        names = changes.since(known.revision, CHANGED_TOPICS_MAX)
        return None if names is None else list(map(TopicName.parse, names))

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
            start_offset=record.start_offset,
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

    async def look_at(self, names: Sequence[TopicName]) -> TopicLooks:
        """
        Look at several topics; those that do not exist are left out.

        Raises:
            SessionLost: The session of this broker in the cluster is over.
        """
        if self._shards is not None:
            self._shards.owners.check_session()
        # What changes from here on may be missing in the answer.
        looks, opened = TopicLooks(revision=self.revision), self._topics.opened
        rest = []
        for name in names:
            if name in opened:
                looks.add(opened[name])
            else:
                rest.append(name)
        stored = await self._catalog.find_each(rest)
        reliable: dict[TopicName, TopicRecord] = {}
        for name, each in zip(rest, stored, strict=True):
            if each is None:
                continue
            if not self._serves(each.value):
                self._note_elsewhere(looks, name, each.value)
            elif each.value.policy.is_reliable:
                reliable[name] = each.value
            else:
                looks.found[name] = _look_at_idle(each.value, _EMPTY)
        idle = await self._storage.idle.find(
            [TopicId(record.topic_id) for record in reliable.values()]
        )
        for (name, record), known in zip(reliable.items(), idle, strict=True):
            if known is not None:
                looks.found[name] = _look_at_idle(record, known)
                continue
            with suppress(TopicNotFound, NotOwner):
                looks.add(await self._topics.get(name))
        return looks

    def _note_elsewhere(
        self, looks: TopicLooks, name: TopicName, record: TopicRecord
    ) -> None:
        assert self._shards is not None
        if record.shard is not None and (url := self._shards.url_of(record.shard)):
            looks.elsewhere.setdefault(url, []).append(name)

    def _serves(self, record: TopicRecord) -> bool:
        return self._shards is None or self._shards.serves(record.shard)

    def _epoch_of(self, name: TopicName, record: TopicRecord, known: IdleLog) -> Epoch:
        if self._shards is not None:
            return self._shards.epoch_of(name, record.shard)
        return known.epoch


def _look_at_idle(record: TopicRecord, known: IdleLog) -> TopicLook:
    end = max(known.end_offset, record.start_offset)
    offsets = TopicOffsets(
        topic_id=record.topic_id,
        base_offset=max(known.base_offset, record.start_offset),
        end_offset=end,
        sealed_offset=end,
        tail_bytes=0,
        is_reliable=record.policy.is_reliable,
    )
    return TopicLook(offsets, known.segments)
