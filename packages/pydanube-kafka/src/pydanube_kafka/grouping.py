"""The coordinator of groups: their members, and the offsets that they commit."""

from __future__ import annotations

import asyncio
import struct
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

from pydanube.aio.futures import completion
from pydanube.aio.long_work import LongWork
from pydanube.aio.tasks import TaskScope, gather
from pydanube.model.errors import InvalidRequest, SubscriptionNotFound
from pydanube.model.names import SubscriptionName, TopicName, parse_subscription
from pydanube.model.policy import SubscriptionType
from pydanube.security.permissions import Permission
from pydanube.security.resources import Resource
from pydanube.wire.native.kinds import Kind
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_broker.broker.delivery.reliable_subscription import ReliableSubscription
from pydanube_broker.broker.publishing.topic import ReliableTopic, Topic
from pydanube_kafka.calls import Call, Done, Handler, waiting
from pydanube_kafka.config import KafkaConfig
from pydanube_kafka.errors import HANDLED, code_of
from pydanube_kafka.naming import NODE
from pydanube_kafka.pure.groups import (
    Claim,
    Group,
    GroupError,
    GroupState,
    Joined,
    JoinRequest,
    Synced,
)
from pydanube_kafka.wire.apis import Api, ErrorCode

SESSION_TIMEOUT_S_MIN = 1.0
SESSION_TIMEOUT_S_MAX = 1800.0
CONSUMERS = "consumer"
"""The type of protocol of groups that read topics."""
GROUP_KEY = 0
"""The kind of a coordinator that groups have."""
PROTOCOLS_MAX = 100
MEMBER_BYTES_MAX = 64 * 1024
"""The most data that a member may bring when it joins."""
MEMBERS_MAX = 20_000
"""The most members of all groups together."""
METADATA_LENGTH_MAX = 4096
"""The longest text that a client may commit with an offset."""


class Groups:
    """
    The groups that have members.

    Bounds: ``kafka.groups_max`` groups, each with ``kafka.group_members_max`` members,
        ``MEMBERS_MAX`` of them together.
    """

    def __init__(self, config: KafkaConfig, tasks: TaskScope) -> None:
        self._config = config
        self._groups: dict[str, Group] = {}
        self._owners: dict[str, str] = {}
        """The principal of the first member of each group."""
        self._loop = asyncio.get_running_loop()
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def find(self, name: str) -> Group | None:
        """Return a group that has members."""
        return self._groups.get(name)

    def items(self) -> Iterator[tuple[str, Group]]:
        """Return an iterator over the groups that have members."""
        return iter(list(self._groups.items()))

    @property
    def is_full(self) -> bool:
        """Whether no more members can join."""
        count = sum(len(each.members) for each in self._groups.values())
        return count >= MEMBERS_MAX

    def owner_of(self, name: str) -> str:
        """Return the principal of the first member of a group."""
        return self._owners.get(name, "")

    def get(self, name: str, owner: str) -> Group | None:
        """Return a group, which may have no members yet; None if there are too many."""
        group = self._groups.get(name)
        if group is None:
            if len(self._groups) >= self._config.groups_max:
                return None
            group = self._groups[name] = Group(
                _new_member_id, self._config.group_members_max
            )
            self._owners[name] = owner
        return group

    def settle(self, name: str) -> None:
        """Answer the requests that need not wait any more, and set the timer."""
        group = self._groups[name]
        answers, group.answers = group.answers, []
        for token, answer in answers:
            if not token.done():
                token.set_result(answer)
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()
        due = group.due
        if due is None and not group.members:
            del self._groups[name]
            del self._owners[name]
        elif due is not None:
            self._timers[name] = self._loop.call_at(due, self._advance, name)

    def sweep(self) -> None:
        """Do what is due, also if a timer was late."""
        now = self._loop.time()
        for name, group in self.items():
            due = group.due
            if due is not None and due <= now:
                self._advance(name)

    def _advance(self, name: str) -> None:
        group = self._groups.get(name)
        if group is not None:
            group.advance(self._loop.time())
            self.settle(name)


