"""
The records of open transactions that this broker keeps, for the partitions it serves.

They are in one part of the staged version for each transaction.  Before the first
record is acknowledged, the part is named in the state of the producer.  So a commit
that misses it is refused.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict, deque
from dataclasses import field
from typing import Protocol
from urllib.parse import quote, unquote

from pydanube.aio.locks import NamedSemaphores
from pydanube.model.errors import (
    BrokerError,
    OutOfSequence,
    StagedPartNotFound,
    StagingClosed,
    Unavailable,
)
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.names import TopicName
from pydanube.model.staging import PartKey
from pydanube.wire.batches import BatchFrame
from pydanube_broker.broker.broker import Broker
from pydanube_broker.broker.publishing.topic import ReliableTopic, Topic
from pydanube_broker.broker.staging.staged_parts import Stage
from pydanube_kafka.errors import Refusal
from pydanube_kafka.pure.transactions import (
    Order,
    ProducerState,
    Sequences,
)
from pydanube_kafka.wire.apis import ErrorCode

ALONE_CLAIM = -1
"""Stands for the claims of shards in a broker without a cluster."""
_QUERY_PREFIX = "kafka-"


class StageWriter:
    """The records of a transaction for one partition; implements ``StagePort``."""

    def __init__(self, part: OpenPart, topic: Topic) -> None:
        self.topic = topic
        self.stage: Stage | None = None
        """Where it writes; None after it was closed."""
        self._part = part
        self._error: BrokerError | None = None
        self._written = 0
        self._waiting: deque[tuple[int, asyncio.Future[BrokerError | None]]] = deque()

    def staged(self, next_sequence: int) -> None:
        """See ``StagePort``."""
        self._written = next_sequence
        while self._waiting and self._waiting[0][0] <= next_sequence:
            self._answer(None)

    def close(self, reason: BrokerError) -> None:
        """See ``StagePort``."""
        if isinstance(reason, Unavailable):
            # Clients would send the same again, which cannot help any more.
            reason = StagingClosed(
                f"the records of the transaction are lost, so abort it: {reason}"
            )
        self.stage, self._error = None, reason
        self._part.error = reason
        while self._waiting:
            self._answer(reason)

    def put(self, frame: BatchFrame) -> None:
        """Stage a batch."""
        assert self.stage is not None
        self.stage.take(frame)

    def written(self) -> asyncio.Future[BrokerError | None]:
        """Return None when all batches are written, or why the part has ended."""
        done: asyncio.Future[BrokerError | None]
        done = asyncio.get_running_loop().create_future()
        assert self.stage is not None or self._error is not None
        end = 0 if self.stage is None else self.stage.next_sequence
        if self._error is not None or self._written >= end:
            done.set_result(self._error)
        else:
            self._waiting.append((end, done))
        return done

    def _answer(self, error: BrokerError | None) -> None:
        _, done = self._waiting.popleft()
        if not done.done():
            done.set_result(error)


@dataclass(slots=True, eq=False)
class OpenPart:
    """The part of an open transaction."""

    key: PartKey
    state: ProducerState
    """The state of the producer when it was read last."""
    writers: dict[TopicName, StageWriter] = field(default_factory=dict)
    error: BrokerError | None = None
    """Why it has ended."""

    @property
    def is_live(self) -> bool:
        """Whether it has records, so that its transaction cannot have ended."""
        return any(each.stage is not None for each in self.writers.values())


class States(Protocol):
    """The states of producers."""

    async def get(self, transactional_id: str) -> ProducerState:
        """Return the state of a producer as it is now."""

    def known(self, transactional_id: str) -> ProducerState | None:
        """Return the state of a producer as it was seen last, if it was."""

    async def add_part(
        self, transactional_id: str, state: ProducerState, part: str
    ) -> ProducerState:
        """Name a part of this broker in *state*, and return what it is then."""


class TransactionParts:
    """
    The parts of open transactions.

    Bounds: *producers_max* producers, and those with open parts, of which the broker
        has a bounded number.
    """

    def __init__(self, broker: Broker, states: States, producers_max: int) -> None:
        self._broker = broker
        self._states = states
        self._producers_max = producers_max
        # No two runs of a broker have the same parts.
        self._name = secrets.token_hex(16)
        # Those that were used last are at the end.
        self._parts: OrderedDict[str, OpenPart] = OrderedDict()
        self._sequences: OrderedDict[tuple[str, int, int], Sequences] = OrderedDict()
        # Batches that were refused before the state of their producer was known here.
        # Apart, because anybody can send them.
        self._refused: OrderedDict[tuple[str, int, int], Sequences] = OrderedDict()
        # Held while a stage is opened for a producer.
        self._turns: NamedSemaphores[str] = NamedSemaphores(1)

    async def open_writer(
        self, transactional_id: str, producer: tuple[int, int], topic: Topic
    ) -> tuple[StageWriter, ProducerState]:
        """
        Return the writer for a partition of the open transaction, and its state.

        Raises:
            Refusal: No such transaction is open, it has not the partition, or that has
                come from another broker meanwhile.
            BrokerError: The part has ended, or cannot be opened.
        """
        async with self._turns.of(transactional_id):
            part = self._parts.get(transactional_id)
            if part is None or not part.is_live or _claim_of(part.state) != producer:
                part = await self._find(transactional_id, producer)
            found = part.writers.get(topic.name)
            if found is None:
                return await self._open(transactional_id, part, topic)
        if found.topic is not topic:
            raise _moved(topic.name)
        return found, part.state

    def place(
        self,
        transactional_id: str,
        state: ProducerState,
        topic: Topic,
        sequence: int,
        count: int,
    ) -> bool:
        """
        Return whether a batch is new, and not one that was sent again.

        Raises:
            OutOfSequence: Batches before it are missing.
        """
        sequences = self._sequences_of(transactional_id, _claim_of(state))
        claim, begun = self._claim(topic), state.begun_at
        expected = sequences.expected(topic.name, claim, begun)
        order = sequences.place(topic.name, claim, begun, sequence, count)
        if order is Order.GAP:
            raise OutOfSequence(
                f"a batch of {topic.name} has the sequence {sequence}; {expected} was "
                "expected"
            )
        return order is Order.NEXT

    def refuse(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        name: TopicName,
        sequence: int,
        now: int,
    ) -> None:
        """Note that a batch was refused, so that no later one overtakes it."""
        state = self._states.known(transactional_id)
        if state is not None and state.check(*producer) is not None:
            return
        topic = self._broker.topics.find_open(name)
        claim = None if topic is None else self._claim(topic)
        key = (transactional_id, *producer)
        if state is not None or key in self._sequences:
            sequences = self._sequences_of(transactional_id, producer)
        else:
            sequences = self._refused.setdefault(key, Sequences())
            self._refused.move_to_end(key)
            if len(self._refused) > self._producers_max:
                self._refused.popitem(last=False)
        sequences.refuse(name, claim, sequence, now)

    def forget(
        self, transactional_id: str, producer: tuple[int, int], name: TopicName
    ) -> None:
        """
        Forget the sequences of a partition, because a batch has failed for good.

        The transaction can only be aborted.  Some clients count that batch for the
        next one, and others do not.
        """
        sequences = self._sequences.get((transactional_id, *producer))
        if sequences is not None:
            sequences.forget(name)

    def check_session(self) -> None:
        """
        Raise if records that were just staged may belong to an earlier transaction.

        Raises:
            SessionLost: Others may have ended it without telling this broker.
        """
        if self._broker.shards is not None:
            self._broker.shards.owners.check_session()

    async def _find(self, transactional_id: str, producer: tuple[int, int]) -> OpenPart:
        state = await self._states.get(transactional_id)
        error = state.check_open(*producer)
        if error is not None:
            raise Refusal(
                ErrorCode[error.value],
                f"the producer {producer[0]} with epoch {producer[1]} has no open "
                f"transaction as {transactional_id!r}",
            )
        before = self._parts.get(transactional_id)
        if before is not None and before.key.version == state.version:
            if before.error is not None:
                raise before.error
            before.state = state
            return before
        if self._name in state.parts:
            raise StagedPartNotFound(
                f"the broker has forgotten records of the transaction of "
                f"{transactional_id!r}: abort it"
            )
        part = OpenPart(part_key(transactional_id, state, self._name), state)
        self._parts.pop(transactional_id, None)
        if len(self._parts) >= self._producers_max:
            idle = (name for name, each in self._parts.items() if not each.is_live)
            self._parts.pop(next(idle, ""), None)
        self._parts[transactional_id] = part
        return part

    async def _open(
        self, transactional_id: str, part: OpenPart, topic: Topic
    ) -> tuple[StageWriter, ProducerState]:
        if part.error is not None:
            raise part.error
        if str(topic.name) not in part.state.partitions:
            # It may have been added since.
            part = await self._find(
                transactional_id, (part.state.producer_id, part.state.epoch)
            )
        claim = part.state.partitions.get(str(topic.name))
        if claim is None:
            raise Refusal(
                ErrorCode.invalid_txn_state,
                f"{topic.name} was not added to the transaction",
            )
        if claim != self._claim(topic):
            raise _moved(topic.name)
        if part.key.name not in part.state.parts:
            part.state = await self._states.add_part(
                transactional_id, part.state, part.key.name
            )
        writer = StageWriter(part, topic)
        writer.stage = await self._broker.staging.open_stage(
            part.key, topic.name, None, writer
        )
        part.writers[topic.name] = writer
        return writer, part.state

    def _claim(self, topic: Topic) -> int:
        if self._broker.shards is None or not isinstance(topic, ReliableTopic):
            return ALONE_CLAIM
        return topic.log.epoch

    def _sequences_of(
        self, transactional_id: str, producer: tuple[int, int]
    ) -> Sequences:
        key = (transactional_id, *producer)
        found = self._sequences.get(key)
        if found is None:
            found = self._refused.pop(key, None) or Sequences()
            self._sequences[key] = found
        self._sequences.move_to_end(key)
        while len(self._sequences) > self._producers_max:
            self._sequences.popitem(last=False)
        return found


def query_of(transactional_id: str) -> str:
    """Return the name of the staged query of a transactional id."""
    return f"{_QUERY_PREFIX}{quote(transactional_id, safe='')}"


def transactional_id_of(query: str) -> str | None:
    """Return the transactional id of a staged query, if it has one."""
    if not query.startswith(_QUERY_PREFIX):
        return None
    return unquote(query.removeprefix(_QUERY_PREFIX))


def part_key(transactional_id: str, state: ProducerState, name: str) -> PartKey:
    """Return the key of the part *name* of the open transaction."""
    assert state.version is not None
    return PartKey(
        query=query_of(transactional_id),
        version=state.version,
        name=name,
        part_id=f"{state.producer_id}-{state.epoch}",
    )


def _claim_of(state: ProducerState) -> tuple[int, int]:
    return state.producer_id, state.epoch


def _moved(name: TopicName) -> Refusal:
    return Refusal(
        ErrorCode.transaction_abortable,
        f"another broker served {name} when the transaction began: abort it",
    )
