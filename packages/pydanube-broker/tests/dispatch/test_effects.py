"""Equality of effects."""

from __future__ import annotations

from pydanube_broker.dispatch.effects import (
    BecomeActive,
    BecomeStandby,
    Deliver,
    SaveCursor,
)


def test_equality_of_deliveries_ignores_charged_bytes():
    assert Deliver(1, 0, 5, 1, byte_count=7) == Deliver(1, 0, 5, 1)
    assert Deliver(1, 0, 5, 1) != Deliver(1, 0, 5, 2)


def test_different_effects_are_not_equal():
    assert SaveCursor() == SaveCursor()
    assert BecomeActive(1) != BecomeStandby(1)
