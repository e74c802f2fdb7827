"""Danube's admin messages are converted to and from the model."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.model.errors import InvalidRequest
from pydanube.model.policy import (
    Backoff,
    DispatchLimits,
    DispatchMode,
    FailurePolicy,
    NamespacePolicy,
    PoisonPolicy,
    SubscriptionType,
)
from pydanube.wire.pb import danube_admin_pb2 as pb
from pydanube.wire.pb import danube_api_pb2
from pydanube_broker.wire.grpc.danube_admin_api import (
    dispatch_limits_from_wire,
    dispatch_limits_to_wire,
    failure_policy_from_wire,
    failure_policy_to_wire,
    parse_policy_document,
    policy_document,
    subscription_type_number,
    topic_policy,
)
from pydanube_broker.wire.grpc.danube_api import danube_name

milliseconds = st.integers(0, 10**9).map(lambda ms: ms / 1000)
limits = st.integers(0, 2**32 - 1)


@given(
    st.builds(
        FailurePolicy,
        redeliveries_max=limits,
        ack_timeout_s=st.none() | milliseconds.filter(bool),
        redelivery_delay_s=milliseconds,
        redelivery_delay_s_max=milliseconds,
        backoff=st.sampled_from(Backoff),
        poison=st.sampled_from(PoisonPolicy),
        dead_letter_topic=st.just("/default/dead"),
    )
)
def test_a_failure_policy_comes_back(policy):
    wire = pb.SubscriptionFailurePolicy.FromString(
        failure_policy_to_wire(policy).SerializeToString()
    )
    assert failure_policy_from_wire(wire, None) == policy


def test_a_timeout_below_a_millisecond_does_not_become_none():
    assert failure_policy_to_wire(FailurePolicy(ack_timeout_s=0.0001)).ack_timeout_ms


def test_a_policy_without_a_dead_letter_topic_has_none_on_the_wire():
    assert not failure_policy_to_wire(FailurePolicy()).HasField("dead_letter_topic")


def test_settings_without_a_field_in_the_message_are_kept():
    wire = pb.SubscriptionFailurePolicy(poison_policy=pb.Drop)
    known = FailurePolicy(dead_letter_expired=True, dead_letter_topic="/default/dead")
    policy = failure_policy_from_wire(wire, known)
    assert (policy.dead_letter_expired, policy.dead_letter_topic) == (True, None)
    config = pb.SubscriptionDispatchConfig(max_unacked_messages=3)
    assert dispatch_limits_from_wire(
        config, DispatchLimits(unacked_messages_max_per_consumer=2)
    ) == DispatchLimits(unacked_messages_max=3, unacked_messages_max_per_consumer=2)


@pytest.mark.parametrize(
    "wire",
    [
        pb.SubscriptionFailurePolicy(poison_policy=pb.DeadLetter),
        pb.SubscriptionFailurePolicy(poison_policy=7, dead_letter_topic="/default/d"),
        pb.SubscriptionFailurePolicy(poison_policy=pb.Drop, backoff_strategy=7),
    ],
)
def test_an_impossible_failure_policy_is_refused(wire):
    with pytest.raises(InvalidRequest):
        failure_policy_from_wire(wire, None)


def test_the_window_is_from_1_to_10000():
    for count in (1, 10_000):
        config = pb.SubscriptionDispatchConfig(max_unacked_messages=count)
        assert (
            dispatch_limits_to_wire(dispatch_limits_from_wire(config, None)) == config
        )
    for count in (0, 10_001):
        config = pb.SubscriptionDispatchConfig(max_unacked_messages=count)
        with pytest.raises(InvalidRequest):
            dispatch_limits_from_wire(config, None)


def test_no_window_is_absent():
    assert dispatch_limits_to_wire(None) is None
    assert dispatch_limits_to_wire(DispatchLimits()) is None


@given(st.builds(NamespacePolicy, **{f.name: limits for f in fields(NamespacePolicy)}))
def test_policies_come_back_from_their_document(policy):
    assert parse_policy_document(policy_document(policy)) == policy


def test_a_policy_document_has_the_names_of_the_original():
    assert list(json.loads(policy_document(NamespacePolicy()))) == [
        "max_producers_per_topic",
        "max_subscriptions_per_topic",
        "max_consumers_per_topic",
        "max_consumers_per_subscription",
        "max_publish_rate",
        "max_subscription_dispatch_rate",
        "max_message_size",
    ]


@pytest.mark.parametrize(
    "text",
    ["", "[]", "1", '{"max": 1}', '{"max_message_size": true}', "{", "[" * 10**5],
    ids=range(7),
)
def test_invalid_policy_document_is_refused(text):
    with pytest.raises(InvalidRequest):
        parse_policy_document(text)


def test_strategies_and_lists_name_the_same_modes():
    assert danube_name(topic_policy(pb.Reliable).dispatch) == "Reliable"
    assert danube_name(topic_policy(pb.NonReliable).dispatch) == "NonReliable"
    assert topic_policy(pb.Reliable).dispatch is DispatchMode.RELIABLE
    with pytest.raises(InvalidRequest):
        topic_policy(2)


def test_subscription_types_have_the_numbers_of_the_client_interface():
    numbers = danube_api_pb2.ConsumerRequest.SubscriptionType
    for type_ in SubscriptionType:
        name = type_.value.title().replace("_", "")
        assert subscription_type_number(type_) == numbers.Value(name)
    assert subscription_type_number(None) == 0
