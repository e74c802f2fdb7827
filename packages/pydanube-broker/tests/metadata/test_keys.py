"""Stable paths, and values that round-trip."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.model.errors import Corrupt, InvalidName
from pydanube.model.ids import TopicId
from pydanube.model.names import NamespaceName, SubscriptionName, TopicName
from pydanube.model.policy import (
    Deduplication,
    DispatchLimits,
    DispatchMode,
    Durability,
    FailurePolicy,
    NamespacePolicy,
    PoisonPolicy,
    Retention,
    SubscriptionSettings,
    TopicPolicy,
)
from pydanube.model.schemas import SchemaPolicy, TopicSchema
from pydanube.model.segments import SegmentEntry
from pydanube_broker.metadata import keys
from pydanube_broker.metadata.key import Key, Prefix
from pydanube_broker.metadata.records import (
    DeletedTopicRecord,
    NamespaceRecord,
    PartitionedTopicRecord,
    SettingsRecord,
    TopicRecord,
)

ORDERS = TopicName.parse("/default/orders")
BILLING = SubscriptionName("billing")
FEW = NamespacePolicy(max_producers_per_topic=1, max_message_size=1000)


def test_paths_match_the_format_page() -> None:
    written = [
        keys.BROKER,
        keys.LAST_TOPIC_ID,
        keys.NAMESPACES.key(NamespaceName("default")),
        keys.topic(ORDERS),
        keys.partitioned_topic(ORDERS),
        keys.deleted_topic(ORDERS),
        keys.EPOCHS.key(TopicId(7)),
        keys.SUBSCRIPTIONS.key(TopicId(7), BILLING),
        keys.SETTINGS.key(TopicId(7), BILLING),
        keys.segment(TopicId(7), 1000),
        keys.SESSIONS.key("5f"),
        keys.BROKER_SESSIONS.key("b1"),
        keys.BROKER_MODES.key("b1"),
        keys.CONTROLLER,
        keys.SHARDS.key(17),
        keys.SHARD_EPOCHS.key(17),
        keys.SESSION_JOURNALS.key("5f"),
        keys.SHARD_TOPICS.key(17, TopicId(7)),
        keys.LOADS.key("5f"),
    ]
    assert [str(key) for key in written] == [
        "/broker",
        "/counters/topic-id",
        "/namespaces/default",
        "/topics/default/orders",
        "/partitioned-topics/default/orders",
        "/deleted-topics/default/orders",
        "/epochs/7",
        "/subscriptions/7/billing",
        "/settings/7/billing",
        "/segments/7/00000000000000001000",
        "/sessions/5f",
        "/broker-sessions/b1",
        "/broker-modes/b1",
        "/controller/session",
        "/shards/17",
        "/shard-epochs/17",
        "/session-journals/5f",
        "/shard-topics/17/7",
        "/loads/5f",
    ]


def test_prefix_covers_only_its_own_keys() -> None:
    assert (
        keys.TOPICS.within(ORDERS.namespace).name_of(str(keys.topic(ORDERS)))
        == "orders"
    )
    assert keys.SEGMENTS.within(TopicId(1)).path == "/segments/1/"
    assert not str(keys.segment(TopicId(10), 0)).startswith("/segments/1/")


def test_no_prefix_contains_another() -> None:
    paths = [each.path for each in vars(keys).values() if isinstance(each, Prefix)]
    assert len(paths) > 3
    assert not [(a, b) for a in paths for b in paths if a is not b and a.startswith(b)]


@given(st.lists(st.integers(0, 2**63 - 1), max_size=20))
def test_segments_are_ordered_by_their_base(bases: list[int]) -> None:
    paths = [str(keys.segment(TopicId(1), base)) for base in sorted(bases)]
    assert paths == sorted(paths)


@given(
    st.builds(
        TopicPolicy,
        dispatch=st.sampled_from(DispatchMode),
        durability=st.sampled_from(Durability),
        retention=st.none()
        | st.builds(
            Retention,
            age_s=st.none() | st.floats(0, 1e9),
            bytes_max=st.none() | st.integers(0, 2**50),
            drops_acknowledged=st.booleans(),
        ),
        seal_bytes=st.none() | st.integers(0, 2**30),
        seal_age_s=st.none() | st.floats(0, 1e9),
        deduplication=st.none()
        | st.builds(
            Deduplication,
            age_s=st.floats(0, 1e9),
            messages_max=st.integers(0, 2**30),
        ),
    )
)
def test_topic_record_round_trips(policy: TopicPolicy) -> None:
    record = TopicRecord(topic_id=1, policy=policy, created_at=2)
    key = keys.topic(ORDERS)
    decoded = key.decode(key.encode(record))
    assert decoded == record
    # Comparisons of policies ignore what may change.
    assert repr(decoded) == repr(record)


def test_record_is_readable_json() -> None:
    key = keys.topic(ORDERS)
    record = TopicRecord(topic_id=1, policy=TopicPolicy(), created_at=2)
    assert key.encode(record) == (
        b'{"topic_id":1,"policy":{"dispatch":"reliable","durability":"durable",'
        b'"retention":null,"ttl_s":null,"on_corruption":"stop",'
        b'"seal_bytes":null,"seal_age_s":null,"deduplication":null},"created_at":2,'
        b'"limits":null,"schema":null,"shard":null,"start_offset":0}'
    )


@pytest.mark.parametrize(
    ("key", "record"),
    [
        (
            keys.topic(ORDERS),
            TopicRecord(topic_id=1, policy=TopicPolicy(), created_at=2),
        ),
        (
            keys.topic(ORDERS),
            TopicRecord(topic_id=1, policy=TopicPolicy(), created_at=2, limits=FEW),
        ),
        (
            keys.topic(ORDERS),
            TopicRecord(
                topic_id=1,
                policy=TopicPolicy(),
                created_at=2,
                schema=TopicSchema(subject="o", policy=SchemaPolicy.ENFORCE, version=3),
            ),
        ),
        (
            keys.NAMESPACES.key(ORDERS.namespace),
            NamespaceRecord(created_at=1, policy=FEW, retention=Retention(age_s=1.5)),
        ),
        (
            keys.partitioned_topic(ORDERS),
            PartitionedTopicRecord(
                partitions=4,
                policy=TopicPolicy(ttl_s=1.5),
                created_at=2,
                missing=((0, 1), (2, 3)),
                limits=FEW,
            ),
        ),
        (
            keys.deleted_topic(ORDERS),
            DeletedTopicRecord(topic_id=1, deleted_at=2),
        ),
        (
            keys.SETTINGS.key(TopicId(1), BILLING),
            SettingsRecord(
                settings=SubscriptionSettings(
                    failure_policy=FailurePolicy(poison=PoisonPolicy.DROP),
                    limits=DispatchLimits(unacked_messages_max=10),
                    is_paused=True,
                ),
                changed_at=2,
            ),
        ),
    ],
    ids=str,
)
def test_record_round_trips(key, record) -> None:
    assert key.decode(key.encode(record)) == record


def test_fields_that_a_record_lacks_have_their_defaults() -> None:
    namespace = keys.NAMESPACES.key(ORDERS.namespace).decode(b'{"created_at":1}')
    assert (namespace.policy, namespace.retention) == (NamespacePolicy(), Retention())
    topic = keys.topic(ORDERS).decode(
        b'{"topic_id":1,"policy":{"dispatch":"reliable"},"created_at":2}'
    )
    assert (repr(topic.policy), topic.limits) == (repr(TopicPolicy()), None)


def test_invalid_record_is_corrupt() -> None:
    key: Key[SegmentEntry] = keys.segment(TopicId(1), 0)
    for value in (b"", b"{}", b"[1]", b'{"base": "x"}', b"\xff"):
        with pytest.raises(Corrupt, match="invalid SegmentEntry"):
            key.decode(value)


@pytest.mark.parametrize("name", ["", "/", "/orders", "a/b"])
def test_invalid_subject_name_is_refused(name):
    with pytest.raises(InvalidName):
        keys.subject(name)


@pytest.mark.parametrize(
    "damage",
    [
        (b'"base":0', b'"base":9'),
        (b'"count":2', b'"count":3'),
        (b"a.parquet", b"a\xf2parquet"),
    ],
)
def test_damaged_segment_record_is_corrupt(damage):
    key = keys.segment(TopicId(1), 0)
    record = SegmentEntry(
        base=0,
        end=2,
        epoch=1,
        count=2,
        byte_count=100,
        object_name="a.parquet",
        first_publish_time=0,
        last_publish_time=0,
        sealed_at=0,
    )
    value = key.encode(record)
    assert key.decode(value) == record
    with pytest.raises(Corrupt, match="it is an invalid SegmentEntry"):
        key.decode(value.replace(*damage))


def test_an_uploaded_segment_is_the_same_segment():
    key = keys.segment(TopicId(1), 0)
    record = SegmentEntry(
        base=0,
        end=2,
        epoch=1,
        count=2,
        byte_count=100,
        object_name="a.parquet",
        first_publish_time=0,
        last_publish_time=0,
        sealed_at=0,
        is_uploaded=True,
    )
    value = key.encode(record)
    assert key.decode(value).is_uploaded
    assert key.decode(value) == replace(record, is_uploaded=False)
