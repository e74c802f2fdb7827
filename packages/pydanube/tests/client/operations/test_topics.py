"""Topics, their partitions and their retention, through the client."""

from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import pyarrow as pa
import pytest

import pydanube
from pydanube.client.connections.partitions import one_partition
from pydanube.client.operations.topics import earlier
from pydanube.model.descriptions import TopicSettings
from pydanube.model.errors import InvalidRequest, ProtocolViolation, TopicNotFound
from pydanube.model.policy import KEEP_ALL, CorruptionPolicy, NamespacePolicy, Retention
from pydanube.model.schemas import TopicSchema
from pydanube.wire.native.kinds import Kind
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.testing import memory_broker
from support.drivers.running import TOPIC, published
from support.fakes.scripted_broker import ScriptedBroker
from support.fakes.storages import seal

PARTS = [f"{TOPIC}-part-{n}" for n in range(3)]


async def test_partitioned_topic_is_created_described_and_deleted(client):
    await client.topics.create(
        TOPIC, partitions=2, ttl_s=60, retention=Retention(age_s=3600)
    )
    assert await client.topics.partitions(TOPIC) == PARTS[:2]
    assert await client.topics.list() == PARTS[:2]
    await client.topics.add_partitions(TOPIC, 3)
    assert await client.topics.partitions(TOPIC) == PARTS
    policies = [(await client.topics.describe(p)).policy for p in PARTS]
    assert [each.ttl_s for each in policies] == [60.0] * 3
    assert policies[0] == policies[2]
    await client.topics.delete(TOPIC)
    assert await client.topics.list() == []
    assert await client.topics.partitions(TOPIC) == []


async def test_partitions_are_listed_by_number(client):
    await client.topics.create(TOPIC, partitions=12)
    assert await client.topics.partitions(TOPIC) == [
        f"{TOPIC}-part-{n}" for n in range(12)
    ]


async def test_partitioned_topic_is_created_once(client):
    await client.topics.create(TOPIC, partitions=2)
    with pytest.raises(pydanube.AlreadyExists):
        await client.topics.create(TOPIC, partitions=2)
    await client.topics.create(TOPIC, partitions=2, exist_ok=True)
    with pytest.raises(pydanube.AlreadyExists):
        await client.topics.create(TOPIC, partitions=3, exist_ok=True)
    with pytest.raises(pydanube.AlreadyExists):
        await client.topics.create(TOPIC)


async def test_number_of_partitions_only_rises(client):
    await client.topics.create(TOPIC, partitions=2)
    for number in (1, 2):
        with pytest.raises(pydanube.InvalidRequest):
            await client.topics.add_partitions(TOPIC, number)
    with pytest.raises(pydanube.InvalidRequest):
        await client.topics.create("/default/none", partitions=0)
    await client.topics.create("/default/plain")
    with pytest.raises(pydanube.BrokerError):
        await client.topics.add_partitions("/default/plain", 2)


async def test_partition_is_not_deleted_alone_and_the_base_name_is_no_topic(client):
    await client.topics.create(TOPIC, partitions=2)
    with pytest.raises(pydanube.InvalidRequest, match="partition"):
        await client.topics.delete(PARTS[0])
    with pytest.raises(pydanube.TopicNotFound):
        await client.topics.describe(TOPIC)


async def test_limits_of_a_partitioned_topic_apply_to_every_partition(client):
    await client.topics.create(TOPIC, partitions=2)
    limits = NamespacePolicy(max_message_size=3)
    await client.topics.configure(TOPIC, limits=limits)
    await client.topics.add_partitions(TOPIC, 3)
    for name in PARTS:
        assert (await client.topics.describe(name)).limits == limits


async def test_on_corruption_is_set_at_creation_and_later(client):
    await client.topics.create(TOPIC, partitions=2)
    before = (await client.topics.describe(PARTS[0])).policy.on_corruption
    assert before is CorruptionPolicy.STOP
    await client.topics.configure(TOPIC, on_corruption="skip")
    await client.topics.add_partitions(TOPIC, 3)
    for name in PARTS:
        policy = (await client.topics.describe(name)).policy
        assert policy.on_corruption is CorruptionPolicy.SKIP
    await client.topics.create(TOPIC, partitions=3, exist_ok=True)
    with pytest.raises(InvalidRequest, match="on_corruption"):
        await client.topics.configure(TOPIC, on_corruption="ignore")
    with pytest.raises(TopicNotFound):
        await client.topics.configure("/default/none", on_corruption="skip")


