"""Properties of messages that a subscription machine needs besides offsets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(slots=True)
class DeliveryWindow:
    """The time in which the messages ``base … end`` may be delivered."""

    base: int
    end: int
    due: float | None = None
    """The time from which they may be delivered; None: at once."""
    expires: float | None = None
    """The time at which they expire; None: never."""


@dataclass(slots=True)
class Keys:
    """The keys of a batch: message ``base + i`` has the key ``unique[codes[i]]``."""

    unique: Sequence[bytes]
    codes: Sequence[int]
