"""The settings of topics and of the broker, and what tools ask besides."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from pydanube.model.descriptions import TopicSettings
from pydanube.model.errors import InvalidRequest, TopicNotFound
from pydanube.model.names import TopicName
from pydanube.model.policy import Retention, TopicPolicy
from pydanube.wire.native.kinds import Kind
from pydanube.wire.native.messages import from_wire, to_wire
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.broker.publishing.topic import ReliableTopic
from pydanube_kafka.calls import Call, Done, Handler
from pydanube_kafka.errors import HANDLED, code_of
from pydanube_kafka.naming import TOPICS_MAX
from pydanube_kafka.pure.settings import TopicConfig, changed, describe
from pydanube_kafka.wire.apis import Api, ErrorCode

_TOPIC = 2
_BROKER = 4
_OWN = 1
_DEFAULT = 5


async def describe_configs(call: Call) -> Awaitable[Any]:
    """Describe the settings of topics, as far as Kafka has names for them."""
    answers = call.answers
    results = []
    _check_count(len(call.body.resources))
    for each in call.body.resources:
        code, message, configs = ErrorCode.none, None, ()
        try:
            configs = await _described(call, each)
        except HANDLED as error:
            code, message = code_of(error), str(error)
        results.append(
            answers.DescribeConfigsResult(
                error_code=code,
                error_message=message,
                resource_type=each.resource_type,
                resource_name=each.resource_name,
                configs=configs,
            )
        )
    return Done(
        answers.DescribeConfigsResponse(
            throttle_time=call.throttle_time, results=tuple(results)
        )
    )


async def _described(call: Call, resource: Any) -> tuple[Any, ...]:
    if resource.resource_type == _BROKER:
        # Those of the broker are in its settings file.
        return ()
    if resource.resource_type != _TOPIC:
        raise InvalidRequest("only topics and brokers have settings")
    _, config, effective = await _read(call, resource.resource_name)
    answers = call.answers
    return tuple(
        answers.DescribeConfigsResourceResult(
            name=each.name,
            value=each.value,
            read_only=each.is_fixed,
            config_source=_OWN if each.is_own else _DEFAULT,
            is_sensitive=False,
            is_default=not each.is_own,
            synonyms=(),
            config_type=each.type,
            documentation=each.documentation,
        )
        for each in describe(config, effective, resource.configuration_keys)
    )


async def _read(call: Call, name: str) -> tuple[TopicName, TopicConfig, Retention]:
    """Return a topic, its settings, and the retention in force."""
    topic = call.server.names.parse(name)
    partitions = await call.do(
        Kind.LIST_PARTITIONS, pb.ListPartitions(topic=str(topic))
    )
    if not partitions.topics:
        raise TopicNotFound(f"{topic} does not exist")
    found = await call.do(
        Kind.DESCRIBE_TOPIC, pb.DescribeTopic(topic=partitions.topics[0], limit=1)
    )
    policy = from_wire(TopicPolicy, found.policy)
    config = TopicConfig(
        retention=policy.retention,
        seal_bytes=policy.seal_bytes,
        seal_age_s=policy.seal_age_s,
        message_bytes_max=found.limits.max_message_size,
    )
    return topic, config, from_wire(Retention, found.retention)


async def incremental_alter_configs(call: Call) -> Awaitable[Any]:
    """Change settings of topics, all of a topic or none; the others stay."""
    answers = call.answers
    responses = []
    _check_count(len(call.body.resources))
    for each in call.body.resources:
        code, message = ErrorCode.none, None
        try:
            await _alter(call, each)
        except InvalidRequest as error:
            code, message = ErrorCode.invalid_config, str(error)
        except HANDLED as error:
            code, message = code_of(error), str(error)
        responses.append(
            answers.AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=each.resource_type,
                resource_name=each.resource_name,
            )
        )
    return Done(
        answers.IncrementalAlterConfigsResponse(
            throttle_time=call.throttle_time, responses=tuple(responses)
        )
    )


async def _alter(call: Call, resource: Any) -> None:
    if resource.resource_type != _TOPIC:
        raise InvalidRequest(
            "only settings of topics can be changed: those of the broker are in its "
            "settings file"
        )
    topic, config, _ = await _read(call, resource.resource_name)
    config, names = changed(
        config,
        [(each.name, each.config_operation, each.value) for each in resource.configs],
    )
    settings = TopicSettings(
        retention=config.retention,
        seal_bytes=config.seal_bytes,
        seal_age_s=config.seal_age_s,
    )
    if names and not call.body.validate_only:
        await call.do(
            Kind.CONFIGURE_TOPIC,
            pb.ConfigureTopic(
                topic=str(topic),
                settings=to_wire(pb.TopicSettings, settings),
                changes=sorted(names),
            ),
        )


async def describe_cluster(call: Call) -> Awaitable[Any]:
    """Answer with the brokers of the cluster."""
    answers, brokers = call.answers, call.server.brokers
    return Done(
        answers.DescribeClusterResponse(
            throttle_time=call.throttle_time,
            error_code=ErrorCode.none,
            error_message=None,
            cluster_id=await brokers.cluster_id(),
            controller_id=brokers.own_number,
            brokers=tuple(
                answers.DescribeClusterBroker(
                    broker_id=each.number, host=each.host, port=each.port, rack=None
                )
                for each in brokers.list(call.connection.local_host)
            ),
        )
    )


async def offset_for_leader_epoch(call: Call) -> Awaitable[Any]:
    """Answer with the ends of topics: what is stored is never taken back."""
    answers = call.answers
    topics = []
    for each in call.body.topics:
        partitions = []
        for wanted in each.partitions:
            code, epoch, end = ErrorCode.none, -1, -1
            try:
                topic = await call.find_topic(
                    Kind.OPEN_CONSUMER, each.topic, wanted.partition
                )
                if isinstance(topic, ReliableTopic):
                    epoch, end = wanted.leader_epoch, topic.end_offset
            except HANDLED as error:
                code = code_of(error)
            partitions.append(
                answers.EpochEndOffset(
                    error_code=code,
                    partition=wanted.partition,
                    leader_epoch=epoch,
                    end_offset=end,
                )
            )
        topics.append(
            answers.OffsetForLeaderTopicResult(
                topic=each.topic, partitions=tuple(partitions)
            )
        )
    return Done(
        answers.OffsetForLeaderEpochResponse(
            throttle_time=call.throttle_time, topics=tuple(topics)
        )
    )


def _check_count(count: int) -> None:
    if count > TOPICS_MAX:
        raise InvalidRequest(
            f"{count} resources are too many: {TOPICS_MAX} are allowed"
        )


CONFIGURING: dict[Api, Handler] = {
    Api.DESCRIBE_CLUSTER: describe_cluster,
    Api.DESCRIBE_CONFIGS: describe_configs,
    Api.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs,
    Api.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch,
}
