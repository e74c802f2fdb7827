"""The groups, and members of them, that a client may see and take part in."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from pydanube.model.errors import InvalidRequest
from pydanube.model.names import TopicName
from pydanube.security.permissions import Permission
from pydanube.security.resources import Resource
from pydanube_kafka.calls import Call
from pydanube_kafka.coordinating import AnyGroup, Room
from pydanube_kafka.pure.consumer_groups import CONSUMERS, ConsumerGroup
from pydanube_kafka.pure.groups import GroupError


def may_take_part(call: Call) -> bool:
    """Return whether the client may be a member of any group."""
    access = call.server.broker.access
    principal = call.connection.identity.principal
    return not access.is_enforced or access.policy.holds_anywhere(
        principal, Permission.CONSUME
    )


def may_see(call: Call, room: Room) -> bool:
    """
    Return whether the client may know of the members in a room.

    It may if the first was of the same principal, or if it may consume all topics to
    which they subscribe.
    """
    if room.owner == owner_for(call):
        return True
    if not room.group.members or not may_take_part(call):
        return False
    caller = call.connection.caller
    topics = _subscribed_by(room.group, call.server.names.parse)
    if not topics:
        return False
    return all(caller.may(Permission.CONSUME, Resource.topic(each)) for each in topics)


def owner_for(call: Call) -> str:
    """Return the owner of rooms that the client opens."""
    if not call.server.broker.access.is_enforced:
        return ""
    return call.connection.identity.principal.name


def visible_rooms(call: Call, name: str) -> list[Room]:
    """Return the rooms of a group that the client may see, those with members first."""
    rooms = [each for each in call.server.groups.rooms(name) if may_see(call, each)]
    return sorted(rooms, key=lambda each: not each.group.members)


def room_with(call: Call, name: str, member_id: str) -> Room | None:
    """
    Return the room in which the client has a member, or one that it may see.

    Clients choose ids of members themselves, so others may have the same.
    """
    owner = owner_for(call)
    rooms = [
        each for each in call.server.groups.rooms(name) if each.group.knows(member_id)
    ]
    for room in sorted(rooms, key=lambda each: each.owner != owner):
        member = room.group.members.get(member_id)
        is_own = member is not None and _name_of(member.principal) == owner
        if is_own or may_see(call, room):
            return room
    return None


def _name_of(principal: Any) -> str:
    return "" if principal is None else principal.name


def find_room(call: Call, name: str, member_id: str) -> Room | None:
    """
    Return the room in which a member is.

    If it is in none, that is the first room that the client may see, which knows what
    is wrong with its request.
    """
    room = room_with(call, name, member_id)
    return room or next(iter(visible_rooms(call, name)), None)


def choose_room(
    call: Call,
    name: str,
    member_id: str,
    topics: set[TopicName] | None,
    *,
    is_classic: bool,
) -> Room | GroupError:
    """
    Return the room for a member that joins to read *topics*, or why it may not.

    Principals use the same name of a group for different topics without knowing, in
    rooms of their own.  No topic is read in two of them.  Topics that the client may
    not consume do not count: it cannot read them.
    """
    groups, owner = call.server.groups, owner_for(call)
    if not may_take_part(call):
        return GroupError.FORBIDDEN
    room = room_with(call, name, member_id) or groups.find(name, owner)
    others = [
        each for each in groups.rooms(name) if each is not room and each.group.members
    ]
    principal = call.connection.identity.principal
    wanted = {each for each in topics or () if may_consume(call, principal, each)}
    reading = [each for each in others if wanted & topics_read(call, each.group)]
    if reading:
        if room is not None or len(reading) > 1 or not may_see(call, reading[0]):
            return GroupError.FORBIDDEN
        room = reading[0]
    elif room is None and not wanted and not is_classic:
        # It has a pattern, and what that matches may be read in a room already.
        room = next((each for each in others if may_see(call, each)), None)
    if room is None:
        return groups.add(name, owner, is_classic=is_classic)
    return groups.use(room, is_classic=is_classic) or room


def is_busy(call: Call, name: str, topics: set[TopicName]) -> bool:
    """
    Return whether a group has members that what the client asks for would disturb.

    Those are the members that it may see, and all that read one of *topics* that it
    may consume; it may not change what others have committed.
    """
    principal = call.connection.identity.principal
    own = {each for each in topics if may_consume(call, principal, each)}
    return any(
        may_see(call, each) or bool(topics_read(call, each.group) & own)
        for each in call.server.groups.rooms(name)
        if each.group.members
    )


def may_consume(call: Call, principal: Any, topic: TopicName) -> bool:
    """Return whether a member of *principal* may consume a topic now."""
    access = call.server.broker.access
    return not access.is_enforced or replace(
        call.connection.caller, principal=principal
    ).may(Permission.CONSUME, Resource.topic(topic))


def topics_read(call: Call, group: AnyGroup) -> set[TopicName]:
    """Return the topics to which the members of a group subscribe and may consume."""
    parse = call.server.names.parse
    if isinstance(group, ConsumerGroup):
        return {topic for each in group.readable if (topic := _parsed(parse, each))}
    found = set[TopicName]()
    if group.protocol_type == CONSUMERS:
        for member in group.members.values():
            found.update(
                each
                for each in topics_in(member.request.protocols, parse) or ()
                if each not in found and may_consume(call, member.principal, each)
            )
    return found


def _subscribed_by(
    group: AnyGroup, parse: Callable[[str], TopicName]
) -> set[TopicName] | None:
    """Return the topics of all subscriptions in a group; None if nobody can tell."""
    if isinstance(group, ConsumerGroup):
        return {topic for each in group.names if (topic := _parsed(parse, each))}
    if group.protocol_type != CONSUMERS:
        return None
    topics = set[TopicName]()
    for member in group.members.values():
        found = topics_in(member.request.protocols, parse)
        if found is None:
            return None
        topics |= found
    return topics


def _parsed(parse: Callable[[str], TopicName], name: str) -> TopicName | None:
    try:
        return parse(name)
    except InvalidRequest:
        return None


def topics_in(
    protocols: Sequence[tuple[str, bytes]], parse: Callable[[str], TopicName]
) -> set[TopicName] | None:
    """Return the topics in the data of a consumer that joins, if it has some."""
    topics = set[TopicName]()
    for _, metadata in protocols:
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


def base_of(topic: TopicName) -> TopicName:
    """Return the topic of a partition, as clients know it."""
    return (topic.split_partition() or (topic, 0))[0]
