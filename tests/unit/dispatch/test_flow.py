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


def test_messages_may_not_be_overdrawn():
    credit = Credit()
    credit.add(1, 100)
    with pytest.raises(AssertionError):
        credit.spend(2, 1)
