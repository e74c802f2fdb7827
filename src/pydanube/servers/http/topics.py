"""Topics, partitions and their limits in the JSON API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.routing import Route

from pydanube.model.errors import InvalidRequest
from pydanube.model.names import TopicName, parse_namespace
from pydanube.model.policy import CorruptionPolicy, NamespacePolicy, TopicPolicy
from pydanube.model.schemas import TopicSchema
from pydanube.servers.http.answers import (
    all_topics,
    answering,
    body_of,
    created,
    done,
    one_topic,
    topic_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.requests import Request

    from pydanube.broker.broker import Broker

TOPIC = "/topics/{namespace}/{topic}"

RELIABLE = TopicPolicy()
PAGE_MAX = 5000
"""The most topics in one answer."""


def _limit_of(request: Request) -> int:
    text = request.query_params.get("limit", str(PAGE_MAX))
    if not (text.isascii() and text.isdigit() and 0 < len(text) < 10 and int(text)):
        raise InvalidRequest(f"limit is {text!r}; it must be a number of at least 1")
    return min(int(text), PAGE_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """What ``POST /topics`` takes."""

    name: str
    partitions: int | None = None
    policy: TopicPolicy = RELIABLE
    limits: NamespacePolicy | None = None
    schema: TopicSchema | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OnCorruption:
    """What ``PUT …/on-corruption`` takes."""

    on_corruption: CorruptionPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Partitions:
    """What ``PUT …/partitions`` takes."""

    count: int


class TopicApi:
    """The endpoints; each says what it answers."""

    def __init__(self, broker: Callable[[], Broker]) -> None:
        self._broker = broker

    def routes(self) -> Iterator[Route]:
        """Where they are."""
        for path, method, call in (
            ("/topics", "GET", self.list),
            ("/topics", "POST", self.create),
            (TOPIC, "GET", self.describe),
            (TOPIC, "DELETE", self.delete),
            (f"{TOPIC}/partitions", "GET", self.partitions),
            (f"{TOPIC}/partitions", "PUT", self.set_partitions),
            (f"{TOPIC}/limits", "GET", self.limits),
            (f"{TOPIC}/limits", "PUT", self.set_limits),
            (f"{TOPIC}/limits", "DELETE", self.clear_limits),
            (f"{TOPIC}/on-corruption", "PUT", self.set_on_corruption),
        ):
            yield Route(path, answering(call), methods=[method])

    async def list(self, request: Request) -> object:
        """
        Topics, or those of ``?namespace=``, partitions among them.

        At most ``?limit=`` of them, by name, that come after ``?after=``.  If there are
        more, ``next`` is what to ask for ``after`` to get them.
        """
        broker = self._broker()
        text = request.query_params.get("namespace")
        namespace = None if text is None else parse_namespace(text)
        if namespace is not None:
            await broker.namespaces.policy(namespace)
        after, limit = request.query_params.get("after"), _limit_of(request)
        behind = None if after is None else TopicName.parse(after)
        policies = await broker.topics.page(namespace, behind, limit + 1)
        topics = [{"name": str(n), "policy": p} for n, p in policies.items()]
        answer: dict[str, object] = {"topics": topics[:limit]}
        if len(topics) > limit:
            answer["next"] = topics[limit - 1]["name"]
        if behind is None:
            partitioned = await broker.topics.partitioned(namespace)
            answer["partitioned_topics"] = [
                {"name": str(name), "partitions": count}
                for name, count in partitioned.items()
            ]
        return answer

    async def create(self, request: Request) -> object:
        """The names of the new topic, or of its partitions."""
        broker = self._broker()
        body = await body_of(request, NewTopic)
        name = TopicName.parse(body.name)
        if body.partitions is None:
            await broker.topics.create(name, body.policy, body.schema)
        else:
            await broker.topics.create_partitioned(
                name, body.partitions, body.policy, body.schema
            )
        if body.limits is not None:
            await broker.topics.set_limits(name, body.limits)
        return created(await self._partitions(name))

    async def describe(self, request: Request) -> object:
        """One topic or partition, with its subscriptions."""
        broker = self._broker()
        topic = await broker.topics.get(await one_topic(broker, topic_of(request)))
        return topic.describe()

    async def delete(self, request: Request) -> object:
        """Nothing; ``?force=true`` if somebody may use it."""
        is_forced = request.query_params.get("force") == "true"
        await self._broker().topics.delete(topic_of(request), force=is_forced)
        return done()

    async def partitions(self, request: Request) -> object:
        """How many partitions a name has, and the topics that it stands for."""
        return await self._partitions(topic_of(request))

    async def set_partitions(self, request: Request) -> object:
        """The same, with more partitions."""
        name = topic_of(request)
        body = await body_of(request, Partitions)
        await self._broker().topics.add_partitions(name, body.count)
        return await self._partitions(name)

    async def limits(self, request: Request) -> object:
        """The limits that hold, and those that the topic has of its own."""
        return await self._limits(topic_of(request))

    async def set_limits(self, request: Request) -> object:
        """The same, with other limits of its own."""
        name = topic_of(request)
        limits = await body_of(request, NamespacePolicy)
        await self._broker().topics.set_limits(name, limits)
        return await self._limits(name)

    async def clear_limits(self, request: Request) -> object:
        """The same: those of the namespace hold."""
        name = topic_of(request)
        await self._broker().topics.set_limits(name, None)
        return await self._limits(name)

    async def set_on_corruption(self, request: Request) -> object:
        """What the topic's subscriptions do from now on at a corrupt segment."""
        name = topic_of(request)
        body = await body_of(request, OnCorruption)
        await self._broker().topics.set_on_corruption(name, body.on_corruption)
        return body

    async def _partitions(self, name: TopicName) -> object:
        broker = self._broker()
        topics = await all_topics(broker, name)
        return {
            "name": str(name),
            "partitions": await broker.topics.partition_count(name),
            "topics": [str(each) for each in topics],
        }

    async def _limits(self, name: TopicName) -> object:
        broker = self._broker()
        own = await broker.topics.limits(name)
        namespace = await broker.namespaces.policy(name.namespace)
        return {"limits": own or namespace, "own": own}
