"""
A transactional producer: which transaction is open, and who may use it.

A producer is known by its transactional id.  Each start gives it a new producer id, or
a new epoch of the one that it has, and refuses requests with earlier ones.  A
transaction is a version of a staged query of the broker: it begins with the first
partition or group that is added, and ends with a commit, an abort, or its timeout.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from pydanube.model.names import SubscriptionName, TopicName

SEQUENCE_END = 2**31
"""Sequences of Kafka begin again at 0 here."""


class TransactionError(Enum):
    """The reasons for which requests are refused, by Kafka's names."""

    BUSY = "concurrent_transactions"
    FENCED = "invalid_producer_epoch"
    NOT_OPEN = "invalid_txn_state"


class Order(Enum):
    """How the sequence of a batch fits to those before."""

    NEXT = "next"
    REPEATED = "repeated"
    GAP = "gap"


@dataclass(slots=True, eq=False)
class TransactionalProducer:
    """A transactional id, and its producer."""

    query: str
    """The name of the staged query."""
    producer_id: int
    epoch: int
    timeout_s: float
    version: int | None
    """The version of the open transaction, or of the next one if it is begun."""
    is_open: bool = False
    deadline: float = 0.0
    """When the open transaction is given up."""
    is_ending: bool = False
    is_fenced: bool = False
    """Whether its transaction took too long, so that it must begin again."""
    was_committed: bool | None = None
    """How the last transaction ended; None: none has ended."""
    partitions: set[TopicName] = field(default_factory=set)
    sequences: dict[TopicName, int] = field(default_factory=dict)
    """The sequence that is expected next, by partition."""
    offsets: dict[tuple[TopicName, SubscriptionName], int] = field(default_factory=dict)
    """The offsets that the commit acknowledges."""
    batch_count: int = 0
    message_count: int = 0

    def may_continue(self, producer_id: int, epoch: int) -> bool:
        """
        Return whether a producer may go on with the next epoch.

        It may also name the epoch before, if the answer with the present one was lost.
        """
        is_untouched = not self.is_open and self.was_committed is None
        epochs = {self.epoch, self.epoch - is_untouched}
        return producer_id == self.producer_id and epoch in epochs

    def check(self, producer_id: int, epoch: int) -> TransactionError | None:
        """Return why a request of a producer is refused, if it is."""
        if (producer_id, epoch) != (self.producer_id, self.epoch) or self.is_fenced:
            return TransactionError.FENCED
        return TransactionError.BUSY if self.is_ending else None

    def check_open(self, producer_id: int, epoch: int) -> TransactionError | None:
        """Return why a request within a transaction is refused, if it is."""
        error = self.check(producer_id, epoch)
        if error is None and not self.is_open:
            return TransactionError.NOT_OPEN
        return error

    def begin(self, version: int, now: float) -> None:
        """Begin a transaction."""
        self.version, self.is_open = version, True
        self.deadline = now + self.timeout_s
        self.partitions.clear()
        self.offsets.clear()
        self.batch_count = self.message_count = 0

    def end(self, *, is_committed: bool) -> None:
        """End the open transaction."""
        self.is_open = self.is_ending = False
        self.version, self.was_committed = None, is_committed

    def is_late(self, now: float) -> bool:
        """Return whether the open transaction takes too long."""
        return self.is_open and not self.is_ending and now >= self.deadline

    def place(self, partition: TopicName, sequence: int, count: int) -> Order:
        """Take the next batch of a partition, or return why it is not the next."""
        ahead = (sequence - self.sequences.get(partition, 0)) % SEQUENCE_END
        if ahead:
            is_behind = ahead >= SEQUENCE_END // 2
            return Order.REPEATED if is_behind else Order.GAP
        self.sequences[partition] = (sequence + count) % SEQUENCE_END
        self.batch_count += 1
        self.message_count += count
        return Order.NEXT
