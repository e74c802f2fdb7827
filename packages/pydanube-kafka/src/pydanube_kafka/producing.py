"""Produce and InitProducerId: the way of records into topics."""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Any, TypeVar

from pydanube.aio.locks import NamedSemaphores
from pydanube.model.errors import (
    BrokerError,
    InvalidRequest,
    MessageTooLarge,
    SchemaMismatch,
)
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.model.schemas import SchemaPolicy
from pydanube.schemas.language import BadPayload
from pydanube.wire.batches import BatchFrame, BatchHeader, restamp_producer
from pydanube.wire.native.kinds import Kind
from pydanube_broker.broker.broker import Broker
from pydanube_broker.broker.publishing.message_batcher import BATCH_BYTES_MAX
from pydanube_broker.broker.publishing.topic import Topic
from pydanube_broker.broker.pure.limits import too_large
from pydanube_broker.broker.pure.producer_session import ProducerSession
from pydanube_kafka.calls import NO_ANSWER, Call, Done, Handler, waiting
from pydanube_kafka.errors import HANDLED, code_of
from pydanube_kafka.pure.messages import encode_messages
from pydanube_kafka.pure.transactions import SEQUENCE_END
from pydanube_kafka.pure.unstored_batches import ProducerKey
from pydanube_kafka.pure.value_prefix import (
    RUNS_MAX,
    Run,
    divide,
    ids_of,
)
from pydanube_kafka.transaction_parts import TransactionParts
from pydanube_kafka.wire.apis import Api, ErrorCode
from pydanube_kafka.wire.record_batches import (
    BadRecords,
    RecordBatch,
    Records,
    decode_batches,
)

T = TypeVar("T")
INLINE_BYTES_MAX = 64 * 1024
"""Larger batches are decoded in a thread."""
INLINE_RECORDS_MAX = 2000
"""Batches with more records, too: few compressed bytes may have 65,536 of them."""
SESSION_IDLE_S = 600.0
"""An idempotent producer that was silent for so long is closed; it may continue."""
FOR_GOOD = frozenset(
    {
        ErrorCode.invalid_record,
        ErrorCode.message_too_large,
        ErrorCode.policy_violation,
        ErrorCode.transaction_abortable,
    }
)
"""The errors of a batch after which clients abort its transaction."""
_EPOCH_MAX = 2**15 - 1


@dataclass(slots=True, eq=False)
class OpenSession:
    """The session of an idempotent producer on a partition."""

    topic: Topic
    session: ProducerSession
    used_at: float


class ProducerSessions:
    """
    The sessions of idempotent producers.

    Bounds: *sessions_max* sessions.
    """

    def __init__(self, broker: Broker, sessions_max: int) -> None:
        self._broker = broker
        self._sessions_max = sessions_max
        # Those that were used last are at the end.
        self._open: OrderedDict[tuple[Topic, str], OpenSession] = OrderedDict()
        self._opening: NamedSemaphores[tuple[Topic, str]] = NamedSemaphores(1)
        self._clock = asyncio.get_running_loop().time

    async def get(self, topic: Topic, producer_id: int, epoch: int) -> OpenSession:
        """
        Return the session of a producer on a topic, which is opened if necessary.

        Raises:
            BrokerError: As ``Producers.open``.
        """
        key = topic, f"kafka-{producer_id}-{epoch}"
        async with self._opening.of(key):
            found = self._open.get(key)
            if found is not None and _is_valid(found):
                found.used_at = self._clock()
                self._open.move_to_end(key)
                return found
            opened, session = await self._broker.producers.open(
                topic.name, key[1], policy=None, takes_any_kind=True
            )
            found = self._open[key] = OpenSession(opened, session, self._clock())
            self._open.move_to_end(key)
        while len(self._open) > self._sessions_max:
            self._close(next(iter(self._open)))
        return found

    def sweep(self) -> None:
        """Close the sessions of silent producers, and those of topics that moved."""
        until = self._clock() - SESSION_IDLE_S
        for key, each in list(self._open.items()):
            if each.used_at <= until or not _is_valid(each):
                self._close(key)

    @property
    def topics(self) -> set[Topic]:
        """The topics to which idempotent producers have sessions."""
        return {topic for topic, _ in self._open}

    def close(self) -> None:
        """Close all sessions."""
        for key in list(self._open):
            self._close(key)

    def _close(self, key: tuple[Topic, str]) -> None:
        found = self._open.pop(key)
        if _is_valid(found):
            self._broker.producers.close(found.topic, found.session, forget=False)


def _is_valid(found: OpenSession) -> bool:
    registration = found.session.registration
    return (
        found.topic.gone is None and registration is not None and registration.is_valid
    )


