"""Managing topics and partitions."""

from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
import pytest

import pydanube
from pydanube.model.descriptions import TopicSettings
from pydanube.model.errors import InvalidRequest, ProtocolViolation, TopicNotFound
from pydanube.model.policy import CorruptionPolicy, NamespacePolicy, Retention
from pydanube.model.schemas import TopicSchema
from pydanube.wire.native.kinds import Kind
from pydanube.wire.pb import stream_pb2 as pb
from support.running import TOPIC, published
from support.scripted_broker import ScriptedBroker

PARTS = [f"{TOPIC}-part-{n}" for n in range(3)]


async def test_partitioned_topic_is_created_described_and_deleted(client):
    await client.create_topic(
        TOPIC, partitions=2, ttl_s=60, retention=Retention(age_s=3600)
    )
    assert await client.partitions(TOPIC) == PARTS[:2]
    assert await client.topics.list() == PARTS[:2]
    await client.add_partitions(TOPIC, 3)
    assert await client.partitions(TOPIC) == PARTS
    policies = [(await client.describe_topic(p)).policy for p in PARTS]
    assert [each.ttl_s for each in policies] == [60.0] * 3
    assert policies[0] == policies[2]
    await client.delete_topic(TOPIC)
    assert await client.topics.list() == []
    assert await client.partitions(TOPIC) == []


async def test_partitions_are_listed_by_number(client):
    await client.create_topic(TOPIC, partitions=12)
    assert await client.partitions(TOPIC) == [f"{TOPIC}-part-{n}" for n in range(12)]


async def test_partitioned_topic_is_created_once(client):
    await client.create_topic(TOPIC, partitions=2)
    with pytest.raises(pydanube.AlreadyExists):
        await client.create_topic(TOPIC, partitions=2)
    await client.create_topic(TOPIC, partitions=2, exist_ok=True)
    with pytest.raises(pydanube.AlreadyExists):
        await client.create_topic(TOPIC, partitions=3, exist_ok=True)
    with pytest.raises(pydanube.AlreadyExists):
        await client.create_topic(TOPIC)


async def test_number_of_partitions_only_rises(client):
    await client.create_topic(TOPIC, partitions=2)
    for number in (1, 2):
        with pytest.raises(pydanube.InvalidRequest):
            await client.add_partitions(TOPIC, number)
    with pytest.raises(pydanube.InvalidRequest):
        await client.create_topic("/default/none", partitions=0)
    await client.create_topic("/default/plain")
    with pytest.raises(pydanube.BrokerError):
        await client.add_partitions("/default/plain", 2)


async def test_partition_is_not_deleted_alone_and_the_base_name_is_no_topic(client):
    await client.create_topic(TOPIC, partitions=2)
    with pytest.raises(pydanube.InvalidRequest, match="partition"):
        await client.delete_topic(PARTS[0])
    with pytest.raises(pydanube.TopicNotFound):
        await client.describe_topic(TOPIC)


async def test_limits_of_a_partitioned_topic_apply_to_every_partition(client):
    await client.create_topic(TOPIC, partitions=2)
    limits = NamespacePolicy(max_message_size=3)
    await client.topics.configure(TOPIC, limits=limits)
    await client.add_partitions(TOPIC, 3)
    for name in PARTS:
        assert (await client.describe_topic(name)).limits == limits


async def test_on_corruption_is_set_at_creation_and_later(client):
    await client.create_topic(TOPIC, partitions=2)
    before = (await client.describe_topic(PARTS[0])).policy.on_corruption
    assert before is CorruptionPolicy.STOP
    await client.topics.configure(TOPIC, on_corruption="skip")
    await client.add_partitions(TOPIC, 3)
    for name in PARTS:
        policy = (await client.describe_topic(name)).policy
        assert policy.on_corruption is CorruptionPolicy.SKIP
    # on_corruption may change, so exist_ok does not compare it.
    await client.create_topic(TOPIC, partitions=3, exist_ok=True)
    with pytest.raises(InvalidRequest, match="on_corruption"):
        await client.topics.configure(TOPIC, on_corruption="ignore")
    with pytest.raises(TopicNotFound):
        await client.topics.configure("/default/none", on_corruption="skip")


async def test_settings_of_all_partitions_change_with_one_call(client):
    await client.create_topic(TOPIC, partitions=2)
    retention, limits = Retention(age_s=60.0), NamespacePolicy(max_publish_rate=7)
    await client.topics.configure(
        TOPIC, retention=retention, limits=limits, on_corruption="skip", seal_age_s=9.0
    )
    for part in PARTS[:2]:
        assert (await client.describe_topic(part)).settings == TopicSettings(
            retention=retention,
            limits=limits,
            on_corruption=CorruptionPolicy.SKIP,
            seal_age_s=9.0,
        )
    await client.topics.configure(TOPIC, retention=None, limits=None)
    assert (await client.describe_topic(PARTS[0])).settings == TopicSettings(
        on_corruption=CorruptionPolicy.SKIP, seal_age_s=9.0
    )


async def test_changes_that_cannot_be_made_are_refused_together(client):
    await client.create_topic(TOPIC)
    with pytest.raises(pydanube.SchemaNotFound):
        await client.topics.configure(
            TOPIC, seal_age_s=9.0, schema=TopicSchema(subject="nothing")
        )
    assert (await client.describe_topic(TOPIC)).settings == TopicSettings()
    with pytest.raises(TopicNotFound):
        await client.topics.configure("/default/none", seal_age_s=9.0)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "no setting is given; .* limits, retention"),
        ({"retenion": None}, "no setting 'retenion' .* did you mean 'retention'"),
        ({"retention": "7d"}, "retention must be a Retention or None, not '7d'"),
        ({"on_corruption": "ignore"}, "on_corruption must be 'stop' or 'skip'"),
        ({"seal_age_s": 0.1}, "the age at which messages are sealed is 0.1 s"),
    ],
)
async def test_changes_are_checked_before_they_are_sent(client, changes, said):
    with pytest.raises(InvalidRequest, match=said):
        await client.topics.configure(TOPIC, **changes)


