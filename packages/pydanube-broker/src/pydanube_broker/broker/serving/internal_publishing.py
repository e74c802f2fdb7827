"""
Publishing by the broker itself: dead letters, and the records of the audit log.

What a broker publishes on its own goes this one way.  It finds the broker that serves
the topic, creates the topic if need be, and stores the messages there or asks that
broker to do so.  Callers repeat what failed; what an earlier attempt has stored is not
stored again.

Idempotence.  Each batch comes from a *source*, for example a subscription that gives up
messages, and each message has a *position* in it, its offset.  The source is a producer
of the topic, and a message's sequence number is its position.  So the journal of the
topic has, for each source, the runs of positions that are stored, also after a failover
of the topic.  Positions may come in any order, so all runs are kept, except those
below the position from which on the source may still repeat messages.

Fencing.  After a failover of the source, its new broker sends a higher *epoch*.  When
the same positions become new messages, as after a seek, the *generation* rises, which
is the producer's id: then no positions are known.  Whatever is older is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from pydanube.model.errors import (
    AlreadyExists,
    BrokerError,
    NotOwner,
    Overloaded,
    ProducerFenced,
    TopicNotFound,
)
from pydanube.model.ids import Epoch, ProducerId
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.names import TopicName
from pydanube.model.policy import TopicPolicy
from pydanube.model.ranges import RangeSet
from pydanube.wire.batches import decode, restamp_producer
from pydanube.wire.files.journal_format import (
    INTERNAL_PREFIX,
    ProducerDeleted,
    ProducerSaved,
)
from pydanube.wire.native.kinds import Kind
from pydanube_broker.broker.delivery.internal_batches import InternalBatch, Source
from pydanube_broker.broker.publishing.topic import ReliableTopic
from pydanube_broker.broker.pure.producer_session import ProducerSession
from pydanube_broker.broker.topics.topics import Topics
from pydanube_broker.metadata.cluster_records import SessionRecord
from pydanube_broker.storage.journal.state import ProducerState
from pydanube_broker.storage.storage import Storage

ATTEMPTS_MAX = 3
"""How often the owner of a topic is looked up for one call."""
RETRY_S = 0.1
SOURCES_MAX = 10_000
"""The most sources that a topic remembers; the oldest ones are forgotten."""
RUNS_LEFT_MAX = 64
"""Runs that are not needed are dropped from the journal if there are more."""


class Peers(Protocol):
    """The other brokers of the cluster."""

    async def operate(self, peer: SessionRecord, kind: Kind, message: Any) -> Any:
        """
        Let *peer* carry out an authorized operation; return its answer, None for OK.

        Raises:
            Unavailable: It did not answer; it may have carried it out.
            BrokerError: It has refused.
        """

    async def append(
        self,
        peer: SessionRecord,
        topic: TopicName,
        source: Source,
        batches: Sequence[InternalBatch],
    ) -> None:
        """
        Let *peer* do ``append``.

        Raises:
            Unavailable: It did not answer; it may have stored the messages.
            BrokerError: It has refused them.
        """


class InternalPublisher:
    """Publishes the messages of the broker itself; see the module."""

    def __init__(
        self, topics: Topics, storage: Storage, peers: Peers | None = None
    ) -> None:
        """*peers* are given in a cluster."""
        self._topics = topics
        self._storage = storage
        self._peers = peers

    async def publish(
        self, topic: TopicName, source: Source, batches: Sequence[InternalBatch]
    ) -> None:
        """
        Store messages in *topic*, which is created if it does not exist.

        Durability: On return all messages are on disk.  After an error some of them
            may be; call this again with the same positions.

        Raises:
            NotOwner: No broker serves the topic at the moment.
            Unavailable: Its broker cannot be reached.
            NamespaceNotFound: Its namespace does not exist.
            InvalidRequest: The topic is not reliable.
            QuotaExceeded: The topic or its namespace stores as much as allowed.
            ProducerFenced: A newer session of the source has published.
        """
        for _ in range(ATTEMPTS_MAX - 1):
            try:
                await self._publish_once(topic, source, batches)
            except TopicNotFound:
                # Somebody else may create it meanwhile, with another policy.
                with suppress(AlreadyExists):
                    await self._topics.add(topic, TopicPolicy(), exist_ok=True)
            except NotOwner:
                await asyncio.sleep(RETRY_S)
            else:
                return
        await self._publish_once(topic, source, batches)

    async def _publish_once(
        self, topic: TopicName, source: Source, batches: Sequence[InternalBatch]
    ) -> None:
        owner = await self._topics.find_owner(topic)
        if owner is None:
            await self.append(topic, source, batches)
        elif self._peers is None:
            raise NotOwner(f"the broker {owner.broker_id} serves {topic}")
        else:
            await self._peers.append(owner, topic, source, batches)

    async def append(
        self, name: TopicName, source: Source, batches: Sequence[InternalBatch]
    ) -> None:
        """
        Store messages in a topic that this broker serves, unless they are stored.

        Durability, errors: As ``publish``.

        Raises:
            TopicNotFound: There is no such topic.
            NotOwner: Another broker serves it.
            Overloaded: The broker has no room for messages at the moment.
        """
        topic = await self._topics.get_reliable(name)
        if not self._topics.has_room:
            raise Overloaded(f"the broker has no room for messages of {name} now")
        topic.check()
        topic.pacing.check("storage_bytes")
        session = self._session_of(topic, source)
        stored = [
            self._append(topic, session, batch, begin, end)
            for batch in batches
            for begin, end in session.find_missing(batch.positions)
        ]
        if stored:
            await asyncio.wait(stored)
            for each in stored:
                if (error := each.result()) is not None:
                    raise error
            return
        # An earlier attempt may have appended them a moment ago.
        await self._storage.journal.sync()
        topic.check_stays()

    def _append(
        self,
        topic: ReliableTopic,
        session: _SourceSession,
        batch: InternalBatch,
        begin: int,
        end: int,
    ) -> asyncio.Future[BrokerError | None]:
        """Append the messages ``begin … end`` of a batch, at adjacent positions."""
        stored: asyncio.Future[BrokerError | None]
        stored = asyncio.get_running_loop().create_future()
        frame, position = batch.frame.take([(begin, end)]), batch.positions[begin]
        if frame is batch.frame:
            # The topic changes the buffer, and the caller may need the batch again.
            frame = decode(bytearray(frame.buffer))
        restamp_producer(frame, session.producer_id, session.epoch, position)
        offset = topic.log.next_offset
        topic.publish_unchecked(frame, partial(_on_stored, topic, session, stored))
        session.record(position, offset, frame.count)
        session.known.add(position, position + frame.count)
        return stored

    def _session_of(self, topic: ReliableTopic, source: Source) -> _SourceSession:
        """
        Return the session of a source, after dropping what it does not need.

        Raises:
            ProducerFenced: A newer session of the source has published.
        """
        session = topic.sessions.get(source.producer)
        if session is None:
            session = self._open_session(topic, source)
        assert isinstance(session, _SourceSession)
        session.continue_with(source)
        state = self._storage.find_state(topic.topic_id)
        known = None if state is None else state.producers.get(source.producer)
        if known is not None and len(known.runs) > RUNS_LEFT_MAX + 2 * len(
            session.runs
        ):
            saved = ProducerSaved(
                topic_id=topic.topic_id,
                name=session.name,
                producer_id=session.producer_id,
                epoch=session.epoch,
                next_sequence=session.next_sequence,
                runs=tuple(session.runs),
            )
            self._storage.save(saved)
        return session

    def _open_session(self, topic: ReliableTopic, source: Source) -> _SourceSession:
        assert source.producer.startswith(INTERNAL_PREFIX)
        state = self._storage.find_state(topic.topic_id)
        producers = {} if state is None else state.producers
        if source.producer not in producers:
            names = [name for name, each in producers.items() if each.is_internal]
            for name in names[: len(names) - SOURCES_MAX + 1]:
                topic.sessions.pop(name, None)
                self._storage.save(ProducerDeleted(topic.topic_id, name))
        session = _SourceSession.after(source, producers.get(source.producer))
        topic.sessions[source.producer] = session
        return session


@dataclass(slots=True)
class _SourceSession(ProducerSession):
    """The positions of a source that its topic has, also those not committed yet."""

    known: RangeSet = None  # type: ignore[assignment]  # Made from the runs.

    def __post_init__(self) -> None:
        self.known = RangeSet(
            sorted((position, position + count) for position, _, count in self.runs)
        )

    @classmethod
    def after(cls, source: Source, before: ProducerState | None) -> _SourceSession:
        """Return the session of a source that continues *before*."""
        if before is None:
            return cls(
                source.producer, ProducerId(source.generation), Epoch(source.epoch)
            )
        return cls(
            before.name,
            before.producer_id,
            before.epoch,
            before.next_sequence,
            before.runs.copy(),
        )

    def continue_with(self, source: Source) -> None:
        """
        Continue for the next batches of *source*.

        Raises:
            ProducerFenced: They are older than what the session knows.
        """
        mine = self.producer_id, self.epoch
        if (source.generation, source.epoch) < mine or source.epoch < self.epoch:
            raise ProducerFenced(
                f"{self.name}: a newer session of the source has published; it has "
                f"generation {self.producer_id} and epoch {self.epoch}, this one "
                f"{source.generation} and {source.epoch}"
            )
        if source.generation != self.producer_id:
            self.producer_id = ProducerId(source.generation)
            self.runs.clear()
            self.known = RangeSet()
        self.epoch = Epoch(source.epoch)
        if self.known.remove(0, source.settled):
            kept = [run for run in self.runs if run[0] + run[2] > source.settled]
            self.runs.clear()
            self.runs.extend(kept)

    def find_missing(self, positions: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Yield index ranges of *positions* that are adjacent and not known."""
        begin = 0
        while begin < len(positions):
            first = positions[begin]
            end = begin + 1
            while end < len(positions) and positions[end] == first + end - begin:
                end += 1
            for base, gap_end in self.known.gaps(first, first + end - begin):
                yield begin + base - first, begin + gap_end - first
            begin = end


def _on_stored(
    topic: ReliableTopic,
    session: _SourceSession,
    stored: asyncio.Future[BrokerError | None],
    _: object,
    error: BrokerError | None,
) -> None:
    if error is not None and topic.sessions.get(session.name) is session:
        # The next session continues from the journal's state.
        del topic.sessions[session.name]
    # As a result, because nobody may be waiting any more.
    stored.set_result(error)