async def init_producer_id(call: Call) -> Awaitable[Any]:
    """Give an idempotent producer an id, or a new epoch of the one that it has."""
    body, answers = call.body, call.answers
    producer_id, epoch, code = -1, -1, ErrorCode.none
    known = getattr(body, "producer_id", -1)
    last = getattr(body, "producer_epoch", -1)
    if body.transactional_id is not None:
        try:
            producer_id, epoch = await call.server.transactions.init(
                call,
                body.transactional_id,
                body.transaction_timeout.total_seconds(),
                (known, last),
            )
        except HANDLED as error:
            code = code_of(error)
    elif known >= 0 and 0 <= last < _EPOCH_MAX:
        producer_id, epoch = known, last + 1
    else:
        # Nobody guesses the id of another producer, in any broker.
        producer_id, epoch = secrets.randbits(62), 0
    return Done(
        answers.InitProducerIdResponse(
            throttle_time=call.throttle_time,
            error_code=code,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
    )


@dataclass(frozen=True, slots=True)
class _Result:
    """The outcome of the records for one partition."""

    code: ErrorCode = ErrorCode.none
    base_offset: int = -1
    base_start: int = -1
    message: str | None = None
    bad: Sequence[BadPayload] = ()


async def produce(call: Call) -> Awaitable[Any]:
    """
    Publish records.

    Durability: The answer to ``acks`` 1 and -1 comes when the records of reliable
        topics are on disk.

    Ordering: The records of one connection get their offsets in their order.
    """
    results = []
    for topic_data in call.body.topic_data:
        partitions = [
            (each.index, await _publish(call, topic_data.name, each))
            for each in topic_data.partition_data
        ]
        results.append((topic_data.name, partitions))
    answer = _answer(call, results)
    if call.body.acks == 0:
        call.server.tasks.run(_discard(answer))
        return Done(NO_ANSWER)
    return answer


async def _publish(call: Call, name: str, data: Any) -> Awaitable[_Result]:
    """Publish the records for one partition; the result comes when they are stored."""
    batches: list[RecordBatch] = []
    try:
        batches = list(decode_batches(data.records or b""))
        # Before anything is refused.
        key = _note_batch(call, name, data.index, batches)
        topic = await call.find_topic(Kind.OPEN_PRODUCER, name, data.index)
        await _wait_for_room(call, topic)
        if len(batches) != 1 or batches[0].is_control or not batches[0].count:
            raise BadRecords("one batch with records is needed for each partition")
        if batches[0].is_transactional != (call.body.transactional_id is not None):
            raise InvalidRequest("only transactional producers send such batches")
        if batches[0].is_transactional:
            return await _stage_batch(call, topic, batches[0])
        return await _publish_batch(call, topic, batches[0], key)
    except HANDLED as error:
        if batches and batches[0].is_transactional:
            await _refuse_staged(call, name, data.index, batches[0], code_of(error))
        return Done(_failed(error))


def _note_batch(
    call: Call, kafka_name: str, index: int, batches: list[RecordBatch]
) -> ProducerKey | None:
    """Note the batch of an idempotent producer until it is stored."""
    if len(batches) != 1 or batches[0].producer_id < 0 or batches[0].is_transactional:
        return None
    (batch,) = batches
    name = call.server.names.parse(kafka_name)
    key = name, index, batch.producer_id, batch.producer_epoch
    if batch.base_sequence >= 0:
        call.connection.unstored.add(key, batch.base_sequence)
    return key


async def _refuse_staged(
    call: Call, kafka_name: str, index: int, batch: RecordBatch, code: ErrorCode
) -> None:
    """Note that a batch of a transaction was refused."""
    parts, transactional_id = call.server.transactions.parts, call.body.transactional_id
    producer = batch.producer_id, batch.producer_epoch
    with suppress(*HANDLED):
        name = await call.find_name(Kind.OPEN_PRODUCER, kafka_name, index)
        if code in FOR_GOOD:
            parts.forget(transactional_id or "", producer, name)
            return
        now = call.server.parts.wall_clock_us()
        sequence = batch.base_sequence
        parts.refuse(transactional_id or "", producer, name, sequence, now)


async def _wait_for_room(call: Call, topic: Topic) -> None:
    topics, clock = call.server.broker.topics, asyncio.get_running_loop().time
    delay_s = topic.publish_delay_s(clock())
    while delay_s > 0:
        await asyncio.sleep(delay_s)
        delay_s = topic.publish_delay_s(clock())
    if not topics.has_room:
        await topics.wait_for_room()


async def _publish_batch(
    call: Call, topic: Topic, batch: RecordBatch, key: ProducerKey | None
) -> Awaitable[_Result]:
    now_us = call.server.parts.wall_clock_us()
    session: ProducerSession | None = None
    producer = call.request.client_id or "kafka"
    header = BatchHeader(first_publish_time=now_us, last_publish_time=now_us)
    unstored = call.connection.unstored
    if key is not None:
        opened = await call.server.sessions.get(
            topic, batch.producer_id, batch.producer_epoch
        )
        # It may have been opened again meanwhile.
        topic, session = opened.topic, opened.session
        producer = session.name
        if unstored.is_first(key, batch.base_sequence):
            session.begin_at(batch.base_sequence)
        header.producer_id, header.producer_epoch = session.producer_id, session.epoch
        header.base_sequence = _unwrapped(batch.base_sequence, session.next_sequence)
    header.producer = producer
    frames = await _frames_of(call, topic, batch, header)
    if session is None:
        fenced = topic.registrations.find_fencing(producer)
        if fenced is not None:
            raise fenced
    # Nothing is awaited in between: the offsets of a batch follow each other.
    starts = accumulate((each.count for each in frames), initial=0)
    result = _joined(
        [
            _publish_frame(topic, session, each, start)
            for each, start in zip(frames, starts, strict=False)
        ]
    )
    if key is not None:

        def remove(done: asyncio.Future[_Result]) -> None:
            if not done.cancelled() and done.result().code is ErrorCode.none:
                unstored.remove(key, batch.base_sequence)

        result.add_done_callback(remove)
    return result


def _publish_frame(
    topic: Topic, session: ProducerSession | None, frame: BatchFrame, start: int
) -> asyncio.Future[_Result]:
    """
    Publish a batch of the broker; the result comes when it is stored.

    Its first message is number *start* of the client's batch.
    """
    frame.is_verified = True
    stored: asyncio.Future[_Result] = waiting()

    def on_published(offsets: int | Sequence[int], error: BrokerError | None) -> None:
        if stored.done():
            return
        if error is not None:
            # As a result, because the client may have disconnected.
            stored.set_result(_failed(error))
        else:
            base = offsets if isinstance(offsets, int) else offsets[0]
            start = topic.offsets().base_offset
            stored.set_result(_Result(base_offset=base, base_start=start))

    def reject(bad: Sequence[BadPayload]) -> BatchFrame | None:
        # It is stored whole, or not at all.
        if not stored.done():
            stored.set_result(_rejected([(start + at, why) for at, why in bad]))
        return None

    try:
        if session is not None:
            topic.publish(session, frame, on_published)
        else:
            topic.publish_batched(frame, on_published, reject)
    except BrokerError as error:
        on_published(0, error)
    return stored


def _joined(parts: list[asyncio.Future[_Result]]) -> asyncio.Future[_Result]:
    """Return the result of a batch that was divided: that of the first part to fail."""
    if len(parts) == 1:
        return parts[0]
    joined: asyncio.Future[_Result] = waiting()
    left = len(parts)

    def count(_: asyncio.Future[_Result]) -> None:
        nonlocal left
        left -= 1
        if left == 0 and not joined.done():
            results = [each.result() for each in parts]
            failed = (each for each in results if each.code is not ErrorCode.none)
            joined.set_result(next(failed, results[0]))

    for each in parts:
        each.add_done_callback(count)
    return joined


async def _frames_of(
    call: Call, topic: Topic, batch: RecordBatch, header: BatchHeader
) -> list[BatchFrame]:
    """
    Return *batch* as the broker's; large ones are converted in threads.

    If its values name their schemas, it is divided where the schema changes: each batch
    of the broker has one.

    Raises:
        SchemaMismatch: The topic needs a schema, and not all values name one.
        MessageTooLarge: A message or the batch is too large.
    """
    is_long = len(batch.body) > INLINE_BYTES_MAX
    in_thread = is_long or batch.count > INLINE_RECORDS_MAX

    async def run(convert: Callable[..., T], *arguments: Any) -> T:
        if not in_thread:
            return convert(*arguments)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, convert, *arguments)

    records = await run(_decode, batch, topic.limits.max_message_size)
    runs, ids = list[Run](), await run(ids_of, records.values)
    if ids:
        known = await call.server.prefixes.find_all(ids)
        runs = await run(divide, records, known)
        if not runs:
            _check_may_lack_schema(topic, ids - known.keys())
    frames = []
    for each in runs or [Run(None, 0, records)]:
        own = replace(header, base_sequence=header.base_sequence + each.start)
        if each.prefix is not None:
            own.schema_id, own.schema_version = (
                each.prefix.schema_id,
                each.prefix.version,
            )
        now_us = header.first_publish_time
        frames.append(await run(encode_messages, each.records, own, now_us))
        if frames[-1].byte_count > BATCH_BYTES_MAX:
            raise too_large(frames[-1].byte_count, BATCH_BYTES_MAX, topic.name)
    return frames


