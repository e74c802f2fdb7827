"""The producers of each topic: which are open, and which are still remembered."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

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
        self, topic: Topic, producer: str, resume: tuple[int, int]
    ) -> ProducerSession:
        """
        A session for *producer*; see ``Broker.open_producer``.

        Durability: On return its epoch is on disk, if the topic is stored.
        """
        before = topic.sessions.pop(producer, None)
        if before is None:
            before = self._find_remembered(topic, producer)
        session = open_session(
            producer, before, resume=resume, new_id=self._new_id(topic)
        )
        # Also where it is continued: it is the last in line to be forgotten.
        topic.sessions[producer] = session
        if isinstance(topic, ReliableTopic) and session is not before:
            await self._save(topic, session)
        self._forget_idle(topic)
        return session

    def close(self, topic: Topic, session: ProducerSession, *, forget: bool) -> None:
        """The producer is gone; see ``Broker.close_producer``."""
        if topic.sessions.get(session.name) is not session:
            return
        session.is_open = False
        if forget:
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
        idle = [
            name
            for name in known
            if (session := topic.sessions.get(name)) is None or not session.is_open
        ]
        for name in idle[: max(0, len(idle) - IDLE_PRODUCERS_MAX)]:
            self._forget(topic, name)

    def _forget(self, topic: Topic, name: str) -> None:
        topic.sessions.pop(name, None)
        if isinstance(topic, ReliableTopic):
            self._storage.delete_producer(topic.topic_id, name)
