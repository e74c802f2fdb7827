"""Messages are converted to and from the model, and unknown values refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.model.descriptions import (
    NamespaceDescription,
    SubscriptionCounts,
    SubscriptionDescription,
    TopicDescription,
)
from pydanube.model.errors import InvalidRequest
from pydanube.model.policy import (
    AtTime,
    Backoff,
    CorruptionPolicy,
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
from pydanube.wire.native import messages
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
topic_policies = st.builds(
    TopicPolicy,
    dispatch=st.sampled_from(DispatchMode),
    durability=st.sampled_from(Durability),
    retention=st.builds(
        Retention,
        age_s=st.none() | seconds,
        bytes_max=st.none() | st.integers(1, 2**63),
    ),
    ttl_s=st.none() | seconds,
    on_corruption=st.sampled_from(CorruptionPolicy),
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


@given(topic_policies)
def test_a_topics_policy_arrives(policy):
    arrived = messages.policy_from_wire(messages.policy_to_wire(policy))
    assert arrived == policy
    # Comparing policies ignores it.
    assert arrived.on_corruption is policy.on_corruption


@given(settings)
def test_settings_of_a_subscription_arrive(given):
    assert messages.settings_from_wire(messages.settings_to_wire(given)) == given


@given(subscriptions)
def test_a_subscriptions_description_arrives(given):
    sent = messages.subscription_to_wire(given)
    assert messages.subscription_from_wire(sent) == given


@given(limits, st.none() | limits)
def test_limits_arrive_with_a_description(effective, own):
    topic = TopicDescription(
        topic="/default/t",
        topic_id=1,
        policy=TopicPolicy(),
        epoch=1,
        base_offset=0,
        end_offset=0,
        sealed_offset=0,
        tail_bytes=0,
        segment_bytes=0,
        segment_count=0,
        producers=(),
        subscriptions=(),
        dropped=0,
        limits=effective,
        own_limits=own,
    )
    assert messages.topic_from_wire(messages.topic_to_wire(topic)) == topic
    namespace = NamespaceDescription(namespace="n", policy=effective, topic_count=3)
    sent = messages.namespace_to_wire(namespace)
    assert messages.namespace_from_wire(sent) == namespace


@given(large | st.sampled_from(Start) | times.map(AtTime))
def test_a_position_arrives(position):
    sent = messages.position_to_wire(position)
    assert messages.position_from_wire(sent) == position


@pytest.mark.parametrize("access", ProducerAccess)
def test_access_mode_arrives(access):
    assert messages.access_from_wire(messages.access_to_wire(access)) is access


@pytest.mark.parametrize(
    "understand",
    [
        messages.type_from_wire,
        messages.start_from_wire,
        messages.access_from_wire,
        messages.on_corruption_from_wire,
    ],
)
def test_a_number_of_a_newer_peer_is_refused_and_not_guessed(understand):
    with pytest.raises(InvalidRequest, match="number 77 is unknown"):
        understand(77)


@pytest.mark.parametrize("field", ["backoff", "poison"])
def test_a_policy_of_a_newer_peer_is_refused_and_not_guessed(field):
    with pytest.raises(InvalidRequest, match="number 77 is unknown"):
        messages.failure_policy_from_wire(pb.FailurePolicy(**{field: 77}))


@pytest.mark.parametrize("value", [-1.0, float("inf"), float("nan")])
@pytest.mark.parametrize("field", ["ttl_s", "retention_age_s"])
def test_invalid_duration_is_refused(field, value):
    with pytest.raises(InvalidRequest, match="number of seconds"):
        messages.policy_from_wire(pb.TopicPolicy(**{field: value}))


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
        messages.ranges_from_wire(sent, count_max=2)


def test_ranges_may_be_in_any_order_and_overlap():
    sent = pb.OffsetRanges(base=[5, 1, 1], end=[9, 3, 7])
    assert messages.ranges_from_wire(sent) == [(5, 9), (1, 3), (1, 7)]


def test_ranges_are_divided_so_that_each_message_may_be_sent():
    pairs = [(2 * n, 2 * n + 1) for n in range(messages.RANGES_MAX + 1)]
    divided = messages.divided_to_wire(pairs)
    assert len(divided) == 2
    received = [messages.ranges_from_wire(d, messages.RANGES_MAX) for d in divided]
    assert received[0] + received[1] == pairs
    assert messages.divided_to_wire([]) == [pb.OffsetRanges()]
