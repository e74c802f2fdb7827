"""
The handlers of operations on topics, subscriptions, namespaces and schemas.

Each handler translates a request, calls the broker, and translates the result.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any, Generic, TypeVar

from google.protobuf.message import Message

from pydanube.broker.backups import Backups
from pydanube.broker.broker import Broker
from pydanube.broker.schema_registry import NewSchema
from pydanube.cluster.overview import STREAM
from pydanube.model.clusters import BrokerMode, ShardMoves
from pydanube.model.descriptions import TopicSettings
from pydanube.model.errors import InvalidRequest
from pydanube.model.findings import FINDINGS_MAX
from pydanube.model.ids import TopicId
from pydanube.model.names import (
    SubscriptionName,
    TopicName,
    parse_client_name,
    parse_namespace,
    parse_subject,
    parse_subscription,
)
from pydanube.model.policy import (
    NamespacePolicy,
    NamespaceSettings,
    Retention,
    SubscriptionSettings,
    SubscriptionType,
    TopicPolicy,
)
from pydanube.model.schemas import Compatibility, SchemaType
from pydanube.security.permissions import Permission
from pydanube.servers.authorization import (
    author_of_settings,
    visible_namespaces,
    visible_subjects,
)
from pydanube.servers.native.topic_looks import elsewhere, permitted, segments_in
from pydanube.servers.topic_lists import (
    described_at,
    visible_findings,
    visible_names,
    visible_records,
)
from pydanube.storage.replacement import Replacement
from pydanube.wire.native.kinds import KIND_OF, Kind
from pydanube.wire.native.messages import (
    RANGES_MAX,
    changes_from_wire,
    enum_from_wire,
    from_wire,
    position_from_wire,
    ranges_from_wire,
    to_wire,
)
from pydanube.wire.pb import stream_pb2 as pb

HOLD_REASON_LENGTH_MAX = 1000
MODE_REASON_LENGTH_MAX = 1000
MOVED_TOPICS_MAX = 5
"""How many topics of each shard are named in a plan."""
PAGE_MAX = 5000
"""The maximum number of names or descriptions in one answer, to fit into a frame."""
SEGMENTS_BYTES_MAX = 4 * 1024 * 1024
"""The maximum size of the segments of several topics in one answer."""
VERSIONS_BYTES_MAX = 1024 * 1024
"""The maximum size of the definitions in an answer that has several."""
VIOLATIONS_MAX = 1000
"""The maximum number of violations in an answer."""

H = TypeVar("H", bound=Callable[..., Awaitable[Any]])

BrokerHandler = Callable[[Broker, Any], Awaitable[Message | None]]
"""Carries out a request and returns the answer; None stands for OK."""


class Handlers(dict[Kind, H], Generic[H]):
    """The handlers of requests by kind."""

    def handler(self, *bodies: type[Message]) -> Callable[[H], H]:
        """Return a decorator that adds the handler of the requests *bodies*."""

        def add(handler: H) -> H:
            for body in bodies:
                kind = KIND_OF[body]
                assert kind.permission is not None
                assert kind not in self
                self[kind] = handler
            return handler

        return add


REQUESTS: Handlers[BrokerHandler] = Handlers()
"""All handlers that need no connection; ``staging`` adds its own."""


def _subscription_of(message: Any) -> tuple[TopicName, SubscriptionName]:
    return TopicName.parse(message.topic), parse_subscription(message.subscription)


@REQUESTS.handler(pb.Lookup)
async def _look_up(broker: Broker, m: pb.Lookup) -> pb.Location:
    addresses = await broker.topics.find_addresses(TopicName.parse(m.topic))
    return pb.Location(url=addresses.get(STREAM, ""))


@REQUESTS.handler(pb.CreateTopic)
async def _create_topic(broker: Broker, m: pb.CreateTopic) -> None:
    name, policy = TopicName.parse(m.topic), from_wire(TopicPolicy, m.policy)
    if m.partitions:
        await broker.topics.create_partitioned(
            name, m.partitions, policy, exist_ok=m.exist_ok
        )
    else:
        await broker.topics.add(name, policy, exist_ok=m.exist_ok)


@REQUESTS.handler(pb.DeleteTopic)
async def _delete_topic(broker: Broker, m: pb.DeleteTopic) -> None:
    await broker.topics.delete(TopicName.parse(m.topic), force=m.force)


@REQUESTS.handler(pb.ListTopics)
async def _list_topics(broker: Broker, m: pb.ListTopics) -> pb.Topics:
    namespace = parse_namespace(m.namespace) if m.namespace else None
    after = TopicName.parse(m.after) if m.limit and m.after else None
    limit = min(m.limit, PAGE_MAX) if m.limit else None
    wanted = None if limit is None else limit + 1
    records = await visible_records(broker, namespace, after, wanted)
    page = records[:limit]
    answer = pb.Topics(
        topics=[str(name) for name, _ in page], has_more=len(records) > len(page)
    )
    if m.has_places:
        places = [broker.place_of(record.shard) for _, record in page]
        answer.places.extend(to_wire(pb.TopicPlace, each) for each in places)
    return answer


@REQUESTS.handler(pb.DescribeTopic)
async def _describe_topic(broker: Broker, m: pb.DescribeTopic) -> pb.TopicDescription:
    limit = min(m.limit, PAGE_MAX) if m.limit else None
    async with broker.views.viewing(TopicName.parse(m.topic)) as topic:
        description = topic.describe(m.first, limit)
        listed = max(len(topic.registrations), len(topic.subscriptions))
    holds = await broker.holds.list(TopicId(description.topic_id))
    description = replace(described_at(broker, topic, description), holds=holds)
    answer = to_wire(pb.TopicDescription, description)
    if limit is not None:
        answer.has_more = listed > m.first + limit
    return answer


@REQUESTS.handler(pb.ConfigureTopic)
async def _configure_topic(broker: Broker, m: pb.ConfigureTopic) -> None:
    changes = changes_from_wire(TopicSettings, m.settings, m.changes)
    await broker.topics.configure(TopicName.parse(m.topic), **changes)


@REQUESTS.handler(pb.ApplyRetention)
async def _apply_retention(broker: Broker, m: pb.ApplyRetention) -> pb.RetentionDrops:
    name = TopicName.parse(m.topic)
    if m.is_dry_run:
        drops = await broker.topics.plan_retention(name, partial(_assumed, m))
    else:
        drops = await broker.topics.apply_retention(name)
    return to_wire(pb.RetentionDrops, drops)


def _assumed(
    m: pb.ApplyRetention, policy: TopicPolicy, of_namespace: Retention
) -> Retention:
    """Return the retention that a dry run assumes for a topic with *policy*."""
    if m.HasField("namespace_retention"):
        of_namespace = from_wire(Retention, m.namespace_retention)
    if m.HasField("retention"):
        policy = replace(policy, retention=from_wire(Retention, m.retention))
    elif m.inherits:
        policy = replace(policy, retention=None)
    retention = policy.effective_retention(of_namespace)
    retention.check()
    return retention


@REQUESTS.handler(pb.AddPartitions)
async def _add_partitions(broker: Broker, m: pb.AddPartitions) -> None:
    await broker.topics.add_partitions(TopicName.parse(m.topic), m.partitions)


@REQUESTS.handler(pb.ListPartitions)
async def _list_partitions(broker: Broker, m: pb.ListPartitions) -> pb.Partitions:
    name = TopicName.parse(m.topic)
    topics = await broker.catalog.partitions_of(name)
    return pb.Partitions(
        topics=[str(each) for each in topics],
        is_partitioned=bool(topics) and topics != [name],
    )


@REQUESTS.handler(pb.CreateNamespace)
async def _create_namespace(broker: Broker, m: pb.CreateNamespace) -> None:
    await broker.namespaces.create(
        parse_namespace(m.namespace),
        from_wire(NamespacePolicy, m.policy),
        exist_ok=m.exist_ok,
    )


@REQUESTS.handler(pb.DeleteNamespace)
async def _delete_namespace(broker: Broker, m: pb.DeleteNamespace) -> None:
    await broker.namespaces.delete(parse_namespace(m.namespace))


@REQUESTS.handler(pb.ListNamespaces)
async def _list_namespaces(broker: Broker, _: pb.ListNamespaces) -> pb.Namespaces:
    names = visible_namespaces(await broker.namespaces.names())
    return pb.Namespaces(namespaces=names)


@REQUESTS.handler(pb.DescribeNamespace)
async def _describe_namespace(
    broker: Broker, m: pb.DescribeNamespace
) -> pb.NamespaceDescription:
    name = parse_namespace(m.namespace)
    record = (await broker.namespaces.find(name)).value
    return pb.NamespaceDescription(
        namespace=name,
        policy=to_wire(pb.NamespacePolicy, record.policy),
        topic_count=len(await visible_names(broker, name)),
        retention=to_wire(pb.Retention, record.retention),
    )


@REQUESTS.handler(pb.ConfigureNamespace)
async def _configure_namespace(broker: Broker, m: pb.ConfigureNamespace) -> None:
    changes = changes_from_wire(NamespaceSettings, m.settings, m.changes)
    await broker.namespaces.configure(parse_namespace(m.namespace), **changes)


@REQUESTS.handler(pb.DescribeCluster)
async def _describe_cluster(
    broker: Broker, m: pb.DescribeCluster
) -> pb.ClusterDescription:
    found = await broker.describe_cluster(counts_topics=m.counts_topics)
    return to_wire(pb.ClusterDescription, found)


@REQUESTS.handler(pb.SetBrokerMode)
async def _set_broker_mode(broker: Broker, m: pb.SetBrokerMode) -> None:
    if len(m.reason) > MODE_REASON_LENGTH_MAX:
        raise InvalidRequest(
            f"the reason for the mode of a broker has {len(m.reason)} characters; at "
            f"most {MODE_REASON_LENGTH_MAX} are allowed"
        )
    await broker.set_broker_mode(m.broker_id, BrokerMode.parse(m.mode), m.reason)


@REQUESTS.handler(pb.MoveTopic)
async def _move_topic(broker: Broker, m: pb.MoveTopic) -> pb.ShardMoves:
    move = await broker.move_topic(TopicName.parse(m.topic), m.broker_id or None)
    return to_wire(pb.ShardMoves, ShardMoves(moves=(move,)))


@REQUESTS.handler(pb.ForgetBroker)
async def _forget_broker(broker: Broker, m: pb.ForgetBroker) -> pb.ShardMoves:
    shards = await broker.forget_broker(m.broker_id, accept_loss=m.accept_loss)
    return to_wire(pb.ShardMoves, shards)


@REQUESTS.handler(pb.Rebalance)
async def _rebalance(broker: Broker, m: pb.Rebalance) -> pb.ShardMoves:
    moves = (await broker.rebalance(dry_run=m.dry_run)).moves
    # The answer must fit into a frame, so only some of the topics are named.
    named = [replace(each, topics=each.topics[:MOVED_TOPICS_MAX]) for each in moves]
    return to_wire(pb.ShardMoves, ShardMoves(moves=tuple(named)))


@REQUESTS.handler(pb.CreateSubscription)
async def _create_subscription(broker: Broker, m: pb.CreateSubscription) -> None:
    await broker.subscriptions.open(
        *_subscription_of(m),
        enum_from_wire(SubscriptionType, m.type),
        position_from_wire(m.position),
        exist_ok=False,
    )


@REQUESTS.handler(pb.DeleteSubscription)
async def _delete_subscription(broker: Broker, m: pb.DeleteSubscription) -> None:
    await broker.subscriptions.delete(*_subscription_of(m), force=m.force)


@REQUESTS.handler(pb.DescribeSubscription)
async def _describe_subscription(
    broker: Broker, m: pb.DescribeSubscription
) -> pb.SubscriptionDescription:
    name, subscription = _subscription_of(m)
    async with broker.views.viewing(name) as topic:
        found = topic.find_subscription(subscription)
        return to_wire(pb.SubscriptionDescription, found.describe(topic.end_offset))


@REQUESTS.handler(pb.ReportProgress)
async def _report_progress(broker: Broker, m: pb.ReportProgress) -> None:
    await broker.subscriptions.report_progress(*_subscription_of(m), m.offset)


@REQUESTS.handler(pb.DescribeSettings)
async def _describe_settings(broker: Broker, m: pb.DescribeSettings) -> pb.Settings:
    settings = await broker.subscriptions.settings(*_subscription_of(m))
    return to_wire(pb.Settings, settings)


@REQUESTS.handler(pb.ConfigureSubscription)
async def _configure_subscription(broker: Broker, m: pb.ConfigureSubscription) -> None:
    changes = changes_from_wire(SubscriptionSettings, m.settings, m.changes)
    await broker.subscriptions.change_settings(
        *_subscription_of(m), author=author_of_settings(), **changes
    )


@REQUESTS.handler(pb.SeekSubscription)
async def _seek_subscription(broker: Broker, m: pb.SeekSubscription) -> None:
    name, subscription = _subscription_of(m)
    topic = await broker.topics.get(name)
    found = topic.find_subscription(subscription)
    await broker.subscriptions.seek(topic, found, position_from_wire(m.to))


@REQUESTS.handler(pb.Skip)
async def _skip(broker: Broker, m: pb.Skip) -> None:
    await broker.subscriptions.skip(*_subscription_of(m), m.count)


@REQUESTS.handler(pb.MarkDone)
async def _mark_done(broker: Broker, m: pb.MarkDone) -> None:
    ranges = ranges_from_wire(m.ranges, RANGES_MAX)
    await broker.subscriptions.mark_done(*_subscription_of(m), ranges)


@REQUESTS.handler(pb.FindOffsets)
async def _find_offsets(broker: Broker, m: pb.FindOffsets) -> pb.OffsetsFound:
    async with broker.views.viewing_reliable(TopicName.parse(m.topic)) as topic:
        offsets, base, end = await topic.find_offsets(m.publish_time)
    return pb.OffsetsFound(offset=offsets, base_offset=base, end_offset=end)


@REQUESTS.handler(pb.ListOffsets)
async def _list_offsets(broker: Broker, m: pb.ListOffsets) -> pb.OffsetsListed:
    looks = await broker.views.look_at(permitted(m.topics, Permission.DESCRIBE))
    answer = pb.OffsetsListed(elsewhere=elsewhere(looks))
    for name, (found, _) in looks.found.items():
        # Queries request this often, so it is converted without ``to_wire``.
        answer.topics.add(
            topic=str(name),
            topic_id=found.topic_id,
            base_offset=found.base_offset,
            end_offset=found.end_offset,
            sealed_offset=found.sealed_offset,
            tail_bytes=found.tail_bytes,
            is_reliable=found.is_reliable,
        )
    return answer


@REQUESTS.handler(pb.FindSegments)
async def _find_segments(broker: Broker, m: pb.FindSegments) -> pb.SegmentsFound:
    ranges = {TopicName.parse(each.topic): each for each in m.ranges}
    names = permitted([each.topic for each in m.ranges], Permission.CONSUME)
    looks = await broker.views.look_at(names)
    answer = pb.SegmentsFound(
        elsewhere=elsewhere(looks), store_options=broker.storage.store_options
    )
    byte_count = 0
    for name, (offsets, segments) in looks.found.items():
        found = segments_in(broker, ranges[name], offsets, segments)
        found.topic = str(name)
        byte_count += found.ByteSize()
        if answer.topics and byte_count > SEGMENTS_BYTES_MAX:
            answer.has_more = True
            break
        answer.topics.append(found)
    return answer


@REQUESTS.handler(pb.ListSegments)
async def _list_segments(broker: Broker, m: pb.ListSegments) -> pb.Segments:
    async with broker.views.viewing(TopicName.parse(m.topic)) as topic:
        epoch = topic.describe(limit=0).epoch
        found = segments_in(broker, m, topic.offsets(), topic.segments)
    found.epoch, found.objects_url = epoch, broker.storage.objects_url
    found.store_options.update(broker.storage.store_options)
    return found


@REQUESTS.handler(pb.ReplaceSegments)
async def _replace_segments(
    broker: Broker, m: pb.ReplaceSegments
) -> pb.SegmentsReplaced:
    removed = await broker.topics.replace_segments(
        TopicName.parse(m.topic),
        TopicId(m.topic_id),
        list(m.old),
        [from_wire(Replacement, each) for each in m.new],
    )
    return pb.SegmentsReplaced(removed=removed)


@REQUESTS.handler(pb.ListFindings)
async def _list_findings(broker: Broker, m: pb.ListFindings) -> pb.Findings:
    limit = min(m.limit or FINDINGS_MAX, FINDINGS_MAX)
    return to_wire(pb.Findings, await visible_findings(broker, limit))


@REQUESTS.handler(pb.DescribeStorage)
async def _describe_storage(
    broker: Broker, _: pb.DescribeStorage
) -> pb.StorageDescription:
    return to_wire(
        pb.StorageDescription, broker.storage.describe(), problems=broker.problems
    )


@REQUESTS.handler(pb.UploadSegments)
async def _upload_segments(broker: Broker, m: pb.UploadSegments) -> None:
    uploader = broker.storage.require_uploader()
    topic_ids = await _topic_ids_of(broker, m.topic)
    if m.is_sealing:
        await broker.storage.sealer.seal_now(topic_ids)
    if topic_ids is None:
        await broker.topics.open_ids(uploader.unopened_topics(), "upload segments")
    await uploader.upload_now(topic_ids)


@REQUESTS.handler(pb.EvictSegments)
async def _evict_segments(broker: Broker, m: pb.EvictSegments) -> pb.SegmentsEvicted:
    uploader = broker.storage.require_uploader()
    count, byte_count = await uploader.evict(await _topic_ids_of(broker, m.topic))
    return pb.SegmentsEvicted(count=count, byte_count=byte_count)


@REQUESTS.handler(pb.VerifySegments)
async def _verify_segments(broker: Broker, m: pb.VerifySegments) -> pb.SegmentsVerified:
    topic_ids = None
    if m.topic:
        # Without opening the topics, which may be impossible if they are damaged.
        topic_ids = await broker.catalog.reliable_ids(TopicName.parse(m.topic))
    if broker.shard_serving is not None:
        # Other brokers have the local copies of the others.
        served = await broker.shard_serving.served_ids()
        topic_ids = served if topic_ids is None else topic_ids & served
    verified = await broker.storage.verification.verify_page(
        topic_ids,
        m.after,
        bytes_per_s=m.bytes_per_s,
        is_repairing=m.is_repairing,
        open_source=partial(broker.stores.open, m.source) if m.source else None,
        is_counting=m.is_counting,
    )
    return to_wire(pb.SegmentsVerified, verified)


@REQUESTS.handler(pb.CopySegments)
async def _copy_segments(broker: Broker, m: pb.CopySegments) -> pb.SegmentsVerified:
    copying = broker.storage.require_store_copying()
    open_target = partial(broker.stores.open, m.store)
    if m.is_finishing:
        copied = await copying.finish(open_target)
    else:
        copied = await copying.copy_page(
            open_target,
            m.after,
            bytes_per_s=m.bytes_per_s,
            is_counting=m.is_counting,
        )
    return to_wire(pb.SegmentsVerified, copied)


async def _topic_ids_of(broker: Broker, topic: str) -> set[TopicId] | None:
    """Return the id of *topic*; None, which stands for all topics, if it is empty."""
    if not topic:
        return None
    return {(await broker.topics.get_reliable(TopicName.parse(topic))).topic_id}


@REQUESTS.handler(pb.HoldTopic)
async def _hold_topic(broker: Broker, m: pb.HoldTopic) -> None:
    holder = parse_client_name("hold", m.name)
    if len(m.reason) > HOLD_REASON_LENGTH_MAX:
        raise InvalidRequest(
            f"the reason of a hold has at most {HOLD_REASON_LENGTH_MAX} characters"
        )
    topic = await broker.topics.get_reliable(TopicName.parse(m.topic))
    await broker.holds.add(topic.log, holder, m.reason)


@REQUESTS.handler(pb.ReleaseTopic)
async def _release_topic(broker: Broker, m: pb.ReleaseTopic) -> None:
    topic = await broker.topics.get_reliable(TopicName.parse(m.topic))
    await broker.holds.remove(topic.log, parse_client_name("hold", m.name))


# Schemas.


def _new_schema(message: pb.NewSchema) -> NewSchema:
    return NewSchema(
        type=SchemaType.parse(message.type),
        definition=message.definition,
        message=message.message or None,
        description=message.description,
        created_by=message.created_by,
        tags=tuple(message.tags),
    )


@REQUESTS.handler(pb.RegisterSchema)
async def _register_schema(broker: Broker, m: pb.RegisterSchema) -> pb.SchemaRegistered:
    version, is_new = await broker.registry.register(m.subject, _new_schema(m.schema))
    return pb.SchemaRegistered(
        version=to_wire(pb.SchemaVersion, version), is_new=is_new
    )


@REQUESTS.handler(pb.GetSchema)
async def _get_schema(broker: Broker, m: pb.GetSchema) -> pb.SchemaVersion:
    registry, version = broker.registry, m.version or None
    if m.subject:
        found = await registry.version(m.subject, version)
    else:
        found = await registry.by_id(m.schema_id, version)
    return to_wire(pb.SchemaVersion, found)


@REQUESTS.handler(pb.ListSchemaVersions)
async def _list_schema_versions(
    broker: Broker, m: pb.ListSchemaVersions
) -> pb.SchemaVersions:
    parse_subject(m.subject)
    answer = pb.SchemaVersions()
    byte_count = 0
    for version in await broker.registry.versions(m.subject):
        if version.version <= m.after:
            continue
        byte_count += len(version.definition)
        if answer.versions and byte_count > VERSIONS_BYTES_MAX:
            answer.has_more = True
            break
        answer.versions.append(to_wire(pb.SchemaVersion, version))
    return answer


@REQUESTS.handler(pb.ListSubjects)
async def _list_subjects(broker: Broker, _: pb.ListSubjects) -> pb.Subjects:
    subjects = visible_subjects(await broker.registry.subjects())
    return pb.Subjects(subjects=subjects)


@REQUESTS.handler(pb.DescribeSubject)
async def _describe_subject(
    broker: Broker, m: pb.DescribeSubject
) -> pb.SubjectDescription:
    return to_wire(pb.SubjectDescription, await broker.registry.describe(m.subject))


@REQUESTS.handler(pb.CheckSchema)
async def _check_schema(broker: Broker, m: pb.CheckSchema) -> pb.SchemaChecked:
    mode = Compatibility.parse(m.compatibility) if m.compatibility else None
    violations = await broker.registry.check(m.subject, _new_schema(m.schema), mode)
    return pb.SchemaChecked(
        violations=[
            to_wire(
                pb.SchemaViolation,
                each.incompatibility,
                version=each.version,
                direction=each.direction.value,
            )
            for each in violations[:VIOLATIONS_MAX]
        ],
        has_more=len(violations) > VIOLATIONS_MAX,
    )


@REQUESTS.handler(pb.SetCompatibility)
async def _set_compatibility(broker: Broker, m: pb.SetCompatibility) -> None:
    mode = Compatibility.parse(m.compatibility)
    await broker.registry.set_compatibility(m.subject, mode)


@REQUESTS.handler(pb.DeleteSchema)
async def _delete_schema(broker: Broker, m: pb.DeleteSchema) -> None:
    if not m.subject:
        raise InvalidRequest("a subject is deleted, and none is named")
    await broker.schemas.delete(m.subject, m.version or None, force=m.force)


@REQUESTS.handler(pb.GetTopicSchema)
async def _topic_schema(broker: Broker, m: pb.GetTopicSchema) -> pb.TopicSchemaAnswer:
    schema = (await broker.catalog.get(TopicName.parse(m.topic))).schema
    return pb.TopicSchemaAnswer(schema=to_wire(pb.TopicSchema, schema))


def _backups_of(broker: Broker) -> Backups:
    if broker.backups is None:
        raise InvalidRequest(
            "only brokers with metadata in an SQLite file in a data directory can be "
            "backed up"
        )
    return broker.backups


@REQUESTS.handler(pb.CreateBackup)
async def _create_backup(broker: Broker, m: pb.CreateBackup) -> pb.BackupProgress:
    begun = await _backups_of(broker).begin(m.store)
    return to_wire(pb.BackupProgress, begun)


@REQUESTS.handler(pb.DescribeBackup)
async def _describe_backup(broker: Broker, m: pb.DescribeBackup) -> pb.BackupProgress:
    return to_wire(pb.BackupProgress, _backups_of(broker).progress)
