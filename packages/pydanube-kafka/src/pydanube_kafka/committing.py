"""The offsets that groups commit, which are the cursors of their subscriptions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine
from typing import Any, NamedTuple

from pydanube.aio.long_work import LongWork
from pydanube.aio.tasks import gather
from pydanube.model.errors import InvalidRequest, SubscriptionNotFound
from pydanube.model.names import TopicName, parse_subscription
from pydanube.wire.native.kinds import Kind
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.broker.serving.subscriptions import NOTE_LENGTH_MAX
from pydanube_broker.metadata import keys
from pydanube_broker.operations.authorization import authorized
from pydanube_broker.operations.topic_lists import free, visible_records
from pydanube_kafka.calls import Call, Done, Handler
from pydanube_kafka.coordinating import claim_of, group_code, refuse_foreign
from pydanube_kafka.errors import HANDLED, attempt, code_of
from pydanube_kafka.group_access import find_room, is_busy
from pydanube_kafka.pure.groups import Claim, Group, GroupError
from pydanube_kafka.topic_facts import parsed
from pydanube_kafka.wire.apis import Api, ErrorCode, Request

UNCOMMITTED = "A transaction of a Kafka client is about to commit the first offset."
"""The text with the cursor of a group that has committed nothing yet."""


async def offset_commit(call: Call) -> Awaitable[Any]:
    """
    Commit offsets: the cursors of the subscriptions with the name of the group.

    Durability: The answer comes when they are on disk.
    """
    return _commit(call)


async def _commit(call: Call) -> Any:
    answers, refusal = call.answers, refuse_commit(call)

    async def commit(name: str, partition: Any) -> ErrorCode:
        return await _commit_one(call, name, partition, refusal)

    return answers.OffsetCommitResponse(
        throttle_time=call.throttle_time,
        topics=await for_each_partition(
            call,
            commit,
            answers.OffsetCommitResponseTopic,
            answers.OffsetCommitResponsePartition,
        ),
    )


async def for_each_partition(
    call: Call,
    act: Callable[[str, Any], Coroutine[Any, Any, ErrorCode]],
    make_topic: Callable[..., Any],
    make_partition: Callable[..., Any],
) -> tuple[Any, ...]:
    """Return the topics of an answer, with the code of *act* for each partition."""
    topics = call.body.topics
    works = [act(each.name, some) for each in topics for some in each.partitions]
    codes = iter(await gather(works))
    return tuple(
        make_topic(
            name=each.name,
            partitions=tuple(
                make_partition(
                    partition_index=some.partition_index, error_code=next(codes)
                )
                for some in each.partitions
            ),
        )
        for each in topics
    )


def refuse_commit(call: Call) -> ErrorCode | None:
    """Return why the sender of a request may not commit offsets, if it may not."""
    groups, group_id = call.server.groups, call.body.group_id
    error_code = refuse_foreign(call, group_id)
    if error_code is not None:
        return error_code
    claim = claim_of(call.body)
    if claim.generation < 0 and not claim.member_id:
        is_refused = is_busy(call, group_id, _topics_of(call))
        return ErrorCode.unknown_member_id if is_refused else None
    room = find_room(call, group_id, claim.member_id)
    if room is None:
        return ErrorCode.unknown_member_id
    group = room.group
    error = group.check_commit(claim)
    if error is None and isinstance(group, Group) and claim.member_id in group.members:
        # It is alive.
        group.heartbeat(claim, asyncio.get_running_loop().time())
        groups.settle(room)
    if error is GroupError.STALE_EPOCH and not _knows_epochs(call.request):
        error = GroupError.ILLEGAL_GENERATION
    return None if error is None else group_code(error)


def _topics_of(call: Call) -> set[TopicName]:
    """Return the topics that a request names."""
    names = (each.name for each in call.body.topics)
    return {topic for each in names if (topic := parsed(call.server.names, each))}


def _knows_epochs(request: Request) -> bool:
    """Return whether the client knows the error of members with another epoch."""
    return request.api is Api.OFFSET_COMMIT and request.version >= 9


async def _commit_one(
    call: Call, name: str, partition: Any, refusal: ErrorCode | None
) -> ErrorCode:
    if refusal is not None:
        return refusal
    if len(partition.committed_metadata or "") > NOTE_LENGTH_MAX:
        return ErrorCode.offset_metadata_too_large
    code, _ = await attempt(
        _set_cursor(
            call,
            name,
            partition.partition_index,
            partition.committed_offset,
            partition.committed_metadata or "",
        )
    )
    return code


async def _set_cursor(
    call: Call, name: str, index: int, offset: int, note: str
) -> None:
    topic = await call.find_name(Kind.REPORT_PROGRESS, name, index)
    if offset < 0:
        raise InvalidRequest(f"the offset {offset} is negative")
    await call.do(
        Kind.REPORT_PROGRESS,
        pb.ReportProgress(
            topic=str(topic),
            subscription=parse_subscription(call.body.group_id),
            offset=offset,
            is_exact=True,
            note=note,
        ),
    )


async def offset_fetch(call: Call) -> Awaitable[Any]:
    """Return the offsets that groups have committed."""
    body, answers = call.body, call.answers
    groups = getattr(body, "groups", None)
    if groups is None:
        code, topics = await _committed(call, body.group_id, body.topics)
        return Done(
            answers.OffsetFetchResponse(
                throttle_time=call.throttle_time,
                error_code=code,
                topics=_fetched(
                    topics,
                    answers.OffsetFetchResponseTopic,
                    answers.OffsetFetchResponsePartition,
                ),
            )
        )
    found = []
    for each in groups:
        code, topics = _refuse_fetch(call, each), Committed()
        if code is ErrorCode.none:
            code, topics = await _committed(call, each.group_id, each.topics)
        found.append(
            answers.OffsetFetchResponseGroup(
                group_id=each.group_id,
                topics=_fetched(
                    topics,
                    answers.OffsetFetchResponseTopics,
                    answers.OffsetFetchResponsePartitions,
                ),
                error_code=code,
            )
        )
    return Done(
        answers.OffsetFetchResponse(
            throttle_time=call.throttle_time, groups=tuple(found)
        )
    )


def _refuse_fetch(call: Call, wanted: Any) -> ErrorCode:
    """Return why a member may not ask for offsets: it is none, or of another epoch."""
    member_id = getattr(wanted, "member_id", None)
    epoch = getattr(wanted, "member_epoch", -1)
    if (not member_id and epoch < 0) or refuse_foreign(call, wanted.group_id):
        return ErrorCode.none
    room = find_room(call, wanted.group_id, member_id or "")
    if room is None:
        return ErrorCode.unknown_member_id
    claim = Claim(member_id=member_id or "", generation=epoch)
    return group_code(room.group.check_commit(claim))


Committed = list[tuple[str, list[tuple[int, "CommittedOffset"]]]]


class CommittedOffset(NamedTuple):
    """The offset that a group has committed for a partition."""

    offset: int = -1
    note: str = ""
    """The text that was committed with it."""
    code: ErrorCode = ErrorCode.none


async def _committed(
    call: Call, group_id: str, topics: Any
) -> tuple[ErrorCode, Committed]:
    """Return an error, and topics, partitions, and their committed offsets or -1."""
    refusal = refuse_foreign(call, group_id)
    if refusal is not None:
        return refusal, [
            (
                each.name,
                [
                    (index, CommittedOffset(code=refusal))
                    for index in each.partition_indexes
                ],
            )
            for each in topics or ()
        ]
    if topics is None:
        return ErrorCode.none, await _all_committed(call, group_id)
    pending = await _pending(call, group_id)
    works = [
        _cursor_of(call, group_id, each.name, index, pending)
        for each in topics
        for index in each.partition_indexes
    ]
    found = iter(await gather(works))
    return ErrorCode.none, [
        (each.name, [(index, next(found)) for index in each.partition_indexes])
        for each in topics
    ]


async def _pending(call: Call, group_id: str) -> Collection[str]:
    """Return topics whose offsets a client that asks for stable ones must wait for."""
    if not getattr(call.body, "require_stable", False):
        return set()
    # Before the cursors are read: what is decided then is in them.
    return await call.server.transactions.pending(group_id)


async def _cursor_of(
    call: Call, group_id: str, name: str, index: int, pending: Collection[str] = ()
) -> CommittedOffset:
    """Return the offset that a group has committed, or -1, and an error."""
    try:
        topic = await call.find_name(Kind.DESCRIBE_SUBSCRIPTION, name, index)
        if str(topic) in pending:
            return CommittedOffset(code=ErrorCode.unstable_offset_commit)
        found = await call.do(
            Kind.DESCRIBE_SUBSCRIPTION,
            pb.DescribeSubscription(topic=str(topic), subscription=group_id),
        )
    except SubscriptionNotFound:
        return CommittedOffset()
    except HANDLED as error:
        return CommittedOffset(code=code_of(error))
    if found.note == UNCOMMITTED:
        return CommittedOffset()
    return CommittedOffset(found.cursor, found.note)


async def _all_committed(call: Call, group_id: str) -> Committed:
    found: dict[str, list[tuple[int, CommittedOffset]]] = {}
    pending = await _pending(call, group_id)
    for topic in (await committed_topics(call, group_id)).get(group_id, ()):
        base, index = topic.split_partition() or (topic, 0)
        name = call.server.names.name_of(base)
        assert name is not None
        each = await _cursor_of(call, group_id, name, index, pending)
        if each.offset >= 0 or each.code is not ErrorCode.none:
            found.setdefault(name, []).append((index, each))
    return list(found.items())


async def committed_topics(
    call: Call, group_id: str | None = None
) -> dict[str, list[TopicName]]:
    """
    Return groups that have committed offsets, with topics that the client may see.

    With *group_id*, only that group is returned.
    """
    server, request = call.server, pb.ListTopics()
    async with authorized(call.connection.caller, Kind.LIST_TOPICS, request):
        records = await visible_records(server.broker)
    names = dict[int, TopicName]()
    work, prefix = LongWork(), keys.SUBSCRIPTIONS
    for name, record in records:
        await work.did()
        topic, _ = name.split_partition() or (name, 0)
        if server.names.name_of(topic) is not None:
            names[record.topic_id] = name
    await free(records)
    groups: dict[str, list[TopicName]] = {}
    for path, _ in await server.broker.store.scan_valid(prefix):
        await work.did()
        topic_id, _, group = prefix.name_of(path).partition("/")
        found = names.get(int(topic_id))
        if found is not None and group_id in {None, group}:
            groups.setdefault(group, []).append(found)
    return groups


def _fetched(
    topics: Committed, make_topic: Callable[..., Any], make: Callable[..., Any]
) -> tuple[Any, ...]:
    return tuple(
        make_topic(
            name=name,
            partitions=tuple(
                make(
                    partition_index=index,
                    committed_offset=each.offset,
                    committed_leader_epoch=-1,
                    metadata=each.note,
                    error_code=each.code,
                )
                for index, each in partitions
            ),
        )
        for name, partitions in topics
    )


async def offset_delete(call: Call) -> Awaitable[Any]:
    """Delete the committed offsets of a group for some partitions."""
    body, answers = call.body, call.answers
    refusal = refuse_foreign(call, body.group_id)
    if is_busy(call, body.group_id, _topics_of(call)):
        refusal = ErrorCode.non_empty_group

    async def delete(name: str, partition: Any) -> ErrorCode:
        if refusal is not None:
            return refusal
        return await _delete_offset(call, name, partition.partition_index)

    topics = await for_each_partition(
        call,
        delete,
        answers.OffsetDeleteResponseTopic,
        answers.OffsetDeleteResponsePartition,
    )
    return Done(
        answers.OffsetDeleteResponse(
            error_code=refusal or ErrorCode.none,
            throttle_time=call.throttle_time,
            topics=topics,
        )
    )


async def _delete_offset(call: Call, name: str, index: int) -> ErrorCode:
    try:
        topic = await call.find_name(Kind.DELETE_SUBSCRIPTION, name, index)
        await call.do(
            Kind.DELETE_SUBSCRIPTION,
            pb.DeleteSubscription(topic=str(topic), subscription=call.body.group_id),
        )
    except SubscriptionNotFound:
        return ErrorCode.none
    except HANDLED as error:
        return code_of(error)
    return ErrorCode.none


COMMITTING: dict[Api, Handler] = {
    Api.OFFSET_COMMIT: offset_commit,
    Api.OFFSET_DELETE: offset_delete,
    Api.OFFSET_FETCH: offset_fetch,
}
