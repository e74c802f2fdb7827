"""Topics, partitions and their limits in the JSON API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydanube.model.descriptions import (
    RetentionDrops,
    TopicDescription,
    TopicSettings,
)
from pydanube.model.names import TopicName, parse_namespace
from pydanube.model.policy import NamespacePolicy, TopicPolicy
from pydanube.model.schemas import TopicSchema
from pydanube.security.permissions import Permission
from pydanube.security.resources import Resource
from pydanube.servers.authorization import check_now, check_subject, may_see
from pydanube.servers.http.endpoints import TOPIC, Call, Endpoints, parse_count
from pydanube.servers.topic_lists import (
    check_namespace,
    described_at,
    visible_records,
)
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
    topics = [
        {"name": str(n), "policy": record.policy, **_place(call, record.shard)}
        for n, record in records
    ]
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


def _place(call: Call[None], shard: int | None) -> dict[str, object]:
    place = call.broker.place_of(shard)
    return {"broker_id": place.broker_id, "shard": place.shard}


@TOPICS.add("POST", "/topics", Kind.CREATE_TOPIC, body=NewTopic, status=201)
async def create_topic(call: Call[NewTopic]) -> object:
    """Create a topic or a partitioned topic."""
    topics, body = call.broker.topics, call.body
    name = TopicName.parse(body.name)
    if body.limits is not None:
        check_now(Permission.MANAGE, name, "configure_topic")
    check_subject(
        None if body.schema is None else body.schema.subject, "configure_topic"
    )
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
        return described_at(call.broker, topic, topic.describe())


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


@TOPICS.add("GET", f"{TOPIC}/settings", Kind.DESCRIBE_TOPIC)
async def topic_settings(call: Call[None]) -> TopicSettings:
    """
    Return the settings of a topic or partitioned topic that can change.

    Null stands for those of the namespace, or of the broker.
    """
    return await _settings(call)


@TOPICS.add("PATCH", f"{TOPIC}/settings", Kind.CONFIGURE_TOPIC, body=TopicSettings)
async def configure_topic(call: Call[dict[str, Any]]) -> TopicSettings:
    """Change the given settings of a topic, all or none; the others stay."""
    check_subject(getattr(call.body.get("schema"), "subject", None), "configure_topic")
    await call.broker.topics.configure(call.topic, **call.body)
    return await _settings(call)


@TOPICS.add("GET", f"{TOPIC}/retention/drops", Kind.APPLY_RETENTION)
async def plan_retention(call: Call[None]) -> RetentionDrops:
    """Return what the retention of a topic or partition would drop now."""
    return await call.broker.topics.plan_retention(await call.single_topic())


@TOPICS.add("POST", f"{TOPIC}/retention/drops", Kind.APPLY_RETENTION)
async def apply_retention(call: Call[None]) -> RetentionDrops:
    """Drop what the retention of a topic or partition does not keep, now."""
    return await call.broker.topics.apply_retention(await call.single_topic())


async def _partitions(call: Call[Any], name: TopicName) -> object:
    topics = await call.topics(name)
    partitioned = await call.broker.catalog.find_partitioned(name)
    return {
        "name": str(name),
        "partitions": None if partitioned is None else partitioned.value.partitions,
        "topics": [str(each) for each in topics],
    }


async def _settings(call: Call[Any]) -> TopicSettings:
    record = await call.broker.catalog.get(call.topic)
    return TopicSettings.of(record.policy, record.limits, record.schema)
