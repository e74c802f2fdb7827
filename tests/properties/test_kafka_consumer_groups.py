"""No partition has two consumers, whatever members do; each rule is needed."""

from __future__ import annotations

from collections import deque
from copy import copy
from dataclasses import dataclass, replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube_kafka.pure.consumer_groups import (
    Beat,
    ConsumerGroup,
    GroupError,
    TopicFacts,
)
from pydanube_kafka.pure.groups import GroupState

SESSION_S, REBALANCE_S = 10.0, 30.0
NOTHING = frozenset()
CHANGES_MAX = 3
"""The members that come, leave or expire, and changes of topics, of each history."""
STATES_MAX = 2500


@dataclass(frozen=True)
class Client:
    """A member that does what the protocol asks of it, one step at a time."""

    name: str
    epoch: int = 0
    owned: frozenset = NOTHING
    told: frozenset | None = None
    """The assignment that it was told last."""
    said: frozenset | None = None
    """The partitions that it said last that it has."""
    is_lost: bool = False
    """The group has removed it, and it does not know."""

    def beat(self, **changes):
        fields = {
            "member_id": self.name,
            "epoch": self.epoch,
            "owned": None if self.owned == self.said else self.owned,
        }
        if self.epoch == 0:
            fields |= {"names": frozenset("t"), "rebalance_timeout_s": REBALANCE_S}
        return Beat(**(fields | changes))

    def after(self, answer):
        """The client when it has got *answer*."""
        if answer.error is not None:
            return Client(self.name)
        told, said = self.told, self.owned
        if answer.assigned is not None:
            # Clients acknowledge each assignment, also if they have it already.
            told, said = answer.assigned, None
        return replace(self, epoch=answer.epoch, told=told, said=said, is_lost=False)


class AssignsWhatOthersHave(ConsumerGroup):
    def _is_free(self, partition):
        return True


class ForgetsWhatIsGivenUp(ConsumerGroup):
    def _still_has(self, revoked, owned):
        return False


def topics_of(count):
    return {"t": TopicFacts("id", tuple(range(count)))} if count else {}


@dataclass(frozen=True)
class State:
    group: ConsumerGroup
    clients: tuple[Client, ...]
    count: int = 2
    """The partitions of the topic."""
    changes: int = 0

    @property
    def key(self):
        group, now = self.group, self.group.epoch
        members = tuple(
            (
                each.member_id,
                each.epoch - now,
                each.previous_epoch - now,
                each.assigned,
                each.revoking,
                each.target,
            )
            for each in group.members.values()
        )
        clients = tuple(
            replace(each, epoch=each.epoch - now if each.epoch else 0)
            for each in self.clients
        )
        return members, clients, self.count, self.changes

    def copied(self):
        group = copy(self.group)
        group.members = {key: copy(each) for key, each in group.members.items()}
        group._owners = dict(group._owners)
        return group

    def with_client(self, number, client, group, changes=0):
        clients = tuple(
            client if at == number else each for at, each in enumerate(self.clients)
        )
        return replace(
            self, group=group, clients=clients, changes=self.changes + changes
        )

    def nexts(self):
        """The states that can follow."""
        for number, client in enumerate(self.clients):
            group = self.copied()
            changes = 0 if client.epoch else 1
            if self.changes + changes <= CHANGES_MAX:
                answer = group.heartbeat(client.beat(), 0.0)
                yield self.with_client(number, client.after(answer), group, changes)
                if answer.error is None:
                    # The answer is lost: the client adds nothing of what it was told
                    # before, and says everything again.
                    lost = self.copied()
                    lost.heartbeat(client.beat(), 0.0)
                    again = replace(client, told=None, said=None)
                    yield self.with_client(number, again, lost, changes)
            told = client.told
            if told is not None and client.owned - told:
                revoked = replace(client, owned=client.owned & told)
                yield self.with_client(number, revoked, self.group)
            elif told is not None and client.owned != told:
                added = replace(client, owned=told)
                yield self.with_client(number, added, self.group)
            if self.changes == CHANGES_MAX or client.name not in self.group.members:
                continue
            group = self.copied()
            group.heartbeat(client.beat(epoch=-1), 0.0)
            yield self.with_client(number, Client(client.name), group, 1)
            group = self.copied()
            group.members[client.name].deadline = 0.0
            group.advance(0.0)
            expired = replace(client, is_lost=True)
            yield self.with_client(number, expired, group, 1)
        if self.changes < CHANGES_MAX:
            for count in {1, 3} - {self.count}:
                group = self.copied()
                group.see(topics_of(count), {}, {})
                yield replace(self, group=group, count=count, changes=self.changes + 1)

    @property
    def is_exclusive(self):
        """Whether each partition has one consumer, of those that are members."""
        living = [each for each in self.clients if not each.is_lost]
        return all(
            one.owned.isdisjoint(other.owned) for one, other in combinations(living, 2)
        )

    def settled(self):
        """The state after heartbeats of all clients, as often as needed."""
        group, clients = self.copied(), list(self.clients)
        for _ in range(8):
            for at, client in enumerate(clients):
                answered = client.after(group.heartbeat(client.beat(), 0.0))
                if answered.told is not None:
                    answered = replace(answered, owned=answered.told)
                clients[at] = answered
        return replace(self, group=group, clients=tuple(clients))


