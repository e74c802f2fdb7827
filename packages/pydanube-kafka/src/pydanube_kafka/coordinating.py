"""The groups that this broker coordinates."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

from pydanube.aio.tasks import TaskScope
from pydanube_kafka.calls import Call
from pydanube_kafka.config import KafkaConfig
from pydanube_kafka.pure.consumer_groups import ConsumerGroup
from pydanube_kafka.pure.groups import Claim, Group, GroupError
from pydanube_kafka.wire.apis import ErrorCode

MEMBERS_MAX = 20_000
"""The most members of all groups together."""

AnyGroup: TypeAlias = "Group | ConsumerGroup"

_KINDS: dict[str, type[AnyGroup]] = {"classic": Group, "consumer": ConsumerGroup}
"""The groups of each protocol."""


class GroupCounts(NamedTuple):
    """The groups of one protocol."""

    groups: int
    members: int
    rebalances: int


class Groups:
    """
    The groups that have members.

    Bounds: ``kafka.groups_max`` groups, each with ``kafka.group_members_max`` members,
        ``MEMBERS_MAX`` of them together.
    """

    def __init__(self, config: KafkaConfig, tasks: TaskScope) -> None:
        self._config = config
        self._groups: dict[str, AnyGroup] = {}
        self._owners: dict[str, str] = {}
        """The principal of the first member of each group."""
        self._rebalances: Counter[type[AnyGroup]] = Counter()
        self._epochs: dict[str, int] = {}
        """The epoch or generation that is counted of each group."""
        self._loop = asyncio.get_running_loop()
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def find(self, name: str) -> AnyGroup | None:
        """Return a group that has members."""
        return self._groups.get(name)

    def find_classic(self, name: str) -> Group | None:
        """Return a group that has members, unless its coordinator divides the work."""
        group = self._groups.get(name)
        return group if isinstance(group, Group) else None

    def find_consumer(self, name: str) -> ConsumerGroup | None:
        """Return a group that has members, if its coordinator divides the work."""
        group = self._groups.get(name)
        return group if isinstance(group, ConsumerGroup) else None

    def items(self) -> Iterator[tuple[str, AnyGroup]]:
        """Return an iterator over the groups that have members."""
        return iter(list(self._groups.items()))

    def counts(self) -> dict[str, GroupCounts]:
        """Return the number of groups with members, by protocol."""
        found = {}
        for protocol, kind in _KINDS.items():
            groups = [each for each in self._groups.values() if isinstance(each, kind)]
            found[protocol] = GroupCounts(
                sum(bool(each.members) for each in groups),
                sum(len(each.members) for each in groups),
                self._rebalances[kind],
            )
        return found

    @property
    def is_full(self) -> bool:
        """Whether no more members can join."""
        count = sum(len(each.members) for each in self._groups.values())
        return count >= MEMBERS_MAX

    def owner_of(self, name: str) -> str:
        """Return the principal of the first member of a group."""
        return self._owners.get(name, "")

    def get(self, name: str, owner: str) -> Group | GroupError:
        """
        Return a group for a member of *owner* that joins, or why it cannot join.
        """
        group = self._get(name, owner, is_classic=True)
        return group if isinstance(group, Group | GroupError) else _OTHER

    def get_consumer(self, name: str, owner: str) -> ConsumerGroup | GroupError:
        """
        Return a group whose coordinator divides the work; otherwise as ``get``.
        """
        group = self._get(name, owner, is_classic=False)
        return group if isinstance(group, ConsumerGroup | GroupError) else _OTHER

    def _get(self, name: str, owner: str, *, is_classic: bool) -> AnyGroup | GroupError:
        group = self._groups.get(name)
        if group is None and len(self._groups) >= self._config.groups_max:
            return GroupError.FULL
        if group is None or (
            not group.members and isinstance(group, Group) != is_classic
        ):
            group = self._groups[name] = self._new(is_classic=is_classic)
            self._epochs[name] = 0
        if not group.members:
            # Also if somebody else was given the id of a member, and has not joined.
            self._owners[name] = owner
        return group

    def _new(self, *, is_classic: bool) -> AnyGroup:
        members_max = self._config.group_members_max
        if is_classic:
            return Group(_new_member_id, members_max)
        return ConsumerGroup(members_max, self._config.group_session_timeout_s)

    def settle(self, name: str) -> None:
        """Answer the requests that need not wait any more, and set the timer."""
        group = self._groups[name]
        epoch = group.epoch if isinstance(group, ConsumerGroup) else group.generation
        self._rebalances[type(group)] += epoch - self._epochs.get(name, 0)
        self._epochs[name] = epoch
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
            del self._epochs[name]
        elif due is not None:
            self._timers[name] = self._loop.call_at(due, self._advance, name)

    def sweep(self, is_ours: Callable[[str], bool]) -> None:
        """Do what is due, also if a timer was late; close groups that are not ours."""
        now = self._loop.time()
        for name, group in self.items():
            if not is_ours(name):
                group.close()
                self.settle(name)
                continue
            due = group.due
            if due is not None and due <= now:
                self._advance(name)

    def _advance(self, name: str) -> None:
        group = self._groups.get(name)
        if group is not None:
            group.advance(self._loop.time())
            self.settle(name)


_OTHER = GroupError.OTHER_PROTOCOL


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
