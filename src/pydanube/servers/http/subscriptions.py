"""
Subscriptions in the JSON API.

Requests that create, delete or change a subscription apply to all partitions of a
partitioned topic.  Descriptions, seek and skip are about one topic or partition.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydanube.model.descriptions import SubscriptionDescription
from pydanube.model.errors import InvalidRequest
from pydanube.model.findings import FINDINGS_MAX
from pydanube.model.names import TopicName, parse_subscription
from pydanube.model.policy import Position, SubscriptionSettings, SubscriptionType
from pydanube.model.positions import to_position
from pydanube.servers.authorization import author_of_settings
from pydanube.servers.http.endpoints import (
    SUBSCRIPTION,
    TOPIC,
    Call,
    Endpoints,
    parse_count,
)
from pydanube.servers.topic_lists import visible_findings
from pydanube.wire.native.kinds import Kind

SUBSCRIPTIONS = Endpoints()


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSubscription:
    """The body of ``POST …/subscriptions``."""

    name: str
    type: SubscriptionType = SubscriptionType.EXCLUSIVE
    start: int | str = "latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seek:
    """The body of ``POST …/seek``."""

    to: int | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """The body of ``POST …/skip``."""

    count: int


@SUBSCRIPTIONS.add("GET", "/findings", Kind.LIST_FINDINGS, query=("limit",))
async def list_findings(call: Call[None]) -> object:
    """
    Return what is wrong with subscriptions, the worst first, and totals.

    They are about topics that this broker serves and that the caller may describe.
    The response has at most ``?limit=`` findings, and the number of all.
    """
    text = call.query.get("limit", str(FINDINGS_MAX))
    limit = min(parse_count("limit", text, minimum=1), FINDINGS_MAX)
    return await visible_findings(call.broker, limit)


@SUBSCRIPTIONS.add("GET", f"{TOPIC}/subscriptions", Kind.DESCRIBE_TOPIC)
async def list_subscriptions(call: Call[None]) -> object:
    """Return the subscriptions of a topic or partition."""
    async with call.broker.views.viewing(await call.single_topic()) as topic:
        return {"subscriptions": topic.describe().subscriptions}


@SUBSCRIPTIONS.add(
    "POST",
    f"{TOPIC}/subscriptions",
    Kind.CREATE_SUBSCRIPTION,
    body=NewSubscription,
    status=201,
)
async def create_subscription(call: Call[NewSubscription]) -> object:
    """Create a subscription of a topic or of all its partitions."""
    body = call.body
    name, start = parse_subscription(body.name), _position(body.start)
    topics = await call.topics()
    for topic in topics:
        await call.broker.subscriptions.open(
            topic, name, body.type, start, exist_ok=False
        )
    return {"name": name, "topics": [str(topic) for topic in topics]}


@SUBSCRIPTIONS.add("GET", SUBSCRIPTION, Kind.DESCRIBE_SUBSCRIPTION)
async def describe_subscription(call: Call[None]) -> SubscriptionDescription:
    """Return a subscription of a topic or partition."""
    return await _described(call, await call.single_topic())


@SUBSCRIPTIONS.add(
    "DELETE", SUBSCRIPTION, Kind.DELETE_SUBSCRIPTION, query=("force",), status=204
)
async def delete_subscription(call: Call[None]) -> None:
    """Delete a subscription; ``?force=true`` if it may have consumers."""
    for topic in await call.topics():
        await call.broker.subscriptions.delete(
            topic, call.subscription, force=call.is_forced
        )


@SUBSCRIPTIONS.add("GET", f"{SUBSCRIPTION}/settings", Kind.DESCRIBE_SETTINGS)
async def subscription_settings(call: Call[None]) -> SubscriptionSettings:
    """Return the settings of a subscription, which need not exist yet."""
    topic = await call.single_topic()
    return await call.broker.subscriptions.settings(topic, call.subscription)


@SUBSCRIPTIONS.add(
    "PATCH",
    f"{SUBSCRIPTION}/settings",
    Kind.CONFIGURE_SUBSCRIPTION,
    body=SubscriptionSettings,
)
async def configure_subscription(call: Call[dict[str, Any]]) -> SubscriptionSettings:
    """Change the given settings of a subscription, all or none; the others stay."""
    topics = await call.topics()
    for topic in topics:
        await call.broker.subscriptions.change_settings(
            topic, call.subscription, author=author_of_settings(), **call.body
        )
    return await call.broker.subscriptions.settings(topics[0], call.subscription)


@SUBSCRIPTIONS.add("POST", f"{SUBSCRIPTION}/seek", Kind.SEEK_SUBSCRIPTION, body=Seek)
async def seek_subscription(call: Call[Seek]) -> SubscriptionDescription:
    """Move a subscription of a topic or partition to an offset or a time."""
    name = await call.single_topic()
    topic = await call.broker.topics.get(name)
    found = topic.find_subscription(call.subscription)
    await call.broker.subscriptions.seek(topic, found, _position(call.body.to))
    return await _described(call, name)


@SUBSCRIPTIONS.add("POST", f"{SUBSCRIPTION}/skip", Kind.SKIP, body=Skip)
async def skip_messages(call: Call[Skip]) -> SubscriptionDescription:
    """Skip messages of a subscription of a topic or partition."""
    name = await call.single_topic()
    await call.broker.subscriptions.skip(name, call.subscription, call.body.count)
    return await _described(call, name)


async def _described(call: Call[Any], name: TopicName) -> SubscriptionDescription:
    async with call.broker.views.viewing(name) as topic:
        return topic.find_subscription(call.subscription).describe(topic.end_offset)


def _position(value: int | str) -> Position:
    """
    Parse an offset, ``earliest``, ``latest``, or an RFC 3339 time.

    Raises:
        InvalidRequest: The value is none of these.
    """
    if isinstance(value, str) and value[:1].isdigit():
        try:
            return to_position(datetime.fromisoformat(value))
        except ValueError:
            raise InvalidRequest(
                f"{value!r} is not a time such as 2025-03-01T09:30:00Z"
            ) from None
    return to_position(value)
