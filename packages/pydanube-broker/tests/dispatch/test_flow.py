"""Credit is strict in messages, and may be exceeded once in bytes."""

from __future__ import annotations

import pytest

from pydanube_broker.dispatch.flow import Credit


def test_delivery_needs_credit_in_messages_and_bytes():
    credit = Credit()
    assert not credit
    credit.add(1, 0)
    assert not credit
    credit.add(0, 1)
    assert credit


def test_credit_in_bytes_may_become_negative():
    credit = Credit()
    credit.add(10, 100)
    credit.spend(1, 150)
    assert (credit.messages, credit.byte_count) == (9, -50)
    assert not credit
    credit.add(0, 51)
    assert credit


def test_consumer_with_unacked_max_messages_receives_no_more():
    credit = Credit(unacked_max=5)
    credit.add(100, 100)
    assert credit.allowance == 5
    credit.spend(3, 1)
    assert (credit.allowance, credit.unacked) == (2, 3)
    credit.spend(2, 1)
    assert credit.allowance == 0
    assert not credit
    credit.unacked -= 1
    assert credit
    credit.unacked_max = 2
    assert (credit.allowance, bool(credit)) == (0, False)


def test_allowance_without_a_limit_is_the_credit():
    credit = Credit()
    credit.add(7, 1)
    credit.unacked = 1000
    assert credit.allowance == 7


def test_credit_in_messages_may_not_be_exceeded():
    credit = Credit()
    credit.add(1, 100)
    with pytest.raises(AssertionError):
        credit.spend(2, 1)


def test_credit_is_low_if_less_than_half_is_left_and_more_was_given_before():
    credit = Credit()
    credit.add(100, 1000)
    assert not credit.is_low(100)
    credit.spend(40, 1)
    # 60 are left: the consumer may be waiting for messages.
    assert not credit.is_low(100)
    credit.spend(11, 1)
    assert credit.is_low(50)
    # There is enough, or never was.
    assert not credit.is_low(49)
    assert credit.is_low(100)
    assert not credit.is_low(101)
    credit.reset()
    assert (credit.messages, credit.byte_count, credit.most) == (0, 0, 0)
    credit.add(10, 100)
    assert not credit.is_low(100)
