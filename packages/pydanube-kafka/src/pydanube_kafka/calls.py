"""Calls: requests with all that their handlers need, and their answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

from pydanube.model.errors import TopicNotFound
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.names import TopicName
from pydanube.wire.native.kinds import Kind
from pydanube_broker.broker.publishing.topic import Topic
from pydanube_broker.operations import handlers as operations
from pydanube_broker.operations.at_owner import AT_OWNER, operate_at_owner
from pydanube_broker.operations.authorization import authorized
from pydanube_kafka.wire.apis import Answers, Request

if TYPE_CHECKING:
    from pydanube_kafka.connection import KafkaConnection
    from pydanube_kafka.server import KafkaServer

NO_ANSWER = object()
"""The answer to a request whose client expects none."""

Handler: TypeAlias = "Callable[[Call], Awaitable[Awaitable[Any]]]"
"""
Begins to carry out a request, and returns what its answer can be awaited with.

The next request of the connection begins when it returns, so that what must happen in
the order of the requests is done there.
"""


@dataclass(frozen=True, slots=True)
class Call:
    """A request and what is needed to carry it out."""

    server: KafkaServer
    connection: KafkaConnection
    request: Request
    throttle_s: float
    """The time for which the request had to wait for the client's quota."""

    @property
    def body(self) -> Any:
        """The message of the request."""
        return self.request.body

    @property
    def answers(self) -> Answers:
        """The types of the answer."""
        return self.request.answers

    @property
    def throttle_time(self) -> timedelta:
        """The time for which the request had to wait, as answers have it."""
        return timedelta(milliseconds=int(self.throttle_s * 1000))

    def check(self, kind: Kind, name: TopicName) -> None:
        """
        Raise if the client may not do *kind* on a topic.

        Raises:
            PermissionDenied, Unauthenticated: It may not.
        """
        if self.server.broker.access.is_enforced:
            self.connection.allowed.check(self.connection.caller, kind, str(name))

    async def do(self, kind: Kind, message: Any) -> Any:
        """
        Carry out an operation of the broker for the client, if it may.

        Raises:
            BrokerError: As the operation.
        """
        connection = self.connection
        async with authorized(connection.caller, kind, message):
            call = operations.Call(
                self.server.broker,
                connection.identity.principal,
                self.server.parts.authenticator,
            )
            if kind in AT_OWNER:
                return await operate_at_owner(call, kind, message)
            return await operations.handlers()[kind](call, message)

    async def find_topic(self, kind: Kind, kafka_name: str, partition: int) -> Topic:
        """
        Return a partition of a topic, which is the topic itself if it has none.

        Raises:
            NotOwner: Another broker serves it.
            BrokerError: As ``find_name``.
        """
        topics = self.server.broker.topics
        return await topics.get(await self.find_name(kind, kafka_name, partition))

    async def find_name(self, kind: Kind, kafka_name: str, partition: int) -> TopicName:
        """
        Return the name of a partition, which another broker may serve.

        Raises:
            InvalidName: No topic is called so.
            TopicNotFound: It has no such partition, or does not exist.
            PermissionDenied, Unauthenticated: The client may not do *kind* there, or
                learn whether it exists.
        """
        broker, name = self.server.broker, self.server.names.parse(kafka_name)
        found = broker.topics.find_open(name.partition(partition))
        if found is None and partition == 0:
            found = broker.topics.find_open(name)
        if found is not None:
            self.check(kind, found.name)
            return found.name
        partitions = await broker.catalog.partitions_of(name)
        if not 0 <= partition < len(partitions):
            self.check(kind, name)
            raise TopicNotFound(f"{name} has no partition {partition}")
        self.check(kind, partitions[partition])
        return partitions[partition]


class Done:
    """An answer that is complete."""

    __slots__ = ("_answer",)

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def __await__(self) -> Generator[None, None, Any]:
        """Return the answer, at once."""
        return self._answer
        yield


def waiting() -> asyncio.Future[Any]:
    """Return a future of the running loop."""
    return asyncio.get_running_loop().create_future()