async def test_time_to_live_is_a_positive_number(client):
    for ttl_s in (0, -1):
        with pytest.raises(pydanube.InvalidRequest):
            await client.create_topic(TOPIC, ttl_s=ttl_s)


async def test_one_partition_needs_a_name_with_one_topic(client):
    await published(client, b"m")
    assert await client.existing_partitions(TOPIC) == [TOPIC]
    assert await client.one_partition(TOPIC, "this") == TOPIC
    with pytest.raises(pydanube.TopicNotFound):
        await client.existing_partitions("/default/none")
    await client.create_topic("/default/many", partitions=2)
    with pytest.raises(pydanube.InvalidRequest, match="this needs one: name it"):
        await client.one_partition("/default/many", "this")


async def test_find_offsets_returns_the_first_message_published_then_or_later(client):
    await published_at(client, [100, 300, 200, 400])
    times = [datetime.fromtimestamp(200, UTC), 0, 250, 400.0, 401, 2e11, -6e10]
    found = await client.find_offsets(TOPIC, times)
    assert found == [1, 0, 1, 3, None, None, 0]
    assert await client.find_offsets(TOPIC, []) == []


async def test_offsets_of_many_topics_are_listed_with_few_requests():
    broker, names = ScriptedBroker(), [f"/default/t{n}" for n in range(1200)]
    asked = []

    def list_offsets(message):
        asked.append(len(message.topics))
        some = [pb.TopicOffsets(topic=each, end_offset=7) for each in message.topics]
        return Kind.OFFSETS_LISTED, pb.OffsetsListed(topics=some)

    broker.answers[Kind.LIST_OFFSETS] = list_offsets
    async with broker.connect() as client:
        found = await client.list_offsets(names)
    assert list(found) == names
    assert {each.end_offset for each in found.values()} == {7}
    assert asked == [1000, 200]


async def test_listed_offsets_are_those_of_the_description(client):
    await client.create_topic(TOPIC, partitions=2)
    await published(client, b"0", b"1", topic=PARTS[1])
    await client.create_topic("/default/direct", reliable=False)
    names = [*PARTS, TOPIC, "/default/none", "/default/direct"]
    found = await client.list_offsets(names)
    assert list(found) == [*PARTS[:2], "/default/direct"]
    for name, offsets in found.items():
        facts = await client.describe_topic(name)
        assert offsets.is_reliable == facts.policy.is_reliable
        for field in ("topic_id", "base_offset", "end_offset", "tail_bytes"):
            assert getattr(offsets, field) == getattr(facts, field)
    assert found[PARTS[1]].end_offset == 2


async def test_segments_that_do_not_fit_into_an_answer_are_requested_again():
    broker, names = ScriptedBroker(), [f"/default/t{n}" for n in range(5)]
    asked = []

    def find_segments(message):
        topics = [each.topic for each in message.ranges]
        asked.append(len(topics))
        some = [pb.Segments(topic=each, end_offset=7) for each in topics[:2]]
        return Kind.SEGMENTS_FOUND, pb.SegmentsFound(
            topics=some, has_more=len(topics) > 2
        )

    broker.answers[Kind.FIND_SEGMENTS] = find_segments
    async with broker.connect() as client:
        found = await client.list_segments(dict.fromkeys(names, (0, 7)))
    assert list(found) == names
    assert asked == [5, 3, 1]


async def test_segments_of_topics_that_do_not_exist_are_left_out(client):
    await published(client, b"0")
    found = await client.list_segments({TOPIC: (0, 0), "/default/none": (0, 0)})
    segments = replace(await client.segments(TOPIC), epoch=0, objects_url="")
    assert found == {TOPIC: segments}


async def test_find_offsets_needs_a_reliable_topic(client):
    await client.create_topic(TOPIC, reliable=False)
    with pytest.raises(InvalidRequest):
        await client.find_offsets(TOPIC, [0])
    with pytest.raises(TopicNotFound):
        await client.find_offsets("/default/nowhere", [0])


async def test_find_offsets_refuses_naive_and_too_many_times(client):
    await published(client, b"0")
    with pytest.raises(InvalidRequest, match="time zone"):
        await client.find_offsets(TOPIC, [datetime(2026, 1, 1)])  # noqa: DTZ001
    with pytest.raises(pydanube.InvalidRequest, match="divided by 1,000"):
        await client.find_offsets(TOPIC, [1_769_860_800_000])
    with pytest.raises(InvalidRequest, match="ask for 1000 at most"):
        await client.find_offsets(TOPIC, [0] * 1001)


async def published_at(client, seconds):
    times = pa.array([each * 1_000_000 for each in seconds], pa.int64())
    batch = pa.record_batch(
        {
            "payload": pa.array([b""] * len(seconds)),
            "publish_time": times.cast(pa.timestamp("us", tz="UTC")),
        }
    )
    async with client.producer(TOPIC) as producer:
        await producer.send_batch(batch)


async def test_partitioned_topic_without_partitions_is_a_protocol_violation():
    broker = ScriptedBroker()
    broker.answers[Kind.LIST_PARTITIONS] = lambda _: (
        Kind.PARTITIONS,
        pb.Partitions(is_partitioned=True),
    )
    async with broker.connect() as client:
        with pytest.raises(ProtocolViolation, match="has no partitions"):
            async with client.producer("/default/empty"):
                pass
