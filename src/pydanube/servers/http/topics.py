"""Topics, partitions and their limits in the JSON API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydanube.model.descriptions import RetentionDrops, TopicDescription
from pydanube.model.names import TopicName, parse_namespace
from pydanube.model.policy import (
    CorruptionPolicy,
    Deduplication,
    NamespacePolicy,
    Retention,
    TopicPolicy,
)
from pydanube.model.schemas import TopicSchema
from pydanube.security.permissions import Permission
from pydanube.security.resources import Resource
from pydanube.servers.authorization import check_now, may_see
from pydanube.servers.http.endpoints import TOPIC, Call, Endpoints, parse_count
from pydanube.servers.topic_lists import check_namespace, visible_records
from pydanube.wire.native.kinds import Kind

RELIABLE = TopicPolicy()
PAGE_MAX = 5000
"""The maximum number of topics in one response."""

TOPICS = Endpoints()


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """The body of ``POST /topics``."""

    name: str
    partitions: int | None = None
    policy: TopicPolicy = RELIABLE
    limits: NamespacePolicy | None = None
    schema: TopicSchema | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OnCorruption:
    """The body of ``PUT …/on-corruption``."""

    on_corruption: CorruptionPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealing:
    """The body of ``PUT …/sealing``."""

    seal_bytes: int | None = None
    seal_age_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Partitions:
    """The body of ``PUT …/partitions``."""

    count: int


@TOPICS.add("GET", "/topics", Kind.LIST_TOPICS, query=("namespace", "after", "limit"))
async def list_topics(call: Call[None]) -> object:
    """
    Return topics and partitions, by name.

    The response has at most ``?limit=`` topics after ``?after=``, of ``?namespace=``.
    If there are more topics, ``next`` is the value of ``after`` for the next page.
    """
    text = call.query.get("namespace")
    namespace = None if text is None else parse_namespace(text)
    if namespace is not None:
        await check_namespace(call.broker, namespace)
    limit = parse_count("limit", call.query.get("limit", str(PAGE_MAX)), minimum=1)
    limit = min(limit, PAGE_MAX)
    after = TopicName.parse(call.query["after"]) if "after" in call.query else None
    records = await visible_records(call.broker, namespace, after, limit + 1)
    topics = [{"name": str(n), "policy": record.policy} for n, record in records]
    answer: dict[str, object] = {"topics": topics[:limit]}
    if len(topics) > limit:
        answer["next"] = topics[limit - 1]["name"]
    if after is None:
        partitioned = await call.broker.catalog.partitioned(namespace)
        answer["partitioned_topics"] = [
            {"name": str(name), "partitions": record.partitions}
            for name, record in partitioned.items()
            if may_see(Resource.topic(name))
        ]
    return answer


@TOPICS.add("POST", "/topics", Kind.CREATE_TOPIC, body=NewTopic, status=201)
async def create_topic(call: Call[NewTopic]) -> object:
    """Create a topic or a partitioned topic."""
    topics, body = call.broker.topics, call.body
    name = TopicName.parse(body.name)
    if body.limits is not None:
        check_now(Permission.MANAGE, name, "set_topic_limits")
    if body.partitions is None:
        await topics.add(name, body.policy, body.schema)
    else:
        await topics.create_partitioned(name, body.partitions, body.policy, body.schema)
    if body.limits is not None:
        await topics.configure(name, limits=body.limits)
    return await _partitions(call, name)


@TOPICS.add("GET", TOPIC, Kind.DESCRIBE_TOPIC)
async def describe_topic(call: Call[None]) -> TopicDescription:
    """Return a topic or partition with its subscriptions."""
    async with call.broker.views.viewing(await call.single_topic()) as topic:
        return topic.describe()


@TOPICS.add("DELETE", TOPIC, Kind.DELETE_TOPIC, query=("force",), status=204)
async def delete_topic(call: Call[None]) -> None:
    """Delete a topic; ``?force=true`` if it may be in use."""
    await call.broker.topics.delete(call.topic, force=call.is_forced)


@TOPICS.add("GET", f"{TOPIC}/partitions", Kind.LIST_PARTITIONS)
async def list_partitions(call: Call[None]) -> object:
    """Return the number of partitions of a topic and their names."""
    return await _partitions(call, call.topic)


@TOPICS.add("PUT", f"{TOPIC}/partitions", Kind.ADD_PARTITIONS, body=Partitions)
async def add_partitions(call: Call[Partitions]) -> object:
    """Raise the number of partitions of a topic."""
    await call.broker.topics.add_partitions(call.topic, call.body.count)
    return await _partitions(call, call.topic)


@TOPICS.add("GET", f"{TOPIC}/limits", Kind.DESCRIBE_TOPIC, Kind.DESCRIBE_NAMESPACE)
async def topic_limits(call: Call[None]) -> object:
    """Return the limits that apply to a topic, and the topic's own limits."""
    return await _limits(call)