def explored(kind, states_max):
    """The states that are reached first; stops at one that breaks a promise."""
    group = kind(members_max=5, session_timeout_s=SESSION_S)
    group.see(topics_of(2), {}, {})
    first = State(group, (Client("a"), Client("b")))
    seen, waiting = {first.key}, deque([first])
    while waiting and len(seen) < states_max:
        for state in waiting.popleft().nexts():
            if state.key in seen:
                continue
            seen.add(state.key)
            waiting.append(state)
            yield state


def test_each_partition_has_one_consumer_and_all_have_one_in_the_end():
    for number, state in enumerate(explored(ConsumerGroup, STATES_MAX)):
        assert state.is_exclusive, state
        if number % 5 == 0:
            settled = state.settled()
            assert settled.group.state is GroupState.STABLE
            owned = [part for each in settled.clients for part in each.owned]
            assert sorted(owned) == [("id", each) for each in range(state.count)]


@pytest.mark.soak
def test_no_state_has_two_consumers_of_a_partition():
    assert all(state.is_exclusive for state in explored(ConsumerGroup, 10**9))


@pytest.mark.parametrize("kind", [AssignsWhatOthersHave, ForgetsWhatIsGivenUp])
def test_a_partition_has_two_consumers_if_a_rule_is_left_out(kind):
    assert not all(state.is_exclusive for state in explored(kind, 100_000))


STEPS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.sampled_from(
            ["beat"] * 6 + ["leave", "go away", "pause", "jump", "fail over", "grow"]
        ),
        st.sampled_from([0.0, 0.1, 3.0, 11.0, 31.0]),
    ),
    max_size=40,
)


class World:
    """Members, some of them static, that pause, leave and return."""

    def __init__(self, static):
        self.now, self.count = 0.0, 2
        self.clients = [Client(str(number)) for number in range(len(static))]
        self.static, self.starts = static, [0] * len(static)
        self.paused = set()
        self.fail_over()

    def fail_over(self):
        """Let another broker coordinate the group; it knows no members."""
        self.group = ConsumerGroup(members_max=9, session_timeout_s=SESSION_S)
        self.group.see(topics_of(self.count), {}, {})

    def beat(self, number, **changes):
        client = self.clients[number]
        instance_id = f"i{number}" if self.static[number] else None
        beat = client.beat(instance_id=instance_id, **changes)
        answer = self.group.heartbeat(beat, self.now)
        if answer.error is GroupError.UNRELEASED_INSTANCE:
            return
        client = client.after(answer)
        if client.told is not None:
            client = replace(client, owned=client.told)
        self.clients[number] = client

    def leave(self, number, epoch):
        client = self.clients[number]
        if client.epoch > 0:
            self.beat(number, epoch=epoch)
            self.starts[number] += 1
            # It starts again with another id.
            self.clients[number] = Client(f"{number}-{self.starts[number]}")

    def pass_time(self, seconds):
        until = self.now + seconds
        while (due := self.group.due) is not None and due <= until:
            self.now = max(self.now, due)
            self.group.advance(self.now)
        self.now = until

    def do(self, number, what):
        match what:
            case "beat" if number not in self.paused:
                self.beat(number)
            case "leave" if number not in self.paused:
                self.leave(number, -1)
            case "go away" if number not in self.paused and self.static[number]:
                self.leave(number, -2)
            case "pause":
                self.paused ^= {number}
            case "fail over":
                self.fail_over()
            case "grow":
                self.count += 1
                self.group.see(topics_of(self.count), {}, {})


@given(st.lists(st.booleans(), min_size=4, max_size=4), STEPS)
def test_groups_come_to_rest_with_all_members_that_are_alive(static, steps):
    world = World(static)
    for number, what, seconds in steps:
        if what == "jump":
            world.now += seconds
            continue
        world.do(number, what)
        world.pass_time(seconds)
    living = [each for each in range(4) if each not in world.paused]
    for _ in range(60):
        for number in living:
            world.beat(number)
        world.pass_time(1.0)
    names = {world.clients[each].name for each in living}
    assert set(world.group.members) == names
    assert world.group.state is (GroupState.STABLE if living else GroupState.EMPTY)
    owned = [part for each in living for part in world.clients[each].owned]
    expected = [("id", each) for each in range(world.count)] if living else []
    assert sorted(owned) == expected
    loads = [len(world.clients[each].owned) for each in living]
    assert max(loads, default=0) - min(loads, default=0) <= 1
