"""Requests to stage parts, which every kind of broker answers in the same way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

from pydanube.model.errors import InvalidRequest, StagedPartNotFound, StagingClosed
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.names import TopicName
from pydanube.model.schemas import SchemaReference
from pydanube.model.staging import PartKey
from pydanube.wire.batches import INT64_MAX
from pydanube_broker.broker.publishing.topic import ReliableTopic
from pydanube_broker.broker.staging.staged_parts import (
    Part,
    Stage,
    StagedParts,
    StagePort,
)
from pydanube_broker.broker.topics.topic_schemas import TopicSchemas
from pydanube_broker.broker.topics.topics import Topics
from pydanube_broker.metadata.records import CommittedAcksRecord
from pydanube_broker.metadata.store import Revision
from pydanube_broker.storage.journal.staging import StagedFiles

PARTS_MAX = 10_000
"""The most parts of one commit."""


@dataclass(frozen=True, slots=True)
class QueryWriter:
    """The program that writes a query's transactions, as a listener describes it."""

    content: bytes
    """Empty: nothing is kept."""
    revision: Revision
    """The next change names it, so that no change is lost."""
    decided: int | None
    """The last version whose commit is decided."""
    acks: tuple[CommittedAcksRecord, ...] = ()
    """The acknowledgements of that commit, as long as it is not carried out."""


class PartStaging(ABC):
    """Opens, finishes and drops the parts of versions."""

    def __init__(
        self,
        topics: Topics,
        schemas: TopicSchemas,
        files: StagedFiles,
        parts: StagedParts,
    ) -> None:
        self.parts = parts
        self.files = files
        self.commit_count = 0
        """The number of versions committed since the start."""
        self.committed_messages = 0
        self._topics = topics
        self._schemas = schemas

    # The subclass.

    @abstractmethod
    async def _ready(self) -> None:
        """Return when the parts of an earlier run are known."""

    @abstractmethod
    def _check_not_committed(self, query: str, version: int) -> None:
        """Raise ``StagingClosed`` if the version accepts no parts any more."""

    @abstractmethod
    def _check_topic(self, topic: ReliableTopic) -> None:
        """Raise if nothing may be staged for *topic*."""

    @abstractmethod
    async def claim(self, query: str, member: str) -> str:
        """
        Return the owner of *query*, which is *member* if it has none yet.

        Durability: On return the owner is on disk.
        """

    @abstractmethod
    async def release(self, query: str) -> None:
        """
        Take the owner from *query*; the next client that uses it is its owner.

        Raises:
            QueryNotFound: It has no owner.
        """

    # Writers.

    @abstractmethod
    async def read_writer(self, query: str) -> QueryWriter:
        """Return the writer of *query* as it is now."""

    @abstractmethod
    async def read_writers(self) -> Iterable[tuple[str, QueryWriter]]:
        """Return the writers of all queries as they are now."""

    @abstractmethod
    def known_writers(self) -> Iterable[tuple[str, QueryWriter]]:
        """Return the writers of all queries, perhaps late."""

    @abstractmethod
    async def write_writer(
        self, query: str, content: bytes, expected: Revision
    ) -> None:
        """
        Replace the writer of *query*.

        Durability: In a cluster it is in the metadata store on return. A broker alone
            forgets it when it stops, as it forgets all transactions.

        Raises:
            RevisionConflict: The record of the query has changed since *expected*.
        """

    @abstractmethod
    async def begin_as_writer(
        self, query: str, content_of: Callable[[int], bytes], expected: Revision
    ) -> None:
        """
        Begin a transaction; *content_of* its version is the writer from then on.

        Ordering: When this returns, no earlier transaction of the query can be decided
            any more.

        Raises:
            RevisionConflict: The record of the query has changed since *expected*.
        """

    def on_served(self) -> None:
        """Note that this broker serves another shard of its cluster."""
        return

    # Parts.

    async def open_stage(
        self,
        key: PartKey,
        name: TopicName,
        schema: SchemaReference | None,
        port: StagePort,
    ) -> Stage:
        """
        Open a stage for one topic of a part, which need not exist yet.

        *port* is told about written batches.  An earlier stage for the same topic of
        the part is closed.

        Raises:
            TopicNotFound: There is no such topic.
            InvalidRequest: It is not reliable.
            SchemaNotFound, OtherSchema: The topic does not accept the schema.
            StagingClosed: The version is committed, or the part is finished.
            ProducerBusy: In a cluster: the topic has an exclusive producer.
            QuotaExceeded: The topic or its namespace stores as much as allowed.
            Draining: The broker is stopping.
        """
        await self._ready()
        check_version(key.version)
        topic = await self._topics.get_reliable(name)
        topic.check()
        topic.pacing.check("storage_bytes")
        self._check_topic(topic)
        chosen = None
        if schema is not None:
            chosen = await self._schemas.assign(topic, schema)
        self._check_not_committed(key.query, key.version)
        return self.parts.find_or_create(key).stage(topic, chosen, port)

    async def finish_part(
        self, key: PartKey, batch_count: int, message_count: int
    ) -> int:
        """
        Complete a part with these counts; return its size.

        Durability: On return the part is on disk; in a cluster, in the object store.

        Raises:
            StagedPartNotFound: There is no such part, or its counts differ.
            StagingClosed: The version is committed.
            QuotaExceeded: In a cluster: a topic or its namespace stores as much as
                allowed.
            DiskFull, Unavailable: It could not be written, and was dropped.
        """
        return (await self._finish_part(key, batch_count, message_count)).byte_count

    async def complete_part(self, key: PartKey) -> None:
        """
        Complete a part, which has what was staged so far; see ``finish_part``.

        Raises:
            StagedPartNotFound: There is no such part here, for example because it was
                completed before.
        """
        await self._ready()
        part = self.parts.find(key)
        if part is None:
            raise _missing(key)
        await self.finish_part(key, part.batch_count, part.message_count)

    async def _finish_part(
        self, key: PartKey, batch_count: int, message_count: int
    ) -> Part:
        await self._ready()
        self._check_not_committed(key.query, key.version)
        part = self.parts.find(key)
        if part is None:
            raise _missing(key)
        part.touch()
        await part.finish(batch_count, message_count)
        return part

    async def topics_of_part(self, key: PartKey) -> Iterable[str]:
        """Return the topics of a part; none if it is not here."""
        await self._ready()
        part = self.parts.find(key)
        return () if part is None else part.topics

    async def topics_of(self, query: str) -> set[str]:
        """
        Return the topics of the parts of a query.

        In a cluster, those that are finished are the parts of all brokers.
        """
        await self._ready()
        parts = self.parts.of_query(query)
        return {topic for part in parts for topic in part.topics}

    async def drop_part(self, key: PartKey) -> None:
        """Drop a part, if it exists."""
        await self._ready()
        part = self.parts.find(key)
        if part is not None:
            part.fail(StagingClosed(f"the part {key.name} was dropped"))


def _missing(key: PartKey) -> StagedPartNotFound:
    return StagedPartNotFound(f"the part {key.name} does not exist; stage it again")


def check_version(version: int) -> None:
    """Raise unless *version* can be stored."""
    if version > INT64_MAX:
        raise InvalidRequest(f"a version is at most {INT64_MAX}, not {version}")