@TOPICS.add("PUT", f"{TOPIC}/limits", Kind.SET_TOPIC_LIMITS, body=NamespacePolicy)
async def set_topic_limits(call: Call[NamespacePolicy]) -> object:
    """Set a topic's own limits."""
    await call.broker.topics.configure(call.topic, limits=call.body)
    return await _limits(call)


@TOPICS.add("DELETE", f"{TOPIC}/limits", Kind.SET_TOPIC_LIMITS)
async def clear_topic_limits(call: Call[None]) -> object:
    """Remove a topic's own limits, so that those of its namespace apply."""
    await call.broker.topics.configure(call.topic, limits=None)
    return await _limits(call)


@TOPICS.add("PUT", f"{TOPIC}/on-corruption", Kind.SET_ON_CORRUPTION, body=OnCorruption)
async def set_on_corruption(call: Call[OnCorruption]) -> OnCorruption:
    """Set what the subscriptions of a topic do at a corrupt segment."""
    on_corruption = call.body.on_corruption
    await call.broker.topics.configure(call.topic, on_corruption=on_corruption)
    return call.body


@TOPICS.add("GET", f"{TOPIC}/retention", Kind.DESCRIBE_TOPIC, Kind.DESCRIBE_NAMESPACE)
async def topic_retention(call: Call[None]) -> object:
    """Return the retention that applies to a topic, and the topic's own retention."""
    return await _retention(call)


@TOPICS.add("PUT", f"{TOPIC}/retention", Kind.SET_TOPIC_RETENTION, body=Retention)
async def set_topic_retention(call: Call[Retention]) -> object:
    """Set a topic's own retention; the next retention pass applies it."""
    await call.broker.topics.configure(call.topic, retention=call.body)
    return await _retention(call)


@TOPICS.add("DELETE", f"{TOPIC}/retention", Kind.SET_TOPIC_RETENTION)
async def clear_topic_retention(call: Call[None]) -> object:
    """Remove a topic's own retention, so that that of its namespace applies."""
    await call.broker.topics.configure(call.topic, retention=None)
    return await _retention(call)


@TOPICS.add("GET", f"{TOPIC}/retention/drops", Kind.APPLY_RETENTION)
async def plan_retention(call: Call[None]) -> RetentionDrops:
    """Return what the retention of a topic or partition would drop now."""
    return await call.broker.topics.plan_retention(await call.single_topic())


@TOPICS.add("POST", f"{TOPIC}/retention/drops", Kind.APPLY_RETENTION)
async def apply_retention(call: Call[None]) -> RetentionDrops:
    """Drop what the retention of a topic or partition does not keep, now."""
    return await call.broker.topics.apply_retention(await call.single_topic())


@TOPICS.add("PUT", f"{TOPIC}/deduplication", Kind.SET_DEDUPLICATION, body=Deduplication)
async def set_deduplication(call: Call[Deduplication]) -> Deduplication:
    """Set in which window a topic recognises the ids of messages."""
    await call.broker.topics.configure(call.topic, deduplication=call.body)
    return call.body


@TOPICS.add("DELETE", f"{TOPIC}/deduplication", Kind.SET_DEDUPLICATION, status=204)
async def end_deduplication(call: Call[None]) -> None:
    """End the deduplication of a topic."""
    await call.broker.topics.configure(call.topic, deduplication=None)


@TOPICS.add("PUT", f"{TOPIC}/sealing", Kind.SET_SEALING, body=Sealing)
async def set_sealing(call: Call[Sealing]) -> Sealing:
    """Set when messages of a topic are sealed; null: as the broker's settings say."""
    await call.broker.topics.configure(
        call.topic, seal_bytes=call.body.seal_bytes, seal_age_s=call.body.seal_age_s
    )
    return call.body


async def _partitions(call: Call[Any], name: TopicName) -> object:
    topics = await call.topics(name)
    partitioned = await call.broker.catalog.find_partitioned(name)
    return {
        "name": str(name),
        "partitions": None if partitioned is None else partitioned.value.partitions,
        "topics": [str(each) for each in topics],
    }


async def _limits(call: Call[Any]) -> object:
    name = call.topic
    own = (await call.broker.catalog.get(name)).limits
    namespace = await call.broker.namespaces.policy(name.namespace)
    return {"limits": own or namespace, "own": own}


async def _retention(call: Call[Any]) -> object:
    name = call.topic
    policy = (await call.broker.catalog.get(name)).policy
    namespace = (await call.broker.namespaces.find(name.namespace)).value
    effective = policy.effective_retention(namespace.retention)
    return {"retention": effective, "own": policy.retention}