def _check_may_lack_schema(topic: Topic, unknown: Set[int]) -> None:
    """Raise if a topic needs a schema, and say why the values of a batch name none."""
    schema = topic.schema
    if schema is None or schema.policy is not SchemaPolicy.ENFORCE:
        return
    if unknown:
        reason = "these ids, or some of them, are not in the registry: " + ", ".join(
            map(str, sorted(unknown)[:5])
        )
    else:
        reason = (
            "not all values of the batch begin with the id of a schema and have bytes "
            f"after it, or the id changes more than {RUNS_MAX} times"
        )
    raise SchemaMismatch(
        f"{topic.name} requires messages of schema subject '{schema.subject}'; {reason}"
    )


async def _stage_batch(
    call: Call, topic: Topic, batch: RecordBatch
) -> Awaitable[_Result]:
    """Add a batch to a transaction; the result comes when it is on disk."""
    parts = call.server.transactions.parts
    transactional_id = call.body.transactional_id or ""
    producer = batch.producer_id, batch.producer_epoch
    writer, state = await parts.open_writer(transactional_id, producer, topic)
    forget = partial(parts.forget, transactional_id, producer, topic.name)
    now_us = call.server.parts.wall_clock_us()
    header = BatchHeader(first_publish_time=now_us, last_publish_time=now_us)
    if writer.stage is not None:
        header.producer = writer.stage.producer
    # Before its turn is taken: a batch that cannot be converted is not counted.
    frames = await _frames_of(call, topic, batch, header)
    if writer.stage is None or not parts.place(
        transactional_id, state, topic, batch.base_sequence, batch.count
    ):
        return _staged(parts, writer.written(), forget)
    for each in frames:
        if writer.stage is None:
            # The one before has ended the part.
            break
        restamp_producer(each, 0, 0, writer.stage.next_sequence)
        writer.put(each)
    return _staged(parts, writer.written(), forget)


