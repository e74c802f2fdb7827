"""Transactions: records and offsets that become visible together."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import OrderedDict, deque
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from pydanube.aio.locks import NamedSemaphores
from pydanube.aio.tasks import TaskScope
from pydanube.model.errors import (
    BrokerError,
    MessageNotHeld,
    OutOfSequence,
    Refused,
    SubscriptionNotFound,
    TransactionFenced,
    Unavailable,
)
from pydanube.model.names import SubscriptionName, TopicName, parse_subscription
from pydanube.model.staging import PartKey
from pydanube.wire.batches import BatchFrame
from pydanube.wire.native.kinds import Kind
from pydanube.wire.native.messages import ranges_to_wire
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.broker.broker import Broker
from pydanube_broker.broker.publishing.topic import Topic
from pydanube_broker.broker.staging.staged_parts import Stage
from pydanube_kafka.calls import Call, Done, Handler
from pydanube_kafka.committing import for_each_partition, refuse_commit
from pydanube_kafka.errors import HANDLED, Refusal, attempt, code_of
from pydanube_kafka.pure.transactions import (
    Order,
    TransactionalProducer,
    TransactionError,
)
from pydanube_kafka.wire.apis import Api, ErrorCode

TIMEOUT_S_MAX = 900.0
"""The longest time that a transaction may take."""
PARTITIONS_MAX = 10_000
"""The most partitions, and the most offsets, of a transaction."""
log = logging.getLogger(__name__)

_EPOCH_MAX = 2**15 - 1
_QUERY_PREFIX = "kafka-"
_PART = "kafka"


class StageWriter:
    """The records of a transaction for one partition; implements ``StagePort``."""

    def __init__(self) -> None:
        self.stage: Stage | None = None
        """Where it writes; None after it was closed."""
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
        self.stage, self._error = None, reason
        while self._waiting:
            self._answer(reason)

    def put(self, frame: BatchFrame) -> asyncio.Future[BrokerError | None]:
        """Stage a batch; the result comes when it is written."""
        assert self.stage is not None
        self.stage.take(frame)
        return self.written()

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
class _Entry:
    """A transactional producer with the stages of its open transaction."""

    producer: TransactionalProducer
    writers: dict[TopicName, StageWriter] = field(default_factory=dict)
    is_finished: bool = False
    """Whether the part of the open transaction is complete."""


class Transactions:
    """
    The transactional producers.

    Bounds: *producers_max* producers; beyond it, one without an open transaction that
        was silent longest has to begin again.
    """

    def __init__(self, broker: Broker, tasks: TaskScope, producers_max: int) -> None:
        self._broker = broker
        self._tasks = tasks
        self._producers_max = producers_max
        # Those that were used last are at the end.
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        # Held while a transactional id, or a transaction of it, begins.
        self._beginning: NamedSemaphores[str] = NamedSemaphores(1)
        # Held while a stage is opened for a query.
        self._turns: NamedSemaphores[str] = NamedSemaphores(1)
        self._clock = asyncio.get_running_loop().time

    async def init(
        self,
        call: Call,
        transactional_id: str,
        timeout_s: float,
        known: tuple[int, int],
    ) -> tuple[int, int]:
        """
        Begin again with a transactional id; return its producer id and epoch.

        *known* are those that the producer has; -1 stands for none.

        Ordering: When this returns, no earlier transaction can be committed any more.

        Raises:
            Refusal: The broker serves no transactions, the time is out of range, or
                another producer has begun with the id since.
            BrokerError: The transaction cannot begin.
        """
        if self._broker.shards is not None:
            raise Refusal(
                ErrorCode.transactional_id_authorization_failed,
                "transactions of Kafka clients need a broker with one process",
            )
        if not 0 < timeout_s <= TIMEOUT_S_MAX:
            raise Refusal(
                ErrorCode.invalid_transaction_timeout,
                f"a transaction may take {TIMEOUT_S_MAX:g} s, not {timeout_s:g}",
            )
        async with self._beginning.of(transactional_id):
            entry = self._entries.get(transactional_id)
            producer_id, epoch = secrets.randbits(62), 0
            if known[0] >= 0:
                if entry is None or not entry.producer.may_continue(*known):
                    raise Refusal(
                        ErrorCode.producer_fenced,
                        f"another producer has begun as {transactional_id!r}",
                    )
                if entry.producer.epoch < _EPOCH_MAX:
                    producer_id, epoch = known[0], entry.producer.epoch + 1
            query = f"{_QUERY_PREFIX}{quote(transactional_id, safe='')}"
            try:
                begun = await call.do(
                    Kind.BEGIN_TRANSACTION, pb.BeginTransaction(query=query)
                )
            except Refused as error:
                code = ErrorCode.transactional_id_authorization_failed
                raise Refusal(code, str(error)) from error
            producer = TransactionalProducer(
                query, producer_id, epoch, timeout_s, begun.version
            )
            self._entries[transactional_id] = _Entry(producer)
            self._entries.move_to_end(transactional_id)
            self._forget_oldest()
            return producer_id, epoch

    def find(
        self, transactional_id: str, producer_id: int, epoch: int, *, is_open: bool
    ) -> _Entry:
        """
        Return a producer.

        Raises:
            Refusal: It is not known, another one has its id, or it has no transaction
                although it must have one.
        """
        entry = self._entries.get(transactional_id)
        if entry is None:
            raise Refusal(
                ErrorCode.invalid_producer_id_mapping,
                f"the transactional id {transactional_id!r} is not known: begin again",
            )
        producer = entry.producer
        check = producer.check_open if is_open else producer.check
        error = check(producer_id, epoch)
        if error is not None:
            raise Refusal(
                ErrorCode[error.value],
                f"the producer {producer_id} with epoch {epoch} cannot use the "
                f"transactional id {transactional_id!r} now: {error.value}",
            )
        self._entries.move_to_end(transactional_id)
        return entry

    async def enter(self, call: Call, body: Any) -> _Entry:
        """Return the producer that *body* names, with an open transaction."""
        async with self._beginning.of(body.transactional_id):
            entry = self.find(
                body.transactional_id,
                body.producer_id,
                body.producer_epoch,
                is_open=False,
            )
            producer = entry.producer
            if not producer.is_open:
                version = producer.version
                if version is None:
                    request = pb.BeginTransaction(query=producer.query)
                    begun = await call.do(Kind.BEGIN_TRANSACTION, request)
                    version = begun.version
                producer.begin(version, self._clock())
                entry.writers, entry.is_finished = {}, False
        return entry

    async def open_writer(self, entry: _Entry, topic: Topic) -> StageWriter:
        """Return the writer for a partition of the open transaction."""
        producer = entry.producer
        if topic.name not in producer.partitions:
            raise Refusal(
                ErrorCode.invalid_txn_state,
                f"{topic.name} was not added to the transaction",
            )
        async with self._turns.of(producer.query):
            found = entry.writers.get(topic.name)
            if found is not None:
                return found
            if not producer.is_open:
                raise Refusal(ErrorCode.invalid_txn_state, "no transaction is open")
            writer, writers = StageWriter(), entry.writers
            writer.stage = await self._broker.staging.open_stage(
                _part_of(producer), topic.name, None, writer
            )
            writers[topic.name] = writer
        return writer

    def sweep(self) -> None:
        """Give up transactions that take too long."""
        now = self._clock()
        for entry in self._entries.values():
            producer = entry.producer
            if producer.is_late(now):
                assert producer.version is not None
                self._tasks.run(self._drop(producer.query, producer.version))
                producer.end(is_committed=False)
                producer.is_fenced = True

    async def _drop(self, query: str, version: int) -> None:
        """Drop the records of a transaction that nobody can commit any more."""
        try:
            await self._broker.staging.drop_version(query, version)
        except BrokerError as error:
            # They expire.
            log.warning("cannot drop version %d of %s: %s", version, query, error)

    def _forget_oldest(self) -> None:
        excess = len(self._entries) - self._producers_max
        if excess > 0:
            idle = [
                name
                for name, each in self._entries.items()
                if not each.producer.is_open
            ]
            for name in idle[:excess]:
                del self._entries[name]


def _part_of(producer: TransactionalProducer) -> PartKey:
    assert producer.version is not None
    part_id = f"{producer.producer_id}-{producer.epoch}"
    return PartKey(
        query=producer.query, version=producer.version, name=_PART, part_id=part_id
    )


async def add_partitions_to_txn(call: Call) -> Awaitable[Any]:
    """Add partitions to a transaction, which begins with the first one."""
    body, answers = call.body, call.answers
    codes: dict[tuple[str, int], ErrorCode] = {}
    code, _ = await attempt(_add_partitions(call, codes))
    return Done(
        answers.AddPartitionsToTxnResponse(
            throttle_time=call.throttle_time,
            results_by_topic_v3_and_below=tuple(
                answers.AddPartitionsToTxnTopicResult(
                    name=each.name,
                    results_by_partition=tuple(
                        answers.AddPartitionsToTxnPartitionResult(
                            partition_index=index,
                            partition_error_code=codes.get((each.name, index), code),
                        )
                        for index in each.partitions
                    ),
                )
                for each in body.v3_and_below_topics
            ),
        )
    )


@dataclass(frozen=True, slots=True)
class _Claim:
    """A transactional producer as a request names it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


