"""
The coordinator of transactions: records and offsets that become visible together.

The state of a producer is in the record of its staged query; see
``pure.transactions``.  Each change compares the revision of the record, so a
coordinator that has lost its shard changes nothing that another one depends on.  A
commit is decided by the record, too: a version that is decided has ended.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from typing import Any

from pydanube.aio.locks import NamedSemaphores
from pydanube.aio.tasks import TaskScope, gather
from pydanube.model.errors import (
    BrokerError,
    NotFound,
    QuotaExceeded,
    Refused,
    RevisionConflict,
    StagedPartNotFound,
    SubscriptionNotFound,
    TransactionFenced,
    Unavailable,
)
from pydanube.model.names import TopicName, parse_subscription
from pydanube.model.quantity_formats import format_age
from pydanube.wire.native.kinds import Kind
from pydanube.wire.native.messages import ranges_to_wire
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.broker.broker import Broker
from pydanube_broker.broker.serving.subscriptions import NOTE_LENGTH_MAX
from pydanube_broker.broker.staging.part_staging import QueryWriter
from pydanube_broker.broker.staging.transaction_acks import NOTES_LENGTH_MAX
from pydanube_broker.operations.at_owner import operate_at_broker
from pydanube_broker.operations.authorization import authorized
from pydanube_kafka.brokers import Brokers
from pydanube_kafka.calls import Call, Done, Handler
from pydanube_kafka.committing import (
    UNCOMMITTED,
    for_each_partition,
    refuse_commit,
)
from pydanube_kafka.errors import HANDLED, Refusal, attempt, code_of
from pydanube_kafka.pure.nodes import NOBODY
from pydanube_kafka.pure.transactions import (
    OffsetOfGroup,
    ProducerState,
    TransactionError,
    decode_state,
    encode_state,
)
from pydanube_kafka.transaction_parts import (
    ALONE_CLAIM,
    TransactionParts,
    part_key,
    query_of,
    transactional_id_of,
)
from pydanube_kafka.wire.apis import Api, ErrorCode

TIMEOUT_S_MAX = 900.0
"""The longest time that a transaction may take."""
OPEN_S_LATE = 600.0
"""A transaction that is open for longer is shown as a problem."""
PARTITIONS_MAX = 1000
"""The most partitions, and the most offsets, of a transaction."""
NEW_GROUP = -1
"""Stands for what a group has committed that has committed nothing."""
STATES_SEEN_MAX = 100_000
"""The number of producers of which the broker keeps the state decoded."""
log = logging.getLogger(__name__)

_EPOCH_MAX = 2**15 - 1
_RETRY_S = 0.005


class Transactions:
    """The transactional producers, whichever broker coordinates them."""

    def __init__(
        self,
        broker: Broker,
        brokers: Brokers,
        tasks: TaskScope,
        producers_max: int,
        wall_clock_us: Callable[[], int],
    ) -> None:
        self.parts = TransactionParts(broker, self, producers_max)
        self._broker = broker
        self._brokers = brokers
        self._tasks = tasks
        self._now = wall_clock_us
        # Held while the state of a producer is changed here.
        self._turns: NamedSemaphores[str] = NamedSemaphores(1)
        self._ending: set[str] = set()
        """The transactional ids whose transactions are being ended here."""
        self._given_up: set[str] = set()
        """Those whose transactions are being given up."""
        self._reading = asyncio.Lock()
        self._read_count = 0
        """How often the records of all producers were read, or begun to be read."""
        self._pending: tuple[int, dict[str, set[str]]] = 0, {}
        """The number of the last of these reads, and what it has found."""
        self._decoded: dict[str, tuple[int, ProducerState]] = {}
        """States that were seen last, with the revisions of their records."""
        self.open_count = 0
        """The open transactions of this coordinator, when they were looked at last."""
        self.oldest_s = 0.0
        """The age of the oldest one then."""
        self.timed_out_count = 0
        """The transactions that took too long since the start."""

    # States.

    async def get(self, transactional_id: str) -> ProducerState:
        """
        Return the state of a producer as it is now.

        Raises:
            Refusal: It is not known.
        """
        return (await self._read(transactional_id))[0]

    async def add_part(
        self, transactional_id: str, state: ProducerState, part: str
    ) -> ProducerState:
        """See ``States``."""

        def change(now: ProducerState) -> ProducerState:
            error = now.check_open(state.producer_id, state.epoch)
            if error is not None or now.version != state.version:
                raise _refusal(transactional_id, error or TransactionError.NOT_OPEN)
            return now.with_part(part, self._broker.broker_id)

        return await self.change(transactional_id, change)

    async def change(
        self, transactional_id: str, make: Callable[[ProducerState], ProducerState]
    ) -> ProducerState:
        """Replace the state of a producer by what *make* makes of it; return that."""
        async with self._turns.of(transactional_id):
            while True:
                before, writer = await self._read(transactional_id)
                after = make(before)
                if after == before:
                    return after
                try:
                    await self._broker.staging.write_writer(
                        query_of(transactional_id), encode_state(after), writer.revision
                    )
                except RevisionConflict:
                    await asyncio.sleep(_RETRY_S)
                    continue
                return after

    async def _begin(
        self,
        transactional_id: str,
        make: Callable[[ProducerState | None, int], ProducerState],
        is_begun: Callable[[ProducerState], bool] = lambda _: False,
    ) -> tuple[ProducerState | None, ProducerState]:
        """
        Begin a version, and make a state of the one before and the version.

        Do nothing if another request has begun one.  Return both states.

        Ordering: When this returns, no earlier transaction can be committed any more.
        """
        query = query_of(transactional_id)
        async with self._turns.of(transactional_id):
            while True:
                writer = await self._broker.staging.read_writer(query)
                before = _state_of(writer)
                if before is not None and is_begun(before):
                    return before, before
                # Before anything is changed.
                after = make(before, 0)

                def content_of(
                    version: int, before: ProducerState | None = before
                ) -> bytes:
                    nonlocal after
                    after = make(before, version)
                    return encode_state(after)

                try:
                    await self._broker.staging.begin_as_writer(
                        query, content_of, writer.revision
                    )
                except RevisionConflict:
                    await asyncio.sleep(_RETRY_S)
                    continue
                return before, after

    async def _read(self, transactional_id: str) -> tuple[ProducerState, QueryWriter]:
        query = query_of(transactional_id)
        writer = await self._broker.staging.read_writer(query)
        state = _state_of(writer)
        if state is None:
            raise Refusal(
                ErrorCode.invalid_producer_id_mapping,
                f"the transactional id {transactional_id!r} is not known: begin again",
            )
        return state, writer

    def known(self, transactional_id: str) -> ProducerState | None:
        """See ``States``."""
        found = self._decoded.get(query_of(transactional_id))
        return None if found is None else found[1]

    async def pending(self, group: str) -> Collection[str]:
        """
        Return the topics whose offsets of *group* an undecided commit may change.

        Requests that arrive together read the records of all producers once.
        """
        # A read that has begun may be too early for this request.
        wanted = self._read_count + 1
        async with self._reading:
            if self._pending[0] < wanted:
                number = self._read_count = wanted
                self._pending = number, await self._read_pending()
            return self._pending[1].get(group, ())

    async def _read_pending(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for query, writer in await self._broker.staging.read_writers():
            if transactional_id_of(query) is None:
                continue
            for acks in writer.acks:
                found.setdefault(acks.subscription, set()).add(acks.name)
            state = self._seen(query, writer)
            if state is not None and state.is_open:
                for each in state.offsets:
                    found.setdefault(each.group, set()).add(each.topic)
        return found

    # Producers.

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
            Refusal: Another broker coordinates it, the time is out of range, or another
                producer has begun with the id since.
            BrokerError: The transaction cannot begin.
        """
        if not 0 < timeout_s <= TIMEOUT_S_MAX:
            raise Refusal(
                ErrorCode.invalid_transaction_timeout,
                f"a transaction may take {TIMEOUT_S_MAX:g} s, not {timeout_s:g}",
            )
        new_id = secrets.randbits(62)

        def make(before: ProducerState | None, version: int) -> ProducerState:
            producer_id, epoch = new_id, 0
            if known[0] >= 0:
                if before is None or not before.may_continue(*known):
                    raise Refusal(
                        ErrorCode.producer_fenced,
                        f"another producer has begun as {transactional_id!r}",
                    )
                if before.epoch < _EPOCH_MAX:
                    producer_id, epoch = known[0], before.epoch + 1
            return ProducerState(
                producer_id=producer_id,
                epoch=epoch,
                timeout_s=timeout_s,
                version=version,
            )

        request = pb.BeginTransaction(query=query_of(transactional_id))
        caller, kind = call.connection.caller, Kind.BEGIN_TRANSACTION
        async with (
            self._coordinating(transactional_id),
            # Others cannot know its producer id.
            authorized(caller, kind, request),
        ):
            before, after = await self._begin(transactional_id, make)
        self._drop_later(transactional_id, before)
        return after.producer_id, after.epoch

    async def enter(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        partitions: dict[str, int],
    ) -> None:
        """
        Add partitions to the open transaction, which begins if none is open.

        Raises:
            Refusal: The producer is not the newest one, another broker coordinates it,
                or there are too many partitions.
        """

        def added(state: ProducerState) -> ProducerState:
            error = state.check(*producer)
            if error is None and transactional_id in self._ending:
                error = TransactionError.BUSY
            if error is not None:
                raise _refusal(transactional_id, error)
            if not state.is_open:
                if state.version is None:
                    # It must begin.
                    return state
                state = state.opened(state.version, self._now())
            after = state.with_partitions(partitions)
            _check_count(len(after.partitions))
            return after

        def begun(before: ProducerState | None, version: int) -> ProducerState:
            if before is None:
                raise _refusal(transactional_id, TransactionError.FENCED)
            return added(before.opened(version, self._now()))

        async with self._coordinating(transactional_id):
            while not (await self.change(transactional_id, added)).is_open:
                await self._begin(transactional_id, begun, is_begun=_is_begun)

    async def end(
        self,
        call: Call,
        transactional_id: str,
        producer: tuple[int, int],
        *,
        is_committed: bool,
    ) -> None:
        """
        Commit the open transaction, or abort it.

        Durability: After a commit, its records and its offsets are on disk.

        Raises:
            Refusal: It cannot be ended so.
        """
        async with self._coordinating(transactional_id):
            state, writer = await self._read(transactional_id)
            error = state.check(*producer)
            if error is None and transactional_id in self._ending:
                error = TransactionError.BUSY
            if error is None and not state.is_open:
                if bool(state.was_committed) is is_committed:
                    # Its answer was lost, or there is nothing to abort.
                    if is_committed and writer.decided is not None:
                        # It may be decided, and not be carried out yet.
                        query = query_of(transactional_id)
                        await self._broker.staging.commit(query, writer.decided, ())
                    return
                error = TransactionError.NOT_OPEN
            if error is not None:
                raise _refusal(transactional_id, error)
            self._ending.add(transactional_id)
            try:
                if not is_committed:
                    await self._abort(transactional_id, state)
                    return
                await self._commit(call, transactional_id, state)
            finally:
                self._ending.discard(transactional_id)

    async def _commit(
        self, call: Call, transactional_id: str, state: ProducerState
    ) -> None:
        try:
            await self._ask_for_parts(transactional_id, state, Kind.FINISH_PART)
            acks = await gather(_acks_of(call, each) for each in state.offsets)
            keys = [part_key(transactional_id, state, name) for name in state.parts]
            await call.do(
                Kind.COMMIT_STAGED,
                pb.CommitStaged(
                    query=query_of(transactional_id),
                    version=state.version,
                    parts=[
                        pb.StagedPart(name=key.name, part_id=key.part_id)
                        for key in keys
                    ],
                    is_transaction=True,
                    acks=[each for each in acks if each is not None],
                ),
            )
        except Unavailable:
            # It may be decided: the client asks again.
            raise
        except BrokerError as error:
            # The answer has no text.
            log.info(
                "the transaction of %r is aborted, because it cannot be committed: %s",
                transactional_id,
                error,
            )
            await self._abort(transactional_id, state)
            raise Refusal(_code_of_commit(error), str(error)) from error

    async def _abort(self, transactional_id: str, state: ProducerState) -> None:
        """Abort a transaction, also if it has been aborted meanwhile."""
        # First: these brokers take the records of the next one for those of this one.
        await self._ask_for_parts(transactional_id, state, Kind.DROP_PART)

        def make(before: ProducerState | None, version: int) -> ProducerState:
            if before is None or before.version != state.version:
                raise _refusal(transactional_id, TransactionError.FENCED)
            return before.ended(is_committed=False, next_version=version)

        await self._begin(transactional_id, make)
        self._drop_later(transactional_id, state)

    async def _ask_for_parts(
        self, transactional_id: str, state: ProducerState, kind: Kind
    ) -> None:
        """Let brokers end their parts; those that miss one are passed over."""

        async def ask(name: str, broker_id: str) -> None:
            key = part_key(transactional_id, state, name)
            assert kind.body is not None
            message = kind.body(
                query=key.query,
                version=key.version,
                part=key.name,
                part_id=key.part_id,
            )
            try:
                await operate_at_broker(self._broker, broker_id, kind, message)
            except StagedPartNotFound:
                # A commit that misses it is refused.
                return

        await gather(ask(*each) for each in state.parts.items())

    # Timeouts.

    def problems(self) -> Sequence[str]:
        """Describe the oldest open transaction of this coordinator, if it is late."""
        if self.oldest_s <= OPEN_S_LATE:
            return ()
        age = format_age(self.oldest_s)
        return (f"a Kafka client has had a transaction open for {age}",)

    def sweep(self) -> None:
        """Count the transactions of this coordinator; give up what takes too long."""
        now, count, oldest = self._now(), 0, 0
        for query, writer in self._broker.staging.known_writers():
            transactional_id = transactional_id_of(query)
            state = self._seen(query, writer)
            if (
                transactional_id is None
                or state is None
                or not state.is_open
                or not self._brokers.is_coordinator(transactional_id)
            ):
                continue
            count, oldest = count + 1, max(oldest, now - state.begun_at)
            busy = self._given_up | self._ending
            if state.is_late(now) and transactional_id not in busy:
                self._given_up.add(transactional_id)
                self._tasks.run(self._give_up(transactional_id, state))
        self.open_count, self.oldest_s = count, oldest / 1_000_000

    async def _give_up(self, transactional_id: str, late: ProducerState) -> None:
        def make(before: ProducerState | None, version: int) -> ProducerState:
            if before is None or before.version != late.version or not before.is_open:
                raise _refusal(transactional_id, TransactionError.NOT_OPEN)
            return before.given_up(version)

        try:
            await self._begin(transactional_id, make)
        except HANDLED as error:
            log.info("a transaction of %r is not given up: %s", transactional_id, error)
        else:
            self.timed_out_count += 1
            log.warning(
                "the transaction of %r took longer than %g s and was aborted; its "
                "producer is fenced until it begins again",
                transactional_id,
                late.timeout_s,
            )
            self._drop_later(transactional_id, late)
        finally:
            self._given_up.discard(transactional_id)

    def _drop_later(self, transactional_id: str, state: ProducerState | None) -> None:
        """Drop the records of a transaction that nobody can commit any more."""
        if state is not None and state.is_open and state.parts:
            assert state.version is not None
            self._tasks.run(self._drop(query_of(transactional_id), state.version))

    async def _drop(self, query: str, version: int) -> None:
        try:
            await self._broker.staging.drop_version(query, version)
        except BrokerError as error:
            # They expire.
            log.warning("cannot drop version %d of %s: %s", version, query, error)

    def _seen(self, query: str, writer: QueryWriter) -> ProducerState | None:
        """Return the state of a record, which may have been decoded before."""
        known = self._decoded.get(query)
        if known is None or known[0] != writer.revision:
            state = _state_of(writer)
            if state is None:
                self._decoded.pop(query, None)
                return None
            if len(self._decoded) > STATES_SEEN_MAX:
                self._decoded.clear()
            known = self._decoded[query] = writer.revision, state
        return known[1].settled(writer.decided)

    @asynccontextmanager
    async def _coordinating(self, transactional_id: str) -> AsyncIterator[None]:
        """
        Coordinate a producer in the body.

        Raises:
            Refusal: Another broker coordinates it, its client may not write as it, or
                what the body needs does not answer.
        """
        if not self._brokers.is_coordinator(transactional_id):
            raise Refusal(
                ErrorCode.not_coordinator,
                f"another broker coordinates {transactional_id!r}",
            )
        try:
            yield
        except Unavailable as error:
            raise Refusal(ErrorCode.coordinator_not_available, str(error)) from error
        except QuotaExceeded:
            raise
        except Refused as error:
            code = ErrorCode.transactional_id_authorization_failed
            raise Refusal(code, str(error)) from error


