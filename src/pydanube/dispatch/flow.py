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

    __slots__ = (
        "byte_count",
        "counted",
        "messages",
        "priority",
        "unacked",
        "unacked_max",
    )

    def __init__(self, priority: int = 0, unacked_max: int | None = None) -> None:
        self.messages = 0
        self.byte_count = 0
        self.priority = priority
        """Who has the lower value is served first."""
        self.unacked = 0
        """How many messages are in flight with it."""
        self.unacked_max = unacked_max
        self.counted = 0
        """What of it is in the ``Allowances`` of its subscription."""

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


class Allowances:
    """
    How many messages all consumers of a subscription may be given together.

    The sums are kept up to date credit by credit, so that asking for them costs the
    same however many consumers there are.
    """

    __slots__ = ("_by_priority",)

    def __init__(self) -> None:
        self._by_priority: dict[int, int] = {}

    def update(self, credit: Credit) -> None:
        """Count *credit* as it is now."""
        allowance = credit.allowance if credit else 0
        if allowance != credit.counted:
            self._add(credit.priority, allowance - credit.counted)
            credit.counted = allowance

    def remove(self, credit: Credit) -> None:
        """Count *credit* no more, because its consumer is gone."""
        self._add(credit.priority, -credit.counted)
        credit.counted = 0

    def total(self, priority_max: int | None = None) -> int:
        """The sum over all consumers, or over those up to *priority_max*."""
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