async def _add_partitions(call: Call, codes: dict[tuple[str, int], ErrorCode]) -> None:
    body, found = call.body, list[TopicName]()
    for each in body.v3_and_below_topics:
        for index in each.partitions:
            try:
                name = await call.find_name(Kind.OPEN_PRODUCER, each.name, index)
                found.append(name)
            except HANDLED as error:
                codes[each.name, index] = code_of(error)
    if codes:
        # All are added, or none.
        raise Refusal(ErrorCode.operation_not_attempted, "another topic was refused")
    entry = await call.server.transactions.enter(
        call,
        _Claim(
            body.v3_and_below_transactional_id,
            body.v3_and_below_producer_id,
            body.v3_and_below_producer_epoch,
        ),
    )
    partitions = entry.producer.partitions
    if len(partitions) + len(found) > PARTITIONS_MAX:
        raise Refusal(
            ErrorCode.invalid_request,
            f"a transaction has at most {PARTITIONS_MAX} partitions",
        )
    partitions.update(found)


async def add_offsets_to_txn(call: Call) -> Awaitable[Any]:
    """Add a group to a transaction, which begins if it has not."""
    code, _ = await attempt(call.server.transactions.enter(call, call.body))
    return Done(
        call.answers.AddOffsetsToTxnResponse(
            throttle_time=call.throttle_time, error_code=code
        )
    )