def _state_of(writer: QueryWriter) -> ProducerState | None:
    if not writer.content:
        return None
    return decode_state(writer.content).settled(writer.decided)


def _is_begun(state: ProducerState) -> bool:
    return state.is_open or state.version is not None


def _refusal(transactional_id: str, error: TransactionError) -> Refusal:
    return Refusal(
        ErrorCode[error.value],
        f"the transactional id {transactional_id!r} cannot be used so now: "
        f"{error.value}",
    )


def _code_of_commit(error: BrokerError) -> ErrorCode:
    """Return the code for a commit that is refused."""
    if isinstance(error, TransactionFenced):
        return ErrorCode.invalid_producer_epoch
    if isinstance(error, Refused) and not isinstance(error, QuotaExceeded):
        return ErrorCode.transactional_id_authorization_failed
    # Clients abort then.  Those of Java that do not know TRANSACTION_ABORTABLE would
    # end, but as an error of Produce, this one lets them send the same again.
    return ErrorCode.unknown_producer_id


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


async def _add_partitions(call: Call, codes: dict[tuple[str, int], ErrorCode]) -> None:
    body, found = call.body, list[TopicName]()
    # Before each of them is looked up.
    _check_count(sum(len(each.partitions) for each in body.v3_and_below_topics))
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
    await call.server.transactions.enter(
        body.v3_and_below_transactional_id,
        (body.v3_and_below_producer_id, body.v3_and_below_producer_epoch),
        await _claims_of(call, found),
    )


