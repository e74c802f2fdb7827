"""The coordinator of groups: their members, and what administrators ask about them."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydanube.aio.long_work import LongWork
from pydanube.model.errors import InvalidRequest, SubscriptionNotFound
from pydanube.model.names import TopicName, parse_subscription
from pydanube.wire.native.kinds import Kind
from pydanube.wire.pb import stream_pb2 as pb
from pydanube_kafka.calls import Call, Done, Handler, waiting
from pydanube_kafka.committing import committed_topics
from pydanube_kafka.coordinating import (
    AnyGroup,
    Room,
    claim_of,
    group_code,
    refuse_foreign,
)
from pydanube_kafka.errors import HANDLED, code_of
from pydanube_kafka.group_access import (
    base_of,
    choose_room,
    find_room,
    is_busy,
    may_see,
    may_take_part,
    topics_in,
    visible_rooms,
)
from pydanube_kafka.pure.consumer_groups import CONSUMERS
from pydanube_kafka.pure.groups import (
    Group,
    GroupError,
    GroupState,
    Joined,
    JoinRequest,
    Synced,
)
from pydanube_kafka.pure.nodes import NOBODY
from pydanube_kafka.wire.apis import Api, ErrorCode

SESSION_TIMEOUT_S_MIN = 1.0
SESSION_TIMEOUT_S_MAX = 1800.0
CLASSIC = "classic"
"""The type of groups whose members divide the work."""
PROTOCOLS_MAX = 100
MEMBER_BYTES_MAX = 64 * 1024
"""The most data that a member may bring when it joins."""


# The coordinator.


async def find_coordinator(call: Call) -> Awaitable[Any]:
    """Answer with the brokers that coordinate groups and transactional ids."""
    body, answers = call.body, call.answers
    # From version 4 on, there are several.
    keys = getattr(body, "coordinator_keys", None)
    found = [_found(call, key) for key in ([body.key] if keys is None else keys)]
    return Done(
        answers.FindCoordinatorResponse(
            throttle_time=call.throttle_time,
            coordinators=tuple(answers.Coordinator(**each) for each in found),
            **(found[0] if keys is None else {}),
        )
    )


def _found(call: Call, key: str) -> dict[str, Any]:
    """Return who coordinates *key*, as the fields of an answer."""
    local_host = call.connection.local_host
    node = call.server.brokers.coordinator_of(key, local_host)
    message = "the coordinator is changing: ask again"
    if node is None:
        code = ErrorCode.coordinator_not_available
        error = {"error_code": code, "error_message": message}
        return {"key": key, "node_id": NOBODY, "host": "", "port": -1, **error}
    return {
        "key": key,
        "node_id": node.number,
        "host": node.host,
        "port": node.port,
        "error_code": ErrorCode.none,
        "error_message": None,
    }


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
    protocols = tuple((each.name, each.metadata) for each in body.protocols)
    topics = topics_in(protocols, call.server.names.parse)
    if body.protocol_type != CONSUMERS:
        topics = None
    room = choose_room(call, body.group_id, body.member_id, topics, is_classic=True)
    is_new = isinstance(room, Room) and not body.member_id
    if isinstance(room, Room) and is_new and groups.is_full(room.owner):
        groups.settle(room)
        room = GroupError.FULL
    if isinstance(room, GroupError):
        # Clients of this protocol know another error for groups of the other one.
        if room is GroupError.OTHER_PROTOCOL:
            room = GroupError.INCONSISTENT
        joined = Joined(member_id=body.member_id)
        return Done(_join_answer(call, joined, group_code(room)))
    group = room.group
    assert isinstance(group, Group)
    request = JoinRequest(
        member_id=body.member_id,
        instance_id=getattr(body, "group_instance_id", None),
        session_timeout_s=session_s,
        rebalance_timeout_s=max(0.0, rebalance.total_seconds()),
        protocol_type=body.protocol_type,
        protocols=protocols,
        client_id=call.request.client_id,
        client_host=call.connection.address,
        principal=call.connection.identity.principal,
        # From version 4 on, clients join again with the id that they get.
        knows_ids=call.request.version >= 4,
    )
    token = waiting()
    group.join(request, token, asyncio.get_running_loop().time())
    groups.settle(room)
    return _await_join(call, token)


def _find_refusal(call: Call) -> ErrorCode | None:
    """Return why the client may not join, if it may not."""
    body = call.body
    error = refuse_foreign(call, body.group_id)
    if error is not None:
        return error
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
    return None


async def _await_join(call: Call, token: asyncio.Future[Joined]) -> Any:
    joined = await token
    return _join_answer(call, joined, group_code(joined.error))


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
    room = find_room(call, body.group_id, body.member_id)
    if room is None or not isinstance(group := room.group, Group):
        return Done(_sync_answer(call, Synced(error=_why_unknown(call))))
    token = waiting()
    group.sync(
        claim_of(body),
        [(each.member_id, each.assignment) for each in body.assignments],
        token,
        asyncio.get_running_loop().time(),
    )
    groups.settle(room)
    return _await_sync(call, token)


async def _await_sync(call: Call, token: asyncio.Future[Synced]) -> Any:
    return _sync_answer(call, await token)


def _sync_answer(call: Call, synced: Synced) -> Any:
    return call.answers.SyncGroupResponse(
        throttle_time=call.throttle_time,
        error_code=group_code(synced.error),
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol,
        assignment=synced.assignment,
    )


def _why_unknown(call: Call) -> GroupError:
    """Return why there is no such member of the group that a request names."""
    if refuse_foreign(call, call.body.group_id) is not None:
        return GroupError.NOT_COORDINATOR
    return GroupError.UNKNOWN_MEMBER


async def heartbeat(call: Call) -> Awaitable[Any]:
    """Note that a member is alive."""
    body, groups = call.body, call.server.groups
    room = find_room(call, body.group_id, body.member_id)
    error: GroupError | None = _why_unknown(call)
    if room is not None and isinstance(group := room.group, Group):
        error = group.heartbeat(claim_of(body), asyncio.get_running_loop().time())
        groups.settle(room)
    return Done(
        call.answers.HeartbeatResponse(
            throttle_time=call.throttle_time, error_code=group_code(error)
        )
    )


async def leave_group(call: Call) -> Awaitable[Any]:
    """Remove members."""
    body, groups, answers = call.body, call.server.groups, call.answers
    now = asyncio.get_running_loop().time()
    is_allowed = may_take_part(call)
    named = getattr(body, "members", None)
    leaving = (
        [(each.member_id, each.group_instance_id) for each in named]
        if named is not None
        else [(body.member_id, None)]
    )
    results = []
    for member_id, instance_id in leaving:
        error: GroupError | None = _why_unknown(call)
        for room in visible_rooms(call, body.group_id) if is_allowed else ():
            error = room.group.leave(member_id, instance_id, now)
            groups.settle(room)
            if error is not GroupError.UNKNOWN_MEMBER:
                break
        code = group_code(error)
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


# Administration.


async def list_groups(call: Call) -> Awaitable[Any]:
    """Return the groups of this broker that the client may see, also empty ones."""
    answers = call.answers
    listed: dict[str, tuple[str, GroupState, str]] = dict.fromkeys(
        await committed_topics(call), (CONSUMERS, GroupState.EMPTY, CLASSIC)
    )
    work = LongWork()
    for room in call.server.groups.all_rooms():
        await work.did(1 + room.size)
        if may_see(call, room):
            group = room.group
            type_ = CLASSIC if isinstance(group, Group) else CONSUMERS
            listed[room.name] = group.protocol_type, group.state, type_
    states = set(getattr(call.body, "states_filter", ()))
    types = {each.lower() for each in getattr(call.body, "types_filter", ())}
    return Done(
        answers.ListGroupsResponse(
            throttle_time=call.throttle_time,
            error_code=ErrorCode.none,
            groups=tuple(
                answers.ListedGroup(
                    group_id=name,
                    protocol_type=protocol_type,
                    group_state=state.value,
                    group_type=type_,
                )
                for name, (protocol_type, state, type_) in sorted(listed.items())
                # Clients ask all brokers.
                if refuse_foreign(call, name) is None
                and (not states or state.value in states)
                and (not types or type_ in types)
            ),
        )
    )


async def describe_groups(call: Call) -> Awaitable[Any]:
    """Describe groups and their members."""
    answers = call.answers
    described, work = [], LongWork()
    # Each group once, however often it is named.
    for name in dict.fromkeys(call.body.groups):
        code = refuse_foreign(call, name) or ErrorCode.none
        rooms = visible_rooms(call, name)
        await work.did(1 + sum(each.size for each in rooms))
        group = rooms[0].group if rooms else None
        described.append(
            answers.DescribedGroup(
                error_code=code,
                group_id=name,
                group_state="Empty" if group is None else group.state.value,
                protocol_type=CONSUMERS if group is None else group.protocol_type,
                protocol_data=_protocol_of(group),
                members=tuple(
                    answers.DescribedGroupMember(**each)
                    for room in rooms
                    for each in _members_of(room.group)
                ),
            )
        )
    return Done(
        answers.DescribeGroupsResponse(
            throttle_time=call.throttle_time, groups=tuple(described)
        )
    )


def _protocol_of(group: AnyGroup | None) -> str:
    if group is None:
        return ""
    return group.protocol if isinstance(group, Group) else group.assignor


def _members_of(group: AnyGroup) -> Iterator[dict[str, Any]]:
    """Yield the members of a group, as fields of an answer."""
    if isinstance(group, Group):
        for member in group.members.values():
            yield {
                "member_id": member.member_id,
                "group_instance_id": member.request.instance_id,
                "client_id": member.request.client_id,
                "client_host": f"/{member.request.client_host}",
                "member_metadata": member.metadata(group.protocol),
                "member_assignment": member.assignment,
            }
    else:
        for each in group.members.values():
            yield {
                "member_id": each.member_id,
                "group_instance_id": each.instance_id,
                "client_id": each.client_id,
                "client_host": f"/{each.client_host}",
                "member_metadata": b"",
                "member_assignment": _encoded(group.by_name(each.assigned)),
            }


def _encoded(assigned: Mapping[str, Sequence[int]]) -> bytes:
    """Return the partitions of a member, as members of classic groups know them."""
    out = [struct.pack(">hi", 0, len(assigned))]
    for name, partitions in assigned.items():
        text, count = name.encode(), len(partitions)
        out.append(struct.pack(f">h{len(text)}si", len(text), text, count))
        out.append(struct.pack(f">{count}i", *partitions))
    out.append(struct.pack(">i", -1))
    return b"".join(out)


async def delete_groups(call: Call) -> Awaitable[Any]:
    """Delete the subscriptions of groups that have no members."""
    answers = call.answers
    results, committed = [], await committed_topics(call)
    for name in dict.fromkeys(call.body.groups_names):
        topics = committed.get(name, ())
        code = refuse_foreign(call, name) or await _delete_group(call, name, topics)
        results.append(answers.DeletableGroupResult(group_id=name, error_code=code))
    return Done(
        answers.DeleteGroupsResponse(
            throttle_time=call.throttle_time, results=tuple(results)
        )
    )


async def _delete_group(
    call: Call, group_id: str, names: Iterable[TopicName]
) -> ErrorCode:
    if is_busy(call, group_id, {base_of(each) for each in names}):
        return ErrorCode.non_empty_group
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


GROUPING: dict[Api, Handler] = {
    Api.DELETE_GROUPS: delete_groups,
    Api.DESCRIBE_GROUPS: describe_groups,
    Api.FIND_COORDINATOR: find_coordinator,
    Api.HEARTBEAT: heartbeat,
    Api.JOIN_GROUP: join_group,
    Api.LEAVE_GROUP: leave_group,
    Api.LIST_GROUPS: list_groups,
    Api.SYNC_GROUP: sync_group,
}
