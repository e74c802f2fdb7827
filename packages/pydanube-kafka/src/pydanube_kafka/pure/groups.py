"""
A group of consumers: who its members are, and when they divide the work again.

These are the decisions of Kafka's classic group protocol.  Members join; when all have
joined, or the time for it is over, a generation begins, and its leader divides the work
among the members, who wait for their parts.  A group has no clock and no timers: the
caller passes the time, and calls ``advance`` when ``due`` has come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, replace
from enum import Enum
from typing import Any

from pydanube.model.lazy_dataclasses import dataclass

INITIAL_DELAY_S = 0.2
"""The time for which the first generation of an empty group waits for members."""


class GroupState(Enum):
    """The states of a group, as Kafka's tools call them."""

    EMPTY = "Empty"
    JOINING = "PreparingRebalance"
    SYNCING = "CompletingRebalance"
    RECONCILING = "Reconciling"
    """Members give up partitions, or wait for those of others."""
    STABLE = "Stable"


class GroupError(Enum):
    """The reasons for which requests of members are refused, by Kafka's names."""

    FENCED = "fenced_instance_id"
    FENCED_EPOCH = "fenced_member_epoch"
    FORBIDDEN = "group_authorization_failed"
    FULL = "group_max_size_reached"
    ILLEGAL_GENERATION = "illegal_generation"
    INCONSISTENT = "inconsistent_group_protocol"
    MEMBER_ID_REQUIRED = "member_id_required"
    NOT_COORDINATOR = "not_coordinator"
    OTHER_PROTOCOL = "group_id_not_found"
    """The group has members that speak another protocol."""
    REBALANCING = "rebalance_in_progress"
    STALE_EPOCH = "stale_member_epoch"
    UNKNOWN_MEMBER = "unknown_member_id"
    UNRELEASED_INSTANCE = "unreleased_instance_id"
    UNSUPPORTED_ASSIGNOR = "unsupported_assignor"


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """A request of a member to join, with all that it says of itself."""

    member_id: str
    """Empty: it needs one."""
    instance_id: str | None
    session_timeout_s: float
    rebalance_timeout_s: float
    protocol_type: str
    protocols: Sequence[tuple[str, bytes]]
    """The ways to divide the work that it knows, the best first, with its data."""
    client_id: str = ""
    client_host: str = ""
    principal: Any = None
    """Its client; the group does not look at it."""
    knows_ids: bool = True
    """Whether it joins again with the id that it is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A client's claim to be a member of a generation."""

    member_id: str
    generation: int
    instance_id: str | None = None