def _check_count(partition_count: int) -> None:
    if partition_count > PARTITIONS_MAX:
        raise Refusal(
            ErrorCode.invalid_request,
            f"a transaction has at most {PARTITIONS_MAX} partitions",
        )


async def _claims_of(call: Call, names: Sequence[TopicName]) -> dict[str, int]:
    """Return partitions with the claims of their shards."""
    broker = call.server.broker
    if broker.shards is None:
        return {str(name): ALONE_CLAIM for name in names}
    found = {}
    records = await broker.catalog.find_each(names)
    for name, record in zip(names, records, strict=True):
        leader = call.server.brokers.leader_of(
            None if record is None else record.value.shard
        )
        if leader.number == NOBODY:
            raise Refusal(
                # Clients ask again.
                ErrorCode.concurrent_transactions,
                f"no broker serves {name} at the moment",
            )
        found[str(name)] = leader.epoch
    return found


async def add_offsets_to_txn(call: Call) -> Awaitable[Any]:
    """Add a group to a transaction, which begins if it has not."""
    body = call.body
    code, _ = await attempt(
        call.server.transactions.enter(
            body.transactional_id, (body.producer_id, body.producer_epoch), {}
        )
    )
    return Done(
        call.answers.AddOffsetsToTxnResponse(
            throttle_time=call.throttle_time, error_code=code
        )
    )


