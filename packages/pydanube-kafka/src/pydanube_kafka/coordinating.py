"""The groups that this broker coordinates."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from pydanube.aio.tasks import TaskScope
from pydanube_kafka.calls import Call
from pydanube_kafka.config import KafkaConfig
from pydanube_kafka.pure.groups import Claim, Group, GroupError
from pydanube_kafka.wire.apis import ErrorCode

MEMBERS_MAX = 20_000
"""The most members of all groups together."""


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
        """
        Return a group for a member of *owner* that joins; None if there are too many.
        """
        group = self._groups.get(name)
        if group is None:
            if len(self._groups) >= self._config.groups_max:
                return None
            group = self._groups[name] = Group(
                _new_member_id, self._config.group_members_max
            )
        if not group.members:
            # Also if somebody else was given the id of a member, and has not joined.
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
