"""Fetch and ListOffsets: the way of messages to Kafka clients."""

from __future__ import annotations

import asyncio
import secrets
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import field
from typing import Any

from pydanube.model.errors import InvalidRequest, NotOwner, OffsetDropped
from pydanube.model.lazy_dataclasses import dataclass
from pydanube.wire.native.kinds import Kind
from pydanube_broker.broker.publishing.topic import ReliableTopic, Topic
from pydanube_kafka.calls import Call, Done, Handler
from pydanube_kafka.errors import HANDLED, code_of
from pydanube_kafka.pure.fetch_sessions import (
    FINAL_EPOCH,
    FIRST_EPOCH,
    NO_SESSION,
    PARTITIONS_MAX,
    FetchSession,
    Partition,
    Told,
    Wanted,
)
from pydanube_kafka.pure.messages import decode_messages
from pydanube_kafka.session_topics import SessionTopics
from pydanube_kafka.wire.apis import Api, ErrorCode

LATEST = -1
EARLIEST = -2
WAIT_S_MAX = 60.0
"""The longest time for which a request may wait for messages."""
_US_PER_MS = 1000


@dataclass(slots=True)
class _Partition:
    """A partition from which a request fetches."""

    name: str
    """The name of the topic that the client knows."""
    index: int
    offset: int
    bytes_max: int
    topic: ReliableTopic | None = None
    code: ErrorCode = ErrorCode.none
    batches: list[bytes] = field(default_factory=list)
    byte_count: int = 0

    @property
    def end(self) -> int:
        return -1 if self.topic is None else self.topic.end_offset

    @property
    def start(self) -> int:
        return -1 if self.topic is None else self.topic.log.first_kept


async def fetch(call: Call) -> Awaitable[Any]:
    """
    Return messages, and wait for them if there are none.

    Bounds: ``kafka.fetch_bytes_max``, and one batch more.
    """
    code, named = _enter_session(call)
    connection = call.connection
    session, session_topics = connection.fetch_session, connection.session_topics
    if code is not ErrorCode.none:
        return Done(
            call.answers.FetchResponse(
                throttle_time=call.throttle_time,
                error_code=code,
                session_id=NO_SESSION,
                responses=(),
            )
        )
    if session is None or session_topics is None:
        found = [await _open(call, *each) for each in named.items()]
        return _fetch(call, found)
    permissions = call.server.broker.access.policy, connection.identity.principal
    due = session_topics.take_due(session.wanted, named, permissions)
    found = await _open_each(call, session, session_topics, due)
    return _fetch_in_session(call, session, session_topics, found)


async def _open_each(
    call: Call,
    session: FetchSession,
    session_topics: SessionTopics,
    due: Iterable[Partition],
) -> list[_Partition]:
    """Open partitions of a session, and follow their topics."""
    found = []
    for partition in due:
        wanted = session.wanted.get(partition)
        if wanted is not None:
            each = await _open(call, partition, wanted)
            session_topics.watch(partition, each.topic)
            found.append(each)
    return found


def _enter_session(call: Call) -> tuple[ErrorCode, dict[Partition, Wanted]]:
    """Return an error, or the partitions that a request names."""
    body, connection = call.body, call.connection
    named = {
        (each.topic, partition.partition): Wanted(
            partition.fetch_offset, max(0, partition.partition_max_bytes)
        )
        for each in body.topics
        for partition in each.partitions
    }
    # Before version 7, there are no sessions.
    session_id = getattr(body, "session_id", NO_SESSION)
    epoch = getattr(body, "session_epoch", FINAL_EPOCH)
    session = connection.fetch_session
    if epoch in {FIRST_EPOCH, FINAL_EPOCH}:
        connection.end_fetch_session()
        if epoch == FIRST_EPOCH and len(named) <= PARTITIONS_MAX:
            session = FetchSession(1 + secrets.randbits(30), dict(named))
            connection.begin_fetch_session(session)
        return ErrorCode.none, named
    if session is None or session.session_id != session_id:
        return ErrorCode.fetch_session_id_not_found, {}
    if session.epoch != epoch:
        return ErrorCode.invalid_fetch_session_epoch, {}
    forgotten = [
        (each.topic, index)
        for each in body.forgotten_topics_data
        for index in each.partitions
    ]
    if connection.session_topics is not None:
        connection.session_topics.forget(forgotten)
    if not session.update(named.items(), forgotten):
        connection.end_fetch_session()
        return ErrorCode.fetch_session_id_not_found, {}
    return ErrorCode.none, named