async def txn_offset_commit(call: Call) -> Awaitable[Any]:
    """Add offsets to a transaction, whose commit acknowledges them."""
    answers, refusal = call.answers, refuse_commit(call)
    if sum(len(each.partitions) for each in call.body.topics) > PARTITIONS_MAX:
        refusal = ErrorCode.invalid_request
    found: list[OffsetOfGroup] = []

    async def find(name: str, partition: Any) -> ErrorCode:
        if refusal is not None:
            return refusal
        if len(partition.committed_metadata or "") > NOTE_LENGTH_MAX:
            return ErrorCode.offset_metadata_too_large
        try:
            found.append(await _find_offset(call, name, partition))
        except Unavailable:
            return ErrorCode.coordinator_not_available
        except HANDLED as error:
            return code_of(error)
        return ErrorCode.none

    topics = await for_each_partition(
        call,
        find,
        answers.TxnOffsetCommitResponseTopic,
        answers.TxnOffsetCommitResponsePartition,
    )
    if found:
        code, _ = await attempt(_write_offsets(call, found))
        if code is not ErrorCode.none:

            async def fail(name: str, partition: Any) -> ErrorCode:
                return code

            topics = await for_each_partition(
                call,
                fail,
                answers.TxnOffsetCommitResponseTopic,
                answers.TxnOffsetCommitResponsePartition,
            )
    return Done(
        answers.TxnOffsetCommitResponse(throttle_time=call.throttle_time, topics=topics)
    )