def _new_member_id(client_id: str) -> str:
    return f"{client_id or 'member'}-{uuid.uuid4()}"


def _group_code(error: GroupError | None) -> ErrorCode:
    return ErrorCode.none if error is None else ErrorCode[error.value]


def _claim_of(body: Any) -> Claim:
    """Return who the sender of a request says that it is."""
    generation = getattr(body, "generation_id", None)
    if generation is None:
        generation = body.generation_id_or_member_epoch
    return Claim(
        member_id=body.member_id,
        generation=generation,
        instance_id=getattr(body, "group_instance_id", None),
    )


# The coordinator.


async def find_coordinator(call: Call) -> Awaitable[Any]:
    """Answer with this broker, which coordinates all groups."""
    body, answers = call.body, call.answers
    host, port = call.server.address_for(call.connection)
    is_group = getattr(body, "key_type", GROUP_KEY) == GROUP_KEY
    code = ErrorCode.none if is_group else ErrorCode.coordinator_not_available
    message = None if is_group else "transactions are not served to Kafka clients"
    found = {
        "error_code": code,
        "error_message": message,
        "node_id": NODE if is_group else -1,
        "host": host if is_group else "",
        "port": port if is_group else -1,
    }
    keys = getattr(body, "coordinator_keys", ())
    return Done(
        answers.FindCoordinatorResponse(
            throttle_time=call.throttle_time,
            coordinators=tuple(answers.Coordinator(key=key, **found) for key in keys),
            **found,
        )
    )


# Members.


async def join_group(call: Call) -> Awaitable[Any]:
    """Let a member join; the answer comes when all have joined."""
    body = call.body
    error = _find_refusal(call)
    if error is not None:
        return Done(_join_answer(call, Joined(member_id=body.member_id), error))
    groups = call.server.groups
    session_s = body.session_timeout.total_seconds()
    rebalance = getattr(body, "rebalance_timeout", body.session_timeout)
    request = JoinRequest(
        member_id=body.member_id,
        instance_id=getattr(body, "group_instance_id", None),
        session_timeout_s=session_s,
        rebalance_timeout_s=max(0.0, rebalance.total_seconds()),
        protocol_type=body.protocol_type,
        protocols=tuple((each.name, each.metadata) for each in body.protocols),
        client_id=call.request.client_id,
        client_host=call.connection.address,
        # From version 4 on, clients join again with the id that they get.
        knows_ids=call.request.version >= 4,
    )
    group = groups.get(body.group_id, call.connection.identity.principal.name)
    if group is None:
        error = ErrorCode.group_max_size_reached
        return Done(_join_answer(call, Joined(member_id=body.member_id), error))
    token = waiting()
    group.join(request, token, asyncio.get_running_loop().time())
    groups.settle(body.group_id)
    return _await_join(call, token)


def _find_refusal(call: Call) -> ErrorCode | None:
    """Return why the client may not join, if it may not."""
    body = call.body
    try:
        parse_subscription(body.group_id)
    except InvalidRequest:
        return ErrorCode.invalid_group_id
    session_s = body.session_timeout.total_seconds()
    if not SESSION_TIMEOUT_S_MIN <= session_s <= SESSION_TIMEOUT_S_MAX:
        return ErrorCode.invalid_session_timeout
    byte_count = sum(len(each.name) + len(each.metadata) for each in body.protocols)
    if len(body.protocols) > PROTOCOLS_MAX or byte_count > MEMBER_BYTES_MAX:
        return ErrorCode.inconsistent_group_protocol
    if not body.member_id and call.server.groups.is_full:
        return ErrorCode.group_max_size_reached
    return (
        None
        if may_join(call, body.group_id)
        else (ErrorCode.group_authorization_failed)
    )


def may_join(call: Call, group_id: str) -> bool:
    """
    Return whether the client may take part in a group.

    It may if its members are of the same principal, or if it may consume all topics
    that the group reads.
    """
    server, caller = call.server, call.connection.caller
    if not server.broker.access.is_enforced:
        return True
    group = server.groups.find(group_id)
    if group is None or not group.members:
        return True
    if server.groups.owner_of(group_id) == caller.principal.name:
        return True
    topics = topics_of(group, server.names.parse)
    return topics is not None and all(
        caller.may(Permission.CONSUME, Resource.topic(each)) for each in topics
    )