@dataclass(slots=True)
class Member:
    """A member of a group."""

    member_id: str
    request: JoinRequest
    deadline: float
    """The time at which it is gone unless it is heard of."""
    assignment: bytes = b""
    joining: Any = None
    """The token of its request to join, which waits for the others."""
    syncing: Any = None
    """The token of its request for its part, which waits for the leader."""

    @property
    def principal(self) -> Any:
        """The client that joined."""
        return self.request.principal

    def metadata(self, protocol: str) -> bytes:
        """Return what it says about *protocol*."""
        return dict(self.request.protocols).get(protocol, b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """The answer to a member that joined."""

    error: GroupError | None = None
    member_id: str = ""
    generation: int = -1
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    members: Sequence[tuple[str, str | None, bytes]] = ()
    """For the leader: id, instance id, and data of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Synced:
    """The answer to a member that asked for its part."""

    error: GroupError | None = None
    protocol_type: str = ""
    protocol: str = ""
    assignment: bytes = b""


@dataclass(slots=True)
class Group:
    """A group and its members."""

    new_member_id: Callable[[str], str]
    """Returns a new id of a member of a client."""
    members_max: int
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    members: dict[str, Member] = field(default_factory=dict)
    """By id, in the order in which they joined first."""
    answers: list[tuple[Any, Joined | Synced]] = field(default_factory=list)
    """The answers to requests that waited, by their tokens; the caller takes them."""
    _pending: dict[str, float] = field(default_factory=dict)
    """Ids that were given to members who have to join again, and until when."""
    _join_until: float = 0.0
    """The time at which those that have not joined are left out."""
    _sync_until: float = 0.0
    """The time at which those that have not asked for their part are left out."""

    # Requests.

    def join(self, request: JoinRequest, token: Any, now: float) -> None:
        """Let a member join; its answer comes in ``answers``, now or later."""
        error = self._refusal(request)
        if error is not None:
            self._answer(token, Joined(error=error, member_id=request.member_id))
            return
        static = self._find_static(request.instance_id)
        if not request.member_id:
            if static is not None:
                self._replace(static, request, token, now)
                return
            member_id = self.new_member_id(request.instance_id or request.client_id)
            if request.knows_ids and request.instance_id is None:
                self._pending[member_id] = now + request.session_timeout_s
                error = GroupError.MEMBER_ID_REQUIRED
                self._answer(token, Joined(error=error, member_id=member_id))
                return
            self._add(member_id, request, token, now)
            return
        if self._pending.pop(request.member_id, None) is not None:
            self._add(request.member_id, request, token, now)
            return
        member = self.members[request.member_id]
        has_changed = member.request.protocols != request.protocols
        member.request, member.deadline = request, now + request.session_timeout_s
        if (
            self.state is GroupState.STABLE
            and member.member_id != self.leader
            and not has_changed
        ) or (self.state is GroupState.SYNCING and not has_changed):
            # Its answer was lost.
            self._answer(token, self._joined(member))
            return
        self._wait(member, token)
        self._rebalance(now)

    def sync(
        self,
        claim: Claim,
        assignments: Sequence[tuple[str, bytes]],
        token: Any,
        now: float,
    ) -> None:
        """Give a member its part; its answer comes in ``answers``, now or later."""
        error = self.check(claim)
        if error is None and self.state is GroupState.JOINING:
            error = GroupError.REBALANCING
        if error is not None:
            self._answer(token, Synced(error=error))
            return
        member = self.members[claim.member_id]
        member.deadline = now + member.request.session_timeout_s
        if self.state is GroupState.SYNCING:
            self._fail(member.syncing, Synced(error=GroupError.REBALANCING))
            member.syncing = token
            if claim.member_id == self.leader:
                self._assign(assignments, now)
            return
        self._answer(token, self._synced(member))

    def heartbeat(self, claim: Claim, now: float) -> GroupError | None:
        """Note that a member is alive; return why it has to do something, if it has."""
        error = self.check(claim)
        if error is not None:
            return error
        member = self.members[claim.member_id]
        member.deadline = now + member.request.session_timeout_s
        return GroupError.REBALANCING if self.state is GroupState.JOINING else None

    def leave(
        self, member_id: str, instance_id: str | None, now: float
    ) -> GroupError | None:
        """Remove a member, named by its id or by that of its instance."""
        if instance_id is not None:
            member = self._find_static(instance_id)
            if member is None:
                return GroupError.UNKNOWN_MEMBER
            if member_id and member.member_id != member_id:
                return GroupError.FENCED
            member_id = member.member_id
        if self._pending.pop(member_id, None) is not None:
            return None
        if member_id not in self.members:
            return GroupError.UNKNOWN_MEMBER
        self._remove([member_id], now)
        return None

    @property
    def size(self) -> int:
        """The number of members, with those that were only given an id."""
        return len(self.members) + len(self._pending)

    def knows(self, member_id: str) -> bool:
        """Return whether a member has the id, or was given it to join."""
        return member_id in self.members or member_id in self._pending

    def check(self, claim: Claim) -> GroupError | None:
        """Return why a request of a member of a generation is refused, if it is."""
        static = self._find_static(claim.instance_id)
        if static is not None and static.member_id != claim.member_id:
            return GroupError.FENCED
        if claim.member_id not in self.members:
            return GroupError.UNKNOWN_MEMBER
        if claim.generation != self.generation:
            return GroupError.ILLEGAL_GENERATION
        return None

    def check_commit(self, claim: Claim) -> GroupError | None:
        """
        Return why offsets cannot be committed, if they cannot.

        If the group has no members, clients that are no members may commit, too:
        tools that move offsets are such clients.
        """
        if claim.generation < 0 and not claim.member_id:
            return GroupError.UNKNOWN_MEMBER if self.members else None
        return self.check(claim)

    # Time.

    @property
    def due(self) -> float | None:
        """The time at which ``advance`` has something to do; None: never."""
        times = [each.deadline for each in self.members.values() if not _waits(each)]
        times += self._pending.values()
        if self.state is GroupState.JOINING:
            times.append(self._join_until)
        elif self.state is GroupState.SYNCING:
            times.append(self._sync_until)
        return min(times, default=None)

    def advance(self, now: float) -> None:
        """Remove members that were silent too long, and end what took too long."""
        for member_id, until in list(self._pending.items()):
            if now >= until:
                del self._pending[member_id]
        silent = [
            member_id
            for member_id, each in self.members.items()
            if now >= each.deadline and not _waits(each)
        ]
        if self.state is GroupState.SYNCING and now >= self._sync_until:
            # The leader has not divided the work, or they have not asked for it.
            silent += [
                member_id
                for member_id, each in self.members.items()
                if each.syncing is None and member_id not in silent
            ]
        if silent:
            self._remove(silent, now)
        if self.state is GroupState.JOINING and now >= self._join_until:
            self._complete_join(now)

    def close(self) -> None:
        """Forget all members: another broker coordinates the group."""
        for member in self.members.values():
            self._fail(member.joining, Joined(error=GroupError.NOT_COORDINATOR))
            self._fail(member.syncing, Synced(error=GroupError.NOT_COORDINATOR))
        self.members, self._pending = {}, {}
        self._become_empty()

    # Helpers.

    def _refusal(self, request: JoinRequest) -> GroupError | None:
        if not request.protocols or (
            self.members and request.protocol_type != self.protocol_type
        ):
            return GroupError.INCONSISTENT
        others = [
            each
            for each in self.members.values()
            if each.member_id != request.member_id
            and (
                request.instance_id is None
                or each.request.instance_id != request.instance_id
            )
        ]
        if others and not _common(
            [request.protocols, *(each.request.protocols for each in others)]
        ):
            return GroupError.INCONSISTENT
        if request.member_id:
            if request.instance_id is not None:
                static = self._find_static(request.instance_id)
                if static is not None and static.member_id != request.member_id:
                    return GroupError.FENCED
            if (
                request.member_id not in self.members
                and request.member_id not in self._pending
            ):
                return GroupError.UNKNOWN_MEMBER
        is_new = (
            request.member_id not in self.members
            and self._find_static(request.instance_id) is None
        )
        if is_new and len(self.members) + len(self._pending) >= self.members_max:
            is_expected = request.member_id in self._pending
            return None if is_expected else GroupError.FULL
        return None

    def _find_static(self, instance_id: str | None) -> Member | None:
        if instance_id is None:
            return None
        for member in self.members.values():
            if member.request.instance_id == instance_id:
                return member
        return None

    def _add(
        self, member_id: str, request: JoinRequest, token: Any, now: float
    ) -> None:
        request = replace(request, member_id=member_id)
        member = Member(member_id, request, now + request.session_timeout_s)
        self.members[member_id] = member
        self.protocol_type = request.protocol_type
        self._wait(member, token)
        self._rebalance(now)

    def _replace(
        self, old: Member, request: JoinRequest, token: Any, now: float
    ) -> None:
        """Let the instance of *old*, which has started again, take its place."""
        member_id = self.new_member_id(request.instance_id or "")
        request = replace(request, member_id=member_id)
        self._fail(old.joining, Joined(error=GroupError.FENCED))
        self._fail(old.syncing, Synced(error=GroupError.FENCED))
        new = Member(
            member_id, request, now + request.session_timeout_s, old.assignment
        )
        # In the same place, so that a leader stays the first.
        self.members = {
            new.member_id if each is old else key: new if each is old else each
            for key, each in self.members.items()
        }
        was_leader = self.leader == old.member_id
        if was_leader:
            self.leader = member_id
        is_same = old.metadata(self.protocol) == new.metadata(self.protocol)
        if self.state is GroupState.STABLE and is_same:
            joined = self._joined(new)
            if was_leader:
                # It keeps its part, and need not divide the work again.
                joined = replace(joined, leader=old.member_id, members=())
            self._answer(token, joined)
            return
        self._wait(new, token)
        self._rebalance(now)

    def _wait(self, member: Member, token: Any) -> None:
        """Let the request *token* of a member wait until all have joined."""
        self._fail(member.joining, Joined(error=GroupError.UNKNOWN_MEMBER))
        member.joining = token

    def _rebalance(self, now: float) -> None:
        """Begin a new generation, unless it has begun, and look who is missing."""
        if self.state is not GroupState.JOINING:
            was_empty = self.state is GroupState.EMPTY
            self.state = GroupState.JOINING
            for member in self.members.values():
                if member.syncing is not None:
                    # It could not be heard of while it waited.
                    member.deadline = now + member.request.session_timeout_s
                self._fail(member.syncing, Synced(error=GroupError.REBALANCING))
                member.syncing = None
            wait_s = max(
                each.request.rebalance_timeout_s for each in self.members.values()
            )
            self._join_until = now + (
                min(INITIAL_DELAY_S, wait_s) if was_empty else wait_s
            )
            if was_empty:
                return
        elif self.generation == 0 and not self.leader:
            # The first members are still awaited.
            return
        if all(each.joining is not None for each in self.members.values()):
            self._complete_join(now)

    def _complete_join(self, now: float) -> None:
        """Begin a generation with those that have joined."""
        self.members = {
            member_id: each
            for member_id, each in self.members.items()
            if each.joining is not None
        }
        self.generation += 1
        if not self.members:
            self._become_empty()
            return
        if self.leader not in self.members:
            self.leader = next(iter(self.members))
        self.protocol = _elect(
            [each.request.protocols for each in self.members.values()]
        )
        self.state = GroupState.SYNCING
        self._sync_until = now + max(
            each.request.rebalance_timeout_s for each in self.members.values()
        )
        for member in self.members.values():
            token, member.joining = member.joining, None
            member.assignment = b""
            member.deadline = now + member.request.session_timeout_s
            self._answer(token, self._joined(member))

    def _assign(self, assignments: Iterable[tuple[str, bytes]], now: float) -> None:
        parts = dict(assignments)
        self.state = GroupState.STABLE
        for member in self.members.values():
            member.assignment = parts.get(member.member_id, b"")
            if member.syncing is not None:
                token, member.syncing = member.syncing, None
                member.deadline = now + member.request.session_timeout_s
                self._answer(token, self._synced(member))

    def _remove(self, member_ids: Iterable[str], now: float) -> None:
        for member_id in member_ids:
            member = self.members.pop(member_id)
            self._fail(member.joining, Joined(error=GroupError.UNKNOWN_MEMBER))
            self._fail(member.syncing, Synced(error=GroupError.UNKNOWN_MEMBER))
        if not self.members:
            self.generation += 1
            self._become_empty()
            return
        self._rebalance(now)

    def _become_empty(self) -> None:
        self.state = GroupState.EMPTY
        self.leader = self.protocol = ""

    def _joined(self, member: Member) -> Joined:
        is_leader = member.member_id == self.leader
        return Joined(
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=self.leader,
            members=tuple(
                (each.member_id, each.request.instance_id, each.metadata(self.protocol))
                for each in self.members.values()
            )
            if is_leader
            else (),
        )

    def _synced(self, member: Member) -> Synced:
        return Synced(
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            assignment=member.assignment,
        )

    def _answer(self, token: Any, answer: Joined | Synced) -> None:
        self.answers.append((token, answer))

    def _fail(self, token: Any, answer: Joined | Synced) -> None:
        if token is not None:
            self._answer(token, answer)


def _waits(member: Member) -> bool:
    """Return whether the group has to answer, so that the member cannot be heard of."""
    return member.joining is not None or member.syncing is not None


def _common(protocols: Sequence[Sequence[tuple[str, bytes]]]) -> set[str]:
    """Return the names that all members know."""
    names = [{name for name, _ in each} for each in protocols]
    return set.intersection(*names)


def _elect(protocols: Sequence[Sequence[tuple[str, bytes]]]) -> str:
    """Return the name that most members like best, of those that all know."""
    known = _common(protocols)
    votes = Counter(
        next(name for name, _ in each if name in known) for each in protocols
    )
    return votes.most_common(1)[0][0]