async def _find_offset(call: Call, name: str, wanted: Any) -> OffsetOfGroup:
    """Return an offset of a group that can be committed."""
    topic = await call.find_name(Kind.REPORT_PROGRESS, name, wanted.partition_index)
    offset, group = wanted.committed_offset, parse_subscription(call.body.group_id)
    look = pb.DescribeSubscription(topic=str(topic), subscription=group)
    cursor = end = NEW_GROUP
    try:
        found = await call.do(Kind.DESCRIBE_SUBSCRIPTION, look)
    except SubscriptionNotFound:
        pass
    else:
        cursor, end = found.cursor, found.cursor + found.backlog
    if offset > end:
        described = pb.DescribeTopic(topic=str(topic))
        end = (await call.do(Kind.DESCRIBE_TOPIC, described)).end_offset
    if not 0 <= offset <= end:
        raise Refusal(
            ErrorCode.offset_out_of_range,
            f"{topic} ends at offset {end}; {offset} cannot be committed",
        )
    note = wanted.committed_metadata or ""
    return OffsetOfGroup(str(topic), group, cursor, offset, note)


async def _write_offsets(call: Call, found: Sequence[OffsetOfGroup]) -> None:
    body = call.body

    def add(state: ProducerState) -> ProducerState:
        error = state.check_open(body.producer_id, body.producer_epoch)
        if error is not None:
            raise _refusal(body.transactional_id, error)
        after = state.with_offsets(found)
        if len(after.offsets) > PARTITIONS_MAX:
            raise Refusal(
                ErrorCode.invalid_request,
                f"a transaction commits offsets of at most {PARTITIONS_MAX} partitions",
            )
        if sum(len(each.note) for each in after.offsets) > NOTES_LENGTH_MAX:
            raise Refusal(
                ErrorCode.offset_metadata_too_large,
                f"the texts of a transaction's offsets have at most {NOTES_LENGTH_MAX} "
                "characters together",
            )
        return after

    try:
        await call.server.transactions.change(body.transactional_id, add)
    except Unavailable as error:
        raise Refusal(ErrorCode.coordinator_not_available, str(error)) from error


