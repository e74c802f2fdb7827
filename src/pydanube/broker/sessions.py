"""The producers of each topic: how they come in, and which are still remembered."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from pydanube.broker.places import Place, Request
from pydanube.broker.producers import ProducerSession, open_session, restore_session
from pydanube.broker.topic import ReliableTopic, Topic
from pydanube.storage.journal import settle

if TYPE_CHECKING:
    from pydanube.storage.storage import Storage

IDLE_PRODUCERS_MAX = 1000
"""Of one topic: producers that are not connected and could still send again."""


class ProducerSessions:
    """Opens and closes sessions, over what the journal remembers of them."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    async def open(
        self, topic: Topic, request: Request, resume: tuple[int, int]
    ) -> ProducerSession:
        """
        A session for a producer; see ``Broker.open_producer``.

        Durability: On return its epoch is on disk, if the topic is stored.

        Cancellation: Whenever it comes, the producer has no place.
        """
        place = await self.enter(topic, request)
        try:
            return await self._open(topic, place, resume)
        except BaseException:
            topic.places.leave(place)
            raise

    async def _open(
        self, topic: Topic, place: Place, resume: tuple[int, int]
    ) -> ProducerSession:
        producer = place.name
        before = topic.sessions.pop(producer, None)
        if before is None:
            before = self._find_remembered(topic, producer)
        session = open_session(
            producer, before, resume=resume, new_id=self._new_id(topic), place=place
        )
        # Also where it is continued: it is the last in line to be forgotten.
        topic.sessions[producer] = session
        is_new = before is None or before.epoch != session.epoch
        if is_new and isinstance(topic, ReliableTopic):
            await self._save(topic, session)
        self._forget_idle(topic)
        return session

    async def enter(self, topic: Topic, request: Request) -> Place:
        """
        A place among the topic's producers, at once or when its turn has come.

        Ordering: Turns come in the order of the calls.

        Cancellation: The producer waits no more, and has no place.

        Raises:
            ProducerBusy, QuotaExceeded: It is not let in.
            TopicNotFound, Draining: Nobody is, any more.
        """
        topic.check()
        places = topic.places
        place = places.enter(request, topic.limits.max_producers_per_topic)
        if place is not None:
            return place
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = places.wait(request, partial(settle, turn))
        try:
            await turn
        except BaseException:
            places.withdraw(waiting)
            raise
        assert waiting.place is not None
        waiting.place.check()
        return waiting.place

    def close(self, topic: Topic, session: ProducerSession, *, forget: bool) -> None:
        """The producer is gone; see ``Broker.close_producer``."""
        if session.place is not None:
            topic.places.leave(session.place)
        if forget and topic.sessions.get(session.name) is session:
            self._forget(topic, session.name)

    def _find_remembered(self, topic: Topic, producer: str) -> ProducerSession | None:
        state = self._storage.find_state(topic.topic_id)
        known = None if state is None else state.producers.get(producer)
        if known is None:
            return None
        return restore_session(
            producer, known.producer_id, known.epoch, known.next_sequence, known.runs
        )

    def _new_id(self, topic: Topic) -> int:
        ids = [session.producer_id for session in topic.sessions.values()]
        state = self._storage.find_state(topic.topic_id)
        if state is not None:
            ids += [known.producer_id for known in state.producers.values()]
        return max(ids, default=0) + 1

    async def _save(self, topic: ReliableTopic, session: ProducerSession) -> None:
        saved: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._storage.save_producer(
            topic.topic_id,
            session.name,
            session.producer_id,
            session.epoch,
            partial(settle, saved),
        )
        await saved

    def _forget_idle(self, topic: Topic) -> None:
        """Forget whoever opened longest ago of those that are not connected."""
        state = self._storage.find_state(topic.topic_id)
        known = dict.fromkeys([] if state is None else state.producers)
        known.update(dict.fromkeys(topic.sessions))
        idle = [name for name in known if name not in topic.places]
        for name in idle[: max(0, len(idle) - IDLE_PRODUCERS_MAX)]:
            self._forget(topic, name)

    def _forget(self, topic: Topic, name: str) -> None:
        topic.sessions.pop(name, None)
        if isinstance(topic, ReliableTopic):
            self._storage.delete_producer(topic.topic_id, name)
