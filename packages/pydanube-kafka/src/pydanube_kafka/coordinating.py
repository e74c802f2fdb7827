"""The groups that this broker coordinates."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from pydanube.aio.tasks import TaskScope
from pydanube.model.lazy_dataclasses import dataclass
from pydanube_kafka.calls import Call
from pydanube_kafka.config import KafkaConfig
from pydanube_kafka.pure.consumer_groups import ConsumerGroup
from pydanube_kafka.pure.groups import Claim, Group, GroupError
from pydanube_kafka.wire.apis import ErrorCode

MEMBERS_MAX = 20_000
"""The most members of all groups together."""
SHARES = 4
"""A principal has at most one of so many parts of the groups and members."""

FIRST_EPOCH_MAX = 2**23
"""
The epochs of a group begin with a random number below this one.

Their first byte is zero: librdkafka reads the id of a member up to the first zero, and
the epoch follows the id.
"""

AnyGroup: TypeAlias = "Group | ConsumerGroup"

_KINDS: dict[str, type[AnyGroup]] = {"classic": Group, "consumer": ConsumerGroup}
"""The groups of each protocol."""


class GroupCounts(NamedTuple):
    """The groups of one protocol."""

    groups: int
    members: int
    rebalances: int


@dataclass(slots=True, eq=False)
class Room:
    """Members of a group that know of each other; often all that it has."""

    name: str
    """The name of the group."""
    owner: str
    """The principal of the first member; empty if clients may do everything."""
    group: AnyGroup
    epoch: int = 0
    """The epoch or generation that is counted."""
    size: int = 0
    """The number of members that is counted, with those that are expected."""
    timer: asyncio.TimerHandle | None = None


class Groups:
    """
    The groups that have members.

    Bounds: ``kafka.groups_max`` groups, each with ``kafka.group_members_max`` members,
        ``MEMBERS_MAX`` of them together.  If there are *shares*, a principal has at
        most one of them, of groups and of members.
    """

    def __init__(self, config: KafkaConfig, tasks: TaskScope, shares: int = 1) -> None:
        self._config = config
        self._rooms: dict[str, dict[str, Room]] = {}
        """By the name of the group, and the owner."""
        self._shares = shares
        self._room_counts: Counter[str] = Counter()
        self._member_counts: Counter[str] = Counter()
        """By owner, and of all together below ``_ALL``."""
        self._rebalances: Counter[type[AnyGroup]] = Counter()
        self._loop = asyncio.get_running_loop()

    def rooms(self, name: str) -> list[Room]:
        """Return the members of a group, in rooms."""
        return list(self._rooms.get(name, {}).values())

    def find(self, name: str, owner: str) -> Room | None:
        """Return the room of a group whose first member was of *owner*."""
        return self._rooms.get(name, {}).get(owner)

    def all_rooms(self) -> list[Room]:
        """Return all rooms of all groups."""
        return [each for some in self._rooms.values() for each in some.values()]

    def counts(self) -> dict[str, GroupCounts]:
        """Return the number of groups with members, by protocol."""
        found, rooms = {}, self.all_rooms()
        for protocol, kind in _KINDS.items():
            groups = [each.group for each in rooms if isinstance(each.group, kind)]
            found[protocol] = GroupCounts(
                sum(bool(each.members) for each in groups),
                sum(len(each.members) for each in groups),
                self._rebalances[kind],
            )
        return found

    def is_full(self, owner: str) -> bool:
        """Whether no more members can join a room of *owner*."""
        return (
            self._member_counts[_ALL] >= MEMBERS_MAX
            or self._member_counts[owner] >= MEMBERS_MAX // self._shares
        )

    def add(self, name: str, owner: str, *, is_classic: bool) -> Room | GroupError:
        """Return a new room of a group, or why there can be none."""
        groups_max = self._config.groups_max
        if self._room_counts[_ALL] >= groups_max or self._room_counts[owner] >= max(
            1, groups_max // self._shares
        ):
            return GroupError.FULL
        group = self._new(is_classic=is_classic)
        room = Room(name, owner, group, _epoch_of(group))
        self._rooms.setdefault(name, {})[owner] = room
        for each in (owner, _ALL):
            self._room_counts[each] += 1
        return room

    def use(self, room: Room, *, is_classic: bool) -> GroupError | None:
        """Let a room without members use a protocol; return why it cannot."""
        if isinstance(room.group, Group) == is_classic:
            return None
        if room.group.members:
            return GroupError.OTHER_PROTOCOL
        room.group = self._new(is_classic=is_classic)
        room.epoch = _epoch_of(room.group)
        return None

    def _new(self, *, is_classic: bool) -> AnyGroup:
        members_max = self._config.group_members_max
        if is_classic:
            return Group(_new_member_id, members_max)
        # Members of before, at another coordinator, are in other epochs.
        epoch = uuid.uuid4().int % FIRST_EPOCH_MAX
        session_timeout_s = self._config.group_session_timeout_s
        return ConsumerGroup(members_max, session_timeout_s, epoch)

    def settle(self, room: Room) -> None:
        """Answer the requests that need not wait any more, and set the timer."""
        if self.find(room.name, room.owner) is not room:
            # It was closed since.
            return
        group = room.group
        epoch = _epoch_of(group)
        self._rebalances[type(group)] += epoch - room.epoch
        for owner in (room.owner, _ALL):
            self._member_counts[owner] += group.size - room.size
        room.epoch, room.size = epoch, group.size
        answers, group.answers = group.answers, []
        for token, answer in answers:
            if not token.done():
                token.set_result(answer)
        if room.timer is not None:
            room.timer.cancel()
            room.timer = None
        due = group.due
        if due is None and not group.members:
            self._remove(room)
        elif due is not None:
            room.timer = self._loop.call_at(due, self._advance, room)

    def _remove(self, room: Room) -> None:
        rooms = self._rooms[room.name]
        del rooms[room.owner]
        if not rooms:
            del self._rooms[room.name]
        for owner in (room.owner, _ALL):
            self._room_counts[owner] -= 1
            for counter in (self._room_counts, self._member_counts):
                if not counter[owner]:
                    del counter[owner]

    def sweep(self, is_ours: Callable[[str], bool]) -> None:
        """Do what is due, also if a timer was late; close groups that are not ours."""
        now = self._loop.time()
        for room in self.all_rooms():
            if not is_ours(room.name):
                room.group.close()
                self.settle(room)
                continue
            due = room.group.due
            if due is not None and due <= now:
                self._advance(room)

    def _advance(self, room: Room) -> None:
        room.group.advance(self._loop.time())
        self.settle(room)


_ALL = "\0"
"""No principal is called so."""


def _epoch_of(group: AnyGroup) -> int:
    return group.epoch if isinstance(group, ConsumerGroup) else group.generation


def _new_member_id(client_id: str) -> str:
    return f"{client_id or 'member'}-{uuid.uuid4()}"


def group_code(error: GroupError | None) -> ErrorCode:
    return ErrorCode.none if error is None else ErrorCode[error.value]


def claim_of(body: Any) -> Claim:
    """Return who the sender of a request says that it is."""
    generation = getattr(body, "generation_id", None)
    if generation is None:
        generation = body.generation_id_or_member_epoch
    return Claim(
        member_id=body.member_id,
        generation=generation,
        instance_id=getattr(body, "group_instance_id", None),
    )


def refuse_foreign(call: Call, group_id: str) -> ErrorCode | None:
    """Return the error for a request for a group that another broker coordinates."""
    is_ours = call.server.brokers.is_coordinator(group_id)
    return None if is_ours else ErrorCode.not_coordinator