async def txn_offset_commit(call: Call) -> Awaitable[Any]:
    """Add offsets to a transaction, whose commit acknowledges them."""
    answers, refusal = call.answers, refuse_commit(call)

    async def add(name: str, partition: Any) -> ErrorCode:
        if refusal is not None:
            return refusal
        code, _ = await attempt(_add_offset(call, name, partition))
        return code

    return Done(
        answers.TxnOffsetCommitResponse(
            throttle_time=call.throttle_time,
            topics=await for_each_partition(
                call,
                add,
                answers.TxnOffsetCommitResponseTopic,
                answers.TxnOffsetCommitResponsePartition,
            ),
        )
    )


async def _add_offset(call: Call, name: str, wanted: Any) -> None:
    body = call.body
    topic = await call.find_name(Kind.REPORT_PROGRESS, name, wanted.partition_index)
    entry = call.server.transactions.find(
        body.transactional_id, body.producer_id, body.producer_epoch, is_open=True
    )
    offsets, key = entry.producer.offsets, (topic, parse_subscription(body.group_id))
    if wanted.committed_offset < 0 or (
        key not in offsets and len(offsets) >= PARTITIONS_MAX
    ):
        raise Refusal(
            ErrorCode.invalid_request,
            f"a transaction commits offsets above 0 of {PARTITIONS_MAX} partitions",
        )
    offsets[key] = wanted.committed_offset