@pytest.mark.parametrize("partitions", [None, 2])
async def test_topic_that_exists_with_other_settings_is_refused_or_configured(
    client, partitions
):
    create = partial(client.topics.create, TOPIC, partitions=partitions)
    [first, *_] = PARTS if partitions else [TOPIC]
    day, hour = Retention(age_s=86_400.0), Retention(age_s=3600.0)
    await create(retention=day, seal_age_s=60.0)
    # What is given is as it was; what is left out is not compared.
    for same in ({"retention": day}, {"seal_age_s": 60.0}, {}):
        await create(**same, exist_ok=True)
    with pytest.raises(pydanube.AlreadyExists, match="retention, on_corruption;"):
        await create(
            retention=hour, on_corruption="skip", seal_age_s=60.0, exist_ok=True
        )
    assert (await client.topics.describe(first)).policy.retention == day
    await create(retention=hour, on_corruption="skip", exist_ok="configure")
    found = (await client.topics.describe(first)).settings
    assert (found.retention, found.seal_age_s) == (hour, 60.0)
    assert found.on_corruption is CorruptionPolicy.SKIP


async def test_topic_that_is_new_is_created_with_the_settings_to_configure(client):
    retention = Retention(age_s=60.0)
    await client.topics.create(TOPIC, retention=retention, exist_ok="configure")
    assert (await client.topics.describe(TOPIC)).policy.retention == retention


async def test_settings_of_all_partitions_change_with_one_call(client):
    await client.topics.create(TOPIC, partitions=2)
    retention, limits = Retention(age_s=60.0), NamespacePolicy(max_publish_rate=7)
    await client.topics.configure(
        TOPIC, retention=retention, limits=limits, on_corruption="skip", seal_age_s=9.0
    )
    for part in PARTS[:2]:
        assert (await client.topics.describe(part)).settings == TopicSettings(
            retention=retention,
            limits=limits,
            on_corruption=CorruptionPolicy.SKIP,
            seal_age_s=9.0,
        )
    await client.topics.configure(TOPIC, retention=None, limits=None)
    assert (await client.topics.describe(PARTS[0])).settings == TopicSettings(
        on_corruption=CorruptionPolicy.SKIP, seal_age_s=9.0
    )


async def test_changes_that_cannot_be_made_are_refused_together(client):
    await client.topics.create(TOPIC)
    with pytest.raises(pydanube.SchemaNotFound):
        await client.topics.configure(
            TOPIC, seal_age_s=9.0, schema=TopicSchema(subject="nothing")
        )
    assert (await client.topics.describe(TOPIC)).settings == TopicSettings()
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
            await client.topics.create(TOPIC, ttl_s=ttl_s)


async def test_one_partition_needs_a_name_with_one_topic(client):
    await published(client, b"m")
    assert await client.topics.existing_partitions(TOPIC) == [TOPIC]
    assert await one_partition(client.requester, TOPIC, "this") == TOPIC
    with pytest.raises(pydanube.TopicNotFound):
        await client.topics.existing_partitions("/default/none")
    await client.topics.create("/default/many", partitions=2)
    with pytest.raises(pydanube.InvalidRequest, match="this needs one: name it"):
        await one_partition(client.requester, "/default/many", "this")


async def test_find_offsets_returns_the_first_message_published_then_or_later(client):
    await published_at(client, [100, 300, 200, 400])
    times = [datetime.fromtimestamp(200, UTC), 0, 250, 400.0, 401, 2e11, -6e10]
    found = await client.topics.find_offsets(TOPIC, times)
    assert found == [1, 0, 1, 3, None, None, 0]
    assert await client.topics.find_offsets(TOPIC, []) == []


async def test_offsets_of_many_topics_are_listed_with_few_requests():
    broker, names = ScriptedBroker(), [f"/default/t{n}" for n in range(1200)]
    asked = []

    def list_offsets(message):
        asked.append(len(message.topics))
        some = [pb.TopicOffsets(topic=each, end_offset=7) for each in message.topics]
        return Kind.OFFSETS_LISTED, pb.OffsetsListed(topics=some)

    broker.answers[Kind.LIST_OFFSETS] = list_offsets
    async with broker.connect() as client:
        found = await client.topics.list_offsets(names)
    assert list(found) == names
    assert {each.end_offset for each in found.values()} == {7}
    assert asked == [1000, 200]


