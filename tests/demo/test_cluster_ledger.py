"""Tests of what the cluster demo counts."""

import pytest

from examples.demo.cluster_ledger import (
    TopicLedger,
    prove_topics,
    rate,
    rates_by_owner,
)


def ledger(count, *, delivered=None):
    topic = TopicLedger("/default/t")
    for number in range(count):
        topic.on_acknowledged(float(number), "a" if number % 2 else "b")
    for number in range(count if delivered is None else delivered):
        topic.on_delivered(number, number + 0.5)
    return topic


def test_deliveries_are_counted_once():
    topic = ledger(3)
    topic.on_delivered(1, 9.0)
    assert topic.delivered == [0.5, 1.5, 2.5]
    assert (topic.redelivered, topic.skipped) == (1, 0)


def test_a_gap_between_deliveries_is_counted():
    topic = ledger(5, delivered=1)
    topic.on_delivered(4, 4.5)
    assert topic.skipped == 3


def test_rate_is_that_of_the_window():
    assert rate([0.0, 1.0, 2.0, 3.0], 3.0, 2.0) == 1.0
    assert rate([], 3.0, 2.0) == 0.0


def test_rates_are_those_of_the_brokers_that_acknowledged():
    assert rates_by_owner([ledger(4)], 2.0, 5.0) == {
        "a": [0.5, 0.5, 0.0],
        "b": [0.5, 0.5, 0.0],
    }
    assert rates_by_owner([], 2.0, 5.0) == {}


def test_complete_topics_prove_that_nothing_is_lost():
    # The last message of the second topic was stored without an acknowledgement.
    claims = prove_topics([ledger(3), ledger(2)], [[0, 1, 2], [0, 1, 2]])
    assert all(claim.holds for claim in claims)
    assert claims[0].expected == 5


@pytest.mark.parametrize(
    ("stored", "text"),
    [
        ([0, 2], "messages acknowledged = stored"),
        ([0, 1, 1, 2], "messages stored twice"),
        ([0, 1, 2, 4], "messages stored that nobody sent"),
        ([0, 2, 1], "messages stored out of order"),
    ],
)
def test_wrong_topics_are_found(stored, text):
    claims = prove_topics([ledger(3)], [stored])
    assert [claim.text for claim in claims if not claim.holds] == [text]


def test_undelivered_messages_are_found():
    claims = prove_topics([ledger(3, delivered=2)], [[0, 1, 2]])
    assert [claim.text for claim in claims if not claim.holds] == [
        "messages acknowledged = delivered"
    ]
