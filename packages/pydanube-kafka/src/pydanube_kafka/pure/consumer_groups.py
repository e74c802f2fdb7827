"""
A group of consumers whose coordinator divides the work.

These are the decisions of Kafka's consumer group protocol (KIP-848).  Members send
heartbeats, with their subscriptions and the partitions that they own.  Whenever members
or topics change, the group has a new epoch, in which an assignor says what each member
is to have.  A member first gives up what it is not to have any more, and is then in the
new epoch; it gets a partition when nobody else has it.  As with classic groups, there
is no clock: the caller passes the time, and calls ``advance`` when ``due`` has come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple

from pydanube.model.lazy_dataclasses import dataclass
from pydanube_kafka.pure.assignors import ASSIGNORS, Partition
from pydanube_kafka.pure.groups import Claim, GroupError, GroupState

JOINING, LEAVING, AWAY = 0, -1, -2
"""The epochs of members that join, that leave, and whose instance will come back."""
CONSUMERS = "consumer"
"""The type of protocol of groups that read topics."""


class TopicFacts(NamedTuple):
    """A topic to which members subscribe."""

    id: Hashable
    partitions: Sequence[int]
    """The numbers of its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """A heartbeat of a member; what is None has not changed."""

    member_id: str
    epoch: int
    instance_id: str | None = None
    rebalance_timeout_s: float | None = None
    names: frozenset[str] | None = None
    """The topics to which it subscribes."""
    pattern: str | None = None
    """A pattern of further ones; empty: there is none."""
    assignor: str | None = None
    owned: frozenset[Partition] | None = None
    """The partitions that it has."""
    client_id: str = ""
    client_host: str = ""
    principal: Any = None
    """Its client; the group does not look at it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beaten:
    """The answer to a heartbeat."""

    error: GroupError | None = None
    reason: str = ""
    member_id: str = ""
    epoch: int = 0
    assigned: frozenset[Partition] | None = None
    """The partitions that the member may have; None: as before."""


@dataclass(slots=True)
class ConsumerMember:
    """A member of a group."""

    member_id: str
    instance_id: str | None
    deadline: float
    """The time at which it is gone unless it is heard of."""
    rebalance_timeout_s: float
    names: frozenset[str]
    assignor: str
    pattern: str = ""
    client_id: str = ""
    client_host: str = ""
    principal: Any = None
    epoch: int = JOINING
    previous_epoch: int = JOINING
    """The epoch before, which a member has that did not get an answer."""
    assigned: frozenset[Partition] = frozenset()
    revoking: frozenset[Partition] = frozenset()
    """The partitions that it has to give up; until then, its epoch stays."""
    revoke_until: float | None = None
    """The time at which it is gone unless it has given them up."""
    target: frozenset[Partition] = frozenset()
    """The partitions that it is to have in the epoch of the group."""


@dataclass(slots=True)
class ConsumerGroup:
    """A group and its members."""

    members_max: int
    session_timeout_s: float
    epoch: int = 0
    assignor: str = next(iter(ASSIGNORS))
    topics: Mapping[str, TopicFacts] = field(default_factory=dict)
    """The topics of all subscriptions that exist, by their names."""
    hidden: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The topics that a member subscribes to, and must not have."""
    matched: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The topics that the pattern of a member matches."""
    shown_at: float = 0.0
    """The time at which the caller has shown both, and for which policy."""
    shown_for: object = None
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    """By id, in the order in which they joined."""
    answers: Sequence[tuple[Any, Any]] = ()
    """Nobody waits for answers."""
    protocol_type: str = CONSUMERS
    _owners: dict[Partition, str] = field(default_factory=dict)
    """The member that has a partition, or has to give it up."""

    # Requests.

    def heartbeat(self, beat: Beat, now: float) -> Beaten:
        """Note that a member is alive; let it join, leave, and give up partitions."""
        error, reason = self._refusal(beat)
        if error is not None:
            return Beaten(error=error, reason=reason, member_id=beat.member_id)
        if beat.epoch in {LEAVING, AWAY}:
            self._leave(beat, now)
            return Beaten(member_id=beat.member_id, epoch=beat.epoch)
        owned, is_joining = beat.owned, beat.epoch == JOINING
        member, is_changed = self._find_or_add(beat, now)
        if is_joining:
            # It has nothing, whatever it had before.
            owned = frozenset()
        member.deadline = now + self.session_timeout_s
        member.principal = beat.principal
        member.client_id, member.client_host = beat.client_id, beat.client_host
        if self._update(member, beat) or is_changed:
            self._begin_epoch()
        before = member.assigned
        self._reconcile(member, owned, now)
        is_news = member.assigned != before or (
            owned is not None and owned != member.assigned
        )
        return Beaten(
            member_id=member.member_id,
            epoch=member.epoch,
            assigned=member.assigned if is_news or is_joining else None,
        )

    def see(
        self,
        topics: Mapping[str, TopicFacts],
        hidden: Mapping[str, frozenset[str]],
        matched: Mapping[str, frozenset[str]],
    ) -> None:
        """
        Take notice of the topics that exist, and for each member of those that it must
        not have and of those that its pattern matches.

        A new epoch begins if anything has changed.
        """
        seen = topics, hidden, matched
        if seen != (self.topics, self.hidden, self.matched):
            self.topics, self.hidden, self.matched = seen
            if self.members:
                self._begin_epoch()

    def check_commit(self, claim: Claim) -> GroupError | None:
        """
        Return why offsets cannot be committed, if they cannot.

        If the group has no members, clients that are no members may commit, too:
        tools that move offsets are such clients.
        """
        if claim.generation < 0 and not claim.member_id:
            return GroupError.UNKNOWN_MEMBER if self.members else None
        member = self.members.get(claim.member_id)
        if member is None:
            return GroupError.UNKNOWN_MEMBER
        if claim.generation != member.epoch:
            return GroupError.STALE_EPOCH
        return None

    @property
    def size(self) -> int:
        """The number of members."""
        return len(self.members)

    def knows(self, member_id: str) -> bool:
        """Return whether a member has the id."""
        return member_id in self.members

    def leave(
        self, member_id: str, instance_id: str | None, now: float
    ) -> GroupError | None:
        """Remove a member for an administrator, named by its id or its instance."""
        member = self.members.get(member_id)
        if instance_id is not None:
            member = self._find_static(instance_id)
            if member is not None and member_id not in {"", member.member_id}:
                return GroupError.FENCED
        if member is None:
            return GroupError.UNKNOWN_MEMBER
        self._remove(member)
        self._begin_epoch()
        return None

    # Time.

    @property
    def due(self) -> float | None:
        """The time at which ``advance`` has something to do; None: never."""
        times = [each.deadline for each in self.members.values()]
        times += [
            each.revoke_until
            for each in self.members.values()
            if each.revoke_until is not None
        ]
        return min(times, default=None)

    def advance(self, now: float) -> None:
        """Remove members that were silent, or kept what they had to give up."""
        late = [
            each
            for each in self.members.values()
            if now >= each.deadline
            or (each.revoke_until is not None and now >= each.revoke_until)
        ]
        for each in late:
            self._remove(each)
        if late:
            self._begin_epoch()

    def close(self) -> None:
        """Forget all members: another broker coordinates the group."""
        self.members, self._owners = {}, {}

    # Facts.

    @property
    def state(self) -> GroupState:
        """The state, as Kafka's tools call it."""
        if not self.members:
            return GroupState.EMPTY
        is_stable = all(
            each.epoch == AWAY
            or (each.epoch == self.epoch and each.assigned == each.target)
            for each in self.members.values()
        )
        return GroupState.STABLE if is_stable else GroupState.RECONCILING

    @property
    def names(self) -> frozenset[str]:
        """The topics of all subscriptions."""
        named = (each.names for each in self.members.values())
        return frozenset().union(*named, *self.matched.values())

    @property
    def readable(self) -> frozenset[str]:
        """The topics of all subscriptions that their members may have."""
        hidden, nothing = self.hidden, frozenset[str]()
        named = {
            (each.names, hidden.get(each.member_id, nothing))
            for each in self.members.values()
        }
        return nothing.union(
            *(names - some for names, some in named), *self.matched.values()
        )

    def by_name(self, partitions: Iterable[Partition]) -> dict[str, list[int]]:
        """Return partitions by the names of their topics, if these exist."""
        names = {facts.id: name for name, facts in self.topics.items()}
        found: dict[str, list[int]] = {}
        for topic_id, number in sorted(partitions, key=lambda each: each[1]):
            if topic_id in names:
                found.setdefault(names[topic_id], []).append(number)
        return dict(sorted(found.items()))

    # Helpers.

    def _refusal(  # noqa: PLR0911
        self, beat: Beat
    ) -> tuple[GroupError | None, str]:
        if beat.assignor is not None and beat.assignor not in ASSIGNORS:
            known = " and ".join(ASSIGNORS)
            return (
                GroupError.UNSUPPORTED_ASSIGNOR,
                f"the assignor {beat.assignor[:80]!r} is unknown; there are {known}",
            )
        static = self._find_static(beat.instance_id)
        if static is not None and static.member_id != beat.member_id:
            if beat.epoch != JOINING:
                return GroupError.FENCED, "another member has the instance id"
            if static.epoch != AWAY:
                return (
                    GroupError.UNRELEASED_INSTANCE,
                    "another member has the instance id, and has not left",
                )
            return None, ""
        member = self.members.get(beat.member_id)
        if member is not None and member.instance_id != beat.instance_id:
            return GroupError.UNKNOWN_MEMBER, "the member has another instance id"
        if member is None:
            if beat.epoch != JOINING:
                return GroupError.UNKNOWN_MEMBER, "the group has no such member"
            if len(self.members) >= self.members_max:
                return (
                    GroupError.FULL,
                    f"the group has {self.members_max} members, and may not have more",
                )
            return None, ""
        if beat.epoch in {JOINING, LEAVING, AWAY, member.epoch}:
            return None, ""
        has_no_answer = (
            beat.epoch == member.previous_epoch
            and beat.owned is not None
            and beat.owned <= member.assigned
        )
        if has_no_answer and beat.epoch < member.epoch:
            return None, ""
        return (
            GroupError.FENCED_EPOCH,
            f"the member is in epoch {member.epoch}, not {beat.epoch}; it has to join",
        )

    def _find_static(self, instance_id: str | None) -> ConsumerMember | None:
        if instance_id is None:
            return None
        for member in self.members.values():
            if member.instance_id == instance_id:
                return member
        return None

    def _find_or_add(self, beat: Beat, now: float) -> tuple[ConsumerMember, bool]:
        """Return the member that sends *beat*, and whether it is new."""
        member = self.members.get(beat.member_id)
        if member is not None:
            return member, False
        old = self._find_static(beat.instance_id)
        if old is not None:
            # Its instance has started again, and gets what it had.
            self.members = {
                beat.member_id if each is old else key: each
                for key, each in self.members.items()
            }
            old.member_id, old.epoch, old.previous_epoch = beat.member_id, 0, 0
            for each in old.assigned | old.revoking:
                self._owners[each] = beat.member_id
            return old, False
        member = ConsumerMember(
            member_id=beat.member_id,
            instance_id=beat.instance_id,
            deadline=now,
            rebalance_timeout_s=0.0,
            names=frozenset(),
            assignor="",
        )
        self.members[member.member_id] = member
        return member, True

    def _update(self, member: ConsumerMember, beat: Beat) -> bool:
        """Note what *beat* says; return whether the work must be divided again."""
        if beat.rebalance_timeout_s is not None:
            member.rebalance_timeout_s = beat.rebalance_timeout_s
        names = member.names if beat.names is None else beat.names
        assignor = member.assignor if beat.assignor is None else beat.assignor
        pattern = member.pattern if beat.pattern is None else beat.pattern
        after = names, pattern, assignor
        is_changed = after != (member.names, member.pattern, member.assignor)
        member.names, member.pattern, member.assignor = after
        return is_changed

    def _leave(self, beat: Beat, now: float) -> None:
        member = self.members[beat.member_id]
        if beat.epoch == AWAY and member.instance_id is not None:
            # It keeps its partitions until it is back, or was silent too long.
            self._release(member, member.revoking)
            member.epoch, member.revoking, member.revoke_until = AWAY, frozenset(), None
            member.deadline = now + self.session_timeout_s
            return
        self._remove(member)
        self._begin_epoch()

    def _remove(self, member: ConsumerMember) -> None:
        del self.members[member.member_id]
        self._release(member, member.assigned | member.revoking)

    def _begin_epoch(self) -> None:
        """Divide the work again."""
        self.epoch += 1
        votes = Counter(
            each.assignor for each in self.members.values() if each.assignor
        )
        self.assignor = next(iter(ASSIGNORS))
        if votes:
            self.assignor = votes.most_common(1)[0][0]
        # Instances first, so that their places stay when they start again.
        members = sorted(
            self.members.values(),
            key=lambda each: (
                each.instance_id is None,
                each.instance_id or each.member_id,
            ),
        )
        topics = self.topics
        visible = {each.member_id: self._visible(each) for each in members}
        # Most members have the same.
        ids = {
            names: frozenset(topics[name].id for name in names)
            for names in set(visible.values())
        }
        parts = ASSIGNORS[self.assignor](
            {member_id: ids[names] for member_id, names in visible.items()},
            {facts.id: facts.partitions for _, facts in sorted(topics.items())},
            {each.member_id: each.target for each in members},
        )
        for each in members:
            each.target = frozenset(parts[each.member_id])

    def _visible(self, member: ConsumerMember) -> frozenset[str]:
        """Return the topics that a member may have and that exist."""
        names = member.names
        if member.pattern:
            names |= self.matched.get(member.member_id, frozenset())
        hidden = self.hidden.get(member.member_id, frozenset())
        return (names - hidden).intersection(self.topics)

    def _reconcile(
        self, member: ConsumerMember, owned: frozenset[Partition] | None, now: float
    ) -> None:
        """Bring a member closer to its target; *owned* is None if it is as before."""
        if member.revoking:
            if self._still_has(member.revoking, owned):
                return
            self._release(member, member.revoking)
            member.revoking, member.revoke_until = frozenset(), None
        revoked = member.assigned - member.target
        member.assigned &= member.target
        if revoked and self._still_has(revoked, owned):
            member.revoking = revoked
            member.revoke_until = now + member.rebalance_timeout_s
            return
        self._release(member, revoked)
        free = {each for each in member.target - member.assigned if self._is_free(each)}
        for each in free:
            self._owners[each] = member.member_id
        member.assigned |= free
        if member.epoch != self.epoch:
            member.previous_epoch, member.epoch = member.epoch, self.epoch

    def _still_has(
        self, revoked: frozenset[Partition], owned: frozenset[Partition] | None
    ) -> bool:
        """Return whether a member has to give up some of *revoked*."""
        return owned is None or not owned.isdisjoint(revoked)

    def _is_free(self, partition: Partition) -> bool:
        """Return whether nobody has a partition, so that a member may get it."""
        return partition not in self._owners

    def _release(self, member: ConsumerMember, partitions: Iterable[Partition]) -> None:
        for each in partitions:
            if self._owners.get(each) == member.member_id:
                del self._owners[each]
