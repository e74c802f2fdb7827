"""Metadata, and requests that create and delete topics."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import UUID

from pydanube.aio.long_work import LongWork
from pydanube.model.errors import (
    BrokerError,
    InvalidName,
    InvalidRequest,
    NotFound,
    TopicNotFound,
)
from pydanube.model.names import TopicName
from pydanube.model.policy import TopicPolicy
from pydanube.wire.native.kinds import Kind
from pydanube.wire.native.messages import to_wire
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.operations.authorization import authorized
from pydanube_broker.operations.topic_lists import free, visible_records
from pydanube_kafka.calls import Call, Done, Handler
from pydanube_kafka.errors import HANDLED, attempt, code_of
from pydanube_kafka.pure.nodes import NOBODY
from pydanube_kafka.pure.settings import TopicConfig, changed
from pydanube_kafka.pure.topic_ids import uuid_of
from pydanube_kafka.wire.apis import Api, ErrorCode

TOPIC_STEPS = 10
"""The steps of ``LongWork`` for a topic."""
TOPICS_MAX = 1000
"""The most topics that a request may create, delete or change."""


class Found(NamedTuple):
    """The partitions of a topic, and its id."""

    shards: Mapping[int, int | None]
    """The shard of each partition; None without a cluster."""
    topic_id: UUID | None


NOT_FOUND = Found({}, None)


class _Named(NamedTuple):
    """A topic for an answer."""

    name: str | None
    found: Found
    code: ErrorCode = ErrorCode.none


async def metadata(call: Call) -> Awaitable[Any]:
    """Answer with the brokers, and with topics, their partitions and who leads them."""
    body, answers, work = call.body, call.answers, LongWork()
    wanted = body.topics
    # In version 0, no topics means all of them.
    if wanted is None or (not wanted and call.request.version == 0):
        topics = await _all_topics(call)
    else:
        may_create = getattr(body, "allow_auto_topic_creation", True)
        ids = {
            each.topic_id
            for each in wanted
            if each.name is None and each.topic_id is not None
        }
        names = await call.server.topic_ids.find(ids, call.connection.caller)
        topics = []
        for each in wanted:
            await work.did(TOPIC_STEPS)
            topics.append(
                await _topic(call, each.name or "", may_create=may_create)
                if each.name is not None or each.topic_id is None
                else await _topic_with_id(call, each.topic_id, names.get(each.topic_id))
            )
    brokers = call.server.brokers
    cluster_id = await brokers.cluster_id()
    shards = set[int | None]()
    for each in topics:
        await work.did()
        shards.update(each.found.shards.values())
    await brokers.settle(shards)
    described = []
    for each in topics:
        await work.did(TOPIC_STEPS + len(each.found.shards))
        described.append(_described(call, each))
    return Done(
        answers.MetadataResponse(
            throttle_time=call.throttle_time,
            brokers=tuple(
                answers.MetadataResponseBroker(
                    node_id=each.number, host=each.host, port=each.port, rack=None
                )
                for each in brokers.list(call.connection.local_host)
            ),
            cluster_id=cluster_id,
            # Every broker carries out what clients ask controllers for.
            controller_id=brokers.own_number,
            topics=tuple(described),
        )
    )


async def _all_topics(call: Call) -> list[_Named]:
    server, request = call.server, pb.ListTopics()
    async with authorized(call.connection.caller, Kind.LIST_TOPICS, request):
        records = await visible_records(server.broker)
    found: dict[TopicName, dict[int, tuple[int | None, int]]] = {}
    work = LongWork()
    for topic, record in records:
        await work.did()
        name, index = _split(topic)
        found.setdefault(name, {})[index] = record.shard, record.topic_id
    await free(records)
    topics = []
    for name, partitions in found.items():
        await work.did(1 + len(partitions))
        kafka_name = server.names.name_of(name)
        if kafka_name is not None:
            shards = {index: each for index, (each, _) in partitions.items()}
            topic_id = uuid_of(partitions[min(partitions)][1])
            topics.append(_Named(kafka_name, Found(shards, topic_id)))
    return topics


def _split(name: TopicName) -> tuple[TopicName, int]:
    """Return a topic as clients know it, and the number of the partition."""
    return name.split_partition() or (name, 0)


async def _topic(call: Call, name: str, *, may_create: bool) -> _Named:
    try:
        topic = call.server.names.parse(name)
        try:
            found = await _find(call, topic)
        except TopicNotFound:
            if not (may_create and call.server.config.auto_create_topics):
                raise
            found = await _create(call, topic, call.server.config.partitions)
    except HANDLED as error:
        return _Named(name, NOT_FOUND, code_of(error))
    return _Named(name, found)


async def _topic_with_id(call: Call, topic_id: UUID, name: str | None) -> _Named:
    """Return the topic with an id, unless it was deleted or may not be seen."""
    found, code = NOT_FOUND, ErrorCode.unknown_topic_id
    if name is not None:
        with suppress(*HANDLED):
            found = await _find(call, call.server.names.parse(name))
    if found.topic_id == topic_id:
        return _Named(name, found)
    return _Named(None, Found({}, topic_id), code)


async def _find(call: Call, topic: TopicName) -> Found:
    """Return the partitions of a topic, and its id."""
    listed = await call.do(Kind.LIST_PARTITIONS, pb.ListPartitions(topic=str(topic)))
    if not listed.topics:
        raise TopicNotFound(f"{topic} does not exist")
    names = [TopicName.parse(each) for each in listed.topics]
    broker = call.server.broker
    is_clustered = broker.shards is not None
    records = await broker.catalog.find_each(names if is_clustered else names[:1])
    topic_id = None if records[0] is None else uuid_of(records[0].value.topic_id)
    if not is_clustered:
        return Found({_split(each)[1]: None for each in names}, topic_id)
    shards = {
        _split(name)[1]: None if record is None else record.value.shard
        for name, record in zip(names, records, strict=True)
    }
    return Found(shards, topic_id)


async def _create(call: Call, topic: TopicName, partitions: int) -> Found:
    """Create a topic, without partitions if it needs only one."""
    request = pb.CreateTopic(
        topic=str(topic), partitions=partitions if partitions > 1 else 0
    )
    request.exist_ok = True
    await call.do(Kind.CREATE_TOPIC, request)
    return await _find(call, topic)


def _described(call: Call, named: _Named) -> Any:
    answers, (name, found, code) = call.answers, named
    if name is not None and found.topic_id is not None:
        call.server.topic_ids.note(found.topic_id, name)
    leader_of = call.server.brokers.leader_of
    leaders = {index: leader_of(each) for index, each in found.shards.items()}
    return answers.MetadataResponseTopic(
        error_code=code,
        name=name,
        topic_id=found.topic_id,
        is_internal=False,
        partitions=tuple(
            answers.MetadataResponsePartition(
                error_code=ErrorCode.leader_not_available
                if leader.number == NOBODY
                else ErrorCode.none,
                partition_index=index,
                leader_id=leader.number,
                leader_epoch=leader.epoch,
                replica_nodes=(leader.number,) if leader.number != NOBODY else (),
                isr_nodes=(leader.number,) if leader.number != NOBODY else (),
                offline_replicas=(),
            )
            for index, leader in sorted(leaders.items())
        ),
    )


async def create_topics(call: Call) -> Awaitable[Any]:
    """Create topics."""
    body, answers = call.body, call.answers
    results = []
    _check_count(len(body.topics))
    for each in body.topics:
        creating = _create_one(call, each, is_dry_run=body.validate_only)
        code, message = await attempt(creating)
        results.append(
            answers.CreatableTopicResult(
                name=each.name,
                error_code=code,
                error_message=message,
                num_partitions=each.num_partitions,
                replication_factor=1,
                configs=(),
            )
        )
    return Done(
        answers.CreateTopicsResponse(
            throttle_time=call.throttle_time, topics=tuple(results)
        )
    )


async def _create_one(call: Call, wanted: Any, *, is_dry_run: bool) -> None:
    topic = call.server.names.parse(wanted.name)
    partitions = wanted.num_partitions
    if wanted.assignments:
        partitions = len(wanted.assignments)
    elif partitions == -1:
        partitions = call.server.config.partitions
    if partitions < 1:
        raise InvalidRequest(f"a topic cannot have {partitions} partitions")
    policy = _policy_with(wanted.configs)
    if not is_dry_run:
        await call.do(
            Kind.CREATE_TOPIC,
            pb.CreateTopic(
                topic=str(topic),
                partitions=partitions if partitions > 1 else 0,
                policy=policy,
            ),
        )


def _policy_with(configs: Any) -> pb.TopicPolicy:
    """
    Return the policy of a new topic with settings that a client names.

    Raises:
        InvalidRequest: A setting is unknown, or its value is not allowed.
    """
    config, _ = changed(TopicConfig(), [(each.name, 0, each.value) for each in configs])
    policy = replace(
        TopicPolicy(),
        retention=config.retention,
        seal_bytes=config.seal_bytes,
        seal_age_s=config.seal_age_s,
    )
    policy.check()
    return to_wire(pb.TopicPolicy, policy)


async def delete_topics(call: Call) -> Awaitable[Any]:
    """Delete topics with their messages and subscriptions."""
    answers = call.answers
    results = []
    _check_count(len(call.body.topic_names))
    for name in call.body.topic_names:
        code, message = await attempt(_delete_one(call, name))
        results.append(
            answers.DeletableTopicResult(
                name=name, error_code=code, error_message=message
            )
        )
    return Done(
        answers.DeleteTopicsResponse(
            throttle_time=call.throttle_time, responses=tuple(results)
        )
    )


async def _delete_one(call: Call, name: str) -> None:
    topic = call.server.names.parse(name)
    # Kafka's clients delete topics that are in use, too.
    await call.do(Kind.DELETE_TOPIC, pb.DeleteTopic(topic=str(topic), force=True))


async def create_partitions(call: Call) -> Awaitable[Any]:
    """Raise the numbers of partitions."""
    answers = call.answers
    results = []
    _check_count(len(call.body.topics))
    for each in call.body.topics:
        code, message = ErrorCode.none, None
        try:
            topic = call.server.names.parse(each.name)
            if not call.body.validate_only:
                # 0 is refused with the reason.
                count = max(each.count, 0)
                await call.do(
                    Kind.ADD_PARTITIONS,
                    pb.AddPartitions(topic=str(topic), partitions=count),
                )
        except (InvalidName, NotFound) as error:
            code, message = code_of(error), str(error)
        except InvalidRequest as error:
            code, message = ErrorCode.invalid_partitions, str(error)
        except BrokerError as error:
            code, message = code_of(error), str(error)
        results.append(
            answers.CreatePartitionsTopicResult(
                name=each.name, error_code=code, error_message=message
            )
        )
    return Done(
        answers.CreatePartitionsResponse(
            throttle_time=call.throttle_time, results=tuple(results)
        )
    )


def _check_count(count: int) -> None:
    if count > TOPICS_MAX:
        raise InvalidRequest(f"{count} topics are too many; name {TOPICS_MAX} at most")


NAMING: dict[Api, Handler] = {
    Api.CREATE_PARTITIONS: create_partitions,
    Api.CREATE_TOPICS: create_topics,
    Api.DELETE_TOPICS: delete_topics,
    Api.METADATA: metadata,
}