async def test_listed_offsets_are_those_of_the_description(client):
    await client.topics.create(TOPIC, partitions=2)
    await published(client, b"0", b"1", topic=PARTS[1])
    await client.topics.create("/default/direct", reliable=False)
    names = [*PARTS, TOPIC, "/default/none", "/default/direct"]
    found = await client.topics.list_offsets(names)
    assert list(found) == [*PARTS[:2], "/default/direct"]
    for name, offsets in found.items():
        facts = await client.topics.describe(name)
        assert offsets.is_reliable == facts.policy.is_reliable
        for field in ("topic_id", "base_offset", "end_offset", "tail_bytes"):
            assert getattr(offsets, field) == getattr(facts, field)
    assert found[PARTS[1]].end_offset == 2


async def test_changed_offsets_are_those_of_the_topics_that_have_changed(client):
    await client.topics.create(TOPIC, partitions=2)
    await published(client, b"0", topic=PARTS[0])
    names = {*PARTS[:2], "/default/other"}
    await client.topics.create("/default/other")
    first = await client.topics.list_changed_offsets(names)
    assert first.is_complete
    assert first.topics == await client.topics.list_offsets(names)
    await published(client, b"1", topic=PARTS[1])
    await published(client, b"no", topic="/default/unwanted")
    second = await client.topics.list_changed_offsets(names, first.revisions)
    assert second.topics[PARTS[1]].end_offset == 1
    known = {**first.topics, **second.topics}
    assert known == await client.topics.list_offsets(names)


async def test_unchanged_offsets_are_not_listed_again():
    async with memory_broker() as broker, broker.connect() as client:
        names = [f"/default/t{number}" for number in range(3)]
        wanted = dict.fromkeys(names).keys()
        for name in names:
            await client.topics.create(name)
        first = await client.topics.list_changed_offsets(wanted)
        second = await client.topics.list_changed_offsets(wanted, first.revisions)
        assert (second.topics, second.is_complete) == ({}, False)
        await published(client, b"x", topic=names[1])
        third = await client.topics.list_changed_offsets(wanted, second.revisions)
        assert list(third.topics) == [names[1]]
        await client.topics.delete(names[0])
        fourth = await client.topics.list_changed_offsets(wanted, third.revisions)
        assert list(fourth.topics) == names[1:]
        # A topic that does not exist yet may come to any broker.
        assert (fourth.is_complete, fourth.revisions) == (True, {})


async def test_changes_that_another_broker_knew_are_unknown():
    broker, asked = ScriptedBroker(), []

    def list_offsets(message):
        asked.append(message.HasField("since"))
        listed = pb.OffsetsListed(is_partial=message.HasField("since"))
        listed.topics.add(topic=TOPIC, end_offset=7)
        listed.revision.run = "another"
        return Kind.OFFSETS_LISTED, listed

    broker.answers[Kind.LIST_OFFSETS] = list_offsets
    async with broker.connect() as client:
        first = await client.topics.list_changed_offsets({TOPIC})
        again = await client.topics.list_changed_offsets({TOPIC}, first.revisions)
    assert again == first
    assert asked == [False, True, False]


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
        found = await client.storage.list_segments(dict.fromkeys(names, (0, 7)))
    assert list(found) == names
    assert asked == [5, 3, 1]


async def test_segments_of_topics_that_do_not_exist_are_left_out(client):
    await published(client, b"0")
    found = await client.storage.list_segments({TOPIC: (0, 0), "/default/none": (0, 0)})
    segments = replace(await client.storage.segments(TOPIC), epoch=0, objects_url="")
    assert found == {TOPIC: segments}


async def test_find_offsets_needs_a_reliable_topic(client):
    await client.topics.create(TOPIC, reliable=False)
    with pytest.raises(InvalidRequest):
        await client.topics.find_offsets(TOPIC, [0])
    with pytest.raises(TopicNotFound):
        await client.topics.find_offsets("/default/nowhere", [0])


async def test_find_offsets_refuses_naive_and_too_many_times(client):
    await published(client, b"0")
    with pytest.raises(InvalidRequest, match="time zone"):
        await client.topics.find_offsets(TOPIC, [datetime(2026, 1, 1)])  # noqa: DTZ001
    with pytest.raises(pydanube.InvalidRequest, match="divided by 1,000"):
        await client.topics.find_offsets(TOPIC, [1_769_860_800_000])
    with pytest.raises(InvalidRequest, match="ask for 1000 at most"):
        await client.topics.find_offsets(TOPIC, [0] * 1001)


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


SMALL = pydanube.Retention(bytes_max=1)


async def grown(broker, client, topic=TOPIC, segments=3):
    """Publish messages, and seal each of them."""
    async with client.producer(topic) as producer:
        for _ in range(segments):
            await producer.send(b"m")
            for opened in list(broker.broker.topics.opened.values()):
                if opened.policy.is_reliable:
                    await seal(broker.broker.storage, opened.topic_id)


