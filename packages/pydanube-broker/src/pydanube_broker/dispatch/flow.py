"""Flow control: the credit of consumers."""

from __future__ import annotations


class Credit:
    """
    A consumer's credit in messages and bytes, and the number of its unacked messages.

    A delivery needs some credit of both.  The credit in messages is never exceeded.
    The last delivery may exceed the credit in bytes, so that batches need not be cut
    to fit; the credit is negative then.

    A consumer never has more than ``unacked_max`` messages at a time, if that is set,
    whatever its credit.
    """

    __slots__ = (
        "byte_count",
        "counted",
        "messages",
        "most",
        "priority",
        "unacked",
        "unacked_max",
    )

    def __init__(self, priority: int = 0, unacked_max: int | None = None) -> None:
        self.messages = 0
        self.byte_count = 0
        self.most = 0
        """The most messages that the consumer has given credit for at a time."""
        self.priority = priority
        """Consumers with lower values are served first."""
        self.unacked = 0
        """The number of messages in flight with the consumer."""
        self.unacked_max = unacked_max
        self.counted = 0
        """The part of it that the ``Allowances`` of the subscription contain."""

    @property
    def allowance(self) -> int:
        """The number of messages that may be delivered, if there is credit in bytes."""
        if self.unacked_max is None:
            return self.messages
        return max(0, min(self.messages, self.unacked_max - self.unacked))

    def __bool__(self) -> bool:
        """Return whether any message may be delivered."""
        return (
            self.messages > 0
            and self.byte_count > 0
            and (self.unacked_max is None or self.unacked < self.unacked_max)
        )

    def add(self, messages: int, byte_count: int) -> None:
        """Add to the credit."""
        self.messages += messages
        self.byte_count += byte_count
        self.most = max(self.most, self.messages)

    def reset(self) -> None:
        """Remove all credit, because the consumer begins anew."""
        self.messages = self.byte_count = self.most = 0

    def is_low(self, count: int) -> bool:
        """
        Return whether to wait for the rest of the credit for *count* messages.

        The consumer has given as much before.  It has less than half of it now, so
        messages that it has received wait for it, and it returns credit for them.
        """
        most = self.most
        return self.messages < count <= most and self.messages * 2 < most

    def spend(self, messages: int, byte_count: int) -> None:
        """Charge a delivery."""
        assert 0 < messages <= self.messages
        self.messages -= messages
        self.byte_count -= byte_count
        self.unacked += messages


class Allowances:
    """
    The number of messages that all consumers of a subscription may receive together.

    The sums are updated credit by credit, so reading them takes constant time for any
    number of consumers.
    """

    __slots__ = ("_by_priority",)

    def __init__(self) -> None:
        self._by_priority: dict[int, int] = {}

    def update(self, credit: Credit) -> None:
        """Count *credit* with its current value."""
        allowance = credit.allowance if credit else 0
        if allowance != credit.counted:
            self._add(credit.priority, allowance - credit.counted)
            credit.counted = allowance

    def remove(self, credit: Credit) -> None:
        """Stop counting *credit*, because its consumer left."""
        self._add(credit.priority, -credit.counted)
        credit.counted = 0

    def total(self, priority_max: int | None = None) -> int:
        """Return the sum over all consumers, or over those up to *priority_max*."""
        sums = self._by_priority
        if priority_max is None:
            return sum(sums.values())
        return sum(each for priority, each in sums.items() if priority <= priority_max)

    def _add(self, priority: int, change: int) -> None:
        total = self._by_priority.get(priority, 0) + change
        if total:
            self._by_priority[priority] = total
        else:
            self._by_priority.pop(priority, None)