def _staged(
    parts: TransactionParts,
    written: asyncio.Future[BrokerError | None],
    forget: Callable[[], None],
) -> asyncio.Future[_Result]:
    """
    Return the result for a batch of which the stage tells *written*.

    If it has failed for good, *forget* is called.
    """
    result = waiting()

    def tell(done: asyncio.Future[BrokerError | None]) -> None:
        if result.done() or done.cancelled():
            return
        error = done.result()
        if error is None:
            try:
                parts.check_session()
            except BrokerError as lost:
                error = lost
        if error is not None and code_of(error) in FOR_GOOD:
            forget()
        result.set_result(_Result() if error is None else _failed(error))

    written.add_done_callback(tell)
    return result


def _rejected(bad: Sequence[BadPayload]) -> _Result:
    """Return the outcome of records of which *bad* do not match the topic's schema."""
    at, why = bad[0]
    message = f"record {at} does not match the topic's schema: {why}"
    return _Result(ErrorCode.invalid_record, message=message, bad=bad)


def _decode(batch: RecordBatch, message_bytes_max: int | None) -> Records:
    records = batch.records()
    if message_bytes_max:
        longest = max(len(value or b"") for value in records.values)
        if longest > message_bytes_max:
            raise MessageTooLarge(
                f"a record has {longest} bytes; the topic allows {message_bytes_max}"
            )
    return records


def _unwrapped(sequence: int, expected: int) -> int:
    """Return the number near *expected* that *sequence* is, without its wrapping."""
    if sequence < 0:
        raise BadRecords("an idempotent producer must number its records")
    base = expected - expected % SEQUENCE_END
    candidates = (base + sequence - SEQUENCE_END, base + sequence)
    return min(
        (each for each in (*candidates, base + sequence + SEQUENCE_END) if each >= 0),
        key=lambda each: abs(each - expected),
    )


def _failed(error: Exception) -> _Result:
    return _Result(code_of(error), message=str(error))


async def _discard(answer: Awaitable[Any]) -> None:
    await answer


async def _answer(
    call: Call, results: list[tuple[str, list[tuple[int, Awaitable[_Result]]]]]
) -> Any:
    answers = call.answers
    responses = []
    for name, partitions in results:
        finished = [(index, await result) for index, result in partitions]
        responses.append(
            answers.TopicProduceResponse(
                name=name,
                partition_responses=tuple(
                    answers.PartitionProduceResponse(
                        index=index,
                        error_code=each.code,
                        base_offset=each.base_offset,
                        log_append_time=None,
                        log_start_offset=each.base_start,
                        record_errors=tuple(
                            answers.BatchIndexAndErrorMessage(
                                batch_index=at, batch_index_error_message=str(why)
                            )
                            for at, why in each.bad
                        ),
                        error_message=each.message,
                    )
                    for index, each in finished
                ),
            )
        )
    return answers.ProduceResponse(
        responses=tuple(responses), throttle_time=call.throttle_time
    )


PRODUCING: dict[Api, Handler] = {
    Api.INIT_PRODUCER_ID: init_producer_id,
    Api.PRODUCE: produce,
}
