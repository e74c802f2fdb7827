"""
The producers of a broker's topics: opening and closing them, forgetting idle ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from pydanube.aio.futures import complete_future, completion
from pydanube.model.errors import AlreadyExists
from pydanube.model.ids import ProducerId
from pydanube.model.names import TopicName
from pydanube.model.policy import ProducerAccess, TopicPolicy
from pydanube.model.schemas import SchemaReference
from pydanube.wire.files.journal_format import ProducerDeleted, ProducerOpened
from pydanube_broker.broker.publishing.recovered_producers import stop_awaiting_later
from pydanube_broker.broker.publishing.topic import ReliableTopic, Topic
from pydanube_broker.broker.pure.producer_registrations import (
    OnFenced,
    ProducerRegistration,
)
from pydanube_broker.broker.pure.producer_session import (
    ProducerSession,
    check_not_fenced,
    open_session,
)
from pydanube_broker.broker.topics.topic_schemas import TopicSchemas
from pydanube_broker.broker.topics.topics import Topics
from pydanube_broker.storage.journal.state import ProducerState
from pydanube_broker.storage.storage import Storage

IDLE_PRODUCERS_MAX = 1000
"""The number of disconnected producers of one topic whose sessions are kept."""
FORGOTTEN_AT_ONCE_MAX = 100
"""The most sessions of idle producers forgotten per opening; bounds its duration."""


class Producers:
    """Opens and closes the producers of all topics."""

    def __init__(
        self,
        topics: Topics,
        schemas: TopicSchemas,
        storage: Storage,
        clock: Callable[[], float],
    ) -> None:
        self._topics = topics
        self._schemas = schemas
        self._storage = storage
        self._clock = clock

    async def open(
        self,
        name: TopicName,
        producer: str,
        *,
        policy: TopicPolicy | None,
        takes_any_kind: bool = False,
        resume: tuple[int, int] = (0, 0),
        access: ProducerAccess = ProducerAccess.SHARED,
        on_fenced: OnFenced | None = None,
        schema: SchemaReference | None = None,
    ) -> tuple[Topic, ProducerSession]:
        """
        Open a session for a producer of messages with sequence numbers.

        If the topic does not exist, it is created with *policy*, unless that is None.
        An existing topic must have the same dispatch, unless *takes_any_kind*.

        *resume* is the id and epoch of the session that the client had before its
        connection broke.  Any other session of this name is fenced, and a topic that
        was deleted meanwhile is not created again.

        With ``EXCLUSIVE_WAIT`` the call waits until there is no other producer, and
        none may return; see ``RETURN_S``.

        *on_fenced* is called at most once, when the producer may not publish any more
        although nobody closed it: another producer took over, or the topic was
        deleted.  That may happen before this call returns.

        *schema* declares what the producer writes; the session's registration has the
        resulting schema.  The first producer binds the topic to its subject.

        Durability: On return the session's epoch is on disk.

        Ordering: Waiting producers are admitted in the order of their calls, and
            before all producers that come later.

        Cancellation: The producer is not open, and does not wait.

        Raises:
            TopicNotFound: There is no such topic, and it may not be created.
            AlreadyExists: The topic exists with another dispatch than *policy*.
            SchemaNotFound: There is no such subject or version.
            OtherSchema: The topic is bound to another subject or version.
            ProducerBusy: This or another producer has exclusive access.
            ProducerFenced: An exclusive producer returns, and has lost its access.
            QuotaExceeded: The topic has its maximum number of producers.
            Draining: The broker is stopping.
        """
        topic, registration = await self.attach(
            name,
            producer,
            policy=policy,
            takes_any_kind=takes_any_kind,
            access=access,
            on_fenced=on_fenced,
            schema=schema,
            is_joining=False,
            resume=resume,
        )
        try:
            return topic, await self._open(topic, registration, resume)
        except BaseException:
            topic.registrations.leave(registration)
            raise

    def close(
        self,
        topic: Topic,
        session: ProducerSession,
        *,
        forget: bool,
        may_return: bool = False,
    ) -> None:
        """
        Close a producer.

        Its session is kept in case the producer sends a batch again, unless *forget*
        says that it will not.  If it has exclusive access and *may_return*, producers
        that wait for that leave it for ``RETURN_S``.
        """
        if session.registration is not None:
            registrations = topic.registrations
            awaited = registrations.leave(session.registration, may_return=may_return)
            if awaited is not None:
                stop_awaiting_later(registrations, awaited)
        if forget and topic.sessions.get(session.name) is session:
            self._forget(topic, session.name)

    async def attach(
        self,
        name: TopicName,
        producer: str,
        *,
        policy: TopicPolicy | None,
        takes_any_kind: bool = False,
        access: ProducerAccess = ProducerAccess.SHARED,
        on_fenced: OnFenced | None = None,
        schema: SchemaReference | None = None,
        is_joining: bool = True,
        resume: tuple[int, int] = (0, 0),
    ) -> tuple[Topic, ProducerRegistration]:
        """
        Register a producer of messages without sequence numbers.

        ``MessageBatcher`` publishes its messages.  The registration lasts until the
        server removes it; a producer that is attached again under the same name
        meanwhile gets the same registration, if *is_joining*.  Otherwise as ``open``.
        """
        request = ProducerRegistration(
            name=producer,
            access=access,
            on_fenced=on_fenced,
            is_joining=is_joining,
            is_returning=resume != (0, 0),
        )
        self._topics.check_not_draining()
        if schema is not None:
            request.schema = await self._schemas.resolve(name, schema)
        topic = await self._find_topic(
            name,
            policy,
            takes_any_kind=takes_any_kind,
            may_create=not request.is_returning,
        )
        if schema is not None:
            await self._schemas.bind_first(topic, schema)
        if isinstance(topic, ReliableTopic):
            await topic.open_window()
        # Before it takes the registration of a newer session.
        if (before := self._find_state(topic, producer)) is not None:
            check_not_fenced(producer, before, resume)
        return topic, await self._register(topic, request)

    async def _find_topic(
        self,
        name: TopicName,
        policy: TopicPolicy | None,
        *,
        takes_any_kind: bool,
        may_create: bool,
    ) -> Topic:
        if policy is None or not may_create:
            topic = await self._topics.get(name)
        else:
            topic = await self._topics.get_or_create(name, policy)
        if (
            policy is not None
            and not takes_any_kind
            and policy.dispatch is not topic.policy.dispatch
        ):
            raise AlreadyExists(
                f"{name} is {topic.policy.dispatch.value}, the producer wants it "
                f"{policy.dispatch.value}"
            )
        return topic

    async def _register(
        self, topic: Topic, request: ProducerRegistration
    ) -> ProducerRegistration:
        """
        Register a producer, at once or when it is admitted from the queue.

        Cancellation: The producer is neither registered nor queued.
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

    async def _open(
        self, topic: Topic, registration: ProducerRegistration, resume: tuple[int, int]
    ) -> ProducerSession:
        producer = registration.name
        before = self._find_state(topic, producer)
        topic.sessions.pop(producer, None)
        if before is None:
            topic.last_producer_id += 1
        session = open_session(
            producer,
            before,
            resume=resume,
            new_id=ProducerId(topic.last_producer_id),
            registration=registration,
        )
        topic.registrations.remember(producer)
        # A resumed session also moves to the end: it is the last to be forgotten.
        topic.sessions[producer] = session
        is_new = before is None or before.epoch != session.epoch
        if is_new and isinstance(topic, ReliableTopic):
            opened = ProducerOpened(
                topic_id=topic.topic_id,
                name=producer,
                producer_id=session.producer_id,
                epoch=session.epoch,
            )
            await completion(partial(self._storage.save, opened))
        self._forget_idle(topic)
        return session

    def _find_state(self, topic: Topic, producer: str) -> ProducerState | None:
        """Return the state of a producer, if it was opened before."""
        if (session := topic.sessions.get(producer)) is not None:
            return session
        state = self._storage.find_state(topic.topic_id)
        return None if state is None else state.producers.get(producer)

    def _forget_idle(self, topic: Topic) -> None:
        """Forget the longest idle producers if there are too many."""
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
            self._storage.save(ProducerDeleted(topic.topic_id, name))
