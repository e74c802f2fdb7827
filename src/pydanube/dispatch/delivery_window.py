"""The time in which messages may be delivered."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class DeliveryWindow:
    """The time in which the messages ``base … end`` may be delivered."""

    base: int
    end: int
    due: float | None = None
    """The time from which they may be delivered; None: at once."""
    expires: float | None = None
    """The time at which they expire; None: never."""