async def test_retention_is_planned_set_and_applied(broker, client):
    await grown(broker, client)
    assert (await client.topics.plan_retention(TOPIC))[0].segment_count == 0
    (planned,) = await client.topics.plan_retention(TOPIC, SMALL)
    assert (planned.segment_count, planned.message_count) == (2, 2)
    assert (planned.topic, planned.base_offset) == (TOPIC, 2)
    assert [each.base for each in planned.segments] == [0, 1]
    assert not planned.has_subscriptions
    assert (await client.topics.describe(TOPIC)).segment_count == 3
    await client.topics.configure(TOPIC, retention=SMALL)
    described = await client.topics.describe(TOPIC)
    assert described.retention == described.policy.retention == SMALL
    assert await client.topics.apply_retention(TOPIC) == [planned]
    assert (await client.topics.describe(TOPIC)).base_offset == 2
    assert (await client.topics.apply_retention(TOPIC))[0].segment_count == 0


async def test_dry_run_assumes_the_retention_of_the_namespace(broker, client):
    await client.topics.create("/default/own")
    await client.topics.configure("/default/own", retention=KEEP_ALL)
    await client.topics.create("/default/memory", reliable=False)
    await grown(broker, client)
    await grown(broker, client, "/default/own")

    planned = await client.namespaces.plan_retention("default", SMALL)
    assert {each.topic: each.segment_count for each in planned} == {
        TOPIC: 2,
        "/default/own": 0,
    }
    (inherited,) = await client.topics.plan_retention(
        "/default/own", inherits=True, of_namespace=SMALL
    )
    assert inherited.segment_count == 2

    await client.namespaces.configure("default", retention=SMALL)
    assert (await client.namespaces.describe("default")).retention == SMALL
    assert await client.namespaces.plan_retention("default") == planned
    assert await client.namespaces.apply_retention("default") == planned
    assert (await client.topics.describe(TOPIC)).base_offset == 2
    assert (await client.topics.describe("/default/own")).base_offset == 0
    await client.topics.configure("/default/own", retention=None)
    described = await client.topics.describe("/default/own")
    assert (described.policy.retention, described.retention) == (None, SMALL)


async def test_each_partition_has_a_result(client):
    await client.topics.create(
        TOPIC, partitions=2, retention=pydanube.Retention(drops_acknowledged=True)
    )
    described = await client.topics.describe(f"{TOPIC}-part-1")
    assert described.retention == pydanube.Retention(drops_acknowledged=True)
    expected = [f"{TOPIC}-part-0", f"{TOPIC}-part-1"]
    assert [
        each.topic for each in await client.topics.apply_retention(TOPIC)
    ] == expected
    assert [
        each.topic for each in await client.topics.plan_retention(TOPIC)
    ] == expected


async def test_acknowledged_segments_are_dropped_and_a_new_subscription_follows(
    broker, client
):
    await client.topics.create(
        TOPIC, retention=pydanube.Retention(drops_acknowledged=True)
    )
    async with client.consumer(TOPIC, subscription="s", start="earliest") as consumer:
        await grown(broker, client)
        for _ in range(3):
            await consumer.ack(await consumer.receive(timeout_s=60))
        await consumer.flush()
        (dropped,) = await client.topics.apply_retention(TOPIC)
    assert (dropped.segment_count, dropped.has_subscriptions) == (2, True)
    async with client.consumer(TOPIC, subscription="t", start="earliest") as consumer:
        assert (await consumer.receive(timeout_s=60)).offset == 2


async def test_limits_of_zero_are_refused_and_not_taken_for_none(client):
    await client.topics.create(TOPIC)
    for retention in (pydanube.Retention(age_s=0), pydanube.Retention(bytes_max=0)):
        for refused in (
            client.topics.configure(TOPIC, retention=retention),
            client.topics.plan_retention(TOPIC, retention),
            client.namespaces.configure("default", retention=retention),
            client.namespaces.plan_retention("default", retention),
        ):
            with pytest.raises(pydanube.InvalidRequest, match="more than 0"):
                await refused
        with pytest.raises(pydanube.InvalidRequest, match="more than 0"):
            await client.topics.plan_retention(TOPIC, of_namespace=retention)
    with pytest.raises(pydanube.InvalidRequest, match="size of segments is 0 bytes"):
        await client.topics.configure(TOPIC, seal_bytes=0)
    with pytest.raises(pydanube.InvalidRequest, match="sealed is 0 s"):
        await client.topics.configure(TOPIC, seal_age_s=0)


