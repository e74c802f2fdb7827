"""Effects are compared by what the consumer will see."""

from __future__ import annotations

from pydanube.dispatch.effects import BecomeActive, BecomeStandby, Deliver, SaveCursor


def test_deliveries_are_equal_whatever_they_were_charged():
    assert Deliver(1, 0, 5, 1, byte_count=7) == Deliver(1, 0, 5, 1)
    assert Deliver(1, 0, 5, 1) != Deliver(1, 0, 5, 2)


def test_kinds_are_told_apart():
    assert SaveCursor() == SaveCursor()
    assert BecomeActive(1) != BecomeStandby(1)