async def _open(call: Call, partition: Partition, wanted: Wanted) -> _Partition:
    name, index = partition
    found = _Partition(name, index, wanted.offset, wanted.bytes_max)
    try:
        topic = await _readable(call, name, index)
        if not topic.log.first_kept <= found.offset <= topic.end_offset:
            raise OffsetDropped(
                f"{topic.name} has no offset {found.offset} to read from"
            )
        found.topic = topic
    except HANDLED as error:
        found.code = code_of(error)
    return found


async def _readable(call: Call, name: str, index: int) -> ReliableTopic:
    """Return a partition that the client may read."""
    topic: Topic = await call.find_topic(Kind.OPEN_CONSUMER, name, index)
    if not isinstance(topic, ReliableTopic):
        raise InvalidRequest(f"{topic.name} is not reliable: its messages are not kept")
    return topic


@dataclass(slots=True)
class _Limits:
    """How much a request wants, and until when it waits for it."""

    bytes_max: int
    bytes_min: int
    until: float


def _limits_of(call: Call) -> _Limits:
    body = call.body
    wait_s = min(max(0.0, body.max_wait.total_seconds()), WAIT_S_MAX)
    return _Limits(
        bytes_max=min(max(0, body.max_bytes), call.server.config.fetch_bytes_max),
        bytes_min=max(1, body.min_bytes),
        until=asyncio.get_running_loop().time() + wait_s,
    )


async def _fetch(call: Call, partitions: list[_Partition]) -> Any:
    limits, has_news = _limits_of(call), asyncio.Event()
    unwatch = [
        each.topic.log.watch(has_news.set)
        for each in partitions
        if each.topic is not None
    ]
    try:
        while True:
            has_news.clear()
            await _read_some(call, partitions, limits.bytes_max)
            if not partitions or _is_enough(partitions, limits.bytes_min):
                break
            if not await _comes(has_news, limits.until):
                break
    finally:
        for end in unwatch:
            end()
    return _answer(call, NO_SESSION, partitions)


async def _fetch_in_session(
    call: Call,
    session: FetchSession,
    session_topics: SessionTopics,
    partitions: list[_Partition],
) -> Any:
    """Fetch from *partitions*, and from those of the session with news meanwhile."""
    limits, has_news = _limits_of(call), session_topics.has_news
    offsets = {(each.name, each.index): each.offset for each in partitions}
    try:
        while True:
            # Also the first time: since the partitions were chosen, others may have got
            # messages.
            has_news.clear()
            news = session_topics.take_news(session.wanted)
            new = [each for each in news if each not in offsets]
            opened = await _open_each(call, session, session_topics, new)
            offsets |= {(each.name, each.index): each.offset for each in opened}
            partitions += opened
            await _read_some(call, partitions, limits.bytes_max)
            if not session.wanted or _is_enough(partitions, limits.bytes_min):
                break
            if not await _comes(has_news, limits.until):
                break
    finally:
        # Also if nobody gets the answer: those with records have their turn later.
        for each in sorted(partitions, key=lambda each: bool(each.batches)):
            partition = each.name, each.index
            if each.code is not ErrorCode.none or each.end > offsets[partition]:
                session_topics.note(partition)
    told = [each for each in partitions if _is_news(session, each.name, each)]
    return _answer(call, session.session_id, told)


async def _comes(event: asyncio.Event, until: float) -> bool:
    """Return whether *event* is set before the time *until*."""
    try:
        async with asyncio.timeout_at(until):
            await event.wait()
    except TimeoutError:
        return False
    return True


def _is_news(session: FetchSession, name: str, each: _Partition) -> bool:
    has_more = bool(each.batches) or each.code is not ErrorCode.none
    told = Told(each.start, each.end)
    return session.is_news((name, each.index), told, has_more=has_more)


def _is_enough(partitions: list[_Partition], bytes_min: int) -> bool:
    return (
        any(each.code is not ErrorCode.none for each in partitions)
        or sum(each.byte_count for each in partitions) >= bytes_min
    )


