"""
Subscriptions in the JSON API.

What is decided about a subscription may be decided for all partitions of a topic by
the topic's name.  What is told is told of one topic or partition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.routing import Route

from pydanube.model.names import parse_subscription
from pydanube.model.policy import SubscriptionSettings, SubscriptionType
from pydanube.servers.http.answers import (
    all_topics,
    answering,
    body_of,
    created,
    done,
    one_topic,
    position,
    topic_of,
)
from pydanube.servers.http.topics import TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.requests import Request

    from pydanube.broker.broker import Broker
    from pydanube.model.descriptions import SubscriptionDescription
    from pydanube.model.names import SubscriptionName, TopicName

SUBSCRIPTION = f"{TOPIC}/subscriptions/{{subscription}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSubscription:
    """What ``POST …/subscriptions`` takes."""

    name: str
    type: SubscriptionType = SubscriptionType.EXCLUSIVE
    start: int | str = "latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seek:
    """What ``POST …/seek`` takes."""

    to: int | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """What ``POST …/skip`` takes."""

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Nothing:
    """What ``POST …/pause`` and ``POST …/resume`` take."""


class SubscriptionApi:
    """The endpoints; each says what it answers."""

    def __init__(self, broker: Callable[[], Broker]) -> None:
        self._broker = broker

    def routes(self) -> Iterator[Route]:
        """Where they are."""
        for path, method, call in (
            (f"{TOPIC}/subscriptions", "GET", self.list),
            (f"{TOPIC}/subscriptions", "POST", self.create),
            (SUBSCRIPTION, "GET", self.describe),
            (SUBSCRIPTION, "DELETE", self.delete),
            (f"{SUBSCRIPTION}/settings", "GET", self.settings),
            (f"{SUBSCRIPTION}/settings", "PUT", self.set_settings),
            (f"{SUBSCRIPTION}/pause", "POST", self.pause),
            (f"{SUBSCRIPTION}/resume", "POST", self.resume),
            (f"{SUBSCRIPTION}/seek", "POST", self.seek),
            (f"{SUBSCRIPTION}/skip", "POST", self.skip),
        ):
            yield Route(path, answering(call), methods=[method])

    async def list(self, request: Request) -> object:
        """Every subscription of a topic or partition."""
        broker = self._broker()
        topic = await broker.topics.get(await one_topic(broker, topic_of(request)))
        return {"subscriptions": topic.describe().subscriptions}

    async def create(self, request: Request) -> object:
        """The topics that have it now."""
        broker = self._broker()
        body = await body_of(request, NewSubscription)
        name, start = parse_subscription(body.name), position(body.start)
        topics = await all_topics(broker, topic_of(request))
        for topic in topics:
            await broker.subscriptions.create(topic, name, body.type, start)
        return created({"name": name, "topics": [str(topic) for topic in topics]})

    async def describe(self, request: Request) -> object:
        """A subscription of one topic or partition."""
        topic, name = await self._one(request)
        return await self._described(topic, name)

    async def delete(self, request: Request) -> object:
        """Nothing; ``?force=true`` if it may have consumers."""
        broker = self._broker()
        is_forced = request.query_params.get("force") == "true"
        for topic in await all_topics(broker, topic_of(request)):
            await broker.subscriptions.delete(topic, _name_of(request), force=is_forced)
        return done()

    async def settings(self, request: Request) -> object:
        """What was decided about it, whether it exists yet or not."""
        topic, name = await self._one(request)
        return await self._broker().subscriptions.settings(topic, name)

    async def set_settings(self, request: Request) -> object:
        """What is decided about it from now on; what is left out is as usual."""
        settings = await body_of(request, SubscriptionSettings)
        broker, name = self._broker(), _name_of(request)
        for topic in await all_topics(broker, topic_of(request)):
            await broker.subscriptions.set_settings(topic, name, settings)
        return settings

    async def pause(self, request: Request) -> object:
        """Nothing; and nothing is delivered from now on."""
        await self._set_paused(request, is_paused=True)
        return done()

    async def resume(self, request: Request) -> object:
        """Nothing; and what waited is delivered."""
        await self._set_paused(request, is_paused=False)
        return done()

    async def seek(self, request: Request) -> object:
        """Where a subscription of one topic or partition is now."""
        body = await body_of(request, Seek)
        name, subscription = await self._one(request)
        broker = self._broker()
        topic = await broker.topics.get(name)
        found = topic.find_subscription(subscription)
        await broker.subscriptions.seek(topic, found, position(body.to))
        return await self._described(name, subscription)

    async def skip(self, request: Request) -> object:
        """The same, behind so many messages."""
        body = await body_of(request, Skip)
        topic, name = await self._one(request)
        await self._broker().subscriptions.skip(topic, name, body.count)
        return await self._described(topic, name)

    async def _set_paused(self, request: Request, *, is_paused: bool) -> None:
        await body_of(request, Nothing)
        broker, name = self._broker(), _name_of(request)
        for topic in await all_topics(broker, topic_of(request)):
            await broker.subscriptions.set_paused(topic, name, is_paused=is_paused)

    async def _one(self, request: Request) -> tuple[TopicName, SubscriptionName]:
        return await one_topic(self._broker(), topic_of(request)), _name_of(request)

    async def _described(
        self, name: TopicName, subscription: SubscriptionName
    ) -> SubscriptionDescription:
        topic = await self._broker().topics.get(name)
        return topic.find_subscription(subscription).describe(topic.end_offset)


def _name_of(request: Request) -> SubscriptionName:
    return parse_subscription(request.path_params["subscription"])