async def end_txn(call: Call) -> Awaitable[Any]:
    """
    Commit a transaction, or abort it.

    Durability: After a commit, its records and its offsets are on disk.
    """
    code, _ = await attempt(_end(call))
    return Done(
        call.answers.EndTxnResponse(throttle_time=call.throttle_time, error_code=code)
    )


async def _end(call: Call) -> None:
    body = call.body
    entry = call.server.transactions.find(
        body.transactional_id, body.producer_id, body.producer_epoch, is_open=False
    )
    producer = entry.producer
    if not producer.is_open:
        if bool(producer.was_committed) is body.committed:
            # Its answer was lost, or there is nothing to abort.
            return
        error = TransactionError.NOT_OPEN
        raise Refusal(ErrorCode[error.value], "no transaction is open")
    producer.is_ending = True
    try:
        if body.committed:
            await _commit(call, entry)
        else:
            await call.do(
                Kind.DROP_STAGED,
                pb.DropStaged(query=producer.query, version=producer.version),
            )
    except (TransactionFenced, MessageNotHeld) as error:
        producer.end(is_committed=False)
        raise Refusal(ErrorCode.invalid_producer_epoch, str(error)) from error
    except Unavailable as error:
        # It may be decided: the client asks again.
        raise Refusal(ErrorCode.coordinator_not_available, str(error)) from error
    except BrokerError as error:
        producer.end(is_committed=False)
        raise Refusal(ErrorCode.invalid_txn_state, str(error)) from error
    finally:
        producer.is_ending = False
    producer.end(is_committed=body.committed)


async def _commit(call: Call, entry: _Entry) -> None:
    producer = entry.producer
    parts = []
    if producer.message_count:
        key = _part_of(producer)
        counts = {
            "batch_count": producer.batch_count,
            "message_count": producer.message_count,
        }
        if not entry.is_finished:
            await call.do(
                Kind.FINISH_PART,
                pb.FinishPart(
                    query=key.query,
                    version=key.version,
                    part=key.name,
                    part_id=key.part_id,
                    **counts,
                ),
            )
            entry.is_finished = True
        parts.append(pb.StagedPart(name=key.name, part_id=key.part_id, **counts))
    acks = []
    for (topic, group), offset in producer.offsets.items():
        cursor = await _find_cursor(call, topic, group)
        if offset > cursor:
            acks.append(
                pb.TransactionAcks(
                    topic=str(topic),
                    subscription=group,
                    ranges=ranges_to_wire([(cursor, offset)]),
                )
            )
    await call.do(
        Kind.COMMIT_STAGED,
        pb.CommitStaged(
            query=producer.query,
            version=producer.version,
            parts=parts,
            is_transaction=True,
            acks=acks,
        ),
    )


async def _find_cursor(call: Call, topic: TopicName, group: SubscriptionName) -> int:
    """Return what a group has committed, or the begin of the topic."""
    look = pb.DescribeSubscription(topic=str(topic), subscription=group)
    try:
        found = await call.do(Kind.DESCRIBE_SUBSCRIPTION, look)
    except SubscriptionNotFound:
        await call.do(
            Kind.REPORT_PROGRESS,
            pb.ReportProgress(
                topic=str(topic), subscription=group, offset=0, is_exact=True
            ),
        )
        found = await call.do(Kind.DESCRIBE_SUBSCRIPTION, look)
    cursor: int = found.cursor
    return cursor


def place_batch(
    producer: TransactionalProducer, topic: TopicName, sequence: int, count: int
) -> bool:
    """
    Return whether a batch is new, and not one that was sent again.

    Raises:
        OutOfSequence: Batches before it are missing.
    """
    order = producer.place(topic, sequence, count)
    if order is Order.GAP:
        raise OutOfSequence(
            f"a batch of {topic} has the sequence {sequence}; "
            f"{producer.sequences.get(topic, 0)} was expected"
        )
    return order is Order.NEXT


TRANSACTING: dict[Api, Handler] = {
    Api.ADD_OFFSETS_TO_TXN: add_offsets_to_txn,
    Api.ADD_PARTITIONS_TO_TXN: add_partitions_to_txn,
    Api.END_TXN: end_txn,
    Api.TXN_OFFSET_COMMIT: txn_offset_commit,
}
