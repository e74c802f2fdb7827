"""Messages are converted to and from the model, and unknown values refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.model.descriptions import (
    Hold,
    NamespaceDescription,
    Segment,
    Segments,
    SubscriptionCounts,
    SubscriptionDescription,
    TopicDescription,
    TopicSettings,
)
from pydanube.model.errors import InvalidRequest
from pydanube.model.policy import (
    AtTime,
    Backoff,
    CorruptionPolicy,
    Deduplication,
    DispatchLimits,
    DispatchMode,
    Durability,
    FailurePolicy,
    NamespacePolicy,
    PoisonPolicy,
    ProducerAccess,
    Retention,
    Start,
    SubscriptionSettings,
    SubscriptionType,
    TopicPolicy,
)
from pydanube.model.range_blocks import bits_of
from pydanube.model.schemas import (
    Compatibility,
    SchemaPolicy,
    SchemaReference,
    SchemaType,
    SchemaVersion,
    SubjectDescription,
    TopicSchema,
)
from pydanube.model.staging import PartKey, StagedPart
from pydanube.wire.native.messages import (
    BIT_MAP_BYTES_MAX,
    RANGES_MAX,
    bits_from_wire,
    bits_to_wire,
    changes_from_wire,
    divided_to_wire,
    enum_from_wire,
    enum_to_wire,
    from_wire,
    position_from_wire,
    position_to_wire,
    ranges_from_wire,
    to_wire,
)
from pydanube.wire.pb import stream_pb2 as pb

counts = st.integers(0, 2**32 - 1)
large = st.integers(0, 2**63 - 1)
seconds = st.floats(0.001, 1e9)
times = st.integers(-(2**62), 2**62)
names = st.text(min_size=1, max_size=20)
ranges = st.lists(
    st.tuples(large, st.integers(1, 100)).map(lambda r: (r[0], r[0] + r[1])), max_size=3
).map(tuple)

limits = st.builds(
    NamespacePolicy,
    **{
        field: counts
        for field in NamespacePolicy.__dataclass_fields__
        if field != "max_message_size"
    },
    max_message_size=large,
)
failure_policies = st.builds(
    FailurePolicy,
    redeliveries_max=counts,
    ack_timeout_s=st.none() | seconds,
    redelivery_delay_s=seconds,
    redelivery_delay_s_max=seconds,
    backoff=st.sampled_from(Backoff),
    poison=st.sampled_from(PoisonPolicy),
    dead_letter_topic=st.none() | names,
    dead_letter_expired=st.booleans(),
)
settings = st.builds(
    SubscriptionSettings,
    failure_policy=st.none() | failure_policies,
    limits=st.none()
    | st.builds(
        DispatchLimits,
        unacked_messages_max=st.none() | st.integers(1, 2**32 - 1),
        unacked_messages_max_per_consumer=st.none() | st.integers(1, 2**32 - 1),
    ),
    is_paused=st.booleans(),
)
retentions = st.builds(
    Retention,
    age_s=st.none() | seconds,
    bytes_max=st.none() | st.integers(1, 2**63),
    drops_acknowledged=st.booleans(),
)
topic_policies = st.builds(
    TopicPolicy,
    dispatch=st.sampled_from(DispatchMode),
    durability=st.sampled_from(Durability),
    retention=st.none() | retentions,
    ttl_s=st.none() | seconds,
    on_corruption=st.sampled_from(CorruptionPolicy),
    seal_bytes=st.none() | st.integers(1, 2**40),
    seal_age_s=st.none() | seconds,
    deduplication=st.none()
    | st.builds(Deduplication, age_s=seconds, messages_max=st.integers(1, 2**63)),
)
subscriptions = st.builds(
    SubscriptionDescription,
    subscription=names,
    type=st.sampled_from(SubscriptionType),
    cursor=large,
    done=ranges,
    backlog=large,
    in_flight=large,
    consumers=st.lists(names, max_size=3).map(tuple),
    backlog_bytes=large,
    oldest_publish_time=st.none() | times,
    delayed=large,
    blocked=ranges,
    parked=large,
    dead_letter_error=st.none() | names,
    stopped_by=st.none() | names,
    skipped=ranges,
    is_paused=st.booleans(),
    settings=settings,
    counts=st.builds(
        SubscriptionCounts,
        **dict.fromkeys(SubscriptionCounts.__dataclass_fields__, large),
    ),
)

texts = st.text(max_size=20)
versions = st.integers(1, 2**31 - 1)
optional_versions = st.none() | versions
segments = st.builds(
    Segment,
    **dict.fromkeys(["base", "end", "epoch", "count", "byte_count"], large),
    **dict.fromkeys(["first_publish_time", "last_publish_time", "sealed_at"], times),
    url=texts,
    object_name=texts,
    checksum=st.none() | counts,
    part_checksums=st.none() | st.binary(max_size=20),
)
schema_versions = st.builds(
    SchemaVersion,
    subject=names,
    schema_id=versions,
    version=versions,
    type=st.sampled_from(SchemaType),
    definition=texts,
    message=st.none() | names,
    fingerprint=texts,
    description=texts,
    created_at=times,
    created_by=texts,
    tags=st.lists(texts, max_size=3).map(tuple),
)
subjects = st.builds(
    SubjectDescription,
    subject=names,
    schema_id=versions,
    type=st.sampled_from(SchemaType),
    compatibility=st.sampled_from(Compatibility),
    versions=st.lists(versions, max_size=3).map(tuple),
    tags=st.lists(texts, max_size=3).map(tuple),
)
topic_schemas = st.builds(
    TopicSchema,
    subject=names,
    policy=st.sampled_from(SchemaPolicy),
    validates_payload=st.booleans(),
    version=optional_versions,
    version_min=optional_versions,
)
references = st.builds(
    SchemaReference,
    subject=names,
    version=optional_versions,
    version_min=optional_versions,
)
topics = st.builds(
    TopicDescription,
    topic=names,
    **dict.fromkeys(["topic_id", "epoch", "base_offset", "end_offset"], large),
    **dict.fromkeys(["sealed_offset", "tail_bytes", "segment_bytes", "dropped"], large),
    policy=topic_policies,
    segment_count=counts,
    producers=st.lists(names, max_size=3).map(tuple),
    subscriptions=st.lists(subscriptions, max_size=2).map(tuple),
    limits=limits,
    own_limits=st.none() | limits,
    schema=st.none() | topic_schemas,
    message_count=large,
    holds=st.lists(
        st.builds(Hold, name=names, reason=texts, created_at=times), max_size=2
    ).map(tuple),
)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pb.TopicPolicy, topic_policies),
        (pb.Settings, settings),
        (pb.SubscriptionDescription, subscriptions),
        (pb.TopicDescription, topics),
        (
            pb.NamespaceDescription,
            st.builds(
                NamespaceDescription, namespace=names, policy=limits, topic_count=counts
            ),
        ),
        (
            pb.Segments,
            st.builds(
                Segments,
                topic_id=large,
                segments=st.lists(segments, max_size=3).map(tuple),
                **dict.fromkeys(["base_offset", "sealed_offset", "end_offset"], large),
                epoch=large,
            ),
        ),
        (pb.SchemaVersion, schema_versions),
        (pb.SubjectDescription, subjects),
        (pb.TopicSchema, topic_schemas),
        (pb.SchemaReference, references),
        (
            pb.FinishPart,
            st.builds(PartKey, query=names, version=large, name=names, part_id=names),
        ),
    ],
)
@given(data=st.data())
def test_all_fields_arrive(kind, values, data):
    value = data.draw(values)
    assert from_wire(type(value), to_wire(kind, value)) == value


def test_corruption_policy_arrives_although_comparisons_ignore_it():
    policy = TopicPolicy(on_corruption=CorruptionPolicy.SKIP)
    arrived = from_wire(TopicPolicy, to_wire(pb.TopicPolicy, policy))
    assert arrived.on_corruption is CorruptionPolicy.SKIP


def test_given_fields_complete_the_message_and_the_dataclass():
    key = PartKey(query="q", version=1, name="p", part_id="i")
    assert to_wire(pb.FinishPart, key, batch_count=3).batch_count == 3
    part = pb.StagedPart(name="p", part_id="i", batch_count=2, message_count=5)
    assert from_wire(StagedPart, part, byte_count=0) == StagedPart(
        name="p", part_id="i", batch_count=2, message_count=5, byte_count=0
    )


def test_none_is_an_absent_field():
    assert to_wire(pb.FailurePolicy, None) is None
    assert not to_wire(pb.Settings, SubscriptionSettings()).HasField("limits")


def test_empty_policy_of_a_topic_schema_is_the_default():
    arrived = from_wire(TopicSchema, pb.TopicSchema(subject="s"))
    assert arrived.policy is SchemaPolicy.WARN


@given(large | st.sampled_from(Start) | times.map(AtTime))
def test_a_position_arrives(position):
    sent = position_to_wire(position, pb.Position)
    assert position_from_wire(sent) == position


ENUMS = [
    Backoff,
    CorruptionPolicy,
    PoisonPolicy,
    ProducerAccess,
    Start,
    SubscriptionType,
]


@pytest.mark.parametrize("enum", ENUMS)
def test_members_of_enums_arrive(enum):
    assert [enum_from_wire(enum, enum_to_wire(each)) for each in enum] == list(enum)


@pytest.mark.parametrize("enum", ENUMS)
def test_a_number_of_a_newer_peer_is_refused_and_not_guessed(enum):
    with pytest.raises(InvalidRequest, match="number 77 is unknown"):
        enum_from_wire(enum, 77)


def test_named_changes_are_read_and_the_other_settings_are_not():
    message = pb.TopicSettings(
        retention=pb.Retention(age_s=60.0), seal_age_s=float("nan")
    )
    found = changes_from_wire(TopicSettings, message, ["retention", "limits"])
    assert found == {"retention": Retention(age_s=60.0), "limits": None}
    with pytest.raises(InvalidRequest, match="seal age"):
        changes_from_wire(TopicSettings, message, ["seal_age_s"])
    with pytest.raises(
        InvalidRequest, match=r"no setting 'ttl_s'; .* limits, retention"
    ):
        changes_from_wire(TopicSettings, message, ["limits", "ttl_s"])
    with pytest.raises(InvalidRequest, match=r"no setting is given; .* limits, ret"):
        changes_from_wire(TopicSettings, message, [])


def test_unknown_number_is_refused_with_the_words_of_its_enum():
    with pytest.raises(InvalidRequest, match="a poison policy of number 77 is unknown"):
        from_wire(FailurePolicy, pb.FailurePolicy(poison=77))


@pytest.mark.parametrize(
    ("model", "message", "said"),
    [
        (SchemaVersion, pb.SchemaVersion(type="thrift"), "no schema type 'thrift'"),
        (
            SubjectDescription,
            pb.SubjectDescription(type="avro", compatibility="some"),
            "Invalid compatibility mode",
        ),
        (TopicSchema, pb.TopicSchema(policy="perhaps"), "Invalid validation policy"),
    ],
)
def test_words_of_a_newer_peer_are_refused_and_not_guessed(model, message, said):
    with pytest.raises(InvalidRequest, match=said):
        from_wire(model, message)


@pytest.mark.parametrize("value", [-1.0, float("inf"), float("nan")])
@pytest.mark.parametrize(
    ("model", "kind", "field", "words"),
    [
        (TopicPolicy, pb.TopicPolicy, "ttl_s", "time to live"),
        (Retention, pb.Retention, "age_s", "age"),
        (FailurePolicy, pb.FailurePolicy, "ack_timeout_s", "ack timeout"),
    ],
)
def test_invalid_duration_is_refused(model, kind, field, words, value):
    with pytest.raises(InvalidRequest, match=f"{words} must be a number of seconds"):
        from_wire(model, kind(**{field: value}))


@pytest.mark.parametrize(
    ("base", "end", "said"),
    [
        ([1, 5, 9], [3, 6], "3 bases and 2 ends"),
        ([], [3], "0 bases and 1 ends"),
        ([1, 5], [3, 5], "5 to 5 is empty"),
        ([7], [3], "7 to 3 is empty"),
        ([0, 2, 4], [1, 3, 5], "3 offset ranges in one message, at most 2"),
    ],
)
def test_invalid_ranges_are_refused(base, end, said):
    sent = pb.OffsetRanges(base=base, end=end)
    with pytest.raises(InvalidRequest, match=said):
        ranges_from_wire(sent, count_max=2)


def test_ranges_may_be_in_any_order_and_overlap():
    sent = pb.OffsetRanges(base=[5, 1, 1], end=[9, 3, 7])
    assert ranges_from_wire(sent) == [(5, 9), (1, 3), (1, 7)]


@pytest.mark.parametrize("bits", [1, 0b1011000, 1 << 9000 | 0b101, (1 << 5000) - 1])
def test_bit_maps_are_divided_so_that_each_message_may_be_sent(bits):
    sent = bits_to_wire(7, bits)
    assert all(0 < len(each.bits) <= BIT_MAP_BYTES_MAX for each in sent)
    found = sum(bits_from_wire(each) << each.origin - 7 for each in sent)
    assert found == bits
    ranges = [pair for each in sent for pair in ranges_from_wire(each)]
    assert bits_of(ranges, 7) == bits


@pytest.mark.parametrize(
    ("origin", "size", "said"),
    [(0, BIT_MAP_BYTES_MAX + 1, "2049 bytes, at most 2048"), (2**64 - 8, 1, "8 bits")],
)
def test_invalid_bit_maps_are_refused(origin, size, said):
    sent = pb.OffsetRanges(origin=origin, bits=b"\xff" * size)
    for read in (bits_from_wire, ranges_from_wire):
        with pytest.raises(InvalidRequest, match=said):
            read(sent)


def test_ranges_are_divided_so_that_each_message_may_be_sent():
    pairs = [(2 * n, 2 * n + 1) for n in range(RANGES_MAX + 1)]
    divided = divided_to_wire(pairs)
    assert len(divided) == 2
    received = [ranges_from_wire(d, RANGES_MAX) for d in divided]
    assert received[0] + received[1] == pairs
    assert divided_to_wire([]) == [pb.OffsetRanges()]


@pytest.mark.parametrize("is_uploaded", [False, True])
def test_the_remote_copy_of_a_segment_is_sent(is_uploaded):
    segment = Segment(
        base=0,
        end=1,
        epoch=1,
        count=1,
        byte_count=1,
        object_name="a",
        first_publish_time=0,
        last_publish_time=0,
        sealed_at=0,
        is_uploaded=is_uploaded,
        url="file:///a",
        remote_url="s3://b/a" if is_uploaded else "",
    )
    received = from_wire(Segment, to_wire(pb.Segment, segment))
    assert (received.is_uploaded, received.remote_url) == (
        segment.is_uploaded,
        segment.remote_url,
    )


def test_absent_numbers_of_a_policy_have_its_defaults():
    given = pb.FailurePolicy(redeliveries_max=0)
    assert from_wire(FailurePolicy, given) == FailurePolicy(redeliveries_max=0)
    assert from_wire(Deduplication, pb.Deduplication()) == Deduplication()


def test_policy_without_ack_timeout_differs_from_one_that_does_not_say():
    policy = FailurePolicy(ack_timeout_s=None)
    sent = to_wire(pb.FailurePolicy, policy)
    assert sent.HasField("ack_timeout_s")
    assert from_wire(FailurePolicy, sent) == policy
