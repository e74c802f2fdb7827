"""
What a subscription machine tells its shell to do.

The shell carries effects out strictly in the order of the list.
"""

from __future__ import annotations

from dataclasses import dataclass, field


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


@dataclass(slots=True)
class SaveCursor:
    """The cursor has changed; make the change durable when convenient."""


@dataclass(slots=True)
class BecomeActive:
    """Tell *consumer* that it gets the messages from now on."""

    consumer: int


@dataclass(slots=True)
class BecomeStandby:
    """Tell *consumer* that it waits for the active one to leave."""

    consumer: int


Effect = Deliver | SaveCursor | BecomeActive | BecomeStandby