def topics_of(group: Group, parse: Callable[[str], TopicName]) -> set[TopicName] | None:
    """Return the topics that the members of a group read; None if nobody can tell."""
    if group.protocol_type != CONSUMERS:
        return None
    topics = set[TopicName]()
    for member in group.members.values():
        for _, metadata in member.request.protocols:
            try:
                topics.update(map(parse, _subscribed(metadata)))
            except (struct.error, UnicodeDecodeError, InvalidRequest):
                return None
    return topics


def _subscribed(metadata: bytes) -> Iterator[str]:
    """Yield the topics in the data of a consumer that joins."""
    _, count = struct.unpack_from(">hi", metadata)
    at = 6
    for _ in range(count):
        (length,) = struct.unpack_from(">h", metadata, at)
        at += 2
        if length < 0 or at + length > len(metadata):
            raise struct.error("the topics are cut off")
        yield metadata[at : at + length].decode()
        at += length


async def _await_join(call: Call, token: asyncio.Future[Joined]) -> Any:
    joined = await token
    return _join_answer(call, joined, _group_code(joined.error))


def _join_answer(call: Call, joined: Joined, code: ErrorCode) -> Any:
    answers = call.answers
    return answers.JoinGroupResponse(
        throttle_time=call.throttle_time,
        error_code=code,
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol,
        leader=joined.leader,
        skip_assignment=False,
        member_id=joined.member_id,
        members=tuple(
            answers.JoinGroupResponseMember(
                member_id=member_id, group_instance_id=instance_id, metadata=metadata
            )
            for member_id, instance_id, metadata in joined.members
        ),
    )


async def sync_group(call: Call) -> Awaitable[Any]:
    """Give a member its part; the answer comes when the leader has divided the work."""
    body, groups = call.body, call.server.groups
    group = groups.find(body.group_id)
    if group is None:
        return Done(_sync_answer(call, Synced(error=GroupError.UNKNOWN_MEMBER)))
    token = waiting()
    group.sync(
        _claim_of(body),
        [(each.member_id, each.assignment) for each in body.assignments],
        token,
        asyncio.get_running_loop().time(),
    )
    groups.settle(body.group_id)
    return _await_sync(call, token)


async def _await_sync(call: Call, token: asyncio.Future[Synced]) -> Any:
    return _sync_answer(call, await token)


def _sync_answer(call: Call, synced: Synced) -> Any:
    return call.answers.SyncGroupResponse(
        throttle_time=call.throttle_time,
        error_code=_group_code(synced.error),
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol,
        assignment=synced.assignment,
    )


async def heartbeat(call: Call) -> Awaitable[Any]:
    """Note that a member is alive."""
    body, groups = call.body, call.server.groups
    group = groups.find(body.group_id)
    error: GroupError | None = GroupError.UNKNOWN_MEMBER
    if group is not None:
        error = group.heartbeat(_claim_of(body), asyncio.get_running_loop().time())
        groups.settle(body.group_id)
    return Done(
        call.answers.HeartbeatResponse(
            throttle_time=call.throttle_time, error_code=_group_code(error)
        )
    )


async def leave_group(call: Call) -> Awaitable[Any]:
    """Remove members."""
    body, groups, answers = call.body, call.server.groups, call.answers
    now = asyncio.get_running_loop().time()
    is_allowed = may_join(call, body.group_id)
    named = getattr(body, "members", None)
    leaving = (
        [(each.member_id, each.group_instance_id) for each in named]
        if named is not None
        else [(body.member_id, None)]
    )
    results = []
    for member_id, instance_id in leaving:
        group = groups.find(body.group_id)
        error: GroupError | None = GroupError.UNKNOWN_MEMBER
        if group is not None and is_allowed:
            error = group.leave(member_id, instance_id, now)
            groups.settle(body.group_id)
        code = _group_code(error)
        if not is_allowed:
            code = ErrorCode.group_authorization_failed
        results.append((member_id, instance_id, code))
    # Before version 3, there is one member, and its error is that of the answer.
    code = ErrorCode.none if named is not None else results[0][2]
    return Done(
        answers.LeaveGroupResponse(
            throttle_time=call.throttle_time,
            error_code=code,
            members=tuple(
                answers.MemberResponse(
                    member_id=member_id, group_instance_id=instance_id, error_code=each
                )
                for member_id, instance_id, each in results
            ),
        )
    )


