"""Flow control: how much a consumer has asked for and not been given yet."""

from __future__ import annotations


class Credit:
    """
    One consumer's credit, in messages and in bytes.

    A delivery needs some of both.  Messages are strict: never more are delivered
    than were asked for.  Bytes may be overdrawn by the last delivery, so that a
    batch need not be cut to fit; what is overdrawn is owed.
    """

    __slots__ = ("byte_count", "messages")

    def __init__(self) -> None:
        self.messages = 0
        self.byte_count = 0

    def __bool__(self) -> bool:
        """Whether anything may be delivered."""
        return self.messages > 0 and self.byte_count > 0

    def add(self, messages: int, byte_count: int) -> None:
        """Let the consumer have so much more."""
        self.messages += messages
        self.byte_count += byte_count

    def spend(self, messages: int, byte_count: int) -> None:
        """Count what is delivered."""
        assert 0 < messages <= self.messages
        self.messages -= messages
        self.byte_count -= byte_count
