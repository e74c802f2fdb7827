"""
The effects that a subscription machine returns.

The broker carries them out strictly in the order of the list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.range_blocks import ranges_of_bits
from pydanube.model.ranges import Range


@dataclass(slots=True)
class Deliver:
    """Send the messages ``base … end``, all of one batch, to *consumer*."""

    consumer: int
    base: int
    end: int
    attempt: int
    """1 for the first delivery of these messages."""
    byte_count: int = field(default=0, compare=False)
    """
    The bytes charged to the consumer's credit: those of the batch, or the fraction by
    number of messages if it is a part of a batch.  A caller that sends more or fewer
    bytes corrects the credit with ``on_credit``.
    """
    bits: int = 0
    """The messages of ``base … end`` to send: bit 0 is *base*; 0: see *joined*."""
    joined: tuple[Range, ...] | None = None
    """The messages of joined deliveries as ranges; None: *bits*, or all messages."""
    decided_at: float = field(default=0.0, compare=False)
    """The time at which the caller got the effect, for callers that queue it."""

    @property
    def count(self) -> int:
        """The number of messages to send."""
        if self.bits:
            return self.bits.bit_count()
        if self.joined is None:
            return self.end - self.base
        return sum(end - base for base, end in self.joined)

    def ranges(self) -> Sequence[Range]:
        """Return the offsets to send; this takes time for each range of bits."""
        if self.bits:
            return ranges_of_bits(self.base, self.bits)
        return self.joined or ((self.base, self.end),)


@dataclass(slots=True)
class Park:
    """
    Copy the messages ``base … end`` of one batch to the dead-letter topic.

    Then call ``on_parked`` or ``on_park_failed``.
    """

    base: int
    end: int
    attempt: int
    """The number of deliveries."""
    reason: str
    """The reason of the last failure, as the consumer gave it."""
    is_expired: bool = False
    """Whether they expired, rather than failed too often."""


@dataclass(slots=True)
class Drop:
    """Note that ``base … end`` were given up; they are already done."""

    base: int
    end: int
    reason: str
    is_expired: bool = False
    """Whether they expired, rather than failed too often."""


@dataclass(slots=True)
class SaveCursor:
    """Store the changed cursor, when convenient."""


@dataclass(slots=True)
class BecomeActive:
    """Tell *consumer* that it receives the messages from now on."""

    consumer: int


@dataclass(slots=True)
class BecomeStandby:
    """Tell *consumer* that another consumer is active and it receives nothing."""

    consumer: int


Effect = Deliver | Park | Drop | SaveCursor | BecomeActive | BecomeStandby