# Offsets.


async def offset_commit(call: Call) -> Awaitable[Any]:
    """
    Commit offsets: the cursors of the subscriptions with the name of the group.

    Durability: The answer comes when they are on disk.
    """
    return _commit(call)


async def _commit(call: Call) -> Any:
    body, answers = call.body, call.answers
    refusal = _refuse_commit(call)
    works = [
        _commit_one(call, each.name, partition, refusal)
        for each in body.topics
        for partition in each.partitions
    ]
    codes = iter(await gather(works))
    return answers.OffsetCommitResponse(
        throttle_time=call.throttle_time,
        topics=tuple(
            answers.OffsetCommitResponseTopic(
                name=each.name,
                partitions=tuple(
                    answers.OffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=next(codes),
                    )
                    for partition in each.partitions
                ),
            )
            for each in body.topics
        ),
    )


def _refuse_commit(call: Call) -> ErrorCode | None:
    groups, group_id = call.server.groups, call.body.group_id
    group, claim = groups.find(group_id), _claim_of(call.body)
    if group is None:
        is_member = claim.generation >= 0 or claim.member_id
        return ErrorCode.unknown_member_id if is_member else None
    error = group.check_commit(claim)
    if error is None and claim.member_id in group.members:
        # It is alive.
        group.heartbeat(claim, asyncio.get_running_loop().time())
        groups.settle(group_id)
    return None if error is None else _group_code(error)


async def _commit_one(
    call: Call, name: str, partition: Any, refusal: ErrorCode | None
) -> ErrorCode:
    if refusal is not None:
        return refusal
    if len(partition.committed_metadata or "") > METADATA_LENGTH_MAX:
        return ErrorCode.offset_metadata_too_large
    try:
        topic = await call.find_topic(
            Kind.OPEN_CONSUMER, name, partition.partition_index
        )
        subscription = parse_subscription(call.body.group_id)
        await _set_cursor(call, topic, subscription, partition.committed_offset)
    except HANDLED as error:
        return code_of(error)
    return ErrorCode.none


async def _set_cursor(
    call: Call, topic: Topic, name: SubscriptionName, offset: int
) -> None:
    if not isinstance(topic, ReliableTopic):
        raise InvalidRequest(f"{topic.name} is not reliable: it has no cursors")
    if offset < 0:
        raise InvalidRequest(f"the offset {offset} is negative")
    topic.check_offset(offset)
    offset = max(offset, topic.log.first_kept)
    found = topic.subscriptions.get(name)
    if found is None:
        _, found = await call.server.broker.subscriptions.open(
            topic.name, name, SubscriptionType.SHARED, offset
        )
    assert isinstance(found, ReliableSubscription)
    if found.cursor_offset != offset:
        found.seek(offset)
        await completion(found.save_cursor_now)


async def offset_fetch(call: Call) -> Awaitable[Any]:
    """Return the offsets that a group has committed."""
    body, answers = call.body, call.answers
    groups = getattr(body, "groups", None)
    if groups is None:
        topics = await _committed(call, body.group_id, body.topics)
        return Done(
            answers.OffsetFetchResponse(
                throttle_time=call.throttle_time,
                error_code=ErrorCode.none,
                topics=_fetched(
                    topics,
                    answers.OffsetFetchResponseTopic,
                    answers.OffsetFetchResponsePartition,
                ),
            )
        )
    found = [
        answers.OffsetFetchResponseGroup(
            group_id=each.group_id,
            topics=_fetched(
                await _committed(call, each.group_id, each.topics),
                answers.OffsetFetchResponseTopics,
                answers.OffsetFetchResponsePartitions,
            ),
            error_code=ErrorCode.none,
        )
        for each in groups
    ]
    return Done(
        answers.OffsetFetchResponse(
            throttle_time=call.throttle_time, groups=tuple(found)
        )
    )


