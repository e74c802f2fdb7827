"""Credit is strict in messages and generous in bytes."""

from __future__ import annotations

import pytest

from pydanube.dispatch.flow import Credit


def test_a_delivery_needs_messages_and_bytes():
    credit = Credit()
    assert not credit
    credit.add(1, 0)
    assert not credit
    credit.add(0, 1)
    assert credit


def test_bytes_may_be_overdrawn_and_are_owed():
    credit = Credit()
    credit.add(10, 100)
    credit.spend(1, 150)
    assert (credit.messages, credit.byte_count) == (9, -50)
    assert not credit
    credit.add(0, 51)
    assert credit


def test_whoever_has_as_much_as_it_may_have_gets_no_more():
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


def test_without_a_limit_credit_is_what_was_asked_for():
    credit = Credit()
    credit.add(7, 1)
    credit.unacked = 1000
    assert credit.allowance == 7


def test_messages_may_not_be_overdrawn():
    credit = Credit()
    credit.add(1, 100)
    with pytest.raises(AssertionError):
        credit.spend(2, 1)
