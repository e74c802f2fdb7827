"""
What a subscription machine tells its shell to do.

The shell carries effects out strictly in the order of the list.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
    What the consumer's byte credit was charged: the batch's bytes, or of a part
    of a batch its share by count.  A shell that sends more or fewer bytes than
    that can settle the difference with ``on_credit``.
    """
    ranges: tuple[Range, ...] | None = None
    """Only these of ``base … end``; None: all of them."""


@dataclass(slots=True)
class Park:
    """
    Copy the messages ``base … end`` of one batch to the dead-letter topic.

    Then tell the machine: ``on_parked``, or ``on_park_failed``.
    """

    base: int
    end: int
    attempt: int
    """How often they were delivered."""
    reason: str
    """Why the last delivery failed, in the words of who said so."""
    is_expired: bool = False
    """They did not fail too often; their time is over."""


@dataclass(slots=True)
class Drop:
    """The messages ``base … end`` were given up; they are done already."""

    base: int
    end: int
    reason: str
    is_expired: bool = False
    """They did not fail too often; their time is over."""


@dataclass(slots=True)
class SaveCursor:
    """The cursor has changed; make the change durable when convenient."""


@dataclass(slots=True)
class BecomeActive:
    """Tell *consumer* that it gets the messages from now on."""

    consumer: int


@dataclass(slots=True)
class BecomeStandby:
    """Tell *consumer* that it gets nothing while another one is active."""

    consumer: int


Effect = Deliver | Park | Drop | SaveCursor | BecomeActive | BecomeStandby
