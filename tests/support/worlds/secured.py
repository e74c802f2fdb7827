"""
A broker that permits its client only what the documentation names.

Before each request, the client gets the permission that the table of operations names
for it, on the resources that the request names, and nothing else.  Beside it lives a
tenant who may do everything in a namespace of its own: now and then it sends what the
client has sent, which must be refused, and at the end it must have what it had before.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from google.protobuf.message import Message

from pydanube.aio.tasks import TaskScope, task_scope
from pydanube.client.client import Client
from pydanube.client.connections.credentials import Credentials
from pydanube.client.connections.requester import Requester
from pydanube.model.errors import (
    BrokerError,
    InvalidName,
    NotFound,
    Refused,
    SchemaNotFound,
)
from pydanube.model.names import TopicName, parse_subject
from pydanube.security.permissions import Permission
from pydanube.security.policy import Binding, Role
from pydanube.security.principals import Principal
from pydanube.security.resources import Resource
from pydanube.wire.native.kinds import Kind, On, Target
from pydanube_broker.operations.authorization import Need, resources_of
from pydanube_broker.servers.connections.authentication import (
    Authenticator,
    ClientIdentity,
)
from pydanube_broker.servers.native.in_process import dial_in_process
from pydanube_broker.servers.native.server import NativeServer, open_native_server
from pydanube_broker.servers.settings.config import ListenConfig
from pydanube_broker.servers.settings.security_config import SecurityConfig
from pydanube_broker.storage.config import StorageConfig
from pydanube_broker.testing import MemoryBroker, memory_broker
from support.worlds.broker import WorldBroker
from support.worlds.chance import Chance
from support.worlds.steps import Step

ROOT = Principal("world", "certificate")
CLIENT = Principal("client", "certificate")
NEIGHBOUR = Principal("neighbour", "token")
NAMESPACE = "neighbour"
PRIVATE = f"/{NAMESPACE}/private"
MARK = b"of the neighbour"

_A_TOPIC = TopicName("default", "of-the-client")

_LISTED = {Kind.LIST_OFFSETS: "topics", Kind.FIND_SEGMENTS: "ranges.topic"}
"""The fields that name what operations list."""

_REPLAYED = frozenset({On.TOPIC, On.NAMESPACE, On.SUBJECT, On.CLUSTER})
"""The operations whose resources are in the request."""


class WorldAuthenticator(Authenticator):
    """Knows the neighbour by its token; everybody else is the client."""

    def __init__(self) -> None:
        super().__init__(SecurityConfig(enabled=True))

    def authenticate(self, credential: str = "", *_: Any, **__: Any) -> ClientIdentity:
        return ClientIdentity(NEIGHBOUR if credential == NEIGHBOUR.name else CLIENT)


_RESOURCE_OF = {
    On.TOPIC: lambda name: Resource.topic(TopicName.parse(name)),
    On.SUBJECT: lambda name: Resource.subject(parse_subject(name)),
}


def documented_needs(kind: Kind, message: Any) -> list[Need]:
    """
    Return what the documentation says that a request needs.

    It is the row of the operation, and the additions in the guide on authorization.
    """
    assert kind.permission is not None
    needs = [Need(kind.permission, each) for each in resources_of(kind, message)]
    if kind.on is On.STAGING:
        # Only those who may publish something have something to stage.
        needs.append(Need(kind.permission, Resource.topic(_A_TOPIC)))
    needs += needs_of_targets(kind.targets, message)
    # Lists have only what the client may see.
    for name in values_at(message, _LISTED.get(kind, "")):
        with suppress(InvalidName):
            needs.append(Need(kind.permission, Resource.topic(TopicName.parse(name))))
    if kind is Kind.LIST_NAMESPACES:
        needs.append(Need(Permission.DESCRIBE, Resource.namespace("default")))
    # Publishing to a topic that does not exist creates it, and so may consuming.
    needs += [
        Need(Permission.CREATE, each.resource)
        for each in needs
        if each.permission is Permission.PRODUCE
        or (kind is Kind.OPEN_CONSUMER and message.may_create)
    ]
    return needs


def needs_of_targets(targets: Iterable[Target], message: Any) -> Iterator[Need]:
    """Yield what a request needs for what it touches, such as a dead-letter topic."""
    for target in targets:
        resource_of = _RESOURCE_OF.get(target.on)
        if resource_of is None or target.permission is None:
            continue
        for name in filter(None, values_at(message, target.field)):
            # The broker itself refuses malformed names.
            with suppress(InvalidName):
                yield Need(target.permission, resource_of(name))


def values_at(message: Any, path: str) -> list[str]:
    """Return the values of a field of *message*, which may repeat."""
    found = [message] if path else []
    for name in filter(None, path.split(".")):
        values = [getattr(each, name) for each in found]
        is_repeated = bool(values) and hasattr(values[0], "extend")
        found = [item for each in values for item in each] if is_repeated else values
    return found


class SecuredBroker(WorldBroker):
    """A broker whose client holds what its requests need, and no more."""

    def __init__(
        self,
        running: MemoryBroker,
        server: NativeServer,
        neighbour: Client,
        tasks: TaskScope,
        chance: Chance,
    ) -> None:
        super().__init__(running.clock, tasks, chance)
        self._secured = server
        self._neighbour = neighbour
        self._granted: set[Need] = set()
        self._granting = asyncio.Lock()
        self.seen: list[str] = []
        """What the neighbour was not refused."""

    @property
    def servers(self) -> Iterable[NativeServer]:
        return [self._secured]

    async def find_server(self) -> NativeServer:
        return self._secured

    async def on_step(self, _: NativeServer, step: Step) -> None:
        kind, message = step.kind, step.message
        if message is None:
            return
        # The broker itself refuses malformed names.
        with suppress(InvalidName):
            named = await self._with_subject(kind, message)
            for need in (*documented_needs(kind, named), *step.targets):
                await self._grant(need)
        is_replayed = kind.on in _REPLAYED and not kind.on_channel
        if is_replayed and self._chance.is_due():
            await self._replay(kind, message)

    async def _with_subject(self, kind: Kind, message: Any) -> Any:
        """Return a request with its subject instead of the number of a schema."""
        schema_id = getattr(message, "schema_id", 0)
        if kind.on is not On.SUBJECT or message.subject or not schema_id:
            return message
        named = type(message)()
        named.CopyFrom(message)
        with suppress(SchemaNotFound):
            named.subject = await self.broker.registry.subject_of(schema_id)
        return named

    async def _grant(self, need: Need) -> None:
        # Connections have their steps at the same time.
        async with self._granting:
            if need in self._granted:
                return
            binding = Binding(
                f"user:{CLIENT.name}", (need.permission.value,), (str(need.resource),)
            )
            await self.broker.access.add_binding(ROOT, binding)
            self._granted.add(need)

    async def _replay(self, kind: Kind, message: Message) -> None:
        """Let the neighbour send a request of the client."""
        self._chance.note(f"the neighbour sends {kind.name.lower()}")
        try:
            answer = await self._neighbour.requester.send_request(message)
        except (Refused, NotFound):
            return
        except BrokerError as error:
            answer = error
        text = f"{kind.name.lower()}({message}) of the neighbour: {answer!r}"
        self.seen.append(text)

    async def check_neighbour(self) -> None:
        """Raise if the neighbour sees, or has lost, anything."""
        assert not self.seen, "\n".join(self.seen)
        neighbour = self._neighbour
        assert await neighbour.topics.list() == [PRIVATE]
        assert await neighbour.namespaces.list() == [NAMESPACE]
        async with neighbour.consumer(PRIVATE, subscription="own") as consumer:
            message = await consumer.receive(timeout_s=60)
            assert (message.payload, message.attempt) == (MARK, 1)
        async with neighbour.producer(PRIVATE) as producer:
            assert (await producer.send(MARK)).offset == 1


@asynccontextmanager
async def secured_world(
    chance: Chance,
    *,
    auto_create_topics: bool = True,
    storage: StorageConfig | None = None,
    listen: ListenConfig | None = None,
) -> AsyncIterator[SecuredBroker]:
    """Run the broker; the options are those of ``memory_broker``."""
    async with (
        memory_broker(
            auto_create_topics=auto_create_topics,
            storage=storage,
            listen=listen,
            is_superuser=lambda who: who == ROOT,
        ) as running,
        open_native_server(running.broker, listen, WorldAuthenticator()) as server,
        task_scope() as tasks,
    ):
        access = running.broker.access
        for each in Permission:
            await access.set_role(ROOT, Role(each.value, frozenset({each})))
        everything = tuple(each.value for each in Permission)
        own = (f"/{NAMESPACE}", f"/{NAMESPACE}/*")
        binding = Binding(f"user:{NEIGHBOUR.name}", everything, own)
        await access.add_binding(ROOT, binding)
        requester = Requester(
            dial_in_process(server),
            url=running.url,
            credentials=Credentials(NEIGHBOUR.name, may_be_plain=True),
            wall_clock_ns=running.clock.wall_ns,
        )
        async with Client(requester).opened() as neighbour:
            await neighbour.namespaces.create(NAMESPACE)
            await neighbour.topics.create(PRIVATE)
            await neighbour.subscriptions.create(PRIVATE, "own", start="earliest")
            async with neighbour.producer(PRIVATE) as producer:
                await producer.send(MARK)
            world = SecuredBroker(running, server, neighbour, tasks, chance)
            with world.redirect(world.url):
                yield world
                await world.check_neighbour()
            world.is_open = False
