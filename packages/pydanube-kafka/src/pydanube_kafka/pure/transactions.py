"""
A transactional producer: which transaction is open, and who may use it.

A producer is known by its transactional id.  Each start gives it a new producer id, or
a new epoch of the one that it has, and refuses requests with earlier ones.  A
transaction is a version of a staged query of the broker: it begins with the first
partition or group that is added, and ends with a commit, an abort, or its timeout.

The record of the query has the state.  So any broker can coordinate, and the brokers
that serve partitions of a transaction read there which one is open.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from enum import Enum

import msgspec

from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.names import TopicName

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


class OffsetOfGroup(msgspec.Struct, frozen=True, array_like=True):
    """An offset of a group that a transaction commits."""

    topic: str
    group: str
    cursor: int
    """The offset that the group had committed before."""
    offset: int
    note: str = ""
    """The text that the client commits with it."""


class ProducerState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A transactional producer, and its transaction."""

    producer_id: int
    epoch: int
    timeout_s: float
    version: int | None = None
    """The version of the open transaction, or of the next one if it is begun."""
    is_open: bool = False
    deadline: int = 0
    """When the open transaction is given up: microseconds since 1970."""
    is_fenced: bool = False
    """Whether its transaction took too long, so that it must begin again."""
    was_committed: bool | None = None
    """How the last transaction ended; None: none has ended."""
    partitions: dict[str, int] = {}
    """The partitions of the open transaction, and the claims of their shards."""
    parts: dict[str, str] = {}
    """The names of the parts with its records, and the brokers that have them."""
    offsets: tuple[OffsetOfGroup, ...] = ()

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
        is_current = (producer_id, epoch) == (self.producer_id, self.epoch)
        return None if is_current and not self.is_fenced else TransactionError.FENCED

    def check_open(self, producer_id: int, epoch: int) -> TransactionError | None:
        """Return why a request within a transaction is refused, if it is."""
        error = self.check(producer_id, epoch)
        if error is None and not self.is_open:
            return TransactionError.NOT_OPEN
        return error

    def settled(self, decided: int | None) -> ProducerState:
        """Return the state, if the commit of the version *decided* is decided."""
        if self.is_open and self.version is not None and self.version == decided:
            return self.ended(is_committed=True)
        return self

    def opened(self, version: int, now: int) -> ProducerState:
        """Return the state after a transaction begins *now*, in microseconds."""
        return ProducerState(
            producer_id=self.producer_id,
            epoch=self.epoch,
            timeout_s=self.timeout_s,
            version=version,
            is_open=True,
            deadline=now + int(self.timeout_s * 1_000_000),
            was_committed=self.was_committed,
        )

    def ended(
        self, *, is_committed: bool, next_version: int | None = None
    ) -> ProducerState:
        """Return the state after the end of the open transaction."""
        return ProducerState(
            producer_id=self.producer_id,
            epoch=self.epoch,
            timeout_s=self.timeout_s,
            version=next_version,
            was_committed=is_committed,
        )

    def given_up(self, next_version: int) -> ProducerState:
        """Return the state after a transaction has taken too long."""
        ended = self.ended(is_committed=False, next_version=next_version)
        return msgspec.structs.replace(ended, is_fenced=True)

    @property
    def begun_at(self) -> int:
        """When the open transaction has begun: microseconds since 1970."""
        return self.deadline - int(self.timeout_s * 1_000_000)

    def is_late(self, now: int) -> bool:
        """Return whether the open transaction takes too long, in microseconds."""
        return self.is_open and now >= self.deadline

    def with_partitions(self, found: Mapping[str, int]) -> ProducerState:
        """Return the state after partitions were added; those that are there stay."""
        return msgspec.structs.replace(self, partitions={**found, **self.partitions})

    def with_part(self, name: str, broker_id: str) -> ProducerState:
        """Return the state after a broker has begun to keep records."""
        return msgspec.structs.replace(self, parts={**self.parts, name: broker_id})

    def with_offsets(self, found: Iterable[OffsetOfGroup]) -> ProducerState:
        """Return the state after offsets were added, which replace earlier ones."""
        offsets = {(each.topic, each.group): each for each in self.offsets}
        for each in found:
            before = offsets.get((each.topic, each.group), each)
            offsets[each.topic, each.group] = msgspec.structs.replace(
                each, cursor=before.cursor
            )
        return msgspec.structs.replace(self, offsets=tuple(offsets.values()))


@dataclass(frozen=True, slots=True)
class _Expected:
    """The sequence that must be next for a partition."""

    sequence: int
    claim: int | None
    """The claim of the partition's shard; None: the broker did not serve it."""
    noted_at: int


@dataclass(slots=True, eq=False)
class Sequences:
    """The sequences of one producer's batches, as far as one broker has seen them."""

    _expected: dict[TopicName, _Expected] = field(default_factory=dict)

    def expected(self, partition: TopicName, claim: int, begun: int) -> int | None:
        """
        Return the sequence that must be next, if it is known.

        *begun* is when the transaction began; what was refused before does not matter.
        """
        known = self._expected.get(partition)
        if known is None:
            return None
        is_valid = known.claim == claim
        if known.claim is None:
            is_valid = known.noted_at >= begun
        return known.sequence if is_valid else None

    def refuse(
        self, partition: TopicName, claim: int | None, sequence: int, now: int
    ) -> None:
        """
        Note that a batch was refused, so that no later one overtakes it.

        *claim* is None if this broker does not serve the partition.
        """
        known = self._expected.get(partition)
        if known is None or known.claim != claim:
            self._expected[partition] = _Expected(sequence, claim, now)

    def forget(self, partition: TopicName) -> None:
        """Let the next batch of a partition have any sequence."""
        self._expected.pop(partition, None)

    def place(
        self, partition: TopicName, claim: int, begun: int, sequence: int, count: int
    ) -> Order:
        """
        Take the next batch of a partition, or return why it is not the next.

        The first one after the partition came to this broker may have any sequence.
        """
        expected = self.expected(partition, claim, begun)
        ahead = 0 if expected is None else (sequence - expected) % SEQUENCE_END
        if ahead:
            is_behind = ahead >= SEQUENCE_END // 2
            return Order.REPEATED if is_behind else Order.GAP
        after = (sequence + count) % SEQUENCE_END
        self._expected[partition] = _Expected(after, claim, begun)
        return Order.NEXT


def encode_state(state: ProducerState) -> bytes:
    """Return the bytes that the record of the query keeps."""
    return msgspec.msgpack.encode(state)


def decode_state(content: bytes) -> ProducerState:
    """Return the state that a record keeps."""
    return msgspec.msgpack.decode(content, type=ProducerState)