Committed = list[tuple[str, list[tuple[int, int, ErrorCode]]]]


async def _committed(call: Call, group_id: str, topics: Any) -> Committed:
    """Return topics, partitions, and their committed offsets or -1."""
    if topics is None:
        return await _all_committed(call, group_id)
    result: Committed = []
    for each in topics:
        partitions = []
        for index in each.partition_indexes:
            offset, code = -1, ErrorCode.none
            try:
                topic = await call.find_topic(
                    Kind.DESCRIBE_SUBSCRIPTION, each.name, index
                )
                offset = _cursor_of(topic, group_id)
            except HANDLED as error:
                code = code_of(error)
            partitions.append((index, offset, code))
        result.append((each.name, partitions))
    return result


async def _all_committed(call: Call, group_id: str) -> Committed:
    found: dict[str, list[tuple[int, int, ErrorCode]]] = {}
    async for name, index, topic in _visible_topics(call):
        offset = _cursor_of(topic, group_id)
        if offset >= 0:
            found.setdefault(name, []).append((index, offset, ErrorCode.none))
    return list(found.items())


async def _visible_topics(call: Call) -> Any:
    """Yield name, partition and topic of the open topics that the client may see."""
    server, work = call.server, LongWork()
    caller, is_enforced = call.connection.caller, server.broker.access.is_enforced
    for name, topic in list(server.broker.topics.opened.items()):
        await work.did()
        split = name.split_partition()
        base, index = (name, 0) if split is None else split
        kafka_name = server.names.name_of(base)
        if kafka_name is None or (
            is_enforced and not caller.may(Permission.DESCRIBE, Resource.topic(name))
        ):
            continue
        yield kafka_name, index, topic


def _cursor_of(topic: Topic, group_id: str) -> int:
    found = topic.subscriptions.get(SubscriptionName(group_id))
    if not isinstance(found, ReliableSubscription):
        return -1
    return found.cursor_offset


def _fetched(
    topics: Committed, make_topic: Callable[..., Any], make: Callable[..., Any]
) -> tuple[Any, ...]:
    return tuple(
        make_topic(
            name=name,
            partitions=tuple(
                make(
                    partition_index=index,
                    committed_offset=offset,
                    committed_leader_epoch=-1,
                    metadata="",
                    error_code=code,
                )
                for index, offset, code in partitions
            ),
        )
        for name, partitions in topics
    )


# Administration.


async def list_groups(call: Call) -> Awaitable[Any]:
    """Return the groups that the client may see, with members and without."""
    answers = call.answers
    states: dict[str, tuple[str, GroupState]] = {}
    async for _, _, topic in _visible_topics(call):
        for name in topic.subscriptions:
            states.setdefault(name, (CONSUMERS, GroupState.EMPTY))
    for name, group in call.server.groups.items():
        if may_join(call, name):
            states[name] = group.protocol_type, group.state
    wanted = set(getattr(call.body, "states_filter", ()))
    return Done(
        answers.ListGroupsResponse(
            throttle_time=call.throttle_time,
            error_code=ErrorCode.none,
            groups=tuple(
                answers.ListedGroup(
                    group_id=name, protocol_type=protocol_type, group_state=state.value
                )
                for name, (protocol_type, state) in sorted(states.items())
                if not wanted or state.value in wanted
            ),
        )
    )


