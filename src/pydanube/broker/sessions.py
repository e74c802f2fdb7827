"""The producers of each topic: how they come in, and which are still remembered."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from pydanube.broker.producer_registrations import AccessRequest, ProducerRegistration
from pydanube.broker.producer_session import (
    ProducerSession,
    open_session,
    restore_session,
)
from pydanube.broker.topic import ReliableTopic, Topic
from pydanube.storage.journal import complete_future

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydanube.storage.storage import Storage

IDLE_PRODUCERS_MAX = 1000
"""Of one topic: producers that are not connected and could still send again."""
RECONNECT_S = 300.0
"""For so long after a topic was opened, the producers that the journal remembers are
not forgotten: they may have been connected when the broker stopped."""
FORGOTTEN_AT_ONCE_MAX = 100
"""The most idle producers forgotten per opening, which bounds its duration."""


class ProducerSessions:
    """Opens and closes sessions, over what the journal remembers of them."""

    def __init__(self, storage: Storage, clock: Callable[[], float]) -> None:
        self._storage = storage
        self._clock = clock

    def load(self, topic: Topic) -> None:
        """Let a topic that was just opened know the producers of its journal."""
        state = self._storage.find_state(topic.topic_id)
        if state is None or not state.producers:
            return
        for known in state.producers.values():
            topic.registrations.remember(known.name)
            topic.last_producer_id = max(topic.last_producer_id, known.producer_id)
        topic.recovered_producers = len(state.producers)
        topic.reconnect_until = self._clock() + RECONNECT_S

    async def open(
        self, topic: Topic, request: AccessRequest, resume: tuple[int, int]
    ) -> ProducerSession:
        """
        A session for a producer; see ``Broker.open_producer``.

        Durability: On return its epoch is on disk, if the topic is stored.

        Cancellation: Whenever it comes, the producer has no registration.
        """
        registration = await self.register(topic, request)
        try:
            return await self._open(topic, registration, resume)
        except BaseException:
            topic.registrations.leave(registration)
            raise

    async def _open(
        self, topic: Topic, registration: ProducerRegistration, resume: tuple[int, int]
    ) -> ProducerSession:
        producer = registration.name
        before = topic.sessions.pop(producer, None)
        if before is None:
            before = self._find_remembered(topic, producer)
        if before is None:
            topic.last_producer_id += 1
        session = open_session(
            producer,
            before,
            resume=resume,
            new_id=topic.last_producer_id,
            registration=registration,
        )
        topic.registrations.remember(producer)
        # Also where it is continued: it is the last in line to be forgotten.
        topic.sessions[producer] = session
        is_new = before is None or before.epoch != session.epoch
        if is_new and isinstance(topic, ReliableTopic):
            await self._save(topic, session)
        self._forget_idle(topic)
        return session

    async def register(
        self, topic: Topic, request: AccessRequest
    ) -> ProducerRegistration:
        """
        A place among the topic's producers, at once or when its turn has come.

        Ordering: Turns come in the order of the calls.

        Cancellation: The producer waits no more, and has no registration.

        Raises:
            ProducerBusy, QuotaExceeded: It is not let in.
            TopicNotFound, Draining: Nobody is, any more.
        """
        topic.check()
        registrations = topic.registrations
        registration = registrations.register(
            request, topic.limits.max_producers_per_topic
        )
        if registration is not None:
            return registration
        admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queued = registrations.queue(request, partial(complete_future, admitted))
        try:
            await admitted
        except BaseException:
            registrations.cancel(queued)
            raise
        assert queued.registration is not None
        queued.registration.check()
        return queued.registration

    def close(self, topic: Topic, session: ProducerSession, *, forget: bool) -> None:
        """The producer is gone; see ``Broker.close_producer``."""
        if session.registration is not None:
            topic.registrations.leave(session.registration)
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

    async def _save(self, topic: ReliableTopic, session: ProducerSession) -> None:
        saved: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._storage.save_producer(
            topic.topic_id,
            session.name,
            session.producer_id,
            session.epoch,
            partial(complete_future, saved),
        )
        await saved

    def _forget_idle(self, topic: Topic) -> None:
        """Forget the producers that have been idle longest, if there are too many."""
        idle_max = IDLE_PRODUCERS_MAX
        if self._clock() < topic.reconnect_until:
            idle_max = max(idle_max, topic.recovered_producers)
        excess = topic.registrations.idle_count - idle_max
        if excess > 0:
            count = min(excess, FORGOTTEN_AT_ONCE_MAX)
            for name in topic.registrations.longest_idle(count):
                self._forget(topic, name)

    def _forget(self, topic: Topic, name: str) -> None:
        topic.sessions.pop(name, None)
        topic.registrations.forget(name)
        if isinstance(topic, ReliableTopic):
            self._storage.delete_producer(topic.topic_id, name)
