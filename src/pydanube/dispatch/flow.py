"""Flow control: how much a consumer may be given."""

from __future__ import annotations


class Credit:
    """
    One consumer's credit, in messages and in bytes, and what it has not acknowledged.

    A delivery needs some credit of both.  Messages are strict: never more are
    delivered than were asked for.  Bytes may be overdrawn by the last delivery, so
    that a batch need not be cut to fit; what is overdrawn is owed.

    However much a consumer asks for, it never has more than ``unacked_max``
    messages at a time, if that is set.
    """

    __slots__ = ("byte_count", "messages", "priority", "unacked", "unacked_max")

    def __init__(self, priority: int = 0, unacked_max: int | None = None) -> None:
        self.messages = 0
        self.byte_count = 0
        self.priority = priority
        """Who has the lower value is served first."""
        self.unacked = 0
        """How many messages are in flight with it."""
        self.unacked_max = unacked_max

    @property
    def allowance(self) -> int:
        """How many messages may be delivered, if bytes allow any."""
        if self.unacked_max is None:
            return self.messages
        return max(0, min(self.messages, self.unacked_max - self.unacked))

    def __bool__(self) -> bool:
        """Whether anything may be delivered."""
        return (
            self.messages > 0
            and self.byte_count > 0
            and (self.unacked_max is None or self.unacked < self.unacked_max)
        )

    def add(self, messages: int, byte_count: int) -> None:
        """Let the consumer have so much more."""
        self.messages += messages
        self.byte_count += byte_count

    def spend(self, messages: int, byte_count: int) -> None:
        """Count what is delivered."""
        assert 0 < messages <= self.messages
        self.messages -= messages
        self.byte_count -= byte_count
        self.unacked += messages
