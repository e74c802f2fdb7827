"""What a subscription machine is told of messages, beyond their offsets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(slots=True)
class DeliveryWindow:
    """The messages ``base … end`` may be delivered only in a certain time."""

    base: int
    end: int
    due: float | None = None
    """Not before; None: at once."""
    expires: float | None = None
    """Not from this moment on; None: they do not expire."""


@dataclass(slots=True)
class Keys:
    """The keys of a batch: that of message ``base + i`` is ``unique[codes[i]]``."""

    unique: Sequence[bytes]
    codes: Sequence[int]