async def _read_some(call: Call, partitions: list[_Partition], bytes_max: int) -> None:
    """Read what there is for each partition, as far as the limits allow."""
    total = sum(each.byte_count for each in partitions)
    for each in partitions:
        topic = each.topic
        if topic is None or each.code is not ErrorCode.none:
            continue
        try:
            if call.server.broker.topics.find_open(topic.name) is not topic:
                raise NotOwner(f"another broker serves {topic.name}")
            while each.offset < topic.end_offset:
                room = min(each.bytes_max - each.byte_count, bytes_max - total)
                # The first batch comes in any case: a client could not go on.
                if room <= 0 and total:
                    break
                frames = await topic.log.read(each.offset, bytes_max=max(1, room))
                for frame in frames:
                    if total and frame.byte_count > room:
                        break
                    if each.batches and frame.base < each.offset:
                        # Sealing has joined batches meanwhile.  Clients drop messages
                        # before the offset that they asked for, but librdkafka returns
                        # those that come twice in one answer.
                        break
                    data = await call.server.encoded.encode(topic.topic_id, frame)
                    each.batches.append(data)
                    each.byte_count += len(data)
                    total += len(data)
                    room -= len(data)
                    each.offset = frame.end
                else:
                    if frames:
                        continue
                break
        except HANDLED as error:
            if not each.batches:
                each.code = code_of(error)


def _answer(call: Call, session_id: int, partitions: list[_Partition]) -> Any:
    answers = call.answers
    topics: dict[str, list[_Partition]] = {}
    for each in partitions:
        topics.setdefault(each.name, []).append(each)
    return answers.FetchResponse(
        throttle_time=call.throttle_time,
        error_code=ErrorCode.none,
        session_id=session_id,
        responses=tuple(
            answers.FetchableTopicResponse(
                topic=name,
                partitions=tuple(
                    answers.PartitionData(
                        partition_index=each.index,
                        error_code=each.code,
                        high_watermark=each.end,
                        last_stable_offset=each.end,
                        log_start_offset=each.start,
                        aborted_transactions=None,
                        records=b"".join(each.batches),
                    )
                    for each in partitions
                ),
            )
            for name, partitions in topics.items()
        ),
    )


async def list_offsets(call: Call) -> Awaitable[Any]:
    """Return offsets by time, and those of the first and the next message."""
    answers = call.answers
    topics = []
    for each in call.body.topics:
        partitions = [
            await _find_offset(call, each.name, wanted) for wanted in each.partitions
        ]
        topics.append(
            answers.ListOffsetsTopicResponse(
                name=each.name, partitions=tuple(partitions)
            )
        )
    return Done(
        answers.ListOffsetsResponse(
            throttle_time=call.throttle_time, topics=tuple(topics)
        )
    )


async def _find_offset(call: Call, name: str, wanted: Any) -> Any:
    make: Callable[..., Any] = call.answers.ListOffsetsPartitionResponse
    index = wanted.partition_index
    try:
        topic = await call.find_topic(Kind.FIND_OFFSETS, name, index)
        offset, time = await _look_up(topic, wanted.timestamp)
    except HANDLED as error:
        return make(
            partition_index=index, error_code=code_of(error), timestamp=-1, offset=-1
        )
    return make(
        partition_index=index,
        error_code=ErrorCode.none,
        timestamp=time,
        offset=offset,
        leader_epoch=-1,
    )


async def _look_up(topic: Topic, time: int) -> tuple[int, int]:
    """Return the offset for a time in milliseconds, and the time of its message."""
    if not isinstance(topic, ReliableTopic) or time == LATEST:
        return topic.end_offset, -1
    if time == EARLIEST:
        return topic.log.first_kept, -1
    if time < 0:
        raise InvalidRequest(f"the time {time} is none of -1, -2 and those since 1970")
    (offset,), _, end = await topic.find_offsets([time * _US_PER_MS])
    if offset >= end:
        return -1, -1
    frames = await topic.log.read(offset, bytes_max=1)
    if not frames:
        return offset, time
    records, offsets = decode_messages(frames[0])
    return offset, records.timestamps[bisect_left(offsets, offset)]


FETCHING: dict[Api, Handler] = {Api.FETCH: fetch, Api.LIST_OFFSETS: list_offsets}