async def describe_groups(call: Call) -> Awaitable[Any]:
    """Describe groups and their members."""
    answers = call.answers
    described = []
    for name in call.body.groups:
        group, code = call.server.groups.find(name), ErrorCode.none
        if group is not None and not may_join(call, name):
            group, code = None, ErrorCode.group_authorization_failed
        members = () if group is None else tuple(group.members.values())
        described.append(
            answers.DescribedGroup(
                error_code=code,
                group_id=name,
                group_state="Empty" if group is None else group.state.value,
                protocol_type=CONSUMERS if group is None else group.protocol_type,
                protocol_data="" if group is None else group.protocol,
                members=tuple(
                    answers.DescribedGroupMember(
                        member_id=each.member_id,
                        group_instance_id=each.request.instance_id,
                        client_id=each.request.client_id,
                        client_host=f"/{each.request.client_host}",
                        member_metadata=each.metadata(group.protocol),
                        member_assignment=each.assignment,
                    )
                    for each in members
                    if group is not None
                ),
            )
        )
    return Done(
        answers.DescribeGroupsResponse(
            throttle_time=call.throttle_time, groups=tuple(described)
        )
    )


async def delete_groups(call: Call) -> Awaitable[Any]:
    """Delete the subscriptions of groups that have no members."""
    answers = call.answers
    results = []
    for name in call.body.groups_names:
        group = call.server.groups.find(name)
        if group is not None and group.members:
            code = ErrorCode.non_empty_group
        else:
            code = await _delete_group(call, name)
        results.append(answers.DeletableGroupResult(group_id=name, error_code=code))
    return Done(
        answers.DeleteGroupsResponse(
            throttle_time=call.throttle_time, results=tuple(results)
        )
    )


async def _delete_group(call: Call, group_id: str) -> ErrorCode:
    names: Iterable[TopicName] = [
        topic.name
        async for _, _, topic in _visible_topics(call)
        if group_id in topic.subscriptions
    ]
    code = ErrorCode.group_id_not_found
    try:
        for name in names:
            await call.do(
                Kind.DELETE_SUBSCRIPTION,
                pb.DeleteSubscription(topic=str(name), subscription=group_id),
            )
            code = ErrorCode.none
    except SubscriptionNotFound:
        # Somebody else has deleted it.
        return ErrorCode.none
    except HANDLED as error:
        return code_of(error)
    return code


async def offset_delete(call: Call) -> Awaitable[Any]:
    """Delete the committed offsets of a group for some partitions."""
    body, answers = call.body, call.answers
    group = call.server.groups.find(body.group_id)
    is_in_use = group is not None and bool(group.members)
    topics = []
    for each in body.topics:
        partitions = []
        for wanted in each.partitions:
            code = ErrorCode.non_empty_group
            if not is_in_use:
                code = await _delete_offset(call, each.name, wanted.partition_index)
            partitions.append(
                answers.OffsetDeleteResponsePartition(
                    partition_index=wanted.partition_index, error_code=code
                )
            )
        topics.append(
            answers.OffsetDeleteResponseTopic(
                name=each.name, partitions=tuple(partitions)
            )
        )
    return Done(
        answers.OffsetDeleteResponse(
            error_code=ErrorCode.non_empty_group if is_in_use else ErrorCode.none,
            throttle_time=call.throttle_time,
            topics=tuple(topics),
        )
    )


async def _delete_offset(call: Call, name: str, index: int) -> ErrorCode:
    try:
        topic = await call.find_topic(Kind.DELETE_SUBSCRIPTION, name, index)
        await call.do(
            Kind.DELETE_SUBSCRIPTION,
            pb.DeleteSubscription(
                topic=str(topic.name), subscription=call.body.group_id
            ),
        )
    except SubscriptionNotFound:
        return ErrorCode.none
    except HANDLED as error:
        return code_of(error)
    return ErrorCode.none


GROUPING: dict[Api, Handler] = {
    Api.DELETE_GROUPS: delete_groups,
    Api.DESCRIBE_GROUPS: describe_groups,
    Api.FIND_COORDINATOR: find_coordinator,
    Api.HEARTBEAT: heartbeat,
    Api.JOIN_GROUP: join_group,
    Api.LEAVE_GROUP: leave_group,
    Api.LIST_GROUPS: list_groups,
    Api.OFFSET_DELETE: offset_delete,
    Api.OFFSET_COMMIT: offset_commit,
    Api.OFFSET_FETCH: offset_fetch,
    Api.SYNC_GROUP: sync_group,
}
