"""The coordinator of groups among whose members it divides the work itself."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

from pydanube.aio.long_work import LongWork
from pydanube.model.errors import InvalidRequest, MetadataUnavailable
from pydanube.model.names import TopicName, parse_subscription
from pydanube.security.permissions import Permission
from pydanube.security.resources import Resource
from pydanube_kafka.calls import Call, Done, Handler
from pydanube_kafka.coordinating import Room, group_code, refuse_foreign
from pydanube_kafka.group_access import (
    choose_room,
    find_room,
    may_consume,
    may_take_part,
    room_with,
    topics_read,
    visible_rooms,
)
from pydanube_kafka.grouping import MEMBER_BYTES_MAX
from pydanube_kafka.pure.assignors import Partition
from pydanube_kafka.pure.consumer_groups import (
    AWAY,
    JOINING,
    Beat,
    Beaten,
    ConsumerGroup,
)
from pydanube_kafka.pure.groups import GroupError
from pydanube_kafka.pure.patterns import BadPattern
from pydanube_kafka.topic_facts import parsed
from pydanube_kafka.wire.apis import Api, ErrorCode

ID_LENGTH_MAX = 256
"""The longest id of a member, an instance or an assignor."""
_REASONS = {
    GroupError.FORBIDDEN: "the group reads topics that the client may not consume",
    GroupError.FULL: "the broker has too many groups or members",
    GroupError.OTHER_PROTOCOL: "the group has members of the classic protocol; both "
    "cannot be used at the same time",
}


class _Refused(Exception):
    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code


async def consumer_group_heartbeat(call: Call) -> Awaitable[Any]:
    """Let a member join, leave, and give up partitions; tell it which it may have."""
    return _heartbeat(call)


async def _heartbeat(call: Call) -> Any:
    beat, code, reason = Beaten(member_id=call.body.member_id), ErrorCode.none, ""
    try:
        beat = await _beaten(call)
        code, reason = group_code(beat.error), beat.reason
    except _Refused as error:
        code, reason = error.code, str(error)
    except MetadataUnavailable as error:
        code, reason = ErrorCode.coordinator_not_available, str(error)
    answers, config = call.answers, call.server.config
    assigned = beat.assigned
    return answers.ConsumerGroupHeartbeatResponse(
        throttle_time=call.throttle_time,
        error_code=code,
        error_message=reason or None,
        member_id=beat.member_id,
        member_epoch=beat.epoch,
        heartbeat_interval=timedelta(seconds=config.group_heartbeat_interval_s),
        assignment=None
        if assigned is None
        else answers.Assignment(
            topic_partitions=tuple(
                answers.TopicPartitions(topic_id=topic_id, partitions=tuple(numbers))
                for topic_id, numbers in _by_topic(assigned).items()
            )
        ),
    )


def _by_topic(partitions: Iterable[Partition]) -> dict[Any, list[int]]:
    found: dict[Any, list[int]] = {}
    for topic_id, number in sorted(partitions, key=lambda each: each[1]):
        found.setdefault(topic_id, []).append(number)
    return found


async def _beaten(call: Call) -> Beaten:
    """
    Carry out a heartbeat.

    Raises:
        _Refused: The client may not send it, or not so.
        MetadataUnavailable: It is not known which topics exist.
    """
    server, name = call.server, call.body.group_id
    code = refuse_foreign(call, name)
    if code is not None:
        raise _Refused(code, "another broker coordinates the group")
    if not may_take_part(call):
        raise _Refused(
            ErrorCode.group_authorization_failed, "the client may not join the group"
        )
    beat = _beat_of(call)
    _check_permissions(call, beat)
    now = asyncio.get_running_loop().time()
    room = find_room(call, name, beat.member_id)
    group = _group_in(room)
    if beat.epoch >= JOINING and not _is_shown(call, group, beat, now):
        matched = await _match(call, group, beat, now)
        names = frozenset() if group is None else group.names
        names = names.union(beat.names or (), *matched.values())
        await server.topics.look_up(names, now)
        room = _find_room(call, beat)
        group = _group_in(room)
        is_joining = beat.epoch == JOINING
        if group is not None and (is_joining or group.knows(beat.member_id)):
            left_over = _left_over(call, room, matched)
            _show_topics(call, group, beat, left_over, now)
    if room is None or group is None:
        return _unknown(call, beat)
    # The time may have passed while the topics were looked up.
    answer = group.heartbeat(beat, asyncio.get_running_loop().time())
    server.groups.settle(room)
    return answer


def _group_in(room: Room | None) -> ConsumerGroup | None:
    group = None if room is None else room.group
    return group if isinstance(group, ConsumerGroup) else None


def _unknown(call: Call, beat: Beat) -> Beaten:
    return Beaten(
        error=GroupError.UNKNOWN_MEMBER,
        reason="the group has no such member",
        member_id=beat.member_id,
    )


def _find_room(call: Call, beat: Beat) -> Room | None:
    """
    Return the room of a member, or None; perhaps a new one if the member joins.

    Raises:
        _Refused: It cannot join, or not read the topics that it names.
    """
    server, name = call.server, call.body.group_id
    groups = server.groups
    if refuse_foreign(call, name) is not None:
        # Since the topics were looked up.
        raise _Refused(
            ErrorCode.not_coordinator, "another broker coordinates the group"
        )
    known = room_with(call, name, beat.member_id)
    if beat.epoch != JOINING and (_group_in(known) is None or beat.names is None):
        return find_room(call, name, beat.member_id)
    topics = {
        topic for each in beat.names or () if (topic := parsed(server.names, each))
    }
    room = choose_room(call, name, beat.member_id, topics, is_classic=False)
    if isinstance(room, GroupError):
        raise _Refused(group_code(room), _REASONS[room])
    if known is None and groups.is_full(room.owner):
        groups.settle(room)
        raise _Refused(group_code(GroupError.FULL), _REASONS[GroupError.FULL])
    return room


def _beat_of(call: Call) -> Beat:
    """
    Return what a request says.

    Raises:
        _Refused: It contradicts itself, or is too long.
    """
    body = call.body
    reason = _find_mistake(body)
    if reason is not None:
        raise _Refused(ErrorCode.invalid_request, reason)
    try:
        parse_subscription(body.group_id)
    except InvalidRequest as error:
        raise _Refused(ErrorCode.invalid_group_id, str(error)) from error
    names, owned = body.subscribed_topic_names, body.topic_partitions
    timeout_s = body.rebalance_timeout.total_seconds()
    connection = call.connection
    return Beat(
        member_id=body.member_id or str(uuid.uuid4()),
        epoch=body.member_epoch,
        instance_id=body.instance_id,
        rebalance_timeout_s=None if timeout_s < 0 else timeout_s,
        names=None if names is None else frozenset(names),
        pattern=getattr(body, "subscribed_topic_regex", None),
        assignor=body.server_assignor,
        owned=None
        if owned is None
        else frozenset(
            (each.topic_id, number) for each in owned for number in each.partitions
        ),
        client_id=call.request.client_id,
        client_host=connection.address,
        principal=connection.identity.principal,
    )


def _find_mistake(body: Any) -> str | None:  # noqa: PLR0911
    """Return what is wrong with a request, if anything is."""
    ids = body.member_id, body.instance_id or "", body.server_assignor or ""
    if max(map(len, ids)) > ID_LENGTH_MAX:
        return f"ids have at most {ID_LENGTH_MAX} characters"
    if body.instance_id == "":
        return "the instance id is empty"
    if body.member_epoch < AWAY:
        return f"there is no epoch {body.member_epoch}"
    if body.member_epoch == AWAY and body.instance_id is None:
        return "only members with an instance id can come back"
    if not body.member_id and body.member_epoch != JOINING:
        return "the member id is empty"
    names = body.subscribed_topic_names
    if sum(map(len, names or ())) > MEMBER_BYTES_MAX:
        return f"the names of topics have more than {MEMBER_BYTES_MAX} characters"
    if body.member_epoch == JOINING:
        if body.rebalance_timeout < timedelta(0):
            return "a member that joins has to send its timeout"
        if names is None and not getattr(body, "subscribed_topic_regex", None):
            return "a member that joins has to subscribe"
        if body.topic_partitions:
            return "a member that joins has no partitions"
    return None


def _check_permissions(call: Call, beat: Beat) -> None:
    """
    Raise if the client may not consume the topics that it names.

    Raises:
        _Refused: It may not.
    """
    server, caller = call.server, call.connection.caller
    if not server.broker.access.is_enforced:
        return
    for name in beat.names or ():
        topic = parsed(server.names, name)
        if topic is None or not caller.may(Permission.CONSUME, Resource.topic(topic)):
            raise _Refused(
                ErrorCode.topic_authorization_failed,
                f"the client may not consume {name[:80]!r}",
            )


def _is_shown(call: Call, group: ConsumerGroup | None, beat: Beat, now: float) -> bool:
    """Return whether a group knows the topics, and who may consume them."""
    is_new = beat.names is not None or beat.pattern is not None
    if group is None or is_new or beat.epoch == JOINING:
        return False
    member, server = group.members.get(beat.member_id), call.server
    return (
        member is not None
        and member.principal == beat.principal
        and group.shown_for is server.broker.access.policy
        and now < group.shown_at + server.config.group_heartbeat_interval_s
    )


async def _match(
    call: Call, group: ConsumerGroup | None, beat: Beat, now: float
) -> dict[str, frozenset[str]]:
    """
    Return the topics that the patterns of members match, by the ids of the members.

    Raises:
        _Refused: The pattern of this member is none, or takes too much work.
    """
    matched = dict[str, frozenset[str]]()
    members = {} if group is None else dict(group.members)
    topics, own = call.server.topics, members.pop(beat.member_id, None)
    for member_id, each in members.items():
        if each.pattern:
            with suppress(BadPattern):
                found = await topics.match(each.pattern, each.principal, now)
                matched[member_id] = found
    pattern = beat.pattern
    if pattern is None and own is not None:
        pattern = own.pattern
    if not pattern:
        if group is not None and beat.member_id in group.matched:
            # The member has taken back its pattern.
            matched[beat.member_id] = frozenset()
    else:
        try:
            found = await topics.match(pattern, beat.principal, now)
        except BadPattern as error:
            code = ErrorCode.invalid_regular_expression
            raise _Refused(code, str(error)) from error
        matched[beat.member_id] = found
    return matched


def _left_over(
    call: Call, room: Room | None, matched: Mapping[str, frozenset[str]]
) -> Mapping[str, frozenset[str]]:
    """Return what patterns match but the group reads in no other room."""
    names = call.server.names
    taken = set[TopicName]().union(
        *(
            topics_read(call, each.group)
            for each in call.server.groups.rooms(call.body.group_id)
            if each is not room
        )
    )
    if not taken:
        return matched
    return {
        member_id: frozenset(each for each in found if parsed(names, each) not in taken)
        for member_id, found in matched.items()
    }


def _show_topics(
    call: Call,
    group: ConsumerGroup,
    beat: Beat,
    matched: Mapping[str, frozenset[str]],
    now: float,
) -> None:
    """Show a group which topics exist, and which its members may not consume."""
    server = call.server
    # Members may have come and gone while the topics were looked up.
    matched = {
        each: names
        for each, names in {**group.matched, **matched}.items()
        if each in group.members or each == beat.member_id
    }
    names, member = group.names, group.members.get(beat.member_id)
    names = names.union(beat.names or (), *matched.values())
    topics = server.topics.known(names, group.topics)
    hidden: dict[str, frozenset[str]] = {}
    access = server.broker.access
    group.shown_at, group.shown_for = now, access.policy
    if access.is_enforced:
        members = {
            each.member_id: (each.principal, each.names)
            for each in group.members.values()
        }
        old = member.names if member is not None else frozenset()
        given = old if beat.names is None else beat.names
        members[beat.member_id] = beat.principal, given
        # Most members have the same, and are of the same principal.
        found = {
            (principal, subscribed): frozenset(
                name
                for name in subscribed
                if name in topics and not _may_consume(call, principal, name)
            )
            for principal, subscribed in set(members.values())
        }
        hidden = {
            member_id: found[each] for member_id, each in members.items() if found[each]
        }
    group.see(topics, hidden, matched)


def _may_consume(call: Call, principal: Any, name: str) -> bool:
    topic = parsed(call.server.names, name)
    return topic is not None and may_consume(call, principal, topic)


async def consumer_group_describe(call: Call) -> Awaitable[Any]:
    """Describe groups whose coordinator divides the work, and their members."""
    answers = call.answers
    described, work = [], LongWork()
    # Each group once, however often it is named.
    for name in dict.fromkeys(call.body.group_ids):
        code, reason = refuse_foreign(call, name), None
        rooms = visible_rooms(call, name)
        groups = [
            found for each in rooms if (found := _group_in(each)) and found.members
        ]
        group = groups[0] if groups else None
        if code is None and group is None:
            code = ErrorCode.group_id_not_found
            reason = f"the group {name[:80]!r} has no members of this protocol"
        await work.did(1 + sum(len(each.members) for each in groups))
        if group is None or code is not None:
            group, groups = ConsumerGroup(0, 0.0), []
        described.append(
            answers.DescribedGroup(
                error_code=code or ErrorCode.none,
                error_message=reason,
                group_id=name,
                group_state=group.state.value if code is None else "",
                group_epoch=group.epoch,
                assignment_epoch=group.epoch,
                assignor_name=group.assignor if code is None else "",
                members=tuple(
                    answers.Member(
                        member_id=each.member_id,
                        instance_id=each.instance_id,
                        rack_id=None,
                        member_epoch=each.epoch,
                        client_id=each.client_id,
                        client_host=f"/{each.client_host}",
                        subscribed_topic_names=tuple(sorted(each.names)),
                        subscribed_topic_regex=each.pattern or None,
                        assignment=_described(call, some, each.assigned),
                        target_assignment=_described(call, some, each.target),
                        member_type=1,
                    )
                    for some in groups
                    for each in some.members.values()
                ),
            )
        )
    return Done(
        answers.ConsumerGroupDescribeResponse(
            throttle_time=call.throttle_time, groups=tuple(described)
        )
    )


def _described(
    call: Call, group: ConsumerGroup, partitions: frozenset[Partition]
) -> Any:
    answers = call.answers
    return answers.Assignment(
        topic_partitions=tuple(
            answers.TopicPartitions(
                topic_id=group.topics[name].id,
                topic_name=name,
                partitions=tuple(numbers),
            )
            for name, numbers in group.by_name(partitions).items()
        )
    )


CONSUMER_GROUPING: dict[Api, Handler] = {
    Api.CONSUMER_GROUP_DESCRIBE: consumer_group_describe,
    Api.CONSUMER_GROUP_HEARTBEAT: consumer_group_heartbeat,
}
