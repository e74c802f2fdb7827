"""Operations on topics and partitions."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from pydanube.model.descriptions import TopicSettings
from pydanube.model.errors import InvalidRequest
from pydanube.model.ids import TopicId
from pydanube.model.names import TopicName, parse_client_name, parse_namespace
from pydanube.model.policy import Retention, TopicPolicy
from pydanube.security.permissions import Permission
from pydanube.wire.native.messages import (
    changes_from_wire,
    from_wire,
    position_from_wire,
    seconds_from_wire,
    to_wire,
)
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.broker.topics.topic_views import OffsetsRevision
from pydanube_broker.cluster.overview import STREAM
from pydanube_broker.operations.handlers import PAGE_MAX, Call, operation
from pydanube_broker.operations.topic_lists import (
    describe_in,
    described_at,
    free,
    visible_records,
)
from pydanube_broker.operations.topic_looks import elsewhere, permitted

HOLD_SECONDS_MAX = 366 * 86_400
HOLD_REASON_LENGTH_MAX = 1000


@operation
async def lookup(call: Call, m: pb.Lookup) -> pb.Location:
    """Return the address of the broker that serves a topic."""
    addresses = await call.broker.topics.find_addresses(TopicName.parse(m.topic))
    return pb.Location(url=addresses.get(STREAM, ""))


@operation
async def create_topic(call: Call, m: pb.CreateTopic) -> None:
    """Create a topic, or a partitioned topic if ``partitions`` is given."""
    name, policy = TopicName.parse(m.topic), from_wire(TopicPolicy, m.policy)
    if m.partitions:
        await call.broker.topics.create_partitioned(
            name, m.partitions, policy, exist_ok=m.exist_ok
        )
    else:
        await call.broker.topics.add(name, policy, exist_ok=m.exist_ok)


@operation
async def delete_topic(call: Call, m: pb.DeleteTopic) -> None:
    """Delete a topic or all its partitions; ``force`` if it may be in use."""
    await call.broker.topics.delete(TopicName.parse(m.topic), force=m.force)


@operation
async def list_topics(call: Call, m: pb.ListTopics) -> pb.Topics:
    """Return the topics and partitions that the client may see, by name."""
    namespace = parse_namespace(m.namespace) if m.namespace else None
    after = TopicName.parse(m.after) if m.limit and m.after else None
    limit = min(m.limit, PAGE_MAX) if m.limit else None
    wanted = None if limit is None else limit + 1
    records = await visible_records(call.broker, namespace, after, wanted)
    answer = pb.Topics(has_more=limit is not None and len(records) > limit)
    if limit is not None:
        del records[limit:]
    await describe_in(answer.topics, records, lambda name, _: str(name))
    if m.has_places:
        await describe_in(
            answer.places,
            records,
            lambda _, record: to_wire(
                pb.TopicPlace, call.broker.place_of(record.shard)
            ),
        )
    await free(records)
    return answer


@operation
async def describe_topic(call: Call, m: pb.DescribeTopic) -> pb.TopicDescription:
    """Return a topic or partition with its producers and subscriptions."""
    limit = min(m.limit, PAGE_MAX) if m.limit else None
    async with call.broker.views.viewing(TopicName.parse(m.topic)) as topic:
        description = topic.describe(m.first, limit)
        listed = max(len(topic.registrations), len(topic.subscriptions))
    holds = await call.broker.holds.list(TopicId(description.topic_id))
    description = replace(described_at(call.broker, topic, description), holds=holds)
    answer = to_wire(pb.TopicDescription, description)
    if limit is not None:
        answer.has_more = listed > m.first + limit
    return answer


@operation
async def configure_topic(call: Call, m: pb.ConfigureTopic) -> None:
    """Change the named settings of a topic, all or none; the others stay."""
    changes = changes_from_wire(TopicSettings, m.settings, m.changes)
    await call.broker.topics.configure(TopicName.parse(m.topic), **changes)


@operation
async def apply_retention(call: Call, m: pb.ApplyRetention) -> pb.RetentionDrops:
    """Drop what the retention of a topic does not keep, or plan to."""
    name = TopicName.parse(m.topic)
    if m.is_dry_run:
        drops = await call.broker.topics.plan_retention(name, partial(_assumed, m))
    else:
        drops = await call.broker.topics.apply_retention(name)
    return to_wire(pb.RetentionDrops, drops)


@operation
async def trim_topic(call: Call, m: pb.TrimTopic) -> pb.RetentionDrops:
    """Remove the messages of a topic before a position, for all readers at once."""
    # An empty position would stand for the end of the topic.
    if m.before.WhichOneof("to") is None:
        raise InvalidRequest(
            "the request names no position: give the offset, the publish_time or the "
            "start before which to remove messages"
        )
    name = TopicName.parse(m.topic)
    drops = await call.broker.topics.trim(name, position_from_wire(m.before))
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


@operation
async def add_partitions(call: Call, m: pb.AddPartitions) -> None:
    """Raise the number of partitions of a partitioned topic."""
    await call.broker.topics.add_partitions(TopicName.parse(m.topic), m.partitions)


@operation
async def list_partitions(call: Call, m: pb.ListPartitions) -> pb.Partitions:
    """Return the partitions of a topic, or the topic itself."""
    name = TopicName.parse(m.topic)
    topics = await call.broker.catalog.partitions_of(name)
    return pb.Partitions(
        topics=[str(each) for each in topics],
        is_partitioned=bool(topics) and topics != [name],
    )


@operation
async def hold_topic(call: Call, m: pb.HoldTopic) -> None:
    """Keep the messages of a topic in spite of its retention."""
    holder = parse_client_name("hold", m.name)
    if len(m.reason) > HOLD_REASON_LENGTH_MAX:
        raise InvalidRequest(
            f"the reason of a hold has at most {HOLD_REASON_LENGTH_MAX} characters"
        )
    topic = await call.broker.topics.get_reliable(TopicName.parse(m.topic))
    expires_in_s = None
    if m.HasField("expires_in_s"):
        expires_in_s = seconds_from_wire("time to expiry", m.expires_in_s)
        if not expires_in_s or expires_in_s > HOLD_SECONDS_MAX:
            raise InvalidRequest(
                f"a hold must expire after more than 0 and at most {HOLD_SECONDS_MAX} "
                f"seconds, not {m.expires_in_s:g}"
            )
    await call.broker.holds.add(topic.log, holder, m.reason, expires_in_s=expires_in_s)


@operation
async def release_topic(call: Call, m: pb.ReleaseTopic) -> None:
    """End a hold on a topic."""
    topic = await call.broker.topics.get_reliable(TopicName.parse(m.topic))
    await call.broker.holds.remove(topic.log, parse_client_name("hold", m.name))


@operation
async def find_offsets(call: Call, m: pb.FindOffsets) -> pb.OffsetsFound:
    """Return the offsets of the first messages published at given times."""
    async with call.broker.views.viewing_reliable(TopicName.parse(m.topic)) as topic:
        offsets, base, end = await topic.find_offsets(m.publish_time)
    return pb.OffsetsFound(offset=offsets, base_offset=base, end_offset=end)


@operation
async def list_offsets(call: Call, m: pb.ListOffsets) -> pb.OffsetsListed:
    """Return the offsets of several topics, or those that have changed."""
    views, names = call.broker.views, permitted(m.topics, Permission.DESCRIBE)
    if m.HasField("since"):
        if names:
            raise InvalidRequest("name topics, or since when they have changed")
        known = OffsetsRevision(m.since.run, m.since.revision)
        changed = views.changed_since(known)
        if changed is None:
            return pb.OffsetsListed(is_partial=True)
        names = permitted(map(str, changed), Permission.DESCRIBE)
    looks = await views.look_at(names)
    # A topic that is gone, or moved, is no change that the answer can describe.
    is_partial = m.HasField("since") and len(looks.found) < len(names)
    answer = pb.OffsetsListed(elsewhere=elsewhere(looks), is_partial=is_partial)
    if looks.revision is not None:
        answer.revision.run, answer.revision.revision = looks.revision
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