async def test_topics_and_namespaces_must_exist(client):
    with pytest.raises(pydanube.TopicNotFound):
        await client.topics.configure(TOPIC, retention=SMALL)
    with pytest.raises(pydanube.TopicNotFound):
        await client.topics.apply_retention(TOPIC)
    with pytest.raises(pydanube.TopicNotFound):
        await client.topics.configure(TOPIC, seal_bytes=None, seal_age_s=None)
    with pytest.raises(pydanube.NamespaceNotFound):
        await client.namespaces.configure("none", retention=SMALL)
    with pytest.raises(pydanube.NamespaceNotFound):
        await client.namespaces.plan_retention("none")


async def test_sealing_is_set_and_cleared(client):
    await client.topics.create(TOPIC, partitions=2)
    await client.topics.configure(TOPIC, seal_bytes=2**20, seal_age_s=5.0)
    policy = (await client.topics.describe(f"{TOPIC}-part-1")).policy
    assert (policy.seal_bytes, policy.seal_age_s) == (2**20, 5.0)
    await client.topics.configure(TOPIC, seal_bytes=None, seal_age_s=None)
    policy = (await client.topics.describe(f"{TOPIC}-part-0")).policy
    assert (policy.seal_bytes, policy.seal_age_s) == (None, None)


async def test_retention_keeps_the_messages_of_the_deduplication_window(broker, client):
    await client.topics.create(TOPIC, deduplication=pydanube.Deduplication(age_s=600))
    await client.topics.configure(TOPIC, retention=SMALL)
    await grown(broker, client)
    assert [
        each.segment_count for each in await client.topics.plan_retention(TOPIC)
    ] == [0]
    await client.topics.configure(TOPIC, deduplication=None)
    assert [
        each.segment_count for each in await client.topics.plan_retention(TOPIC)
    ] == [2]


def test_changes_since_pages_of_two_runs_of_a_broker_are_not_known():
    assert earlier(("run", 5), ("run", 7)) == earlier(("run", 7), ("run", 5))
    assert earlier(("run", 5), ("run", 7)) == ("run", 5)
    assert earlier(("before", 5), ("after", 1)) == ("", 0)


async def test_all_topics_are_listed_if_no_revision_covers_the_last_answer(client):
    await published(client, b"0")
    first = await client.topics.list_changed_offsets({TOPIC})
    unknown = dict.fromkeys(first.revisions, earlier(("before", 5), ("after", 1)))
    found = await client.topics.list_changed_offsets({TOPIC}, unknown)
    assert found.is_complete
    assert found.topics[TOPIC].end_offset == 1


async def test_topic_is_trimmed_and_its_consumers_go_on(broker, client):
    await client.topics.create(TOPIC)
    async with client.consumer(TOPIC, subscription="s", start="earliest") as consumer:
        await grown(broker, client, segments=4)
        (drops,) = await client.topics.trim(TOPIC, 2)
        assert (drops.topic, drops.base_offset, drops.segment_count) == (TOPIC, 2, 2)
        assert (await client.subscriptions.describe(TOPIC, "s")).cursor == 2
        received = [await consumer.receive(timeout_s=60)]
        while received[-1].offset < 3:
            received.append(await consumer.receive(timeout_s=60))
        assert [each.offset for each in received][-2:] == [2, 3]
    batches = [batch async for batch in client.read(TOPIC)]
    assert [message.offset for batch in batches for message in batch] == [2, 3]
    (again,) = await client.topics.trim(TOPIC, datetime(2020, 1, 1, tzinfo=UTC))
    assert (again.base_offset, again.segment_count) == (2, 0)
    (all_gone,) = await client.topics.trim(TOPIC, "latest")
    assert all_gone.base_offset == 4
    with pytest.raises(InvalidRequest, match="beyond"):
        await client.topics.trim(TOPIC, 5)


async def test_request_to_trim_before_no_position_removes_nothing(client):
    await published(client, b"m")
    for request in (pb.TrimTopic(), pb.TrimTopic(before=pb.Position())):
        with pytest.raises(InvalidRequest, match="names no position"):
            await client.requester.request_topic(TOPIC, request)
    assert (await client.topics.list_offsets([TOPIC]))[TOPIC].base_offset == 0


async def test_partitions_are_trimmed_by_time_and_one_by_offset(client):
    await client.topics.create(TOPIC, partitions=2)
    drops = await client.topics.trim(TOPIC, "latest")
    assert [each.topic for each in drops] == PARTS[:2]
    with pytest.raises(InvalidRequest, match="offset"):
        await client.topics.trim(TOPIC, 0)
    assert len(await client.topics.trim(PARTS[1], 0)) == 1
    with pytest.raises(TopicNotFound):
        await client.topics.trim("/default/none", "latest")