async def end_txn(call: Call) -> Awaitable[Any]:
    """
    Commit a transaction, or abort it.

    Durability: After a commit, its records and its offsets are on disk.
    """
    body = call.body
    code, _ = await attempt(
        call.server.transactions.end(
            call,
            body.transactional_id,
            (body.producer_id, body.producer_epoch),
            is_committed=body.committed,
        )
    )
    return Done(
        call.answers.EndTxnResponse(throttle_time=call.throttle_time, error_code=code)
    )


async def _acks_of(call: Call, each: OffsetOfGroup) -> pb.TransactionAcks | None:
    """Return what a commit acknowledges of a group's messages, if anything."""
    cursor = each.cursor
    look = pb.DescribeSubscription(topic=each.topic, subscription=each.group)
    if cursor == NEW_GROUP:
        await call.do(
            Kind.REPORT_PROGRESS,
            pb.ReportProgress(
                topic=each.topic, subscription=each.group, offset=0, note=UNCOMMITTED
            ),
        )
        cursor = (await call.do(Kind.DESCRIBE_SUBSCRIPTION, look)).cursor
    if each.offset <= cursor:
        with suppress(NotFound):
            found = await call.do(Kind.DESCRIBE_SUBSCRIPTION, look)
            if found.note == UNCOMMITTED:
                # No acknowledgement will replace the text.
                first = pb.ReportProgress(
                    topic=each.topic,
                    subscription=each.group,
                    offset=found.cursor,
                    is_exact=True,
                    note=each.note,
                )
                await call.do(Kind.REPORT_PROGRESS, first)
        return None
    return pb.TransactionAcks(
        topic=each.topic,
        subscription=each.group,
        ranges=ranges_to_wire([(cursor, each.offset)]),
        note=each.note,
    )


TRANSACTING: dict[Api, Handler] = {
    Api.ADD_OFFSETS_TO_TXN: add_offsets_to_txn,
    Api.ADD_PARTITIONS_TO_TXN: add_partitions_to_txn,
    Api.END_TXN: end_txn,
    Api.TXN_OFFSET_COMMIT: txn_offset_commit,
}
